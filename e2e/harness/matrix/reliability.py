"""The pages that tell what faults did to EmberEye in a run, written from its results."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.matrix.fault import HOLD_SECONDS, NOTHING, Fault
from harness.matrix.matrix import ALONE_SECONDS, PAIR_SECONDS, Outcome, told_in_time
from harness.matrix.rules import LAPSE
from harness.records.about import told
from harness.records.diary import percentile


def page(about: dict[str, Any], outcomes: Sequence[Outcome], faults: Mapping[str, Fault[Any]], folder: Path) -> str:
    """The page's text, between what `folder` has as its head and its end; `faults` are those that there are."""
    head, end = ((folder / f"reliability_{part}.md").read_text() for part in ("head", "end"))
    nothing = [one for one in outcomes if one.faults == (NOTHING.name,)]
    singles = [one for one in outcomes if len(one.faults) == 1 and one not in nothing]
    pairs = [one for one in outcomes if len(one.faults) > 1]

    planned = {fault.name for fault in faults.values() if fault.planned}
    moves = [one.moved for one in outcomes if len(one.faults) == 1 and one.faults[0] in planned]

    def worst(names: Collection[str]) -> str:
        gaps = [one.gap for one in outcomes if len(one.faults) == 1 and one.faults[0] in names]
        return f"{max(gaps):g} s" if gaps else "not run"

    text = head.format(
        hold=HOLD_SECONDS, run=told(about), pressure=_pressure(outcomes), lapse=LAPSE,
        evidence=max((one.evidence for one in outcomes), default=0),
        evidence_lost=max((one.evidence_lost for one in outcomes), default=0),
        evidence_doubled=max((one.evidence_doubled for one in outcomes), default=0),
        fires=sum(one.fires for one in outcomes),
        alarms_lost=sum(one.alarms_lost for one in outcomes),
        alarms_doubled=sum(one.alarms_doubled for one in outcomes),
        taken_back=sum(one.taken_back for one in outcomes),
        nothing=worst({NOTHING.name}), planned=worst(planned),
        moved=f"{max(moves):g} s" if any(moves) else "none moved",
        killed=worst({"shard killed", "shard out of memory"}),
        told=_told([seconds for one in nothing for seconds in one.told]),
        in_time=_in_time([*singles, *pairs]),
        alone=ALONE_SECONDS, pair=PAIR_SECONDS,
        slowest_alone=_slowest(singles), slowest_pair=_slowest(pairs),
    )  # fmt: skip
    said = {fault.name: fault.what for fault in faults.values()}
    for title, rows in (("Each alone", [*nothing, *singles]), ("In pairs", pairs)):
        if rows:
            text += f"## {title}\n" + _table(rows, said)
    if any(one.tries > 1 for one in outcomes):
        text += "Of a row that was run several times this is what came of the last.\n\n"
    return text + end


def _pressure(outcomes: Sequence[Outcome]) -> str:
    """How busy the machine was."""
    share = sum(one.pressure for one in outcomes) / max(1, len(outcomes))
    if not share:
        return "How busy the machine was besides was not recorded."
    return (
        f"For {100 * share:.0f} % of the time\nsome process of that machine waited for a processor (*pressure*); where "
        "nothing else runs, that is far less, and\nwhat takes processors, such as starting processes, is faster."
    )


def _told(seconds: Sequence[float]) -> str:
    """How soon alarms were told where all was well."""
    if not seconds:
        return "not run"
    of = [percentile(list(seconds), share) for share in (0.5, 0.95, 1.0)]
    return f"{', '.join(f'{1e3 * one:.0f}' for one in of)} ms of {len(seconds)}"


def _in_time(outcomes: Sequence[Outcome]) -> str:
    """How many fires were told in time, and in which rows one was not."""
    late = [one for one in outcomes if one.late]
    told = "{} of {}".format(*told_in_time(outcomes))
    return told + (f"; not with {', '.join(' and '.join(one.faults) for one in late)}" if late else "")


def _slowest(outcomes: Sequence[Outcome]) -> str:
    return f"{max(one.recovery for one in outcomes):g} s" if outcomes else "not run"


def _table(outcomes: Sequence[Outcome], said: Mapping[str, str]) -> str:
    titles = (
        "fault", "gap", "feed gap", "move", "recovery", "told", "evidence lost, doubled", "alarms lost, doubled",
        "alerts that began", "pressure", "",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for one in outcomes:
        name = " and ".join(said[fault] if len(one.faults) == 1 else fault for fault in one.faults)
        wrong = "; ".join(filter(None, (one.problem, one.alerts_wrong)))
        verdict = "kept" if one.ok else f"**not kept**{': ' if wrong else ''}{wrong}"
        verdict += f" (run {one.tries} times)" if one.tries > 1 else ""
        moved = f"{one.moved:g} s" if one.moved else ""
        feed_gap = f"{one.feed_gap:g} s" if one.feed_gap else ""
        alerts = ", ".join(alert.removeprefix("EmberEye") for alert in one.alerts)
        if alerts and not one.alerts_left:
            alerts += f"; none after {one.resolved:.0f} s"
        lines.append(
            f"| {name} | {one.gap:g} s | {feed_gap} | {moved} | {one.recovery:g} s | {one.slowest:g} s | "
            f"{one.evidence_lost}, {one.evidence_doubled} | {one.alarms_lost}, {one.alarms_doubled} | {alerts} | "
            f"{100 * one.pressure:.0f} % | {verdict} |"
        )
    return "\n".join(lines) + "\n\n"

"""The pages on reliability, written from the results of a run of faults.

`page` fills the numbers of all rows into a head that is stored as Markdown, and adds a table of single faults and one
of pairs. It reads only stored outcomes, so a page can be written again without a new run.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.matrix.fault import HOLD_SECONDS, NOTHING, Fault
from harness.matrix.matrix import ALONE_SECONDS, PAIR_SECONDS, Outcome, count_in_time
from harness.matrix.rules import LAPSE
from harness.records.about import describe_run
from harness.records.diary import percentile


def page(about: dict[str, Any], outcomes: Sequence[Outcome], faults: Mapping[str, Fault[Any]], folder: Path) -> str:
    """Build the page from the head and the end in `folder`. `faults` are all known faults."""
    head, end = ((folder / f"reliability_{part}.md").read_text() for part in ("head", "end"))
    nothing = [outcome for outcome in outcomes if outcome.faults == (NOTHING.name,)]
    singles = [outcome for outcome in outcomes if len(outcome.faults) == 1 and outcome not in nothing]
    pairs = [outcome for outcome in outcomes if len(outcome.faults) > 1]

    planned = {fault.name for fault in faults.values() if fault.planned}
    moves = [outcome.moved for outcome in outcomes if len(outcome.faults) == 1 and outcome.faults[0] in planned]

    def worst(names: Collection[str]) -> str:
        gaps = [outcome.gap for outcome in outcomes if len(outcome.faults) == 1 and outcome.faults[0] in names]
        return f"{max(gaps):g} s" if gaps else "not run"

    text = head.format(
        hold=HOLD_SECONDS, run=describe_run(about), pressure=_pressure(outcomes), lapse=LAPSE,
        evidence=max((outcome.evidence for outcome in outcomes), default=0),
        evidence_lost=max((outcome.evidence_lost for outcome in outcomes), default=0),
        evidence_doubled=max((outcome.evidence_doubled for outcome in outcomes), default=0),
        fires=sum(outcome.fires for outcome in outcomes),
        alarms_lost=sum(outcome.alarms_lost for outcome in outcomes),
        alarms_doubled=sum(outcome.alarms_doubled for outcome in outcomes),
        taken_back=sum(outcome.taken_back for outcome in outcomes),
        nothing=worst({NOTHING.name}), planned=worst(planned),
        moved=f"{max(moves):g} s" if any(moves) else "none moved",
        killed=worst({"shard killed", "shard out of memory"}),
        delay=_delay([seconds for outcome in nothing for seconds in outcome.delays]),
        in_time=_in_time([*singles, *pairs]),
        alone=ALONE_SECONDS, pair=PAIR_SECONDS,
        slowest_alone=_slowest(singles), slowest_pair=_slowest(pairs),
    )  # fmt: skip
    summaries = {fault.name: fault.summary for fault in faults.values()}
    for title, rows in (("Each alone", [*nothing, *singles]), ("In pairs", pairs)):
        if rows:
            text += f"## {title}\n" + _table(rows, summaries)
    if any(outcome.tries > 1 for outcome in outcomes):
        text += "If a row was run several times, the table shows its last run.\n\n"
    return text + end


def _pressure(outcomes: Sequence[Outcome]) -> str:
    """The sentence about the machine's load."""
    share = sum(outcome.pressure for outcome in outcomes) / max(1, len(outcomes))
    if not share:
        return "The machine's load was not recorded."
    return (
        f"For {100 * share:.0f} % of the time\na process of that machine waited for a CPU (*pressure*). On an idle "
        "machine this share is far smaller, and\nstarting processes is faster."
    )


def _delay(seconds: Sequence[float]) -> str:
    """The median, 95th percentile and maximum of alarm delays without a fault."""
    if not seconds:
        return "not run"
    percentiles = [percentile(list(seconds), share) for share in (0.5, 0.95, 1.0)]
    return f"{', '.join(f'{1e3 * delay:.0f}' for delay in percentiles)} ms of {len(seconds)}"


def _in_time(outcomes: Sequence[Outcome]) -> str:
    """The number of alarms in time, and the rows with a late one."""
    late = [outcome for outcome in outcomes if outcome.late]
    in_time = "{} of {}".format(*count_in_time(outcomes))
    return in_time + (f"; late with {', '.join(' and '.join(outcome.faults) for outcome in late)}" if late else "")


def _slowest(outcomes: Sequence[Outcome]) -> str:
    return f"{max(outcome.recovery for outcome in outcomes):g} s" if outcomes else "not run"


def _table(outcomes: Sequence[Outcome], summaries: Mapping[str, str]) -> str:
    titles = (
        "fault", "gap", "feed gap", "move", "recovery", "delay", "evidence lost, doubled", "alarms lost, doubled",
        "alerts that started", "pressure", "",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for outcome in outcomes:
        name = " and ".join(summaries[fault] if len(outcome.faults) == 1 else fault for fault in outcome.faults)
        wrong = "; ".join(filter(None, (outcome.problem, outcome.alerts_wrong)))
        verdict = "passed" if outcome.ok else f"**failed**{': ' if wrong else ''}{wrong}"
        verdict += f" (run {outcome.tries} times)" if outcome.tries > 1 else ""
        moved = f"{outcome.moved:g} s" if outcome.moved else ""
        feed_gap = f"{outcome.feed_gap:g} s" if outcome.feed_gap else ""
        alerts = ", ".join(alert.removeprefix("EmberEye") for alert in outcome.alerts)
        if alerts and not outcome.alerts_left:
            alerts += f"; none after {outcome.resolved:.0f} s"
        lines.append(
            f"| {name} | {outcome.gap:g} s | {feed_gap} | {moved} | {outcome.recovery:g} s | {outcome.slowest:g} s | "
            f"{outcome.evidence_lost}, {outcome.evidence_doubled} | {outcome.alarms_lost}, {outcome.alarms_doubled} | "
            f"{alerts} | {100 * outcome.pressure:.0f} % | {verdict} |"
        )
    return "\n".join(lines) + "\n\n"

"""The documentation page of a soak in a cluster: its numbers, its problems, the usage of every container, its faults.

The text is the form `soak.md`, next to this file. Tables and plots that a soak of one machine has, too, are those of
`harness.machine`. A run that is too short to judge memory has no page; until a longer one, the page is `EMPTY`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.cluster.books import Books
from harness.cluster.soak import GROWTH_MB, ClusterSoaked
from harness.cluster.writes import FLEETS, allowed_writes, count_writes, mean_allowed, mean_writes
from harness.machine.soak_page import COLOURS, plot, usage
from harness.machine.soak_text import fault_table, usage_table
from harness.matrix.rules import LAPSE
from harness.records.about import describe_run

PICTURE, DELAYS = "soak-cluster/memory.svg", "soak-cluster/delays.svg"
FORM = Path(__file__).with_name("soak.md")
ROWS = 12  # of each table of counts
EMPTY = Path(__file__).with_name("soak_empty.md")  # the page without a run


def write_soak_text(folder: Path, result: ClusterSoaked, books: Books) -> None:
    """Write soak-cluster.md and its pictures into `folder`."""
    (folder / PICTURE).parent.mkdir(exist_ok=True)
    (folder / PICTURE).write_text(usage(result, "memory_mb") + "\n")
    (folder / DELAYS).write_text(plot_delays(books) + "\n")
    (folder / "soak-cluster.md").write_text(soak_text(result, books))


def plot_delays(books: Books) -> str:
    """Plot the milliseconds from each fire's first line to its arrival, by receiver."""
    ways = zip(("feed", "webhook", "mqtt"), COLOURS, strict=False)
    lines = [
        (way, colour, [(fire["at"], 1e3 * fire[way]) for fire in books.of("fire") if fire[way] is not None])
        for way, colour in ways
    ]
    return plot(lines, dots=True)


def soak_text(result: ClusterSoaked, books: Books) -> str:
    """Build the page's text."""
    plan, minutes = result.plan, max(result.seconds / 60, 1e-9)
    figures = {
        name: result.figures.get(name, {}) for name in ("lines", "events", "requests", "asked", "writes", "sizes")
    }
    options = f"--seed {plan.seed} --sensors {plan.sensors} --mjpeg {plan.mjpeg} --h264 {plan.h264} --fps {plan.fps:g}"
    again = f'make soak-cluster HOURS={plan.seconds / 3600:g} ARGS="{options}"'
    return FORM.read_text().format(
        run=describe_run(result.about), hours=result.seconds / 3600, pieces=result.pieces,
        plural="s" * (result.pieces > 1),
        sensors=plan.sensors, rate=plan.rate, frame_rate=plan.frame_rate, mjpeg=plan.mjpeg, h264=plan.h264,
        fps=plan.fps, numbers="\n".join(_numbers(result, books)), again=again,
        problems="\n".join(f"- {text}" for text in result.problems) or "None.", picture=PICTURE,
        used="\n".join(usage_table(result)), growth=GROWTH_MB, lines=_counts(figures["lines"], minutes),
        events=_counts(figures["events"]), requests=_counts(figures["requests"], minutes),
        asked=_counts(figures["asked"], minutes), writes=_counts(figures["writes"]), delays=DELAYS,
        written=_written(books),
        etcd=figures["sizes"].get("etcd_mb", 0.0), postgres=figures["sizes"].get("postgres_mb", 0.0),
        lapse=LAPSE, alerts=_alerts(result, books),
        faults="\n".join(fault_table(result.outcomes)),
    )  # fmt: skip


def _numbers(result: ClusterSoaked, books: Books) -> list[str]:
    totals, outcomes = result.totals, result.outcomes
    rows = [
        ("", "goal", "this run"),
        ("---", "---", "---"),
        ("acknowledged evidence lost, doubled", "0, 0",
         f"{totals['evidence_lost']}, {totals['evidence_doubled']} of {totals['evidence']}"),
        ("alarms lost, doubled", "0, 0", f"{totals['alarms_lost']}, {totals['alarms_doubled']} of {totals['fires']}"),
        ("alarms that did not arrive by webhook, by MQTT", "0, 0",
         f"{totals['webhooks_missing']}, {totals['mqtt_missing']} of {totals['fires']}"),
        ("alarms that arrived again by webhook", "", f"{totals['webhooks_repeated']}"),
        ("acknowledged readings requested again", "0", f"{totals['taken_back']}"),
        *((f"from a fire's first line to its arrival by {way}, no fault: p50, p95, longest", "", _percentiles(delays))
          for way, delays in result.delivered.items()),
        ("faults within their bounds", "all", f"{sum(outcome.ok for outcome in outcomes)} of {len(outcomes)}"),
        ("restarts, of these without a fault", ", 0", f"{len(books.of('restart'))}, {_number(result, 'restarted')}"),
        ("tracebacks in logs", "0", f"{_number(result, 'Traceback')}"),
        ("times that a status claimed Covered for a dark device", "0", f"{_number(result, 'Covered, although')}"),
        ("alerts that a fault must raise and did not, that it does not explain, that stayed", "0, 0, 0",
         ", ".join(str(sum(len(getattr(outcome, name)) for outcome in outcomes)) for name in
                   ("alerts_missing", "alerts_foreign", "alerts_left"))),
        ("alerts without a fault", "0", f"{_number(result, 'fired without a fault')}"),
        ("writes of the operators at rest", "0", f"{_number(result, 'written at rest')}"),
        ("writes of the operators for a fault: mean per fleet, most of all fleets", f"≤ {mean_allowed(books):.3g},",
         f"{mean_writes(books):.1f}, {max((count for _, count in count_writes(books)), default=0)}"),
        ("containers whose memory may grow faster than the mark", "none", ", ".join(result.growing) or "none"),
        ("containers that ended too early to judge", "none", ", ".join(result.unjudged) or "none"),
    ]  # fmt: skip
    return [f"| {' | '.join(row)} |" for row in rows]


def _alerts(result: ClusterSoaked, books: Books) -> str:
    """The rows of a table with every alert that fired."""
    counts = Counter(str(entry["name"]) for entry in books.of("alert"))
    rows = [
        f"| {name} | {count} | {_number(result, f' {name} fired without a fault')} |" for name, count in counts.items()
    ]
    return "\n".join(sorted(rows)) or "| none | | |"


def _written(books: Books) -> str:
    """The rows of a table with the writes that each kind of fault caused."""
    by_event: dict[str, list[int]] = {}
    for event, count in count_writes(books):
        by_event.setdefault(event, []).append(count)
    return "\n".join(
        f"| {event} | {len(counts)} | {sum(counts) / len(counts) / FLEETS:.1f} | {allowed_writes(event):g} |"
        for event, counts in sorted(by_event.items())
    )


def _percentiles(delays: Sequence[float]) -> str:
    if not delays:
        return ""
    p50, p95 = np.percentile(delays, (50, 95))
    return f"{p50 * 1e3:.0f}, {p95 * 1e3:.0f}, {max(delays) * 1e3:.0f} ms"


def _number(result: ClusterSoaked, words: str) -> int:
    return sum(words in problem for problem in result.problems)


def _counts(counts: Mapping[str, float], minutes: float = 0.0) -> str:
    """The largest counts as rows of a table, a minute if `minutes` is given."""
    largest: Iterable[tuple[str, float]] = sorted(counts.items(), key=lambda entry: -entry[1])[:ROWS]
    return "\n".join(f"| {name} | {count / minutes if minutes else count:.3g} |" for name, count in largest)

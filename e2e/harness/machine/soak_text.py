"""The documentation page of a soak: its numbers, the usage of every process, its faults.

The text is the form `soak.md`, next to this file; `soak_text` fills in the tables and numbers of a finished soak. Its
limits are the constants that the soak was judged by, so that page and verdict agree.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from harness.machine.fill import FILLS
from harness.machine.slope import STEP, Slope
from harness.machine.soak import ADAPT_SECONDS, BLOCK_SECONDS, CLIPS, FILES, MEMORY, MORE, WARM_SECONDS, Soaked
from harness.machine.soak_page import usage
from harness.matrix.matrix import Outcome
from harness.records.about import describe_run

PICTURE = "soak/memory.svg"
FORM = Path(__file__).with_name("soak.md")


def write_soak_text(folder: Path, result: Soaked) -> None:
    """Write soak.md and its picture into `folder`."""
    (folder / PICTURE).parent.mkdir(exist_ok=True)
    (folder / PICTURE).write_text(usage(result, "memory_mb") + "\n")
    (folder / "soak.md").write_text(soak_text(result))


def soak_text(result: Soaked) -> str:
    """Build the page's text."""
    plan = result.plan
    again = f'make soak HOURS={plan.seconds / 3600:g} ARGS="--seed {plan.seed} --mjpeg {plan.mjpeg} --h264 {plan.h264}"'
    return FORM.read_text().format(
        run=describe_run(result.about), hours=result.seconds / 3600, sensors=plan.sensors, rate=plan.rate,
        frame_rate=plan.frame_rate, mjpeg=plan.mjpeg, h264=plan.h264, fps=plan.fps, again=again, picture=PICTURE,
        numbers="\n".join(_numbers(result)), used="\n".join(usage_table(result)), warm=WARM_SECONDS / 60,
        clips=CLIPS, fills=FILLS, more=MORE - 1, adapt=ADAPT_SECONDS / 60, step=STEP,
        faults="\n".join(fault_table(result.outcomes)),
    )  # fmt: skip


def _numbers(result: Soaked) -> list[str]:
    outcomes, delays = result.outcomes, [seconds * 1e3 for _, seconds in result.fires]
    fires = len(result.fires) + len(result.missed) + sum(outcome.fires for outcome in outcomes)
    p50, p95, p99 = np.percentile(delays, (50, 95, 99)) if delays else (0.0, 0.0, 0.0)
    passed = sum(outcome.ok for outcome in outcomes)
    rows = [
        ("", "goal", "this run"),
        ("---", "---", "---"),
        ("acknowledged evidence lost, doubled", "0, 0", f"{_most(outcomes, 'evidence_lost')}, "
         f"{_most(outcomes, 'evidence_doubled')} of {_most(outcomes, 'evidence')}"),
        ("alarms lost, doubled", "0, 0", f"{sum(outcome.alarms_lost for outcome in outcomes) + len(result.missed)}, "
         f"{sum(outcome.alarms_doubled for outcome in outcomes)} of {fires}"),
        ("acknowledged readings requested again", "0", f"{sum(outcome.taken_back for outcome in outcomes)}"),
        ("faults within their bounds", "all", f"{passed} of {len(outcomes)}"),
        ("from a fire's first line to its alarm, no fault: p50, p95, p99, longest", "p95 ≤ 100 ms",
         f"{p50:.0f}, {p95:.0f}, {p99:.0f}, {max(delays, default=0.0):.0f} ms"),
        ("memory, descriptors and threads that grow beyond chance", "none",
         ", ".join(map(_leak, result.leaking.items())) or "none"),
        ("processes that ended too early to judge", "none", ", ".join(result.unjudged) or "none"),
    ]  # fmt: skip
    return [f"| {' | '.join(row)} |" for row in rows]


def _most(outcomes: Sequence[Outcome], name: str) -> int:
    """The final value of a count that each row has for the whole run so far."""
    return max((getattr(outcome, name) for outcome in outcomes), default=0)


def usage_table(result: Soaked) -> list[str]:
    """The lines of a table with the usage and the growth of each role."""
    slopes = result.samples.slopes()
    lines = [
        "| process | MB at first | MB at the end | MB an hour | descriptors an hour | threads an hour | MB of files |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for role in slopes["memory_mb"]:
        oldest = max((rows for (name, _), rows in result.samples.rows.items() if name == role), key=len)
        warm = [row for row in oldest if row[0] - oldest[0][0] >= WARM_SECONDS]
        start = [row for row in warm if row[0] - warm[0][0] <= BLOCK_SECONDS]
        end = [row for row in warm if warm[-1][0] - row[0] <= BLOCK_SECONDS]
        (first, files), (last, more) = (
            [median(row[at] for row in rows) for at in (MEMORY, FILES)] for rows in (start, end)
        )
        growth = " | ".join(_slope(slopes[measure], role) for measure in ("memory_mb", "descriptors", "threads"))
        lines.append(f"| {role} | {first:.1f} | {last:.1f} | {growth} | {files:.1f}, then {more:.1f} |")
    return lines


def _leak(leak: tuple[str, Slope]) -> str:
    name, growth = leak
    return name if growth.low > 0 else f"{name} (once, by {growth.step:.0%})"


def _slope(slopes: Mapping[str, Slope], role: str) -> str:
    growth = slopes.get(role)
    return f"{growth.value:+.2f} [{growth.low:+.2f}, {growth.high:+.2f}]" if growth else ""


def fault_table(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines of a table with each fault's gaps, recoveries and verdict."""
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_name[" and ".join(outcome.faults)].append(outcome)
    lines = ["| fault | times | longest gap | longest recovery | |", "| --- | --- | --- | --- | --- |"]
    for name, runs in sorted(by_name.items()):
        wrong = [run.problem or "out of bounds" for run in runs if not run.ok]
        verdict = f"**failed** {len(wrong)} times: {'; '.join(wrong)}" if wrong else "passed"
        gap, recovery = max(run.gap for run in runs), max(run.recovery for run in runs)
        lines.append(f"| {name} | {len(runs)} | {gap:g} s | {recovery:g} s | {verdict} |")
    return lines

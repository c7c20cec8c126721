"""What docs/ have of a soak: its numbers, what every process used, its faults."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from harness.machine.fill import FILLS
from harness.machine.slope import STEP, Slope
from harness.machine.soak import BLOCK_SECONDS, CLIPS, FILES, MEMORY, MORE, SETTLE_SECONDS, WARM_SECONDS, Soaked
from harness.machine.soak_page import usage
from harness.matrix.matrix import Outcome
from harness.records.about import told

PICTURE = "soak/memory.svg"
FORM = Path(__file__).with_name("soak.md")


def write_soak_text(folder: Path, found: Soaked) -> None:
    """Write soak.md into `folder`, and the picture that it shows."""
    (folder / PICTURE).parent.mkdir(exist_ok=True)
    (folder / PICTURE).write_text(usage(found, "memory_mb") + "\n")
    (folder / "soak.md").write_text(soak_text(found))


def soak_text(found: Soaked) -> str:
    """The page's text."""
    plan = found.plan
    again = f'make soak HOURS={plan.seconds / 3600:g} ARGS="--seed {plan.seed} --mjpeg {plan.mjpeg} --h264 {plan.h264}"'
    return FORM.read_text().format(
        run=told(found.about), hours=found.seconds / 3600, sensors=plan.sensors, rate=plan.rate,
        frame_rate=plan.frame_rate, mjpeg=plan.mjpeg, h264=plan.h264, fps=plan.fps, again=again, picture=PICTURE,
        numbers="\n".join(_numbers(found)), used="\n".join(_used(found)), warm=WARM_SECONDS / 60,
        clips=CLIPS, fills=FILLS, more=MORE - 1, settle=SETTLE_SECONDS / 60, step=STEP,
        faults="\n".join(_faults(found.outcomes)),
    )  # fmt: skip


def _numbers(found: Soaked) -> list[str]:
    outcomes, took = found.outcomes, [seconds * 1e3 for _, seconds in found.fires]
    fires = len(found.fires) + len(found.missed) + sum(one.fires for one in outcomes)
    p50, p95, p99 = np.percentile(took, (50, 95, 99)) if took else (0.0, 0.0, 0.0)
    kept = sum(one.ok for one in outcomes)
    rows = [
        ("", "reach", "this run"),
        ("---", "---", "---"),
        ("acknowledged evidence lost, doubled", "0, 0", f"{_most(outcomes, 'evidence_lost')}, "
         f"{_most(outcomes, 'evidence_doubled')} of {_most(outcomes, 'evidence')}"),
        ("alarms lost, doubled", "0, 0", f"{sum(one.alarms_lost for one in outcomes) + len(found.missed)}, "
         f"{sum(one.alarms_doubled for one in outcomes)} of {fires}"),
        ("acknowledged readings asked for again", "0", f"{sum(one.taken_back for one in outcomes)}"),
        ("faults within their bounds", "all", f"{kept} of {len(outcomes)}"),
        ("a fire's first line until it is told, no fault: p50, p95, p99, longest", "p95 ≤ 100 ms",
         f"{p50:.0f}, {p95:.0f}, {p99:.0f}, {max(took, default=0.0):.0f} ms"),
        ("memory, descriptors and threads that grow beyond chance", "none",
         ", ".join(map(_leak, found.leaks.items())) or "none"),
        ("processes that lived too shortly to tell", "none", ", ".join(found.unjudged) or "none"),
    ]  # fmt: skip
    return [f"| {' | '.join(row)} |" for row in rows]


def _most(outcomes: Sequence[Outcome], name: str) -> int:
    """Of a count that each row has of the whole run so far."""
    return max((getattr(one, name) for one in outcomes), default=0)


def _used(found: Soaked) -> list[str]:
    slopes = found.samples.slopes()
    lines = [
        "| process | MB then | MB in the end | MB an hour | descriptors an hour | threads an hour | MB of files |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for role in slopes["memory_mb"]:
        oldest = max((rows for (name, _), rows in found.samples.rows.items() if name == role), key=len)
        warm = [row for row in oldest if row[0] - oldest[0][0] >= WARM_SECONDS]
        begin = [row for row in warm if row[0] - warm[0][0] <= BLOCK_SECONDS]
        end = [row for row in warm if warm[-1][0] - row[0] <= BLOCK_SECONDS]
        (first, files), (last, more) = (
            [median(row[at] for row in one) for at in (MEMORY, FILES)] for one in (begin, end)
        )
        grows = " | ".join(_slope(slopes[measure], role) for measure in ("memory_mb", "descriptors", "threads"))
        lines.append(f"| {role} | {first:.1f} | {last:.1f} | {grows} | {files:.1f}, then {more:.1f} |")
    return lines


def _leak(leak: tuple[str, Slope]) -> str:
    name, found = leak
    return name if found.low > 0 else f"{name} (once, by {found.step:.0%})"


def _slope(slopes: Mapping[str, Slope], role: str) -> str:
    found = slopes.get(role)
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]" if found else ""


def _faults(outcomes: Sequence[Outcome]) -> list[str]:
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_name[" and ".join(one.faults)].append(one)
    lines = ["| fault | times | longest gap | longest recovery | |", "| --- | --- | --- | --- | --- |"]
    for name, ones in sorted(by_name.items()):
        wrong = [one.problem or "out of bounds" for one in ones if not one.ok]
        verdict = f"**not kept** {len(wrong)} times: {'; '.join(wrong)}" if wrong else "kept"
        gap, recovery = max(one.gap for one in ones), max(one.recovery for one in ones)
        lines.append(f"| {name} | {len(ones)} | {gap:g} s | {recovery:g} s | {verdict} |")
    return lines

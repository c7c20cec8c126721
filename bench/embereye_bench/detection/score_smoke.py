"""Score smoke on labelled clips: each is judged by the network that has not seen its source, with fresh state.

The lists of clips follow from the labels alone, so that they are the same for every version of the detectors.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from embereye.camera.decode.image import decode
from embereye.camera.replay import START_NS
from embereye.camera.sources.video.player import frames
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.networks.appearance import AppearanceNetwork, Inspection
from embereye.detect.vision.working import to_working_size, working_scale
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye_bench.detection.changed import CHANGES, apply_table
from embereye_bench.detection.folds import LabelledClip, fold_of_scene
from embereye_bench.detection.score_folds import Networks, exact_range
from embereye_bench.report import Result, results_table

RATE = 6.0  # frames/s: smoke is slow
LEAST_S = 8.0  # of smoke for a clip to count
AHEAD_S = 3.0  # between smoke and flame, at least, for smoke to be found first
GREY = "grey"  # the change to pictures without colour
SOON, LATE = 15.0, 30.0  # seconds within which smoke should be found


@dataclass(frozen=True)
class SmokeOutcome:
    """The result of one clip."""

    clip: LabelledClip
    seconds: float  # length of the clip
    pre_alarm_s: float | None  # time of the first pre-alarm or alarm for smoke, from the clip's first picture
    alarm_s: float | None

    @property
    def delay(self) -> float | None:
        """Seconds from the first visible smoke to the pre-alarm; None: none, or only before it."""
        if self.pre_alarm_s is None or self.clip.smoke_s is None or self.pre_alarm_s < self.clip.smoke_s:
            return None
        return self.pre_alarm_s - self.clip.smoke_s


def watch_smoke(clip: LabelledClip, network: AppearanceNetwork | None, change: str = "") -> SmokeOutcome:
    """Play `clip` to a detector of smoke, after a `change`: GREY, one of CHANGES, or none."""
    detector, raised = Detector(None), dict[Level, float]()
    scale, last, seconds = 0, -1.0, 0.0
    since = 0.0 if clip.smoke_s is None else clip.smoke_s
    for data, seconds in frames(str(clip.path)):
        if seconds - last < 0.9 / RATE:
            continue
        if not scale:
            height, width = decode(data, 1).shape[:2]
            scale = working_scale(width, height)
        last, time_ns = seconds, START_NS + round(seconds * SECOND)
        picture = _changed(np.asarray(to_working_size(decode(data, scale))), change)
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            detector.add_inspection(Inspection.of(time_ns, close_ups, network.logits(picture, close_ups)))
        for finding in detector.detect(picture, time_ns).findings:
            for level in (Level.PRE_ALARM, Level.ALARM):
                if finding.kind == Kind.SMOKE and finding.level >= level and seconds >= since:
                    raised.setdefault(level, seconds)
    return SmokeOutcome(clip, seconds, raised.get(Level.PRE_ALARM), raised.get(Level.ALARM))


def _changed(picture: npt.NDArray[np.uint8], change: str) -> npt.NDArray[np.uint8]:
    if change == GREY:
        return cv2.cvtColor(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)  # type: ignore[return-value]
    return apply_table(CHANGES[change], picture) if change else picture


def watch_all(clips: Sequence[LabelledClip], networks: Networks, change: str = "") -> Iterator[SmokeOutcome]:
    """Watch every clip of `clips`, each by the network that has not seen its source."""
    fold = fold_of_scene(clips)
    for clip in clips:
        yield watch_smoke(clip, networks[fold[clip.scene]], change)


def results_of(outcomes: Sequence[SmokeOutcome]) -> list[Result]:
    """Return the figures with goals, and those without."""
    smoke = [
        outcome
        for outcome in outcomes
        if outcome.clip.label == "smoke" and outcome.seconds - (outcome.clip.smoke_s or 0.0) >= LEAST_S
    ]
    timed = [outcome for outcome in smoke if outcome.clip.real_time]
    first = [outcome for outcome in outcomes if _smokes_first(outcome.clip)]
    fires = [outcome for outcome in outcomes if outcome.clip.label == "fire" and outcome.clip.smokes]
    others = [outcome for outcome in outcomes if outcome.clip.label == "negative"]
    ahead = sum(outcome.pre_alarm_s is not None and outcome.pre_alarm_s < outcome.clip.onset_s for outcome in first)
    return [
        *(
            _share(f"smoke-{most:g}s", sum(_within(outcome, most) for outcome in timed), len(timed), mark)
            for most, mark in ((SOON, 70.0), (LATE, 85.0))
        ),
        _share("smoke-ever", sum(outcome.pre_alarm_s is not None for outcome in smoke), len(smoke), None),
        _share("smoke-alarmed", sum(outcome.alarm_s is not None for outcome in smoke), len(smoke), None),
        _share("smoke-before-flame", ahead, len(first), 50.0),
        _share("smoke-of-fires", sum(outcome.pre_alarm_s is not None for outcome in fires), len(fires), None),
        *(
            result
            for name, chosen in (("", others), ("fixed-", [outcome for outcome in others if outcome.clip.fixed]))
            for result in (
                _share(f"{name}negatives-alarmed", sum(outcome.alarm_s is not None for outcome in chosen), len(chosen),
                       1.25, at_most=True),
                _share(f"{name}negatives-pre-alarmed", sum(outcome.pre_alarm_s is not None for outcome in chosen),
                       len(chosen), None),
            )
        ),
    ]  # fmt: skip


def _smokes_first(clip: LabelledClip) -> bool:
    return clip.label == "fire" and clip.smoke_s is not None and clip.onset_s - clip.smoke_s >= AHEAD_S


def _within(outcome: SmokeOutcome, most: float) -> bool:
    return outcome.delay is not None and outcome.delay <= most


def _share(name: str, count: int, total: int, mark: float | None, *, at_most: bool = False) -> Result:
    value, (low, high) = 100 * count / max(1, total), exact_range(count, total)
    wanted = "reported, not required" if mark is None else f"{'≤' if at_most else '≥'} {mark:g}"
    ok = mark is None or not total or (value <= mark if at_most else value >= mark)
    unit = f"%: {count} of {total} clips, 95 % sure of {100 * low:.0f} to {100 * high:.0f}"
    return Result(name, value, unit, 0.0, 0.0, wanted, ok)


def report(outcomes: Sequence[SmokeOutcome], *, as_json: bool) -> int:
    """Print every clip and the figures; return 1 if a goal is missed."""
    results = results_of(outcomes)
    if as_json:
        rows = [
            {"file": outcome.clip.name, "label": outcome.clip.label, "fixed": outcome.clip.fixed,
             "real_time": outcome.clip.real_time, "smoke_s": outcome.clip.smoke_s, "seconds": outcome.seconds,
             "pre_alarm_s": outcome.pre_alarm_s, "alarm_s": outcome.alarm_s}
            for outcome in outcomes
        ]  # fmt: skip
        figures = [{"name": result.name, "value": result.value, "unit": result.unit} for result in results]
        print(json.dumps({"clips": rows, "results": figures}, ensure_ascii=False))
        return 0 if all(result.ok for result in results) else 1
    table = Table("clip", "label", "camera", "s", "smoke from", "pre-alarm", "alarm", title="smoke, by clip", box=None)
    for outcome in outcomes:
        clip = outcome.clip
        camera = ("fixed" if clip.fixed else "moving") + ("" if clip.real_time else ", not in real time")
        times = ("" if second is None else f"{second:.1f}" for second in
                 (clip.smoke_s, outcome.pre_alarm_s, outcome.alarm_s))  # fmt: skip
        table.add_row(clip.name, clip.label, camera, f"{outcome.seconds:.1f}", *times)
    console = Console()
    console.print(table)
    console.print(results_table("smoke by folds", results))
    return 0 if all(result.ok for result in results) else 1


def all_folders(data: Path) -> list[Path]:
    """Return the folders of clips below `data`."""
    return [data / name for name in ("video", "video2", "video3")]

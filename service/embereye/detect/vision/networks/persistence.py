"""Persistence of a model's detections, and their combination with a camera's other findings. Pure.

`CameraModel` passes the detections of each run to its `ModelWatch`. For each kind, the time for which it is seen adds
up, and it is lost twice as fast while it is not seen. Enough time makes a pre-alarm, then an alarm. A single run proves
no duration. `merged` combines the findings with the built-in detectors': the stronger one of each kind counts and shows
the terms of both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from embereye.detect.vision.networks.model import Detection
from embereye.detect.vision.observation import Finding
from embereye.levels import Kind, Level
from embereye.units import SECOND, WHOLE, Box
from embereye.v1.shard_pb2 import Model
from embereye.v1.types_pb2 import Mask, Term

WORDS = {Kind.FLAME: "flame", Kind.SMOKE: "smoke"}  # models detect no other kinds
EVERY_NS = SECOND  # between runs while something moves, if the settings say 0
ALARM_NS = 4 * SECOND  # if the settings say 0; several agreeing runs are needed, not a lucky one
MISSED = 2.0  # persistence lost per time without the sign, so that a model that errs now and then never raises an alarm
PERSISTENCE_MAX = 1.5  # of the time for an alarm, so that the sign's end is noticed after a few seconds
GAP_RUNS = 3  # longest time between two runs that counts, in intervals


class ModelWatch:
    """Follows a model's detections on one camera. A sign must be seen repeatedly to count."""

    def __init__(self, settings: Model, masks: Iterable[Mask] = ()) -> None:
        self._every_ns = settings.every_ns or EVERY_NS
        self._alarm_ns = settings.alarm_ns or ALARM_NS
        self._masks = tuple(masks)
        self._kinds = sorted({Kind(entry.kind) for entry in settings.classes})
        self._persistence: dict[Kind, int] = {}  # nanoseconds
        self._seen: dict[Kind, bool] = {}  # in the latest run
        self._last_ns = 0
        self.findings: tuple[Finding, ...] = ()  # of the latest run; empty before the first

    def observe(self, detections: Sequence[Detection], time_ns: int, lost: Iterable[Box] = ()) -> None:
        """Evaluate the model's detections in a picture taken at `time_ns`, in which `lost` parts did not arrive."""
        elapsed = min(max(time_ns - self._last_ns, 0), GAP_RUNS * self._every_ns) if self._last_ns else 0
        self._last_ns = time_ns
        lost = tuple(lost)
        valid = [entry for entry in detections if entry.box == WHOLE or not self._is_ignored(entry.box, lost)]
        self.findings = tuple(self._finding(kind, valid, elapsed) for kind in self._kinds)

    def forget(self) -> None:
        """Drop the findings because the model has failed: that is neither a sign nor its end."""
        self.findings = ()
        self._seen.clear()

    def _finding(self, kind: Kind, detections: list[Detection], elapsed: int) -> Finding:
        best = max((detection for detection in detections if detection.kind == kind), key=_strength, default=None)
        persistence = self._persistence.get(kind, 0)
        if seen := best is not None and best.score >= best.threshold:
            # The first run that sees it proves no duration, but the next run follows sooner.
            persistence += max(elapsed if self._seen.get(kind) else 0, 1)
        else:
            persistence -= int(MISSED * elapsed)
        persistence = self._persistence[kind] = min(max(persistence, 0), int(PERSISTENCE_MAX * self._alarm_ns))
        self._seen[kind] = seen
        if best is None:
            return Finding(kind, Level.CLEAR, lasted_ns=persistence, needed_ns=self._alarm_ns)
        level: Level = Level.CLEAR
        if persistence >= self._alarm_ns:
            level = Level.ALARM
        elif persistence >= self._every_ns // 2:
            level = Level.PRE_ALARM
        terms = (
            Term(name=f"model.{WORDS[kind]}", value=best.score, threshold=best.threshold, unit="1"),
            Term(name="model.lasted", value=persistence / SECOND, threshold=self._alarm_ns / SECOND, unit="s"),
        )
        return Finding(kind, level, _strength(best), best.box, terms, persistence, self._alarm_ns)

    def _is_ignored(self, box: Box, lost: tuple[Box, ...]) -> bool:
        left, top = box[0] + box[2] / 2, box[1] + box[3] / 2
        if any(x <= left <= x + w and y <= top <= y + h for x, y, w, h in lost):
            return True
        return any(_is_inside(mask, left, top) for mask in self._masks)


def merged(ours: Sequence[Finding], models: Sequence[Finding]) -> tuple[Finding, ...]:
    """Merge findings per kind: the model's terms are added to the built-in detectors', the stronger first."""
    by_kind = {finding.kind: finding for finding in ours}
    for finding in models:
        other = by_kind.get(finding.kind)
        if other is None:
            by_kind[finding.kind] = finding
            continue
        first, second = sorted((other, finding), key=lambda candidate: (candidate.level, candidate.score), reverse=True)
        by_kind[finding.kind] = replace(
            first, terms=(*first.terms, *second.terms), lasted_ns=max(first.lasted_ns, second.lasted_ns)
        )
    return tuple(by_kind.values())


def _strength(detection: Detection) -> float:
    """Convert the score to the detectors' scale, on which 0.5 is exactly at the limit."""
    score, limit = min(max(detection.score, 0.0), 1.0), detection.threshold
    if score < limit:
        return 0.5 * score / limit
    return 0.5 + 0.5 * (score - limit) / (1 - limit) if limit < 1 else 1.0


def _is_inside(mask: Mask, left: float, top: float) -> bool:
    """True if a point is inside a polygon: a ray from it crosses the outline an odd number of times."""
    x, y = np.array(mask.x), np.array(mask.y)
    next_x, next_y = np.roll(x, -1), np.roll(y, -1)
    crosses = (y > top) != (next_y > top)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x + (top - y) * (next_x - x) / (next_y - y)
    return bool(np.count_nonzero(crosses & (left < at)) % 2)

"""How long what a model sees has lasted, and what that makes of a camera's findings. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from embereye.detect.vision.networks.model import Detection
from embereye.detect.vision.observation import Finding
from embereye.levels import Kind, Level
from embereye.units import SECOND, WHOLE, Box
from embereye.v1.shard_pb2 import Model
from embereye.v1.types_pb2 import Mask, Term

WORDS = {Kind.FLAME: "flame", Kind.SMOKE: "smoke"}  # a model is asked for no other kinds
EVERY_NS = SECOND  # between runs while something moves, where the settings leave it at 0
ALARM_NS = 4 * SECOND  # likewise: of several runs that agree, not of one lucky one
MISSED = 2.0  # of the held time lost per time without the sign: a model that errs now and then never gets far
HELD_MOST = 1.5  # of the time that makes an alarm, so that an end is noticed after a few seconds
GAP_RUNS = 3  # between two runs no more time than that of so many counts


class ModelWatch:
    """Follows what a model says of one camera. A sign must be seen again and again to count."""

    def __init__(self, settings: Model, masks: Iterable[Mask] = ()) -> None:
        self._every_ns = settings.every_ns or EVERY_NS
        self._alarm_ns = settings.alarm_ns or ALARM_NS
        self._masks = tuple(masks)
        self._kinds = sorted({Kind(entry.kind) for entry in settings.classes})
        self._held: dict[Kind, int] = {}  # nanoseconds
        self._seen: dict[Kind, bool] = {}  # by the latest run
        self._last_ns = 0
        self.findings: tuple[Finding, ...] = ()  # by the latest run; none before the first

    def observe(self, detections: Sequence[Detection], time_ns: int, lost: Iterable[Box] = ()) -> None:
        """Take what the model sees in a picture that was taken at `time_ns`, in which `lost` parts did not arrive."""
        elapsed = min(max(time_ns - self._last_ns, 0), GAP_RUNS * self._every_ns) if self._last_ns else 0
        self._last_ns = time_ns
        lost = tuple(lost)
        valid = [each for each in detections if each.box == WHOLE or not self._ignored(each.box, lost)]
        self.findings = tuple(self._finding(kind, valid, elapsed) for kind in self._kinds)

    def forget(self) -> None:
        """The model says nothing any more: that is neither a sign nor its end."""
        self.findings = ()
        self._seen.clear()

    def _finding(self, kind: Kind, detections: list[Detection], elapsed: int) -> Finding:
        best = max((each for each in detections if each.kind == kind), key=_strength, default=None)
        held = self._held.get(kind, 0)
        if seen := best is not None and best.score >= best.threshold:
            # The first run that sees it says nothing of how long it has lasted, but is worth a closer look.
            held += max(elapsed if self._seen.get(kind) else 0, 1)
        else:
            held -= int(MISSED * elapsed)
        held = self._held[kind] = min(max(held, 0), int(HELD_MOST * self._alarm_ns))
        self._seen[kind] = seen
        if best is None:
            return Finding(kind, Level.CLEAR, lasted_ns=held)
        level: Level = Level.CLEAR
        if held >= self._alarm_ns:
            level = Level.ALARM
        elif held >= self._every_ns // 2:
            level = Level.PRE_ALARM
        terms = (
            Term(name=f"model.{WORDS[kind]}", value=best.score, threshold=best.threshold, unit="1"),
            Term(name="model.held", value=held / SECOND, threshold=self._alarm_ns / SECOND, unit="s"),
        )
        return Finding(kind, level, _strength(best), best.box, terms, held)

    def _ignored(self, box: Box, lost: tuple[Box, ...]) -> bool:
        left, top = box[0] + box[2] / 2, box[1] + box[3] / 2
        if any(x <= left <= x + w and y <= top <= y + h for x, y, w, h in lost):
            return True
        return any(_inside(mask, left, top) for mask in self._masks)


def merged(ours: Sequence[Finding], models: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding of each kind: what the model says is added to what the built-in detectors say, the stronger first."""
    by_kind = {finding.kind: finding for finding in ours}
    for finding in models:
        other = by_kind.get(finding.kind)
        if other is None:
            by_kind[finding.kind] = finding
            continue
        first, second = sorted((other, finding), key=lambda each: (each.level, each.score), reverse=True)
        by_kind[finding.kind] = replace(
            first, terms=(*first.terms, *second.terms), lasted_ns=max(first.lasted_ns, second.lasted_ns)
        )
    return tuple(by_kind.values())


def _strength(detection: Detection) -> float:
    """The score on the detectors' own scale, on which 0.5 is just at the limit."""
    score, limit = min(max(detection.score, 0.0), 1.0), detection.threshold
    if score < limit:
        return 0.5 * score / limit
    return 0.5 + 0.5 * (score - limit) / (1 - limit) if limit < 1 else 1.0


def _inside(mask: Mask, left: float, top: float) -> bool:
    """Whether a point lies in a polygon: a ray from it crosses the outline an odd number of times."""
    x, y = np.array(mask.x), np.array(mask.y)
    next_x, next_y = np.roll(x, -1), np.roll(y, -1)
    crosses = (y > top) != (next_y > top)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x + (top - y) * (next_x - x) / (next_y - y)
    return bool(np.count_nonzero(crosses & (left < at)) % 2)

"""Everything that is seen in one camera's pictures, in one object."""

import math
from collections.abc import Iterable
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.detail import DetailDetector
from embereye.detect.vision.flame.familiar import Familiar
from embereye.detect.vision.flame.flame import Flame, FlameDetector
from embereye.detect.vision.flame.likeness import Likeness
from embereye.detect.vision.motion import MotionGate
from embereye.detect.vision.networks.appearance import SITES, Inspection, Inspections, Interest
from embereye.detect.vision.observation import Finding, Observation
from embereye.detect.vision.pixels import Picture, Planes
from embereye.detect.vision.smoke import Smoke, SmokeDetector
from embereye.detect.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.detect.vision.working import to_working_size
from embereye.levels import Kind, Level
from embereye.units import WHOLE, Box, PixelBox
from embereye.v1.types_pb2 import Mask

FLAME = FlameThresholds()
SMOKE = SmokeThresholds()
# Between two looks while nothing flickers as flames do: of a camera that sends 15 pictures a second, every other one;
# of one that sends up to 12, all. Six a second are looked at whatever is sent.
CALM_NS = 80_000_000
CLEAR, FLAME_KIND, SMOKE_KIND = Level.CLEAR, Kind.FLAME, Kind.SMOKE


class Detector:
    """The detectors of one camera and all they remember. Not safe for two threads at once.

    A kind whose thresholds are None is not looked for. `phase` is that of the appearance network's looks.
    """

    def __init__(
        self,
        flame: FlameThresholds | None = FLAME,
        smoke: SmokeThresholds | None = SMOKE,
        masks: Iterable[Mask] = (),
        familiar: Familiar | None = None,
        phase: float = 0.0,
    ) -> None:
        self.flame = FlameDetector(flame, Inspections(phase), familiar) if flame else None
        self._detail = DetailDetector(self.flame) if self.flame else None
        self._smoke = SmokeDetector(smoke) if smoke else None
        self._motion = MotionGate()
        self._masks = tuple(masks)
        # The network sees what is masked, too: where there are masks it decides nothing by itself.
        self._likeness = (
            Likeness(self.flame.limits, self.flame.looks, self.flame.familiar)
            if self.flame and not self._masks
            else None
        )
        self._ignored: npt.NDArray[np.bool_] | None = None
        self._shape: tuple[int, int] = (0, 0)
        self._looked_ns = 0  # when a picture was looked at last
        self._observation = Observation(0)
        self._calm = False

    def due_inspection(self, time_ns: int) -> tuple[Box, ...] | None:
        """Of which close-ups the appearance network is to say something, beside the whole picture of `time_ns`.

        None: it is not to run on that picture.
        """
        if not self.flame:
            return None
        flames = [self.flame, self._detail.flame] if self._detail and self._detail.flame else [self.flame]
        interest = max(flame.interest for flame in flames)
        if self._likeness and self._likeness.holds:
            interest = max(interest, Interest.FLICKERS)
        elif self._likeness and self._likeness.moved:
            interest = max(interest, Interest.MOVES)
        if not self.flame.looks.due(time_ns, interest):
            return None
        # Of a detail the network has to say something: what is looked at of the whole picture is not less for that.
        chosen = [sorted(flame.close_ups(), reverse=True) for flame in flames]
        return tuple(box for found, most in zip(chosen, (SITES[interest], 1), strict=False) for _, box in found[:most])

    def wanted_detail(self, time_ns: int) -> Box | None:
        """Which part of the picture of `time_ns` is to be given to `detect` with more pixels as well; None: none is."""
        return self._detail.wanted(time_ns) if self._detail else None

    def add_inspection(self, look: Inspection) -> None:
        """Take in what the appearance network said of a picture, before that is given to `detect`."""
        if self.flame:
            self.flame.looks.note(look)
        if self._likeness:
            self._likeness.note(look)

    def is_repeat(self, time_ns: int) -> bool:
        """Whether `detect` will say of the picture of `time_ns` what it said of the one before, without a look."""
        return self._calm and 0 <= time_ns - self._looked_ns < CALM_NS

    def detect(
        self, frame: Picture, time_ns: int, lost: Iterable[Box] = (), detail: Picture | None = None
    ) -> Observation:
        """What `frame` (BGR, reduced by `working_scale`) taken at `time_ns` shows, given all frames before it.

        `detail` is the part of it that `wanted_detail` named, with more pixels.
        Inside the boxes `lost` the picture did not arrive: nothing is concluded from what stands there. While nothing
        flickers, pictures within CALM_NS of the last that was looked at show what that one did.
        """
        if self.is_repeat(time_ns):
            return replace(self._observation, time_ns=time_ns)
        self._looked_ns = time_ns
        frame = to_working_size(frame)
        height, width = frame.shape[:2]
        if (height, width) != self._shape:
            self._shape = (height, width)
            self._ignored = rasterize(self._masks, width, height)
        ignored = without(self._ignored, lost, width, height)
        picture = Planes.of(frame)
        burning = self.flame.suspect_mask if self.flame else None
        motion = self._motion.observe(picture.green, time_ns, frozen=burning)
        if self._likeness:
            self._likeness.move(motion.share, time_ns)
        findings = []
        if self.flame:
            flame = self.flame.observe(picture, time_ns, ignored)
            found = self._finding(FLAME_KIND, flame, self.flame.limits, self._share(flame.box))
            if closer := self._look_closer(detail, time_ns):
                found = _clearer(found, closer)
            if self._likeness and self._likeness.holds:
                alike = self._likeness.seen(colourless=self.flame.colourless)
                found = _clearer(found, self._finding(FLAME_KIND, alike, self.flame.limits, None))
            findings.append(found)
        if self._smoke:
            smoke = self._smoke.observe(frame, time_ns, ignored, burning)
            findings.append(self._finding(SMOKE_KIND, smoke, self._smoke.limits, self._share(smoke.box)))
        self._observation = Observation(time_ns=time_ns, findings=tuple(findings), motion=motion.share)
        watched = self.flame and (self.flame.sites or self.flame.distant)
        self._calm = not self._observation.urgent and not watched
        return self._observation

    def _look_closer(self, picture: Picture | None, time_ns: int) -> Finding | None:
        """What is found in a detail, lately or now in `picture` of it; None: none is watched."""
        if not self._detail or not self.flame:
            return None
        if picture is not None and self._detail.place:
            height, width = picture.shape[:2]
            self._detail.observe(picture, time_ns, rasterize(self._masks, width, height, self._detail.place))
        if (seen := self._detail.seen(time_ns)) is None:
            return None
        flame, box = seen
        return self._finding(FLAME_KIND, flame, self.flame.limits, box)

    def _share(self, box: PixelBox | None) -> Box | None:
        if box is None:
            return None
        (x, y, width, height), (rows, columns) = box, self._shape
        return x / columns, y / rows, width / columns, height / rows

    @staticmethod
    def _finding(
        kind: Kind, seen: Flame | Smoke, limits: FlameThresholds | SmokeThresholds, box: Box | None
    ) -> Finding:
        level: Level = CLEAR
        if seen.lasted_ns >= (seen.needed_ns if isinstance(seen, Flame) else limits.alarm_ns):
            level = Level.ALARM
        elif seen.lasted_ns >= limits.pre_alarm_ns:
            level = Level.PRE_ALARM
        if isinstance(seen, Flame) and seen.colourless:
            level = min(level, Level.PRE_ALARM)
        return Finding(kind, level, seen.score, box, seen.terms, seen.lasted_ns)


def _clearer(one: Finding, other: Finding) -> Finding:
    return max(one, other, key=lambda found: (found.level, found.lasted_ns, found.score))


def without(
    ignored: npt.NDArray[np.bool_] | None, lost: Iterable[Box], width: int, height: int
) -> npt.NDArray[np.bool_] | None:
    """`ignored` and the pixels that any box of `lost` touches; None where there are none."""
    together = None
    for x, y, w, h in lost:
        if together is None:
            together = np.zeros((height, width), bool) if ignored is None else ignored.copy()
        rows = slice(int(y * height), math.ceil((y + h) * height))
        together[rows, int(x * width) : math.ceil((x + w) * width)] = True
    return ignored if together is None else together


def rasterize(masks: Iterable[Mask], width: int, height: int, place: Box = WHOLE) -> npt.NDArray[np.bool_] | None:
    """The pixels inside any of `masks` of a picture's part `place`, `width` x `height`; None where there are none."""
    left, top, wide, high = place
    canvas = np.zeros((height, width), np.uint8)
    for mask in masks:
        corners = [((x - left) / wide * width, (y - top) / high * height) for x, y in zip(mask.x, mask.y, strict=False)]
        if len(corners) >= 3:
            cv2.fillPoly(canvas, [np.array(corners).round().astype(np.int32)], 1)
    return canvas.astype(bool) if canvas.any() else None

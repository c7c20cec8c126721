"""Everything that is seen in one camera's pictures, in one object."""

import math
from collections.abc import Iterable
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.familiar import Familiar
from embereye.detect.vision.flame.flame import Flame, FlameDetector
from embereye.detect.vision.motion import MotionGate
from embereye.detect.vision.networks.appearance import Look, Looks
from embereye.detect.vision.observation import Finding, Observation
from embereye.detect.vision.pixels import Planes
from embereye.detect.vision.smoke import Smoke, SmokeDetector
from embereye.detect.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.detect.vision.working import to_working_size
from embereye.levels import Kind, Level
from embereye.units import Box
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
        self.flame = FlameDetector(flame, Looks(phase), familiar) if flame else None
        self._smoke = SmokeDetector(smoke) if smoke else None
        self._motion = MotionGate()
        self._masks = tuple(masks)
        self._ignored: npt.NDArray[np.bool_] | None = None
        self._shape: tuple[int, int] = (0, 0)
        self._looked_ns = 0  # when a picture was looked at last
        self._observation = Observation(0)
        self._calm = False

    def wanted_look(self, time_ns: int) -> tuple[Box, ...] | None:
        """Of which close-ups the appearance network is to say something, beside the whole picture of `time_ns`.

        None: it is not to run on that picture.
        """
        return self.flame.wanted_look(time_ns) if self.flame else None

    def note_look(self, look: Look) -> None:
        """Take in what the appearance network said of a picture, before that is given to `detect`."""
        if self.flame:
            self.flame.looks.note(look)

    def repeats(self, time_ns: int) -> bool:
        """Whether `detect` will say of the picture of `time_ns` what it said of the one before, without a look."""
        return self._calm and 0 <= time_ns - self._looked_ns < CALM_NS

    def detect(self, frame: npt.NDArray[np.uint8], time_ns: int, lost: Iterable[Box] = ()) -> Observation:
        """What `frame` (BGR, reduced by `working_scale`) taken at `time_ns` shows, given all frames before it.

        Inside the boxes `lost` the picture did not arrive: nothing is concluded from what stands there. While nothing
        flickers, pictures within CALM_NS of the last that was looked at show what that one did.
        """
        if self.repeats(time_ns):
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
        findings = []
        if self.flame:
            flame = self.flame.observe(picture, time_ns, ignored)
            findings.append(self._finding(FLAME_KIND, flame, self.flame.limits))
        if self._smoke:
            smoke = self._smoke.observe(frame, time_ns, ignored, burning)
            findings.append(self._finding(SMOKE_KIND, smoke, self._smoke.limits))
        self._observation = Observation(time_ns=time_ns, findings=tuple(findings), motion=motion.share)
        self._calm = not self._observation.urgent and not (self.flame and self.flame.sites)
        return self._observation

    def _finding(self, kind: Kind, seen: Flame | Smoke, limits: FlameThresholds | SmokeThresholds) -> Finding:
        level: Level = CLEAR
        if seen.held_ns >= (seen.needed_ns if isinstance(seen, Flame) else limits.alarm_ns):
            level = Level.ALARM
        elif seen.held_ns >= limits.pre_alarm_ns:
            level = Level.PRE_ALARM
        if isinstance(seen, Flame) and seen.colourless:
            level = min(level, Level.PRE_ALARM)
        box = None
        if seen.box:
            (x, y, w, h), (height, width) = seen.box, self._shape
            box = (x / width, y / height, w / width, h / height)
        return Finding(kind, level, seen.score, box, seen.terms, seen.held_ns)


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


def rasterize(masks: Iterable[Mask], width: int, height: int) -> npt.NDArray[np.bool_] | None:
    """The pixels inside any of `masks`; None where there are none."""
    canvas = np.zeros((height, width), np.uint8)
    for mask in masks:
        corners = [(x * width, y * height) for x, y in zip(mask.x, mask.y, strict=False)]
        if len(corners) >= 3:
            cv2.fillPoly(canvas, [np.array(corners).round().astype(np.int32)], 1)
    return canvas.astype(bool) if canvas.any() else None

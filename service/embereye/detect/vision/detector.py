"""All picture detectors of one camera, combined in one object.

`detect` takes one frame and returns an `Observation`. It combines three sources of flame findings: `FlameDetector` on
the whole picture, `DetailDetector` on a part with more pixels, and `Likeness` from the appearance network alone; the
clearest one counts. For smoke, it combines the veil (`SmokeDetector`) and what the network sees (`SmokeLikeness`). The
caller runs the network: it asks `due_inspection` and `wanted_detail` before it decodes a frame, and passes results to
`add_inspection` and `detect`.
"""

from collections.abc import Iterable
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.detail import DetailDetector
from embereye.detect.vision.flame.flame import Flame, FlameDetector
from embereye.detect.vision.flame.likeness import Likeness
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.detect.vision.motion import MotionGate
from embereye.detect.vision.networks.appearance import (
    FOR_SMOKE,
    ONLY_SMOKE,
    PLACES,
    SITES,
    Inspection,
    Inspections,
    Interest,
)
from embereye.detect.vision.observation import Finding, Observation
from embereye.detect.vision.pixels import Picture, Planes
from embereye.detect.vision.smoke import Smoke, SmokeDetector
from embereye.detect.vision.smoke_likeness import SmokeLikeness
from embereye.detect.vision.thresholds import CALM, FlameThresholds, SmokeThresholds
from embereye.detect.vision.working import to_working_size
from embereye.levels import Kind, Level
from embereye.units import WHOLE, Box, PixelBox, Polygon, pixels_of
from embereye.v1.types_pb2 import Mask

FLAME = FlameThresholds()
SMOKE = SmokeThresholds()
# Between two detections while nothing flickers like a flame: every other picture of a camera that sends 15/s, all
# pictures up to 12/s, and at least six per second.
CALM_NS = 80_000_000
CLEAR, FLAME_KIND, SMOKE_KIND = Level.CLEAR, Kind.FLAME, Kind.SMOKE


class Detector:
    """The detectors of one camera and their state. Not thread-safe.

    A kind whose thresholds are None is not detected. `phase` is the phase of the appearance network's inspections.
    """

    def __init__(
        self,
        flame: FlameThresholds | None = FLAME,
        smoke: SmokeThresholds | None = SMOKE,
        masks: Iterable[Mask] = (),
        usual_levels: UsualLevels | None = None,
        phase: float = 0.0,
    ) -> None:
        self.flame = FlameDetector(flame, Inspections(phase), usual_levels) if flame else None
        self._detail = DetailDetector(self.flame) if self.flame else None
        self._smoke = SmokeDetector(smoke) if smoke else None
        self._declared_masks = self._masks = tuple(masks)
        self.hidden: Box | None = None  # a part of the picture that is ignored for some time
        levels = self.flame.usual_levels if self.flame else usual_levels or UsualLevels()
        self._smoke_likeness = SmokeLikeness(smoke, levels, phase, _hidden_places(self._masks)) if smoke else None
        self._motion = MotionGate()
        self._likeness = (
            Likeness(self.flame.limits, self.flame.inspections, self.flame.usual_levels) if self.flame else None
        )
        self.ignored: npt.NDArray[np.bool_] | None = None  # pixels of the latest picture that masks cover
        self._shape: tuple[int, int] = (0, 0)
        self._detected_ns = 0  # when `detect` last analysed a picture
        self._observation = Observation(0)
        self._calm = False

    @property
    def is_quiet(self) -> bool:
        """True if the latest picture showed nothing that more pictures could clarify."""
        if self._observation.suspected or self._observation.motion > CALM.motion_max:
            return False
        if self.flame and not self.flame.is_idle:
            return False
        if self._likeness and self._likeness.is_fire_like:
            return False
        return not (self._smoke_likeness and self._smoke_likeness.is_suspected)

    @property
    def masked(self) -> tuple[Polygon, ...]:
        """The parts of the picture that are ignored, which the appearance network must not judge for a flame."""
        return tuple(tuple(zip(mask.x, mask.y, strict=False)) for mask in self._masks)

    def due_inspection(self, time_ns: int) -> tuple[Box, ...] | None:
        """Return the close-ups that the appearance network should judge in addition to the picture of `time_ns`.

        None: the network should not run on that picture.
        """
        flame = self._due_flame_inspection(time_ns)
        if self._smoke_likeness and self._smoke_likeness.start_if_due(time_ns):
            if flame is None:
                return (ONLY_SMOKE,)
            return *flame, FOR_SMOKE
        return flame

    def _due_flame_inspection(self, time_ns: int) -> tuple[Box, ...] | None:
        if not self.flame:
            return None
        flames = [self.flame, self._detail.flame] if self._detail and self._detail.flame else [self.flame]
        interest = max(flame.interest for flame in flames)
        if self._likeness and self._likeness.is_fire_like:
            interest = max(interest, Interest.FLICKERS)
        elif self._likeness and self._likeness.has_moved:
            interest = max(interest, Interest.MOVES)
        if not self.flame.inspections.start_if_due(time_ns, interest):
            return None
        # A detail gets a close-up in addition to those of the whole picture, not instead of one.
        chosen = [sorted(flame.close_ups(), reverse=True) for flame in flames]
        return tuple(
            box for scored, most in zip(chosen, (SITES[interest], 1), strict=False) for _, box in scored[:most]
        )

    def wanted_detail(self, time_ns: int) -> Box | None:
        """Return the part of the picture of `time_ns` that `detect` should also get with more pixels, or None."""
        return self._detail.wanted(time_ns) if self._detail else None

    def follow(self, other: "Detector") -> None:
        """Watch the detail that `other` watches, whose pictures and inspections this one also gets."""
        if self._detail and other._detail:
            self._detail.follow(other._detail)

    def hide(self, box: Box | None) -> None:
        """Ignore `box` like a mask from now on, instead of the previous one; None: ignore only the masks."""
        if box == self.hidden:
            return
        self.hidden = box
        masks = self._declared_masks
        if box is not None:
            (left, top), (right, bottom) = box[:2], (box[0] + box[2], box[1] + box[3])
            masks = (*masks, Mask(x=[left, right, right, left], y=[top, top, bottom, bottom]))
        self._masks = masks
        self._shape = (0, 0)  # they are drawn again for the next picture
        if self._smoke_likeness:
            self._smoke_likeness.hide(_hidden_places(masks))

    def add_inspection(self, inspection: Inspection) -> None:
        """Store the network's result for a picture before `detect` gets that picture."""
        if self._smoke_likeness:
            self._smoke_likeness.note(inspection)
        if not inspection.for_flame:
            return
        if self.flame:
            self.flame.inspections.note(inspection)
        if self._likeness:
            self._likeness.note(inspection)

    def is_repeat(self, time_ns: int) -> bool:
        """True if `detect` will repeat the previous result for the picture of `time_ns` without analysis."""
        return self._calm and 0 <= time_ns - self._detected_ns < CALM_NS

    def detect(
        self, frame: Picture, time_ns: int, lost: Iterable[Box] = (), detail: Picture | None = None
    ) -> Observation:
        """Analyse `frame` (BGR, reduced by `working_scale`), taken at `time_ns`, given all frames before it.

        `detail` is the part that `wanted_detail` returned, with more pixels. Pixels inside the boxes `lost` did not
        arrive and are ignored. While nothing flickers, pictures within CALM_NS of the last analysed one repeat its
        result.
        """
        if self.is_repeat(time_ns):
            return replace(self._observation, time_ns=time_ns)
        self._detected_ns = time_ns
        frame = to_working_size(frame)
        height, width = frame.shape[:2]
        if (height, width) != self._shape:
            self._shape = (height, width)
            self.ignored = rasterize(self._masks, width, height)
        ignored = without(self.ignored, lost, width, height)
        picture = Planes.of(frame)
        burning = self.flame.suspect_mask if self.flame else None
        motion = self._motion.observe(picture.green, time_ns, burning, self.ignored)
        if self._likeness:
            self._likeness.move(motion.share, time_ns)
        findings = []
        if self.flame:
            flame = self.flame.observe(picture, time_ns, ignored)
            finding = self._finding(FLAME_KIND, flame, self.flame.limits, self._share(flame.box))
            if detail_finding := self._detect_in_detail(detail, time_ns):
                finding = _clearer(finding, detail_finding)
            if self._likeness and self._likeness.is_fire_like:
                likeness = self._likeness.seen(colourless=self.flame.colourless)
                finding = _clearer(finding, self._finding(FLAME_KIND, likeness, self.flame.limits, None))
            findings.append(finding)
        if self._smoke:
            smoke = self._smoke.observe(frame, time_ns, ignored, burning)
            finding = self._finding(SMOKE_KIND, smoke, self._smoke.limits, self._share(smoke.box))
            if self._smoke_likeness:
                self._smoke_likeness.see(picture.green, time_ns)
                seen = self._smoke_likeness.seen((height, width))
                alike = self._finding(SMOKE_KIND, seen, self._smoke.limits, self._share(seen.box))
                finding = _clearer(finding, alike)
            findings.append(finding)
        self._observation = Observation(time_ns=time_ns, findings=tuple(findings), motion=motion.share)
        watched = self.flame and (self.flame.sites or self.flame.distant)
        self._calm = not self._observation.urgent and not watched
        return self._observation

    def _detect_in_detail(self, picture: Picture | None, time_ns: int) -> Finding | None:
        """Analyse `picture` of the detail, if any, and return the detail's recent finding; None if none is watched."""
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
        if seen.needed_ns is not None and seen.lasted_ns >= seen.needed_ns:
            level = Level.ALARM
        elif seen.lasted_ns >= (seen.pre_alarm_ns if isinstance(seen, Smoke) else limits.pre_alarm_ns):
            level = Level.PRE_ALARM
        needed_ns = seen.needed_ns
        if isinstance(seen, Flame) and seen.colourless:
            level, needed_ns = min(level, Level.PRE_ALARM), None
        return Finding(kind, level, seen.score, box, seen.terms, seen.lasted_ns, needed_ns)


def _clearer(first: Finding, second: Finding) -> Finding:
    return max(first, second, key=lambda finding: (finding.level, finding.lasted_ns, finding.score))


def without(
    ignored: npt.NDArray[np.bool_] | None, lost: Iterable[Box], width: int, height: int
) -> npt.NDArray[np.bool_] | None:
    """Add the pixels that any box of `lost` touches to `ignored`; None if there are none."""
    combined = None
    for box in lost:
        if combined is None:
            combined = np.zeros((height, width), bool) if ignored is None else ignored.copy()
        combined[pixels_of(box, height, width)] = True
    return ignored if combined is None else combined


def _hidden_places(masks: Iterable[Mask]) -> npt.NDArray[np.bool_] | None:
    """Return the places of the appearance network, (PLACES, PLACES), that `masks` cover by half; None: none."""
    fine = 8 * PLACES
    drawn = rasterize(masks, fine, fine)
    if drawn is None:
        return None
    hidden: npt.NDArray[np.bool_] = drawn.reshape(PLACES, 8, PLACES, 8).mean(axis=(1, 3)) >= 0.5
    return hidden


def rasterize(masks: Iterable[Mask], width: int, height: int, place: Box = WHOLE) -> npt.NDArray[np.bool_] | None:
    """Draw `masks` for a picture's part `place` of `width` x `height` pixels; None if they are empty."""
    left, top, wide, high = place
    canvas = np.zeros((height, width), np.uint8)
    for mask in masks:
        corners = [((x - left) / wide * width, (y - top) / high * height) for x, y in zip(mask.x, mask.y, strict=False)]
        if len(corners) >= 3:
            cv2.fillPoly(canvas, [np.array(corners).round().astype(np.int32)], 1)
    return canvas.astype(bool) if canvas.any() else None

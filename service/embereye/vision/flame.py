"""Flames in moving pictures: the colour of hot soot, a hot core, wide-band flicker that stays where it is.

Colour rules after Chen, Wu & Chiou, "An early fire-detection method based on image processing" (ICIP 2004) and Celik &
Demirel, "Fire detection in video sequences using a generic color model" (Fire Safety Journal 44, 2009); temporal
evidence after the idea of Toreyin et al., "Computer vision based method for real-time fire and flame detection"
(Pattern Recognition Letters 27, 2006), measured with real timestamps.
"""

import math
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.v1.types_pb2 import Term
from embereye.vision.periodicity import Periodicity
from embereye.vision.thresholds import SECOND, FlameThresholds

Picture = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Share = npt.NDArray[np.float32]

_CHROMA = np.array([[-0.581, -0.087, 0.668]])  # of B, G, R
_SQUARE = np.ones((3, 3), np.uint8)
_HELD_REACH = np.ones((5, 5), np.uint8)  # a flame leans in the draught: its neighbourhood is held with it
_RING = 6  # pixels around a site that it is compared with
_SITES = 8  # looked at per frame: more than that many are one fire or no fire
_STEPS = 64  # frames kept at most, whatever their times say


@dataclass(frozen=True)
class Flame:
    """What the flame detector says of one frame."""

    score: float  # of the best site, 0..1
    held_ns: int  # how long that site has been a flame
    large: bool  # whether it fills so much of the picture that it needs less time
    box: tuple[int, int, int, int] | None  # x, y, width, height in pixels of the working picture
    terms: tuple[Term, ...]


_NOTHING = Flame(0.0, 0, False, None, ())


@dataclass(frozen=True)
class _Step:
    time_ns: int
    green: Picture
    colour: Mask


@dataclass(frozen=True)
class _Site:
    box: tuple[int, int, int, int]
    mask: Mask  # inside the box
    area: int  # pixels
    flicker: float
    core: float
    contrast: float
    repeat: float
    score: float


def flame_colours(frame: Picture, limits: FlameThresholds) -> tuple[Mask, Mask]:
    """(flame-coloured, hot core) of a BGR picture (height x width x 3)."""
    blue, green, red = cv2.split(frame)
    # BT.601: Cr - Cb = 0.713 (R - Y) - 0.564 (B - Y) with Y = 0.299 R + 0.587 G + 0.114 B, below 0 cut off.
    chroma = cv2.transform(frame, _CHROMA)
    colour = (red >= limits.red_min) & (red >= green) & (green >= blue) & (chroma >= limits.chroma_min)
    colour &= cv2.subtract(red, blue) >= limits.red_over_blue_min
    core = (red >= limits.core_red_min) & (green >= limits.core_green_min) & (red >= green)
    core &= cv2.subtract(green, blue) >= limits.core_green_over_blue_min
    return colour, core


class FlameDetector:
    """The temporal memory of one camera. Feed it every frame; a gap or a step back in time starts it anew."""

    def __init__(self, thresholds: FlameThresholds | None = None) -> None:
        self.limits = thresholds or FlameThresholds()
        self._shape: tuple[int, ...] = ()
        self._reset((0, 0))

    @property
    def suspect_mask(self) -> Mask | None:
        """Where something is suspected now: the background must not learn there. None: nowhere."""
        return self._held > 0 if self._holding else None

    def _reset(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._occupancy = np.zeros(shape, np.float32)
        self._flicker = np.zeros(shape, np.float32)
        self._core = np.zeros(shape, np.float32)
        self._held = np.zeros(shape, np.float32)  # seconds
        self._holding = False  # whether any of them is above 0
        self._periodicity = Periodicity(self.limits)
        self._red = np.zeros(shape, np.uint8)  # of the present frame
        self._coloured_ns = 0  # when anything had a flame's colour last

    def observe(self, frame: Picture, time_ns: int, ignored: Mask | None = None) -> Flame:
        """What `frame` (BGR) at `time_ns` adds; nothing is looked for where `ignored` is set."""
        limits = self.limits
        if frame.shape[:2] != self._shape:
            self._reset((frame.shape[0], frame.shape[1]))
        elapsed = time_ns - self._steps[-1].time_ns if self._steps else 0
        if elapsed < 0 or elapsed > limits.step_max_ns:
            self._steps.clear()
            self._periodicity.clear()
            elapsed = 0
        colour, core = flame_colours(frame, limits)
        if ignored is not None:
            colour &= ~ignored
            core &= ~ignored
        self._red = frame[..., 2]
        self._steps.append(_Step(time_ns, frame[..., 1].copy(), colour))
        self._periodicity.see(frame[..., 1], time_ns)
        before = self._step_before(time_ns)
        if colour.any():
            self._coloured_ns = time_ns
        elif time_ns - self._coloured_ns > limits.forget_ns:
            self._forget()
            return _NOTHING
        if before is None:
            return self._conclude([], time_ns, elapsed)
        middle, first = before
        # Half the second difference, in eight bits: |(newest + first) / 2 - middle|.
        swing = cv2.absdiff(cv2.addWeighted(self._steps[-1].green, 0.5, first.green, 0.5, 0.0), middle.green)
        swinging = swing > 0.5 * limits.swing_min
        coloured = colour | middle.colour | first.colour
        flickering = swinging & coloured
        if np.count_nonzero(swinging) - np.count_nonzero(flickering) > limits.disturbed_share * swinging.size:
            return self._conclude([], time_ns, elapsed)
        self._periodicity.swing(swinging, time_ns)
        rate = 1.0 - math.exp(-min(elapsed, limits.frame_max_ns) / limits.memory_ns)
        for memory, mask in ((self._occupancy, colour), (self._flicker, flickering), (self._core, core)):
            cv2.accumulateWeighted(mask.view(np.uint8), memory, rate)
        return self._conclude(self._sites(time_ns), time_ns, elapsed)

    def _forget(self) -> None:
        if self._coloured_ns:
            self._coloured_ns = 0
            for memory in (self._occupancy, self._flicker, self._core, self._held):
                memory.fill(0)
            self._holding = False

    def _step_before(self, time_ns: int) -> tuple[_Step, _Step] | None:
        """The frames one and two steps before `time_ns`; forgets what is older."""
        limits, steps = self.limits, self._steps
        found: list[_Step] = []
        reference = time_ns
        for step in reversed(steps):
            if reference - step.time_ns >= limits.step_ns:
                if reference - step.time_ns > limits.step_max_ns:
                    return None
                found.append(step)
                reference = step.time_ns
                if len(found) == 2:
                    while steps[0] is not step:
                        steps.popleft()
                    return found[0], found[1]
        return None

    def _sites(self, time_ns: int) -> list[_Site]:
        limits = self.limits
        if float(self._flicker.max(initial=0.0)) <= limits.flicker_min:
            return []
        seeds = (self._flicker > limits.flicker_min) & (self._occupancy > limits.occupancy_min)
        if not seeds.any():
            return []
        grown = cv2.dilate(seeds.astype(np.uint8), _SQUARE)
        count, labels, stats, _ = cv2.connectedComponentsWithStats(grown, connectivity=8)
        order = sorted(range(1, count), key=lambda label: -int(stats[label, cv2.CC_STAT_AREA]))[:_SITES]
        sites = []
        for label in order:
            x, y, width, height, area = (int(value) for value in stats[label])
            if area >= limits.area_min:
                window = (slice(y, y + height), slice(x, x + width))
                sites.append(self._site((x, y, width, height), labels[window] == label, area, time_ns))
        return sites

    def _site(self, box: tuple[int, int, int, int], mask: Mask, area: int, time_ns: int) -> _Site:
        limits = self.limits
        x, y, width, height = box
        window = (slice(y, y + height), slice(x, x + width))
        flicker, occupancy = self._flicker[window][mask], self._occupancy[window][mask]
        seeds = flicker > limits.flicker_min
        mean_flicker = float(flicker[seeds].mean()) if seeds.any() else 0.0
        core = float(self._core[window][mask].sum() / max(1e-6, float(occupancy.sum())))
        contrast = self._contrast(box, mask)
        score = min(
            mean_flicker / (mean_flicker + limits.flicker_min),
            core / (core + limits.core_share_min),
            contrast / (contrast + limits.contrast_min),
            area / (area + limits.area_min),
        )
        repeat = max(0.0, self._periodicity.of(box, time_ns)) if score >= limits.score_min else 0.0
        score = min(score, 1.0 - 0.5 * repeat / limits.repeat_max)
        return _Site(box, mask, area, mean_flicker, core, contrast, repeat, score)

    def _contrast(self, box: tuple[int, int, int, int], mask: Mask) -> float:
        """Red of the site's brighter tenth above the mean red around it, in counts, 0 or more."""
        x, y, width, height = box
        top, left = max(0, y - _RING), max(0, x - _RING)
        red = self._red[top : y + height + _RING, left : x + width + _RING]
        inside = np.zeros(red.shape, bool)
        inside[y - top : y - top + height, x - left : x - left + width] = mask
        around = red[~inside]
        if not around.size:
            return 255.0  # all of the picture burns
        return max(0.0, float(np.percentile(red[inside], 90)) - float(around.mean()))

    def _conclude(self, sites: list[_Site], time_ns: int, elapsed_ns: int) -> Flame:
        limits = self.limits
        seconds = min(elapsed_ns, limits.frame_max_ns) / SECOND
        best = max(sites, key=lambda site: site.score, default=None)
        evident = [site for site in sites if site.score >= limits.score_min]
        if evident or self._holding:
            self._hold(evident, time_ns, seconds)
        held = float(self._held.max(initial=0.0)) if self._holding else 0.0
        large = best is not None and best in evident and best.area >= limits.large_share * self._held.size
        return Flame(
            score=best.score if best else 0.0,
            held_ns=int(held * SECOND),
            large=large,
            box=best.box if best else None,
            terms=self._terms(best, held, large=large) if best else (),
        )

    def _hold(self, evident: list[_Site], time_ns: int, seconds: float) -> None:
        """Add `seconds` where there is evidence, take some of it off elsewhere."""
        limits = self.limits
        evidence = np.zeros(self._shape, np.uint8)
        for site in evident:
            x, y, width, height = site.box
            evidence[y : y + height, x : x + width] |= site.mask.astype(np.uint8)
        reached = cv2.dilate(evidence, _HELD_REACH).astype(bool)
        self._held += np.where(reached, seconds, -limits.decay * seconds).astype(np.float32)
        longest = limits.held_max_ns
        if not self._periodicity.knows(time_ns):
            longest = limits.alarm_ns - 1_000_000  # only a suspicion until repetition can be ruled out
        np.clip(self._held, 0.0, longest / SECOND, out=self._held)
        self._holding = bool(self._held.any())

    def _terms(self, site: _Site, held: float, *, large: bool) -> tuple[Term, ...]:
        limits, pixels = self.limits, self._shape[0] * self._shape[1]
        needed = limits.alarm_large_ns if large else limits.alarm_ns
        return (
            Term(name="flame.flicker", value=100 * site.flicker, threshold=100 * limits.flicker_min, unit="%"),
            Term(name="flame.core", value=100 * site.core, threshold=100 * limits.core_share_min, unit="%"),
            Term(name="flame.contrast", value=site.contrast, threshold=limits.contrast_min, unit="1"),
            Term(name="flame.area", value=100 * site.area / pixels, threshold=100 * limits.area_min / pixels, unit="%"),
            Term(name="flame.repetition.below", value=site.repeat, threshold=limits.repeat_max, unit="1"),
            Term(name="flame.held", value=held, threshold=needed / SECOND, unit="s"),
        )

"""Flames in moving pictures: the colour of hot soot, a hot core, wide-band flicker that stays where it is.

Colour rules after Chen, Wu & Chiou, "An early fire-detection method based on image processing" (ICIP 2004) and Celik &
Demirel, "Fire detection in video sequences using a generic color model" (Fire Safety Journal 44, 2009); temporal
evidence after the idea of Toreyin et al., "Computer vision based method for real-time fire and flame detection"
(Pattern Recognition Letters 27, 2006), measured with real timestamps. What moves as a whole, returns to rest, repeats
itself or changes everywhere at once is something else: `character` measures that.
"""

import math
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.character import rest_and_unity, travel
from embereye.detect.vision.flame.familiar import Familiar
from embereye.detect.vision.flame.periodicity import Periodicity
from embereye.detect.vision.flame.recent import Recent
from embereye.detect.vision.networks.appearance import Inspections, Interest, close_up_of
from embereye.detect.vision.pixels import (
    NOTHING,
    NOWHERE,
    Patch,
    Picture,
    Planes,
    Window,
    around,
    at_least,
    both,
    even,
    less,
    median,
    overlaid,
    overlay,
    put,
    regions,
    together,
    window_of,
)
from embereye.detect.vision.thresholds import FlameThresholds, least_odds
from embereye.units import SECOND, WHOLE, Box, PixelBox
from embereye.v1.types_pb2 import Term

LOOKS = ("appearance", "close_up")  # what the appearance network says
TRAITS = ("travel", "rest", "unity", "repetition")  # what is measured anew at each judgement

_SQUARE = np.ones((3, 3), np.uint8)
_HELD_REACH = 2  # pixels around a site that are held with it, and …
_HELD_SHARE = 8  # … one more for so many pixels of its longer side
_REACH = 3  # pixels that a held site reaches beyond what has a flame's colour
_MARGIN = 12  # pixels that are remembered around that, as it moves
_RING = 6  # pixels around a site that it is compared with
_BORDER = 3  # pixels
_RISE_HEIGHT = 6  # pixels: what is lower has no top
_SITES = 4  # looked at per frame: more than that many are one fire or no fire
_STEPS = 64  # frames kept at most, whatever their times say
FEW = 3  # pixels that noise may colour
FEW_GLOWING = 10  # pixels that something white may change as it passes
ALWAYS = 255.0  # as a share of the time: what masks are made of


@dataclass(frozen=True)
class Flame:
    """What the flame detector says of one frame."""

    score: float = 0.0  # of the best site, 0..1
    lasted_ns: int = 0  # how long that site has been a flame
    needed_ns: int = FlameThresholds.alarm_ns  # how long it has to be one for an alarm
    box: PixelBox | None = None
    terms: tuple[Term, ...] = ()
    colourless: bool = False  # no more than a pre-alarm: what tells a flame from a lamp at night is missing


@dataclass(frozen=True)
class _Step:
    time_ns: int
    green: Picture
    colour: Patch  # 255 where flame-coloured
    glow: Patch  # 255 where it is so bright that a flame would have no colour


@dataclass(frozen=True)
class Site:
    """One region that may be a flame, as it was judged last."""

    box: PixelBox
    mask: npt.NDArray[np.bool_]  # inside the box
    values: dict[str, float]  # by the weight's name
    odds: float  # natural log odds that it is a flame

    @property
    def score(self) -> float:
        """The odds as a probability."""
        return 1.0 / (1.0 + math.exp(-self.odds))


class _Memory:
    """What is remembered of each pixel while anything of a flame's colour swings; nothing is, of most cameras.

    It is kept only of the `window` in which such colour has been seen since. Boxes are those of the whole picture.
    """

    def __init__(self, shape: tuple[int, ...], limits: FlameThresholds) -> None:
        self._shape = shape
        self._neutral = [limits.weights[name].neutral for name in TRAITS]
        self.window = NOWHERE
        self._learnt = False
        self._keep(np.zeros((4, 0, 0), np.float32))
        self._held: npt.NDArray[np.float32] | None = None
        self._traits: npt.NDArray[np.float32] | None = None

    def _keep(self, shares: npt.NDArray[np.float32]) -> None:
        """Remember `shares` of the time, up to ALWAYS.

        That a pixel may be a flame's, has its colour, may be one and swings, is as bright as its core, yellow or white.
        """
        self._shares = shares
        self.occupancy, self.colour, self.flicker, self.core = shares
        self.shines_and_flickers = shares[::2]

    @property
    def held(self) -> npt.NDArray[np.float32]:
        """For how long there has been evidence, in seconds; of most of what swings there is none."""
        if self._held is None:
            self._held = np.zeros(self.occupancy.shape, np.float32)
        return self._held

    @property
    def traits(self) -> npt.NDArray[np.float32]:
        """A plane of each trait: its mean over the last judgements; most of what swings is never a site, needs none."""
        if self._traits is None:
            self._traits = self._without_traits(self.occupancy.shape)
        return self._traits

    def _without_traits(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        return np.repeat(np.array(self._neutral, np.float32), math.prod(shape)).reshape(len(TRAITS), *shape)

    def of(self, remembered: npt.NDArray[np.float32], box: PixelBox) -> npt.NDArray[np.float32]:
        """What is `remembered`, one of the arrays here, of `box`."""
        x, y = box[0] - self.window[1].start, box[1] - self.window[0].start
        return remembered[..., y : y + box[3], x : x + box[2]]

    def reach(self, window: Window) -> None:
        """Remember what is in `window` as well."""
        if window == NOWHERE or together(self.window, around(window, _REACH, self._shape)) == self.window:
            return
        before, self.window = self.window, even(together(self.window, around(window, _MARGIN, self._shape)))
        rows, columns = self.window
        shape = rows.stop - rows.start, columns.stop - columns.start
        self._keep(put(self._shares, before, np.zeros((len(self._shares), *shape), np.float32), self.window))
        if self._held is not None:
            self._held = put(self._held, before, np.zeros(shape, np.float32), self.window)
        if self._traits is not None:
            self._traits = put(self._traits, before, self._without_traits(shape), self.window)

    def learn(self, colour: Patch, glow: Patch, flickering: Patch, core: Patch, rate: float) -> None:
        """Move the shares by `rate` (0..1) towards what there is now, each 255 or 0."""
        seen = np.zeros(self._shares.shape, np.uint8)
        for now, patches in zip(seen, ((colour, glow), (colour,), (flickering,), (core, glow)), strict=True):
            overlay(now, self.window, *patches)
        if not self._learnt:  # what stood there before is not known: as if it always had
            self._shares[:2], self._learnt = seen[:2], True
        size = len(seen) * self.occupancy.shape[0], self.occupancy.shape[1]  # one below the other they are one picture
        cv2.accumulateWeighted(seen.reshape(size), self._shares.reshape(size), rate)


def flame_coloured(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """255 where `picture` has the colour of a flame, 0 elsewhere; `scale` shrinks the limits."""
    blue, green, red = picture
    # Most pictures have next to no pixel whose red is clearly over blue, and end here.
    over_blue = less(red, blue)
    coloured = at_least(over_blue, limits.red_over_blue_min * scale)
    if cv2.countNonZero(coloured) <= FEW:
        return NOTHING
    window = window_of(coloured)
    blue, green, red, warm = blue[window], green[window], red[window], coloured[window]
    # BT.601: Cr - Cb = 0.581 (R - B) + 0.087 (R - G) where red is not below green.
    chroma: Picture = cv2.addWeighted(over_blue[window], 0.581, less(red, green), 0.087, 0.0)  # type: ignore[assignment]
    warm = both(warm, at_least(chroma, limits.chroma_min * scale))
    warm = both(warm, at_least(red, limits.red_min * scale))
    return Patch.of(both(warm, cv2.inRange(green, blue, red)), window)  # type: ignore[arg-type]  # R >= G >= B


def glowing(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """255 where `picture` is so bright that a flame would have no colour, 0 elsewhere; `scale` shrinks the limits."""
    bright = at_least(picture.red, limits.glow_red_min * scale)
    if cv2.countNonZero(bright) <= FEW:
        return NOTHING
    window = window_of(bright)
    blue, green, red = (plane[window] for plane in picture)
    pale = both(bright[window], at_least(green, limits.glow_green_min * scale))
    return Patch.of(less(pale, at_least(less(blue, red), limits.glow_blue_over_red_max * scale)), window)


def core_coloured(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """255 where `picture` is as bright and yellow as the core of a flame, 0 elsewhere; `scale` shrinks the limits."""
    hot = at_least(picture.red, limits.core_red_min * scale)
    if not cv2.countNonZero(hot):
        return NOTHING
    window = window_of(hot)
    blue, green, red, hot = picture.blue[window], picture.green[window], picture.red[window], hot[window]
    hot = both(hot, at_least(green, limits.core_green_min * scale))
    hot = both(hot, at_least(less(green, blue), limits.core_green_over_blue_min * scale))
    return Patch.of(both(hot, cv2.compare(red, green, cv2.CMP_GE)), window)  # type: ignore[arg-type]


def disturbed(
    swinging: Picture, flickering: Patch, limits: FlameThresholds, ignored: npt.NDArray[np.bool_] | None = None
) -> bool:
    """Whether a picture swings as a whole, outside of `ignored`: the camera moves, or the scene is another one."""
    others, size = cv2.countNonZero(swinging) - flickering.size, swinging.size
    if ignored is not None:
        others -= int(np.count_nonzero(swinging[ignored]))
        size -= int(np.count_nonzero(ignored))
    return others > limits.disturbed_share * size


def _second_difference(last: Picture, middle: Picture, first: Picture) -> Picture:
    """Half of it, in eight bits: |(last + first) / 2 - middle|."""
    return cv2.absdiff(cv2.addWeighted(last, 0.5, first, 0.5, 0.0), middle)  # type: ignore[return-value]


def _stirs(greens: tuple[Picture, Picture, Picture], patches: tuple[Patch, ...], least: float, few: int) -> bool:
    """Whether more than `few` pixels inside of `patches` swing by `least` counts."""
    window = _window_of_all(patches)
    if window == NOWHERE:
        return False
    last, middle, first = (green[window] for green in greens)
    swinging = at_least(_second_difference(last, middle, first), 0.5 * least + 1)
    if cv2.countNonZero(swinging) <= few:
        return False
    return cv2.countNonZero(both(swinging, overlaid(window, *patches))) > few


def _within(swinging: Picture, patches: tuple[Patch, ...]) -> Patch:
    """What of `swinging` is inside of any of `patches`."""
    window = _window_of_all(patches)
    if window == NOWHERE:
        return NOTHING
    return Patch.of(both(swinging[window], overlaid(window, *patches)), window)


def _window_of_all(patches: tuple[Patch, ...]) -> Window:
    window = NOWHERE
    for patch in patches:
        window = together(window, patch.window)
    return window


class FlameDetector:
    """The temporal memory of one camera. Feed it every frame; a step back in time starts it anew.

    It may be fed only a part of each frame with more pixels, the box `place`: then `whole` is fed the whole frames
    before, whose brightness and colours hold for the part as well.
    """

    def __init__(
        self,
        thresholds: FlameThresholds | None = None,
        looks: Inspections | None = None,
        familiar: Familiar | None = None,
        place: Box = WHOLE,
        whole: "FlameDetector | None" = None,
    ) -> None:
        self._place, self._whole = place, whole
        self.looks = looks or Inspections()
        self.familiar = familiar or Familiar()
        self.limits = limits = thresholds or FlameThresholds()
        self._least = least_odds(limits.score_min)
        # What the traits can do for a site at best. One that has no hope even so is not measured further: that takes
        # most of a judgement.
        self._hope = sum(limits.weights[name].most for name in TRAITS)
        self._shape: tuple[int, ...] = ()
        self._reset((0, 0))

    @property
    def suspect_mask(self) -> npt.NDArray[np.bool_] | None:
        """Where something is suspected now: the background must not learn there. None: nowhere."""
        if not self._memory or not self._holding:
            return None
        suspect = np.zeros(self._shape, bool)
        suspect[self._memory.window] = self._memory.held > 0
        return suspect

    @property
    def interest(self) -> Interest:
        """How much the network's opinion matters now."""
        if self._holding:
            return Interest.SUSPECTED
        if any(map(self._decides, self.sites)):
            return Interest.FLICKERS
        return Interest.MOVES if self.sites else Interest.STILL  # what the network said does not lapse meanwhile

    def close_ups(self) -> list[tuple[float, Box]]:
        """Of which parts of the whole picture the network's opinion could make a flame, and their log odds."""
        columns, rows = self.full_size
        return [
            (site.odds, close_up_of(self.share(site.box), columns, rows)) for site in self.sites if self._decides(site)
        ]

    def _decides(self, site: Site) -> bool:
        """Whether a close-up could make `site` a flame until the next one: most of what flickers is far from that."""
        weight = self.limits.weights["close_up"]
        best = site.odds - weight.of(site.values["close_up"]) + weight.most
        return best >= self._least - self.limits.turns_odds

    def share(self, box: PixelBox) -> Box:
        """Where `box` is in the whole picture."""
        left, top = self._place[:2]
        columns, rows = self.full_size
        x, y, width, height = box
        return left + x / columns, top + y / rows, width / columns, height / rows

    @property
    def full_size(self) -> tuple[float, float]:
        """(width, height) of the whole picture in the pixels of what it is fed."""
        return self._shape[1] / self._place[2], self._shape[0] / self._place[3]

    @property
    def _full_area(self) -> float:
        """The same, in square pixels."""
        width, height = self.full_size
        return width * height

    def _reset(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._period_ns = 0  # from one picture to the next before the latest gap
        self._red: Picture = np.zeros(shape, np.uint8)  # of the latest picture
        self._blue: Picture = self._red
        self.sites: list[Site] = []  # as they were judged last
        self.distant: Box | None = None  # where something flickers that is too small to be measured well
        self._memory: _Memory | None = None  # None: nothing of a flame's colour swings
        self._holding = False  # whether any pixel is held
        self._swung_ns = 0  # when anything of a flame's colour swung last
        self._forget_recent()
        self._colour_ns = 0  # when it was asked last whether pictures have colour
        self._colour_spread = 255.0  # counts
        self._white = 255.0  # counts: how bright the brightest pixels of this camera get
        self.judged_ns = 0  # when sites were looked at last
        self._since_ns = 0  # for how much time the latest look counts
        self._result = Flame()

    def observe(self, picture: Planes, time_ns: int, ignored: npt.NDArray[np.bool_] | None = None) -> Flame:
        """What `picture` at `time_ns` adds; nothing is looked for where `ignored` is set."""
        limits, green = self.limits, picture.green
        if green.shape != self._shape:
            self._reset((green.shape[0], green.shape[1]))
        elapsed = time_ns - self._steps[-1].time_ns if self._steps else 0
        if elapsed < 0 or elapsed > limits.step_max_ns:
            self._period_ns = self.period_ns
            self._steps.clear()
            if elapsed < 0:
                self._forget_recent()
            self._recent.note_gap()
            self.judged_ns = elapsed = 0
        self._red, self._blue = picture.red, picture.blue
        self._adapt(elapsed)
        if not self._whole and not (self._colour_ns and 0 <= time_ns - self._colour_ns < limits.colour_every_ns):
            self._colour_ns, self._colour_spread = time_ns, colour_spread(picture)
        scale = self._white / 255.0
        step = _Step(time_ns, green, flame_coloured(picture, limits, scale), glowing(picture, limits, scale))
        if ignored is not None:
            for patch in (step.colour, step.glow):
                patch.inside[ignored[patch.window]] = 0
        self._steps.append(step)
        swung = self._swing(time_ns)
        shaken = swung is not None and disturbed(*swung, limits, ignored)
        if swung and not shaken:  # nothing is learnt from a disturbed frame, and nothing is held by it
            self._remember(*swung, picture, time_ns, elapsed)
        if self._memory is None:
            return self._result
        if time_ns - self._swung_ns > limits.forget_ns:
            self._forget()
        elif not shaken and time_ns - self.judged_ns >= (limits.judge_ns if self._holding else limits.glance_ns):
            self._judge(self._memory, time_ns)
        return self._result

    def _adapt(self, elapsed_ns: int) -> None:
        """Follow how bright this camera's pictures get: one that clips at 180 is judged as if it clipped at 255."""
        if self._whole:
            self._white, self._colour_spread = self._whole._white, self._whole._colour_spread
            return
        fading = self._white - 255.0 * elapsed_ns / self.limits.white_memory_ns
        self._white = max(cv2.minMaxLoc(self._red)[1], fading, 255.0 * self.limits.white_least)

    def _swing(self, time_ns: int) -> tuple[Picture, Patch] | None:
        """(where the picture swings, where something of a flame's colour does), 255 or 0; None where it is unknown."""
        limits = self.limits
        before = self._step_before(time_ns)
        if before is None:
            return None
        (middle, first), last = before, self._steps[-1]
        colours, glows = (last.colour, middle.colour, first.colour), (last.glow, middle.glow, first.glow)
        scale = self._white / 255.0
        least, strong = min(limits.swing_min * scale, limits.swing_most), limits.glow_swing_min * scale
        greens = last.green, middle.green, first.green
        stirs = self._memory or _stirs(greens, colours, least, FEW) or _stirs(greens, glows, strong, FEW_GLOWING)
        if not stirs:
            return None
        swing = _second_difference(*greens)
        # Noise swings too: half of the picture, whatever moves in the rest, tells how much there is.
        sample = swing[4::8, 4::8]
        noise = median(sample) if sample.size > FEW else 0.0
        limit = min(max(least, limits.swing_over_noise * noise), limits.swing_most)
        swinging = at_least(swing, 0.5 * limit + 1)
        coloured = _within(swinging, colours)
        if all(glow is NOTHING for glow in glows):
            return swinging, coloured
        glowing = _within(at_least(swing, 0.5 * max(limit, strong) + 1), glows)
        window = together(coloured.window, glowing.window)
        return swinging, Patch(overlaid(window, coloured, glowing), window)

    def _remember(self, swinging: Picture, flickering: Patch, picture: Planes, time_ns: int, elapsed_ns: int) -> None:
        limits, last = self.limits, self._steps[-1]
        if flickering.size > FEW:
            self._memory = self._memory or _Memory(self._shape, limits)
            self._swung_ns = time_ns
        if (memory := self._memory) is None:
            return
        memory.reach(together(last.colour.window, flickering.window))
        self._recent.see(last.green, memory.window, time_ns)
        self._recent.swing(swinging, time_ns)
        rate = 1.0 - math.exp(-min(elapsed_ns, limits.frame_max_ns) / limits.memory_ns)
        core = core_coloured(picture, limits, self._white / 255.0)
        memory.learn(last.colour, last.glow, flickering, core, rate)

    def _forget(self) -> None:
        self._memory, self._holding, self.judged_ns, self.sites, self.distant = None, False, 0, [], None
        self._forget_recent()
        self._result = Flame()

    def _forget_recent(self) -> None:
        self._recent = Recent()
        self._periodicity = Periodicity(self.limits, self._recent)

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

    def _judge(self, memory: _Memory, time_ns: int) -> None:
        """Look at all sites, hold what is evident, and put it into the result."""
        elapsed = time_ns - self.judged_ns if self.judged_ns else 0
        self.judged_ns, self._since_ns = time_ns, min(max(elapsed, self.limits.judge_ns), self.limits.frame_max_ns)
        self.sites = sites = self._sites(memory, time_ns)
        self._learn(sites, time_ns)
        if self._holding or any(site.odds >= self._least for site in sites):
            self._hold(memory, sites, time_ns, min(elapsed, self.limits.frame_max_ns) / SECOND)
        best = max(sites, key=lambda site: (self._held_at(memory, site), site.score), default=None)
        held = float(memory.held.max(initial=0.0)) if self._holding else 0.0
        if best is None:
            self._result = Flame(lasted_ns=int(held * SECOND), colourless=self.colourless)
            return
        needed_ns = self._needed(best)
        terms = self._terms(best, held, needed_ns)
        self._result = Flame(best.score, int(held * SECOND), needed_ns, best.box, terms, self.colourless)

    def _learn(self, sites: list[Site], time_ns: int) -> None:
        """Note where something resembles a flame, whether it is held to be one or not."""
        limits = self.limits
        if self._whole and self._whole.sites:
            return  # it is learnt there
        for site in sites:
            if site.odds - limits.weights["familiar"].of(site.values["familiar"]) >= limits.resembles_odds:
                area = np.count_nonzero(site.mask) / self._full_area
                self.familiar.learn(self.share(site.box), area, self._since_ns / SECOND, time_ns)

    @property
    def colourless(self) -> bool:
        """Whether pictures have no colour: infrared light at night, or black and white."""
        return self._colour_spread < self.limits.colour_spread_min

    def _needed(self, site: Site) -> int:
        """For how long `site` has to be a flame."""
        limits = self.limits
        large = np.count_nonzero(site.mask) >= limits.large_share * self._full_area
        clear = site.score >= limits.large_score and (large or self._looks_odds(site.values) >= limits.agreed_odds)
        if clear and self.period_ns <= limits.often_ns:
            return limits.alarm_large_ns
        return limits.alarm_ns

    @property
    def period_ns(self) -> int:
        """From one picture to the next, on average, right behind a gap as before it; 0: too few are known."""
        steps = self._steps
        return (steps[-1].time_ns - steps[0].time_ns) // (len(steps) - 1) if len(steps) > 1 else self._period_ns

    def _looks_odds(self, values: dict[str, float]) -> float:
        """What the network says for a site of these `values`."""
        return sum(self.limits.weights[name].of(values[name]) for name in LOOKS)

    def _held_at(self, memory: _Memory, site: Site) -> float:
        return float(memory.of(memory.held, site.box)[site.mask].max()) if self._holding else 0.0

    def _sites(self, memory: _Memory, time_ns: int) -> list[Site]:
        limits = self.limits
        seeds = memory.flicker > limits.flicker_min * ALWAYS
        if not seeds.any():
            self.distant = None
            return []
        seeds &= memory.occupancy > limits.occupancy_min * ALWAYS
        grown = np.asarray(cv2.dilate(seeds.view(np.uint8), _SQUARE), np.uint8)
        grown |= (bodies := self._bodies(memory, grown))
        labels, measured = regions(grown)
        order = sorted(range(1, len(measured)), key=lambda label: -measured[label][cv2.CC_STAT_AREA])[:_SITES]
        sites: list[Site] = []
        small: list[tuple[float, PixelBox]] = []
        rows, columns = memory.window
        for label in order:
            x, y, width, height, area = measured[label]
            box, odds = (columns.start + x, rows.start + y, width, height), -math.inf
            if area >= limits.area_min:
                window = (slice(y, y + height), slice(x, x + width))
                mask = labels[window] == label
                exposed = bool(bodies[window][mask].any())
                sites.append(self._site(memory, box, mask, seeds[window] & mask, time_ns, exposed=exposed))
                odds = sites[-1].odds
            if max(width, height) <= limits.distant_share * max(self._shape):
                small.append((odds, box))
        # Of those that are too small to be judged at all, the largest: it comes first.
        self.distant = self.share(max(small, key=lambda one: one[0])[1]) if small else None
        return sites

    def _bodies(self, memory: _Memory, flickering: Picture) -> Picture:
        """1 where something over-exposed shines whose rim is `flickering` (1 there): it is one flame with all its rim.

        Inside it is clipped and shows no flicker, and pieces of a rim are neither brighter than what they surround nor
        of a flame's shape.
        """
        limits = self.limits
        bodies = np.zeros_like(flickering)
        if self.period_ns > limits.body_step_max_ns:
            return bodies
        bright = self._clipped(memory.window)
        lasting = cv2.compare(memory.occupancy, limits.body_occupancy_min * ALWAYS, cv2.CMP_GT)  # type: ignore[call-overload]
        bright &= lasting
        if cv2.countNonZero(bright) < limits.body_area_min:
            return bodies
        labels, measured = regions(bright)
        for label, (x, y, width, height, area) in enumerate(measured):
            if not label or area < limits.body_area_min:
                continue
            top, left = max(0, y - 1), max(0, x - 1)
            window = slice(top, y + height + 1), slice(left, x + width + 1)
            body = (labels[window] == label).view(np.uint8)
            rim = cv2.dilate(body, _SQUARE) - body
            moving = cv2.countNonZero(rim & flickering[window])
            if moving < limits.body_rim_min * cv2.countNonZero(rim):
                continue
            inner = cv2.erode(cv2.morphologyEx(body, cv2.MORPH_CLOSE, _SQUARE), _SQUARE) > 0
            still = memory.flicker[window][inner] <= limits.body_still * ALWAYS
            if not still.size or float(still.mean()) >= limits.body_still_min:
                bodies[window] |= body
        return bodies

    def _clipped(self, window: Window) -> Picture:
        """255 where the latest picture is over-exposed in `window`: in green, or where white is pink in the others."""
        limits, scale = self.limits, self._white / 255.0
        red, green, blue = self._red[window], self._steps[-1].green[window], self._blue[window]
        pink = both(at_least(red, limits.body_tinted_min * scale), at_least(blue, limits.body_tinted_min * scale))
        pink = both(pink, at_least(green, limits.glow_green_min * scale))
        return at_least(green, limits.body_green_min * scale) | pink

    def _site(
        self,
        memory: _Memory,
        box: PixelBox,
        mask: npt.NDArray[np.bool_],
        seeds: npt.NDArray[np.bool_],
        time_ns: int,
        *,
        exposed: bool,
    ) -> Site:
        """What is measured of `mask` inside `box`, of which `seeds` flicker; `exposed`: it has an over-exposed body."""
        limits = self.limits
        shown_max = limits.body_rest_max * self._white / 255.0 if exposed else ALWAYS
        occupied = max(1e-6, mean_of(memory.of(memory.occupancy, box), mask))
        values = {
            "flicker": mean_of(memory.of(memory.flicker, box), seeds) / ALWAYS,
            "core": mean_of(memory.of(memory.core, box), mask) / occupied,
            "contrast": self._contrast(box, mask) * 255.0 / self._white,
            "colour": limits.weights["colour"].limit
            if self.colourless
            else mean_of(memory.of(memory.colour, box), mask) / occupied,
            "border": self._border(box, mask),
            "rise": self._rise(memory, box, mask),
            **self._appearance(box, time_ns),
            "area": (area := np.count_nonzero(mask) / self._full_area),
            "familiar": self.familiar.of(self.share(box), area, time_ns),
        }
        odds = limits.prior + sum(limits.weights[name].of(value) for name, value in values.items())
        latest: list[float | None] = [None] * len(TRAITS)
        if odds + self._hope >= self._least:
            rest, unity = rest_and_unity(self._recent, box, seeds, time_ns, shown_max) or (None, None)
            repetition = max(0.0, self._periodicity.of(box, time_ns))
            latest = [self._travelled(box, mask, time_ns), rest, unity, repetition]
        traits = self._lately(memory.of(memory.traits, box), mask, latest)
        odds += sum(limits.weights[name].of(value) for name, value in traits.items())
        values.update(traits)
        odds += self._bound_looks(values)
        if self._whole:
            # Something so small moves as a flame does by chance: the network has to say so, too.
            odds = min(odds - limits.detail_doubt, values["close_up"])
            if values["border"] > 0:  # of what comes into it nothing can be said, and what flickers is in its middle
                odds = min(odds, limits.resembles_odds)
        else:  # what is measured of few pixels is as large by chance now and then, unless the network says so too
            few = max(0.0, 1.0 - np.count_nonzero(mask) / limits.few_area)
            odds -= few * max(0.0, limits.few_doubt - self._looks_odds(values))
        return Site(box, mask, values, odds)

    def _bound_looks(self, values: dict[str, float]) -> float:
        """Lower what the network said of a site in `values` to what its movement bears out; the odds that costs."""
        limits = self.limits
        movement = sum(weight.of(values[name]) for name, weight in limits.movement.items())
        most, lost = max(0.0, limits.looks_slope * (movement - limits.movement_least)), 0.0
        for name in LOOKS:
            weight, said = limits.weights[name], values[name]
            values[name] = min(said, most)
            lost += weight.of(values[name]) - weight.of(said)
        return lost

    def _lately(
        self, traits: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], latest: list[float | None]
    ) -> dict[str, float]:
        """The means of a site's `traits` over its pixels and the last judgements, with the `latest` (None: unknown)."""
        rate = 1.0 - math.exp(-self._since_ns / self.limits.judge_memory_ns)
        if any(value is not None for value in latest):  # what is unknown moves by nothing
            step = np.array([value or 0.0 for value in latest], np.float32)[:, None, None] - traits
            step *= np.array([0.0 if value is None else rate for value in latest], np.float32)[:, None, None]
            traits += step
        return {name: mean_of(plane, mask) for name, plane in zip(TRAITS, traits, strict=True)}

    def _travelled(self, box: PixelBox, mask: npt.NDArray[np.bool_], time_ns: int) -> float | None:
        """How well a shift explains what changes at the site; None where that cannot be said."""
        travel_ns = self.limits.travel_ns
        earlier = next((step for step in reversed(self._steps) if time_ns - step.time_ns >= travel_ns), None)
        if earlier is None:
            return None
        x, y, width, height = box
        window = slice(y, y + height), slice(x, x + width)
        coloured = (overlaid(window, earlier.colour, earlier.glow) > 0) & mask
        return travel(earlier.green, self._steps[-1].green, box, coloured)

    def _border(self, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """0..1: the share of a site that lies at the border of the picture, where anything may come in."""
        x, y, width, height = box
        rows, columns = self._shape
        left, top = max(0, _BORDER - x), max(0, _BORDER - y)
        right, bottom = min(width, columns - _BORDER - x), min(height, rows - _BORDER - y)
        inner = np.count_nonzero(mask[top : max(top, bottom), left : max(left, right)])
        return 1.0 - float(inner) / max(1.0, float(np.count_nonzero(mask)))

    def _rise(self, memory: _Memory, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """By how much of its height a site flickers above its middle: a flame stands on its base and licks upward."""
        height = box[3]
        if height < _RISE_HEIGHT:
            return self.limits.weights["rise"].neutral
        rows = np.arange(height, dtype=np.float32)
        shines, flickers = np.where(mask, memory.of(memory.shines_and_flickers, box), np.float32(0)).sum(axis=2)
        return float(rows @ shines / max(1e-6, shines.sum()) - rows @ flickers / max(1e-6, flickers.sum())) / height

    def _appearance(self, box: PixelBox, time_ns: int) -> dict[str, float]:
        """What the network makes of the picture, and of a close-up of `box`; the limits where it does not look."""
        columns, rows = self.full_size
        whole = self.looks.whole(time_ns)
        closely = self.looks.close_up(close_up_of(self.share(box), columns, rows), time_ns)
        if whole is None:
            weights = self.limits.weights
            return {name: weights[name].limit for name in LOOKS}
        return {"appearance": whole, "close_up": self.limits.unseen_odds if closely is None else closely}

    def _contrast(self, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """Red of the site's brighter tenth above the mean red around it, in counts, 0 or more."""
        x, y, width, height = box
        top, left = max(0, y - _RING), max(0, x - _RING)
        red = self._red[top : y + height + _RING, left : x + width + _RING]
        inside = np.zeros(red.shape, bool)
        inside[y - top : y - top + height, x - left : x - left + width] = mask
        if inside.all():
            return 255.0  # all of the picture burns
        around = cv2.mean(red, (~inside).view(np.uint8))[0]
        within = red[inside]
        brightest = np.partition(within, len(within) * 9 // 10)[len(within) * 9 // 10]
        return max(0.0, float(brightest) - around)

    def _hold(self, memory: _Memory, sites: list[Site], time_ns: int, seconds: float) -> None:
        """Add up to `seconds` where there is evidence, by its odds; take some off elsewhere."""
        limits = self.limits
        rates = np.full(memory.held.shape, -limits.decay, np.float32)
        rows, columns = memory.window
        for site in sorted(sites, key=lambda site: site.odds):
            x, y, width, height = site.box
            rate = min(1.0, max(-limits.decay_most, site.odds - self._least))
            # A flame leans in the draught, and the rim of a large one wanders: its neighbourhood is held with it.
            edge = _HELD_REACH + max(width, height) // _HELD_SHARE
            bordered = cv2.copyMakeBorder(site.mask.view(np.uint8), edge, edge, edge, edge, cv2.BORDER_CONSTANT)
            reach = cv2.dilate(bordered, np.ones((2 * edge + 1, 2 * edge + 1), np.uint8))
            top, left = max(rows.start, y - edge), max(columns.start, x - edge)
            reached = reach[top - y + edge :, left - x + edge :]
            bottom, right = y + height + edge, x + width + edge
            window = rates[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start]
            np.copyto(window, rate, where=reached[: window.shape[0], : window.shape[1]] > 0)
        held = memory.held
        held += np.float32(seconds) * rates
        longest = limits.held_max_ns
        if not self._periodicity.knows(time_ns):
            longest = limits.alarm_ns - 1_000_000  # only a suspicion until repetition can be ruled out
        np.clip(held, 0.0, longest / SECOND, out=held)
        self._holding = bool(held.any())

    def _terms(self, site: Site, held: float, needed_ns: int) -> tuple[Term, ...]:
        limits = self.limits
        terms = [weight.term("flame", name, site.values[name]) for name, weight in limits.weights.items()]
        if self.colourless:
            terms.append(
                Term(name="flame.colourless.below", value=self._colour_spread, threshold=limits.colour_spread_min)
            )
        terms.append(Term(name="flame.held", value=held, threshold=needed_ns / SECOND, unit="s"))
        return tuple(terms)


def colour_spread(picture: Planes) -> float:
    """By how much red differs over blue from pixel to pixel, in counts: a tint that all pixels have is no colour."""
    red, blue = picture.red[::4, ::4].astype(np.float32), picture.blue[::4, ::4].astype(np.float32)
    return float((red - blue).std())


def mean_of(plane: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> float:
    """The mean of `plane` where `mask` is set, 0 where it is nowhere: numpy takes six times as long."""
    return cv2.mean(plane, mask.view(np.uint8))[0]

"""Flame detection in moving pictures: the colour of hot soot, a hot core, broad-band flicker that stays in place.

Colour rules after Chen, Wu & Chiou, "An early fire-detection method based on image processing" (ICIP 2004) and Celik &
Demirel, "Fire detection in video sequences using a generic color model" (Fire Safety Journal 44, 2009); temporal
evidence after the idea of Toreyin et al., "Computer vision based method for real-time fire and flame detection"
(Pattern Recognition Letters 27, 2006), measured with real timestamps. Things that move as a whole, return to rest,
repeat or change everywhere at once are no flames: `character` measures that.

Each frame is reduced to masks of flame colour, glow and swing (`_swing`). `_Memory` averages them per pixel. Every 150
to 300 ms, `_judge` groups flickering pixels to sites and weighs each site's terms to log odds. Where the odds are for a
flame, it adds persistence. The longest persistence decides about an alarm.
"""

import math
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.character import rest_and_unity, travel
from embereye.detect.vision.flame.periodicity import Periodicity
from embereye.detect.vision.flame.recent import Recent
from embereye.detect.vision.flame.usual_levels import UsualLevels
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

NETWORK_TERMS = ("appearance", "close_up")  # terms from the appearance network
TRAITS = ("travel", "rest", "unity", "repetition")  # terms measured at each judgement

_SQUARE = np.ones((3, 3), np.uint8)
_PERSISTENCE_REACH = 2  # pixels around a site that share its persistence, and …
_PERSISTENCE_SHARE = 8  # … one more per 8 pixels of its longer side
_REACH = 3  # pixels that the memory's window reaches beyond flame colour
_MARGIN = 12  # pixels added around that when the window moves
_RING = 6  # pixels around a site to compare it with
_BORDER = 3  # pixels
_RISE_HEIGHT = 6  # pixels; a lower site has no top
_SITES = 4  # judged per frame; more sites are one fire or no fire
_STEPS = 64  # frames stored, at most
_DARK, _CLIPPED = 25, 245  # counts, outside which a pixel's hue says nothing about the cast
_COLOURS = 100  # of every 64th pixel, needed to measure a cast
FEW = 3  # pixels that noise may colour
FEW_GLOWING = 10  # pixels that a passing white thing may change
ALWAYS = 255.0  # full share of the time, on the scale of masks


@dataclass(frozen=True)
class Flame:
    """The result of the flame detector for one frame."""

    score: float = 0.0  # of the best site, 0..1
    lasted_ns: int = 0  # how long that site has been a flame
    needed_ns: int = FlameThresholds.alarm_ns  # how long that is needed for an alarm
    box: PixelBox | None = None
    terms: tuple[Term, ...] = ()
    # at most a pre-alarm, because colour, which separates flames from lamps at night, is missing
    colourless: bool = False


@dataclass(frozen=True)
class _Step:
    time_ns: int
    green: Picture
    colour: Patch  # 255: flame-coloured
    glow: Patch  # 255: so bright that a flame would be white


@dataclass(slots=True)
class _Light:
    """The brightness and the colour of a camera's pictures."""

    white: float = 255.0  # counts: the brightest pixels of this camera
    colour_spread: float = 255.0  # counts
    colour_ns: int = 0  # when that was last measured
    cast: float | None = None  # log2 of red over blue in what is grey; None: no picture yet
    cast_ns: int = 0  # when that was last measured


@dataclass(frozen=True)
class Site:
    """One region that may be a flame, as last judged."""

    box: PixelBox
    mask: npt.NDArray[np.bool_]  # inside the box
    values: dict[str, float]  # by name of the weight
    odds: float  # natural log odds of a flame

    @property
    def score(self) -> float:
        """The probability of a flame."""
        return 1.0 / (1.0 + math.exp(-self.odds))


class _Memory:
    """State while something flame-coloured swings; most cameras have none.

    The state per pixel covers only the `window` in which such colour has been seen. Boxes refer to the whole picture.
    """

    def __init__(self, shape: tuple[int, ...], limits: FlameThresholds) -> None:
        self._shape = shape
        self._limits = limits
        self._neutral = [limits.weights[name].neutral for name in TRAITS]
        self.window = NOWHERE
        self._learnt = False
        self._set_shares(np.zeros((4, 0, 0), np.float32))
        self._persistence: npt.NDArray[np.float32] | None = None
        self._traits: npt.NDArray[np.float32] | None = None
        self.is_persisting = False  # some pixel has persistence
        self.swung_ns = 0  # when something flame-coloured last swung
        self.forget_recent()

    def forget_recent(self) -> None:
        """Forget the pictures of the last seconds, in which repetition is searched."""
        self.recent = Recent()
        self.periodicity = Periodicity(self._limits, self.recent)

    def _set_shares(self, shares: npt.NDArray[np.float32]) -> None:
        """Set the `shares` of the time, up to ALWAYS.

        Per pixel: it may belong to a flame; it has flame colour; it may belong to a flame and swings; it is as bright
        as a core, yellow or white.
        """
        self._shares = shares
        self.occupancy, self.colour, self.flicker, self.core = shares
        self.shines_and_flickers = shares[::2]

    @property
    def persistence(self) -> npt.NDArray[np.float32]:
        """The time for which each pixel has belonged to a flame, in seconds; allocated when needed."""
        if self._persistence is None:
            self._persistence = np.zeros(self.occupancy.shape, np.float32)
        return self._persistence

    @property
    def traits(self) -> npt.NDArray[np.float32]:
        """A plane per trait with its mean over the last judgements; allocated for the first site."""
        if self._traits is None:
            self._traits = self._without_traits(self.occupancy.shape)
        return self._traits

    def _without_traits(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        return np.repeat(np.array(self._neutral, np.float32), math.prod(shape)).reshape(len(TRAITS), *shape)

    def of(self, remembered: npt.NDArray[np.float32], box: PixelBox) -> npt.NDArray[np.float32]:
        """Return the part of `remembered`, one of the arrays here, in `box`."""
        x, y = box[0] - self.window[1].start, box[1] - self.window[0].start
        return remembered[..., y : y + box[3], x : x + box[2]]

    def reach(self, window: Window) -> None:
        """Extend the window to include `window`."""
        if window == NOWHERE or together(self.window, around(window, _REACH, self._shape)) == self.window:
            return
        before, self.window = self.window, even(together(self.window, around(window, _MARGIN, self._shape)))
        rows, columns = self.window
        shape = rows.stop - rows.start, columns.stop - columns.start
        self._set_shares(put(self._shares, before, np.zeros((len(self._shares), *shape), np.float32), self.window))
        if self._persistence is not None:
            self._persistence = put(self._persistence, before, np.zeros(shape, np.float32), self.window)
        if self._traits is not None:
            self._traits = put(self._traits, before, self._without_traits(shape), self.window)

    def learn(self, colour: Patch, glow: Patch, flickering: Patch, core: Patch, rate: float) -> None:
        """Update the shares by `rate` (0..1) towards the current masks, each 255 or 0."""
        seen = np.zeros(self._shares.shape, np.uint8)
        for now, patches in zip(seen, ((colour, glow), (colour,), (flickering,), (core, glow)), strict=True):
            overlay(now, self.window, *patches)
        if not self._learnt:  # the past is unknown: assume that it was always like now
            self._shares[:2], self._learnt = seen[:2], True
        size = len(seen) * self.occupancy.shape[0], self.occupancy.shape[1]  # stacked vertically they are one picture
        cv2.accumulateWeighted(seen.reshape(size), self._shares.reshape(size), rate)


def flame_coloured(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """Return 255 where `picture` has the colour of a flame, else 0; `scale` shrinks the limits."""
    blue, green, red = picture
    # Most pictures have almost no pixel with red clearly over blue, and end here.
    over_blue = less(red, blue)
    coloured = at_least(over_blue, limits.red_over_blue_min * scale)
    if cv2.countNonZero(coloured) <= FEW:
        return NOTHING
    window = window_of(coloured)
    blue, green, red, warm = blue[window], green[window], red[window], coloured[window]
    # BT.601: Cr - Cb = 0.581 (R - B) + 0.087 (R - G) if red is not below green.
    chroma: Picture = cv2.addWeighted(over_blue[window], 0.581, less(red, green), 0.087, 0.0)  # type: ignore[assignment]
    warm = both(warm, at_least(chroma, limits.chroma_min * scale))
    warm = both(warm, at_least(red, limits.red_min * scale))
    return Patch.of(both(warm, cv2.inRange(green, blue, red)), window)  # type: ignore[arg-type]  # R >= G >= B


def glowing(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """Return 255 where `picture` is so bright that a flame would be white, else 0; `scale` shrinks the limits."""
    bright = at_least(picture.red, limits.glow_red_min * scale)
    if cv2.countNonZero(bright) <= FEW:
        return NOTHING
    window = window_of(bright)
    blue, green, red = (plane[window] for plane in picture)
    pale = both(bright[window], at_least(green, limits.glow_green_min * scale))
    return Patch.of(less(pale, at_least(less(blue, red), limits.glow_blue_over_red_max * scale)), window)


def core_coloured(picture: Planes, limits: FlameThresholds, scale: float) -> Patch:
    """Return 255 where `picture` is as bright and yellow as a flame's core, else 0; `scale` shrinks the limits."""
    hot = at_least(picture.red, limits.core_red_min * scale)
    if not cv2.countNonZero(hot):
        return NOTHING
    window = window_of(hot)
    blue, green, red, hot = picture.blue[window], picture.green[window], picture.red[window], hot[window]
    hot = both(hot, at_least(green, limits.core_green_min * scale))
    hot = both(hot, at_least(less(green, blue), limits.core_green_over_blue_min * scale))
    return Patch.of(both(hot, cv2.compare(red, green, cv2.CMP_GE)), window)  # type: ignore[arg-type]


def is_disturbed(
    swinging: Picture, flickering: Patch, limits: FlameThresholds, ignored: npt.NDArray[np.bool_] | None = None
) -> bool:
    """True if the picture swings as a whole outside `ignored`: the camera moves, or the scene changed."""
    others, size = cv2.countNonZero(swinging) - flickering.size, swinging.size
    if ignored is not None:
        others -= int(np.count_nonzero(swinging[ignored]))
        size -= int(np.count_nonzero(ignored))
    return others > limits.disturbed_share * size


def _second_difference(last: Picture, middle: Picture, first: Picture) -> Picture:
    """Half the second difference in eight bits: |(last + first) / 2 - middle|."""
    return cv2.absdiff(cv2.addWeighted(last, 0.5, first, 0.5, 0.0), middle)  # type: ignore[return-value]


def _has_swing(greens: tuple[Picture, Picture, Picture], patches: tuple[Patch, ...], least: float, few: int) -> bool:
    """True if more than `few` pixels inside `patches` swing by `least` counts."""
    window = _window_of_all(patches)
    if window == NOWHERE:
        return False
    last, middle, first = (green[window] for green in greens)
    swinging = at_least(_second_difference(last, middle, first), 0.5 * least + 1)
    if cv2.countNonZero(swinging) <= few:
        return False
    return cv2.countNonZero(both(swinging, overlaid(window, *patches))) > few


def _within(swinging: Picture, patches: tuple[Patch, ...]) -> Patch:
    """Restrict `swinging` to the pixels of any of `patches`."""
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
    """Flame detection for one camera. Feed it every frame; a step back in time resets it.

    It can also get only the part `place` of each frame with more pixels. Then `whole` gets the whole frames before, and
    its brightness and colours are used for the part.
    """

    def __init__(
        self,
        thresholds: FlameThresholds | None = None,
        inspections: Inspections | None = None,
        usual_levels: UsualLevels | None = None,
        place: Box = WHOLE,
        whole: "FlameDetector | None" = None,
    ) -> None:
        self._place, self._whole = place, whole
        self.inspections = inspections or Inspections()
        self.usual_levels = usual_levels or UsualLevels()
        self.limits = limits = thresholds or FlameThresholds()
        self._least = least_odds(limits.score_min)
        # The most that traits can add to a site's odds. A site that is hopeless even so is not measured further,
        # because traits take most of a judgement.
        self._hope = sum(limits.weights[name].most for name in TRAITS)
        self._shape: tuple[int, ...] = ()
        self._reset((0, 0))

    @property
    def suspect_mask(self) -> npt.NDArray[np.bool_] | None:
        """The pixels where a flame is suspected now and the background is not learned; None: nowhere."""
        if not self._memory or not self._memory.is_persisting:
            return None
        suspect = np.zeros(self._shape, bool)
        suspect[self._memory.window] = self._memory.persistence > 0
        return suspect

    @property
    def is_idle(self) -> bool:
        """True if nothing flame-coloured has swung in the last seconds."""
        return self._memory is None

    @property
    def interest(self) -> Interest:
        """The importance of the network's opinion now."""
        if self._memory and self._memory.is_persisting:
            return Interest.SUSPECTED
        if any(map(self._is_undecided, self.sites)):
            return Interest.FLICKERS
        return Interest.MOVES if self.sites else Interest.STILL  # the network's opinion does not expire meanwhile

    def close_ups(self) -> list[tuple[float, Box]]:
        """Return parts of the whole picture where the network's opinion could decide, with their log odds."""
        columns, rows = self.full_size
        return [
            (site.odds, close_up_of(self.share(site.box), columns, rows))
            for site in self.sites
            if self._is_undecided(site)
        ]

    def _is_undecided(self, site: Site) -> bool:
        """True if a close-up could make `site` a flame before the next one; most flickering sites are far from that."""
        weight = self.limits.weights["close_up"]
        best = site.odds - weight.of(site.values["close_up"]) + weight.most
        return best >= self._least - self.limits.turns_odds

    def share(self, box: PixelBox) -> Box:
        """Return the position of `box` in the whole picture."""
        left, top = self._place[:2]
        columns, rows = self.full_size
        x, y, width, height = box
        return left + x / columns, top + y / rows, width / columns, height / rows

    @property
    def full_size(self) -> tuple[float, float]:
        """(width, height) of the whole picture, in pixels of the pictures that it gets."""
        return self._shape[1] / self._place[2], self._shape[0] / self._place[3]

    @property
    def _full_area(self) -> float:
        """The same as square pixels."""
        width, height = self.full_size
        return width * height

    def _reset(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._period_ns = 0  # between pictures, before the latest gap
        self._picture = Planes(*[np.zeros(shape, np.uint8)] * 3)  # the latest one
        self.sites: list[Site] = []  # as last judged
        self.distant: Box | None = None  # place of flicker that is too small to measure
        self._memory: _Memory | None = None  # None: nothing flame-coloured swings
        self._light = _Light()
        self.judged_ns = 0  # when sites were last judged
        self._since_ns = 0  # duration that the latest judgement represents
        self._result = Flame()

    def observe(self, picture: Planes, time_ns: int, ignored: npt.NDArray[np.bool_] | None = None) -> Flame:
        """Analyse `picture` at `time_ns`, except where `ignored` is set."""
        limits, green = self.limits, picture.green
        if green.shape != self._shape:
            self._reset((green.shape[0], green.shape[1]))
        elapsed = time_ns - self._steps[-1].time_ns if self._steps else 0
        if elapsed < 0 or elapsed > limits.step_max_ns:
            self._period_ns = self.period_ns
            self._steps.clear()
            if self._memory:
                if elapsed < 0:
                    self._memory.forget_recent()
                self._memory.recent.note_gap()
            self.judged_ns = elapsed = 0
        self._picture = picture
        self._adapt(time_ns, elapsed)
        self._picture = picture = self._without_cast(picture)
        scale = self._light.white / 255.0
        step = _Step(time_ns, green, flame_coloured(picture, limits, scale), glowing(picture, limits, scale))
        if ignored is not None:
            for patch in (step.colour, step.glow):
                patch.inside[ignored[patch.window]] = 0
        self._steps.append(step)
        swung = self._swing(time_ns)
        shaken = swung is not None and is_disturbed(*swung, limits, ignored)
        if swung and not shaken:  # nothing is learned from a disturbed frame
            self._remember(*swung, picture, time_ns, elapsed)
        memory = self._memory
        if memory is None:
            return self._result
        if time_ns - memory.swung_ns > limits.forget_ns:
            self._forget()
        elif not shaken and time_ns - self.judged_ns >= (limits.judge_ns if memory.is_persisting else limits.glance_ns):
            self._judge(memory, time_ns)
        return self._result

    def _adapt(self, time_ns: int, elapsed_ns: int) -> None:
        """Follow the camera's brightest level and colour: one that clips at 180 is judged as if it clipped at 255."""
        if self._whole:
            self._light = self._whole._light
            return
        limits, light = self.limits, self._light
        fading = light.white - 255.0 * elapsed_ns / limits.white_memory_ns
        light.white = max(cv2.minMaxLoc(self._picture.red)[1], fading, 255.0 * limits.white_least)
        if not (light.colour_ns and 0 <= time_ns - light.colour_ns < limits.colour_every_ns):
            light.colour_ns, light.colour_spread = time_ns, colour_spread(self._picture)
            self._follow_cast(time_ns)

    def _follow_cast(self, time_ns: int) -> None:
        """Follow the cast slowly, because a white balance stays and a fire grows, and not while fire is suspected."""
        limits, light = self.limits, self._light
        if light.cast_ns and 0 <= time_ns - light.cast_ns < limits.cast_every_ns:
            return
        light.cast_ns = time_ns
        if self._memory and self._memory.is_persisting:
            return
        cast = colour_cast(self._picture)
        if light.cast is None:
            light.cast = cast or 0.0  # not the first light in a dark room, which may be a fire's
        elif cast is not None:
            light.cast += limits.cast_rate * (cast - light.cast)

    def _without_cast(self, picture: Planes) -> Planes:
        """Raise blue in a warm picture so far that grey does not look like a flame, except where red is clipped."""
        limits, light = self.limits, self._light
        if light.cast is None or light.cast <= limits.cast_max:
            return picture
        blue: Picture = cv2.convertScaleAbs(picture.blue, alpha=2.0 ** (light.cast - limits.cast_max))  # type: ignore[assignment]
        cv2.copyTo(picture.blue, at_least(picture.red, limits.cast_red_max * light.white / 255.0), blue)
        return picture._replace(blue=blue)

    def _swing(self, time_ns: int) -> tuple[Picture, Patch] | None:
        """Return (swinging pixels, flame-coloured swinging pixels), 255 or 0; None if unknown."""
        limits = self.limits
        before = self._step_before(time_ns)
        if before is None:
            return None
        (middle, first), last = before, self._steps[-1]
        colours, glows = (last.colour, middle.colour, first.colour), (last.glow, middle.glow, first.glow)
        scale = self._light.white / 255.0
        least, strong = min(limits.swing_min * scale, limits.swing_most), limits.glow_swing_min * scale
        greens = last.green, middle.green, first.green
        swings = (
            self._memory or _has_swing(greens, colours, least, FEW) or _has_swing(greens, glows, strong, FEW_GLOWING)
        )
        if not swings:
            return None
        swing = _second_difference(*greens)
        # Noise swings too: the median of the picture shows how much.
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
            self._memory.swung_ns = time_ns
        if (memory := self._memory) is None:
            return
        memory.reach(together(last.colour.window, flickering.window))
        memory.recent.see(last.green, memory.window, time_ns)
        memory.recent.swing(swinging, time_ns)
        rate = 1.0 - math.exp(-min(elapsed_ns, limits.frame_max_ns) / limits.memory_ns)
        core = core_coloured(picture, limits, self._light.white / 255.0)
        memory.learn(last.colour, last.glow, flickering, core, rate)

    def _forget(self) -> None:
        self._memory, self.judged_ns, self.sites, self.distant = None, 0, [], None
        self._result = Flame()

    def _step_before(self, time_ns: int) -> tuple[_Step, _Step] | None:
        """Return the frames one and two steps before `time_ns`, and drop older ones."""
        limits, steps = self.limits, self._steps
        earlier: list[_Step] = []
        reference = time_ns
        for step in reversed(steps):
            if reference - step.time_ns >= limits.step_ns:
                if reference - step.time_ns > limits.step_max_ns:
                    return None
                earlier.append(step)
                reference = step.time_ns
                if len(earlier) == 2:
                    while steps[0] is not step:
                        steps.popleft()
                    return earlier[0], earlier[1]
        return None

    def _judge(self, memory: _Memory, time_ns: int) -> None:
        """Judge all sites, update the persistence, and set the result."""
        elapsed = time_ns - self.judged_ns if self.judged_ns else 0
        self.judged_ns, self._since_ns = time_ns, min(max(elapsed, self.limits.judge_ns), self.limits.frame_max_ns)
        self.sites = sites = self._sites(memory, time_ns)
        self._learn(sites, time_ns)
        if memory.is_persisting or any(site.odds >= self._least for site in sites):
            self._add_persistence(memory, sites, time_ns, min(elapsed, self.limits.frame_max_ns) / SECOND)
        best = max(sites, key=lambda site: (self._persistence_at(memory, site), site.score), default=None)
        persistence = float(memory.persistence.max(initial=0.0)) if memory.is_persisting else 0.0
        if best is None:
            self._result = Flame(lasted_ns=int(persistence * SECOND), colourless=self.colourless)
            return
        needed_ns = self._needed(best)
        terms = self._terms(best, persistence, needed_ns)
        self._result = Flame(best.score, int(persistence * SECOND), needed_ns, best.box, terms, self.colourless)

    def _learn(self, sites: list[Site], time_ns: int) -> None:
        """Record where something is flame-like, whether or not it counts as a flame."""
        limits = self.limits
        if self._whole and self._whole.sites:
            return  # it learns instead
        for site in sites:
            if site.odds - limits.weights["familiar"].of(site.values["familiar"]) >= limits.resembles_odds:
                area = np.count_nonzero(site.mask) / self._full_area
                self.usual_levels.learn(self.share(site.box), area, self._since_ns / SECOND, time_ns)

    @property
    def colourless(self) -> bool:
        """True if pictures have no colour: infrared light at night, or black and white."""
        return self._light.colour_spread < self.limits.colour_spread_min

    def _needed(self, site: Site) -> int:
        """Return how long `site` has to be a flame for an alarm."""
        limits = self.limits
        large = np.count_nonzero(site.mask) >= limits.large_share * self._full_area
        clear = site.score >= limits.large_score and (large or self._network_odds(site.values) >= limits.agreed_odds)
        if clear and self.period_ns <= limits.often_ns:
            return limits.alarm_large_ns
        return limits.alarm_ns

    @property
    def period_ns(self) -> int:
        """The mean time between pictures, also right after a gap; 0: too few are known."""
        steps = self._steps
        return (steps[-1].time_ns - steps[0].time_ns) // (len(steps) - 1) if len(steps) > 1 else self._period_ns

    def _network_odds(self, values: dict[str, float]) -> float:
        """The network's log odds for a site with these `values`."""
        return sum(self.limits.weights[name].of(values[name]) for name in NETWORK_TERMS)

    def _persistence_at(self, memory: _Memory, site: Site) -> float:
        return float(memory.of(memory.persistence, site.box)[site.mask].max()) if memory.is_persisting else 0.0

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
        # If all are too small to judge, choose the largest, which comes first.
        self.distant = self.share(max(small, key=lambda candidate: candidate[0])[1]) if small else None
        return sites

    def _bodies(self, memory: _Memory, flickering: Picture) -> Picture:
        """Return 1 where something over-exposed shines whose rim is `flickering` (1 there): they are one flame.

        Inside, a flame is clipped and shows no flicker. Pieces of its rim alone are neither brighter than their
        surroundings nor flame-shaped.
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
        """Return 255 where the latest picture is over-exposed in `window`: in green, or as pink in a white place."""
        limits, scale = self.limits, self._light.white / 255.0
        blue, green, red = (plane[window] for plane in self._picture)
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
        """Measure `mask` inside `box`, of which `seeds` flicker; `exposed`: it has an over-exposed body."""
        limits = self.limits
        shown_max = limits.body_rest_max * self._light.white / 255.0 if exposed else ALWAYS
        occupied = max(1e-6, mean_of(memory.of(memory.occupancy, box), mask))
        values = {
            "flicker": mean_of(memory.of(memory.flicker, box), seeds) / ALWAYS,
            "core": mean_of(memory.of(memory.core, box), mask) / occupied,
            "contrast": self._contrast(box, mask) * 255.0 / self._light.white,
            "colour": limits.weights["colour"].limit
            if self.colourless
            else mean_of(memory.of(memory.colour, box), mask) / occupied,
            "border": self._border(box, mask),
            "rise": self._rise(memory, box, mask),
            **self._appearance(box, time_ns),
            "area": (area := np.count_nonzero(mask) / self._full_area),
            "familiar": self.usual_levels.familiarity(self.share(box), area, time_ns),
        }
        odds = limits.prior + sum(limits.weights[name].of(value) for name, value in values.items())
        latest: list[float | None] = [None] * len(TRAITS)
        if odds + self._hope >= self._least:
            rest, unity = rest_and_unity(memory.recent, box, seeds, time_ns, shown_max) or (None, None)
            repetition = max(0.0, memory.periodicity.of(box, time_ns))
            latest = [self._travelled(box, mask, time_ns), rest, unity, repetition]
        traits = self._lately(memory.of(memory.traits, box), mask, latest)
        odds += sum(limits.weights[name].of(value) for name, value in traits.items())
        values.update(traits)
        odds += self._bound_network_odds(values)
        if self._whole:
            # Something this small moves like a flame by chance, so the network has to agree.
            odds = min(odds - limits.detail_doubt, values["close_up"])
            if values["border"] > 0:  # something may be entering here, and the flicker to watch is in the middle
                odds = min(odds, limits.resembles_odds)
        else:  # measurements of few pixels are sometimes large by chance, unless the network agrees
            few = max(0.0, 1.0 - np.count_nonzero(mask) / limits.few_area)
            odds -= few * max(0.0, limits.few_doubt - self._network_odds(values))
        return Site(box, mask, values, odds)

    def _bound_network_odds(self, values: dict[str, float]) -> float:
        """Limit the network's terms in `values` to what the site's movement supports, and return the change in odds."""
        limits = self.limits
        movement = sum(weight.of(values[name]) for name, weight in limits.movement.items())
        most, lost = max(0.0, limits.network_slope * (movement - limits.movement_least)), 0.0
        for name in NETWORK_TERMS:
            weight, said = limits.weights[name], values[name]
            values[name] = min(said, most)
            lost += weight.of(values[name]) - weight.of(said)
        return lost

    def _lately(
        self, traits: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], latest: list[float | None]
    ) -> dict[str, float]:
        """Update a site's `traits` with the `latest` values (None: unknown) and return their means over its pixels."""
        rate = 1.0 - math.exp(-self._since_ns / self.limits.judge_memory_ns)
        if any(value is not None for value in latest):  # an unknown trait does not change
            step = np.array([value or 0.0 for value in latest], np.float32)[:, None, None] - traits
            step *= np.array([0.0 if value is None else rate for value in latest], np.float32)[:, None, None]
            traits += step
        return {name: mean_of(plane, mask) for name, plane in zip(TRAITS, traits, strict=True)}

    def _travelled(self, box: PixelBox, mask: npt.NDArray[np.bool_], time_ns: int) -> float | None:
        """Return how well a shift explains the site's change; None if unknown."""
        travel_ns = self.limits.travel_ns
        earlier = next((step for step in reversed(self._steps) if time_ns - step.time_ns >= travel_ns), None)
        if earlier is None:
            return None
        x, y, width, height = box
        window = slice(y, y + height), slice(x, x + width)
        coloured = (overlaid(window, earlier.colour, earlier.glow) > 0) & mask
        return travel(earlier.green, self._steps[-1].green, box, coloured)

    def _border(self, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """Return 0..1: the share of a site at the border of the picture, where things may enter."""
        x, y, width, height = box
        rows, columns = self._shape
        left, top = max(0, _BORDER - x), max(0, _BORDER - y)
        right, bottom = min(width, columns - _BORDER - x), min(height, rows - _BORDER - y)
        inner = np.count_nonzero(mask[top : max(top, bottom), left : max(left, right)])
        return 1.0 - float(inner) / max(1.0, float(np.count_nonzero(mask)))

    def _rise(self, memory: _Memory, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """Measure by how much of its height a site flickers above its middle: a flame's base is still."""
        height = box[3]
        if height < _RISE_HEIGHT:
            return self.limits.weights["rise"].neutral
        rows = np.arange(height, dtype=np.float32)
        shines, flickers = np.where(mask, memory.of(memory.shines_and_flickers, box), np.float32(0)).sum(axis=2)
        return float(rows @ shines / max(1e-6, shines.sum()) - rows @ flickers / max(1e-6, flickers.sum())) / height

    def _appearance(self, box: PixelBox, time_ns: int) -> dict[str, float]:
        """Return the network's log odds for the picture and a close-up of `box`; else the limits."""
        columns, rows = self.full_size
        whole = self.inspections.whole(time_ns)
        close_up = self.inspections.close_up(close_up_of(self.share(box), columns, rows), time_ns)
        if whole is None:
            weights = self.limits.weights
            return {name: weights[name].limit for name in NETWORK_TERMS}
        return {"appearance": whole, "close_up": self.limits.unseen_odds if close_up is None else close_up}

    def _contrast(self, box: PixelBox, mask: npt.NDArray[np.bool_]) -> float:
        """Red of the site's brightest tenth minus the mean red around it, in counts, at least 0."""
        x, y, width, height = box
        top, left = max(0, y - _RING), max(0, x - _RING)
        red = self._picture.red[top : y + height + _RING, left : x + width + _RING]
        inside = np.zeros(red.shape, bool)
        inside[y - top : y - top + height, x - left : x - left + width] = mask
        if inside.all():
            return 255.0  # the whole picture burns
        around = cv2.mean(red, (~inside).view(np.uint8))[0]
        within = red[inside]
        brightest = np.partition(within, len(within) * 9 // 10)[len(within) * 9 // 10]
        return max(0.0, float(brightest) - around)

    def _add_persistence(self, memory: _Memory, sites: list[Site], time_ns: int, seconds: float) -> None:
        """Add up to `seconds` of persistence where there is evidence, by its odds; subtract elsewhere."""
        limits = self.limits
        rates = np.full(memory.persistence.shape, -limits.decay, np.float32)
        rows, columns = memory.window
        for site in sorted(sites, key=lambda site: site.odds):
            x, y, width, height = site.box
            rate = min(1.0, max(-limits.decay_most, site.odds - self._least))
            # A flame leans in a draught and the rim of a large one wanders, so its neighbourhood persists too.
            edge = _PERSISTENCE_REACH + max(width, height) // _PERSISTENCE_SHARE
            bordered = cv2.copyMakeBorder(site.mask.view(np.uint8), edge, edge, edge, edge, cv2.BORDER_CONSTANT)
            reach = cv2.dilate(bordered, np.ones((2 * edge + 1, 2 * edge + 1), np.uint8))
            top, left = max(rows.start, y - edge), max(columns.start, x - edge)
            reached = reach[top - y + edge :, left - x + edge :]
            bottom, right = y + height + edge, x + width + edge
            window = rates[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start]
            np.copyto(window, rate, where=reached[: window.shape[0], : window.shape[1]] > 0)
        persistence = memory.persistence
        persistence += np.float32(seconds) * rates
        longest = limits.persistence_max_ns
        if not memory.periodicity.is_known(time_ns):
            longest = limits.alarm_ns - 1_000_000  # only a suspicion until repetition can be excluded
        np.clip(persistence, 0.0, longest / SECOND, out=persistence)
        memory.is_persisting = bool(persistence.any())

    def _terms(self, site: Site, persistence: float, needed_ns: int) -> tuple[Term, ...]:
        limits = self.limits
        terms = [weight.term("flame", name, site.values[name]) for name, weight in limits.weights.items()]
        if self.colourless:
            terms.append(
                Term(name="flame.colourless.below", value=self._light.colour_spread, threshold=limits.colour_spread_min)
            )
        terms.append(Term(name="flame.lasted", value=persistence, threshold=needed_ns / SECOND, unit="s"))
        return tuple(terms)


def colour_spread(picture: Planes) -> float:
    """Standard deviation of red minus blue over the pixels, in counts; a uniform tint is no colour."""
    red, blue = picture.red[::4, ::4].astype(np.float32), picture.blue[::4, ::4].astype(np.float32)
    return float((red - blue).std())


def colour_cast(picture: Planes) -> float | None:
    """log2 of red over blue in the least coloured pixels: 0 if white is neutral; None if there are too few."""
    planes = np.stack([plane[4::8, 4::8].ravel() for plane in picture]).astype(np.float32)
    darkest, brightest = planes.min(axis=0), planes.max(axis=0)
    planes = planes[:, (darkest > _DARK) & (brightest < _CLIPPED)]
    size = planes.shape[1]
    if size < _COLOURS:
        return None
    paleness = planes.min(axis=0) / planes.max(axis=0)
    blue, _, red = planes[:, np.argpartition(paleness, size - size * 3 // 10)[size - size * 3 // 10 :]]
    return math.log2(median(red / blue))


def mean_of(plane: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> float:
    """The mean of `plane` where `mask` is set, 0 if it is empty: numpy takes six times as long."""
    return cv2.mean(plane, mask.view(np.uint8))[0]

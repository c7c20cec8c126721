"""Every limit of the detectors and of a picture's health, with its unit and its reason. None is fitted to one scene."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from embereye.v1.types_pb2 import Term


@dataclass(frozen=True)
class Weight:
    """What one measured quantity says for or against fire, in natural log odds: 0 at its limit."""

    limit: float
    slope: float  # log odds per unit above the limit, or per factor e where `relative`; below 0: more is less fire
    least: float  # log odds: no single quantity decides more than this against …
    most: float  # … or for fire
    relative: bool = False
    unit: str = "1"
    scale: float = 1.0  # of the quantity as people are told it

    @property
    def neutral(self) -> float:
        """The value that says nothing; 0 where the quantity can only speak against fire."""
        return self.limit if self.most > 0 else 0.0

    def of(self, value: float) -> float:
        """The log odds of `value`."""
        distance = math.log(max(value / self.limit, 1e-3)) if self.relative else value - self.limit
        odds = self.slope * distance
        if not odds > self.least:  # min() and max() take longer than all the rest, for 25 weights of every site
            return self.least
        if odds > self.most:
            return self.most
        return odds

    def times(self, factor: float) -> "Weight":
        """The same weight, counting `factor` times as much."""
        return replace(self, slope=factor * self.slope, least=factor * self.least, most=factor * self.most)

    def term(self, kind: str, name: str, value: float) -> Term:
        """`value` beside its limit, for people."""
        below = ".below" if self.slope < 0 else ""
        return Term(
            name=f"{kind}.{name}{below}", value=self.scale * value, threshold=self.scale * self.limit, unit=self.unit
        )


def least_odds(score_min: float) -> float:
    """The natural log odds from which on a score is `score_min` (0..1) or more; 0 and 1 are as what is next to them."""
    score = min(0.999, max(0.001, score_min))
    return math.log(score / (1.0 - score))


FLICKER_RATE = 3.0  # pictures/s, below which no flicker can be measured, and no flame is found

SUGGESTED_PRIOR = -1.9  # log odds: most of what is coloured like a flame is none


def suggested_weights() -> dict[str, Weight]:
    """What each term says of a flame by physics and by eye: where it turns, in which direction, how far it may go."""
    return {
        # Share of the time that the site's pixels swing: 0.33 to 0.6 in flames; things that pass reach 0.25 to 0.33.
        "flicker": Weight(0.33, 4.0, -2.0, 1.6, relative=True, unit="%", scale=100),
        # Share of the coloured time that is hot core. Painted or dyed orange keeps its one hue; a lamp is all core.
        "core": Weight(0.025, 0.25, -0.8, 0.4, relative=True, unit="%", scale=100),
        # A flame is the light, what it lights is darker: red of its brighter pixels above the surroundings, counts.
        "contrast": Weight(50.0, 0.5, -1.5, 0.5, relative=True),
        # Share of its bright time that a site has a flame's colour: an over-exposed flame has it at its rim alone.
        "colour": Weight(0.35, 2.0, -1.5, 0.5),
        "border": Weight(0.30, -1.0, -0.5, 0.0),
        # A flame stands still on its base and flickers above its middle, by 0.03 to 0.13 of its height; lamps, cloth
        # and cars have no such side.
        "rise": Weight(0.03, 10.0, -0.5, 0.6, unit="%", scale=100),
        # Log odds of the network: of the whole picture, and of a close-up of the site.
        "appearance": Weight(0.0, 0.5, -1.5, 2.0),
        "close_up": Weight(0.0, 0.4, -1.2, 1.2),
        "area": Weight(16 / 19200, 0.1, -0.3, 0.3, relative=True, unit="%", scale=100),
        # Seen there for long at this time of day, and no larger: what else speaks for fire has to speak clearly.
        "familiar": Weight(0.0, -4.0, -4.0, 0.0, unit="%", scale=100),
        # What moves as a whole is found again a few pixels further on: 0.0 to 0.2 of a flame, half and more of things.
        "travel": Weight(0.20, -6.0, -4.0, 1.2),
        # What passes before a wall lets it return to what it was: 0.3 to 0.45 of the time is noise, and flames.
        "rest": Weight(0.52, -20.0, -4.0, 1.8),
        # A lamp, a screen and the exposure change everywhere at once: flames 0.2 to 0.6.
        "unity": Weight(0.55, -4.0, -3.0, 0.5),
        # A flame never returns to a picture it had; a beacon, a fan, a needle and a wave of the hand do.
        "repetition": Weight(0.40, -10.0, -4.0, 0.0),
    }


def _movement() -> dict[str, Weight]:
    suggested = suggested_weights()
    return {name: suggested[name] for name in ("flicker", "travel", "unity", "repetition")}


# By how much each of them counts: `embereye bench detection --folds` fits this table to labelled clips and prints it.
FITTED: Mapping[str, float] = {
    "flicker": 0.68, "core": 0.72, "contrast": 0.42, "colour": 0.98, "border": 1.02, "rise": 1.15, "appearance": 1.40,
    "close_up": 1.03, "area": 1.08, "travel": 0.25, "rest": 1.11, "unity": 0.76, "repetition": 1.06,
}  # fmt: skip
FITTED_PRIOR = -1.42


def _flame_weights() -> dict[str, Weight]:
    return {name: weight.times(FITTED.get(name, 1.0)) for name, weight in suggested_weights().items()}


@dataclass(frozen=True)
class FlameThresholds:
    """Limits of the flame detector. Colours are 8-bit counts; times are nanoseconds."""

    # Colour. Chen et al. (2004): R >= G >= B and R above a level; Celik & Demirel (2009): Cr clearly above Cb (40).
    red_min: int = 130  # a flame emits: what is darker is not one, or is outshone and shows no colour
    chroma_min: int = 40  # Cr - Cb
    red_over_blue_min: int = 50  # skin, wood and sunlit walls have less
    # The hot core. Soot at 1,300 K and more saturates red and lifts green into yellow; painted or dyed orange
    # keeps its one hue, and pale skin in hard light has nearly as much blue as green.
    core_red_min: int = 230
    core_green_min: int = 150
    core_green_over_blue_min: int = 40
    # Over-exposed, a flame is white: any colour will do there that is not bluish.
    glow_red_min: int = 225
    glow_green_min: int = 170
    glow_blue_over_red_max: int = 16
    glow_swing_min: float = 60.0  # counts of green: before what is darker, the rim of such a flame swings by far more
    # In infrared light pictures have no colour: less spread than this, a camera's noise, of red over blue. A flame of
    # 12 pixels in a grey room makes 8. What is found then is a pre-alarm at most.
    colour_spread_min: float = 4.0  # counts, standard deviation
    colour_every_ns: int = 1_000_000_000
    # A camera that never gets brighter than this share of 255 is judged as one that does: the limits above shrink.
    white_least: float = 0.65
    white_memory_ns: int = 60_000_000_000  # in which a level that is not seen again is forgotten entirely

    # Flicker. A second difference over equal steps of time cancels slow change and steady motion of a gradient;
    # 60 to 80 ms a step looks at 3 to 8 Hz, where flames have most of their energy.
    step_ns: int = 60_000_000
    step_max_ns: int = 700_000_000  # longer gaps say nothing about flicker
    swing_min: float = 20.0  # counts of green (red saturates); sensor and coding noise stay under 12
    swing_over_noise: float = 9.0  # times the median of half the second difference: 3 standard deviations of noise
    swing_most: float = 40.0  # counts; flames swing by more in the worst of noise
    flicker_min: float = 0.25  # share of the time that a pixel swings; an edge that passes swings for a few frames
    occupancy_min: float = 0.20  # share of the time that a pixel has a flame's colour
    memory_ns: int = 1_000_000_000  # time constant of both shares
    frame_max_ns: int = 300_000_000  # one frame never counts for more time than this
    # Over-exposed, a flame is clipped inside and flickers at its rim: where enough of that does, both are one site.
    body_green_min: int = 235
    body_tinted_min: int = 240  # red and blue, both: a white balance that is off leaves clipped white pink
    body_occupancy_min: float = 0.5  # share of the time
    body_area_min: int = 24  # pixels
    body_rim_min: float = 0.20  # share of the rim: furniture may hide the rest; a window that something passes has less
    # Rain and people pass before all of a lamp: inside, as much of a body is still, which swings this share of the time
    # at most. Seen in fewer pictures, it may be still by chance.
    body_still_min: float = 0.4
    body_still: float = 0.008
    # What is clipped shows no change: pixels of a site with such a body that rest brighter than this, in counts of
    # green, say nothing of rest. A white wall before which people move is no such body.
    body_rest_max: float = 215.0
    body_step_max_ns: int = 110_000_000
    area_min: float = 16.0  # pixels of the working picture: less cannot be told from noise
    # Of the picture's longer side: what is no wider and no higher is looked at with more pixels, where there are any.
    distant_share: float = 0.10
    detail_period_ns: int = 150_000_000  # between pictures: in fewer of them chance makes flames of few pixels
    detail_doubt: float = 1.0  # log odds: of so much that is looked at so closely, less is a flame
    # Pixels of the whole picture: what is measured of fewer is less certain by so many log odds at most, less what the
    # network says for them.
    few_area: float = 40.0
    few_doubt: float = 1.0
    forget_ns: int = 6_000_000_000  # without any flame colour: six time constants, nothing is left to remember
    # A whole picture that swings is a camera that moves, or a cut: nothing is learnt from such a frame.
    disturbed_share: float = 0.30  # of the pixels that do not look like flame

    # Weighing. Sites are looked at this often; a shift is looked for over this time.
    judge_ns: int = 150_000_000
    glance_ns: int = 300_000_000  # … while none of them has any evidence
    travel_ns: int = 100_000_000  # or more, at low frame rates
    judge_memory_ns: int = 700_000_000
    weights: Mapping[str, Weight] = field(default_factory=_flame_weights)
    prior: float = FITTED_PRIOR  # log odds
    # What the network may say for a site is bounded by how it moves: a lamp and a flame look alike, and lamps are what
    # it errs in; they travel, or change everywhere at once. In log odds, as suggested: 1 to 3 of real flames, -3 to 0
    # of drawn lamps, headlights and screens.
    movement: Mapping[str, Weight] = field(default_factory=_movement)
    movement_least: float = -0.5
    looks_slope: float = 2.0  # log odds of the network that are borne out, per log odds of movement above that
    turns_odds: float = 3.0  # log odds that a site's other terms may add until the network looks again
    resembles_odds: float = -1.5  # log odds from which on a site is worth remembering of a view
    # Of a site that it has seen no close-up of, where it looks at the camera: what moves on before that is less of a
    # fire than what stays.
    unseen_odds: float = -1.0
    # What the network alone makes a fire of, by folds: it never said more than 1.0 of what was none for four looks.
    likeness_min: float = 1.75  # log odds of the whole picture, above what it usually says of the view
    likeness_motion_min: float = 0.002  # of the picture that moves between two looks: a still one only shows a fire
    likeness_alarm_ns: int = 4_000_000_000
    repeat_shortest_ns: int = 250_000_000
    repeat_longest_ns: int = 1_600_000_000

    # Persistence: the same pixels, not the same picture. What walks or drives by holds no pixel this long.
    pre_alarm_ns: int = 800_000_000
    alarm_ns: int = 2_700_000_000
    # A large site is many flickering pixels that do not know of each other: where they speak clearly, that is as much
    # evidence in less time, too little to have seen slow repetition, which no large lookalike needed to be told by.
    large_share: float = 0.02  # of the picture
    large_score: float = 0.8
    agreed_odds: float = 0.5  # what the network's two terms have to say for a smaller site to need as little
    alarm_large_ns: int = 2_000_000_000
    often_ns: int = (
        110_000_000  # between pictures, at most: of fewer, what passes once changes half of all in that time
    )
    held_max_ns: int = 6_000_000_000  # so that an end is noticed after a few seconds
    decay: float = 0.5  # of the held time lost per time without evidence: flames dip
    decay_most: float = 1.5  # … and where there is evidence against a flame
    score_min: float = 0.5  # even odds


def _smoke_weights() -> dict[str, Weight]:
    return {
        # Share of the background's contrast that is lost: less is a change of light as well.
        "loss": Weight(0.25, 4.0, -1.5, 1.0, unit="%", scale=100),
        # A cloud of less than 8 of 300 blocks is steam from a cup, or a person whose clothes resemble the wall.
        "size": Weight(10 / 300, 0.7, -1.0, 1.0, relative=True, unit="%", scale=100),
        # Structure comes through smoke weakened, not changed.
        "structure": Weight(0.75, 4.0, -1.0, 0.8),
        # The veil adds one grey of its own everywhere; things that differ from their background differ in many.
        "spread": Weight(40.0, -0.06, -2.5, 1.0),
        # A lens out of focus "adds" to each block what the block had: correlation of the two.
        "echo": Weight(0.55, -15.0, -5.0, 0.0),
        # Smoke is grey, or a little blue or brown: largest difference of its own colour's channels, counts.
        "hue": Weight(60.0, -0.04, -2.0, 0.6),
        # Smoke is never still. A veil that is was no veil: something that stood there while the background was learnt
        # has gone. By how much the mean of a block changes within a second, counts.
        "stir": Weight(1.3, 5.0, -4.0, 0.0, relative=True),
    }


@dataclass(frozen=True)
class SmokeThresholds:
    """Limits of the smoke detector."""

    look_ns: int = 240_000_000  # smoke is slow
    gap_max_ns: int = 500_000_000  # one look never counts for more time than this
    # The background: followed slowly enough that a room which fills within a minute or two is noticed.
    memory_ns: int = 60_000_000_000
    begin_ns: int = 1_500_000_000  # learnt everywhere for this long at first
    # What a block has to be to say anything, and what it has to say.
    texture_min: float = 6.0  # counts, standard deviation: a flat wall shows no veil
    through_max: float = 0.82  # of the background that still comes through; exposure drifts by a tenth
    through_min: float = 0.08  # less than this cannot be told from a thing that stands in front
    structure_min: float = 0.70  # correlation with the background
    airlight_min: float = 60.0  # counts; a shadow adds nothing of its own, it is a veil of 0 to 40
    airlight_max: float = 245.0
    shift_min: float = 4.0  # counts by which the block has to become brighter or darker: defocus does neither
    # A block has to be veiled most of the time: cars and waves veil it for a look or two.
    lasting_rate: float = 0.15  # of a look in that share: six looks, 1.5 s
    lasting_min: float = 0.5
    blocks_min: int = 8
    weights: Mapping[str, Weight] = field(default_factory=_smoke_weights)
    prior: float = -0.5
    # More of the textured blocks than step_to at once, where it was less than step_from a second ago: new exposure.
    step_to: float = 0.60
    step_from: float = 0.20
    step_held_s: float = 1.0
    # Persistence. Dust, breath and steam thin out within 4 to 10 s; a source goes on.
    pre_alarm_ns: int = 12_000_000_000
    alarm_ns: int = 16_000_000_000
    held_max_ns: int = 30_000_000_000
    decay: float = 1.0  # of the held time lost per time without evidence: traffic and waves are veils now and then
    score_min: float = 0.5  # even odds


@dataclass(frozen=True)
class MotionThresholds:
    """Limits of the background model."""

    memory_ns: int = 10_000_000_000  # time constant of the background
    learn_ns: int = 200_000_000  # between two steps of learning
    difference_min: float = 18.0  # counts; three times the noise of a cheap camera at night


@dataclass(frozen=True)
class HealthThresholds:
    """Limits of what a picture must show to be one. Levels are 8-bit counts; times are nanoseconds."""

    period_ns: int = 600_000_000  # between two looks: black for three of them is told within a deadline of 2 s
    whole_ns: int = 1_800_000_000  # without a whole picture, after which damaged ones are looked at
    damaged_ns: int = 10_000_000_000  # of damaged ones alone, after which that is told
    compare_ns: int = 1_100_000_000  # between two comparisons with what is known; what they find lasts for seconds

    # Black, white, blank: a cut, a flash or a shutter is over within a second.
    blind_ns: int = 1_000_000_000
    black_level: int = 24  # noise and black level stay below it
    white_level: int = 235  # video white; a scene has something darker
    lit_share: float = 0.005  # of the pixels above black that make a picture: a lamp at night is one. So for white
    blank_deviation: float = 1.0  # a grey "no signal" picture

    # Frozen. A still scene has noise, which no encoder hides for this long in every block.
    frozen_ns: int = 5_000_000_000
    # A clock or a logo laid over a dead picture changes a few blocks. Encoders that skip what stands still renew all of
    # it with every key frame, which come at least every 10 s: three of them.
    overlay_ns: int = 30_000_000_000
    overlay_share: float = 0.12  # of the blocks: two lines of text

    # Exposure. Sky, snow and lamps clip a third of a good picture; in clipped white neither smoke nor flame shows.
    # Too dark is no fault until the picture is black: a flame is its own light.
    clipped_level: int = 250
    clipped_share: float = 0.6
    exposure_ns: int = 5_000_000_000  # an automatic exposure has found its value by then

    # Against the view learnt. Measured over the development clips: the same scene agrees by 0.84 and more, in other
    # light (a tenth to twice as bright, fog, infrared noise) by 0.5 and more, another scene by less than 0.4.
    impression_ns: int = 2_500_000_000  # time constant of the present picture that is compared
    view_memory_ns: int = 300_000_000_000  # time constant of a view: the sun moves, shadows with it
    learn_ns: int = 2_000_000_000  # between two steps of learning
    settled_ns: int = 15_000_000_000  # that a view is learnt before anything is held against it
    place_min: float = 0.4  # agreement of edges under which the scene is another one; a shift by a tenth is
    steady_min: float = 0.6  # agreement with itself that a new scene keeps while it is learnt
    # A camera that pans or is carried. Over the development clips only such ones shift by so much in several looks in a
    # row; up to that a flame stays where it is for long enough to be judged.
    speed_min: float = 0.02  # of the longer side a second
    moving_ns: int = 2_000_000_000  # a jolt is over by then
    shift_gap_ns: int = 3_000_000_000  # between two looks: after longer ones nothing is said
    unmoved_min: float = 0.95  # agreement of edges where they were above which no shift is looked for
    shift_response_min: float = 0.2  # of the phase correlation: a fast pan leaves little in common
    shift_agreement_min: float = 0.45  # of edges where the shift puts them
    shift_quarter_min: float = 0.05  # of all edges that a quarter of the picture has to have to be asked as well
    shift_quarters: int = 3  # of the picture's four that have so much structure, at least
    moved_ns: int = 15_000_000_000  # a lorry that stops before the lens is gone by then, as a rule
    sharpness_min: float = 0.4  # of the usual detail; a blur of 1.5 pixels of the working picture leaves a third
    blurred_place_min: float = 0.2  # a blur hides edges too: above this it is the same scene, out of focus
    focus_ns: int = 10_000_000_000  # autofocus has found its distance by then
    lost_ratio: float = 0.3  # of a block's usual gradient, less than which is none
    lost_share: float = 0.6  # of the structured blocks without structure: paint, cloth, a hand, thick smoke
    structure_min: float = 0.7  # counts per pixel; averaged noise has less
    bare_share: float = 0.02  # of the blocks with any structure at all: less has no scene, only a covered lens
    covered_ns: int = 8_000_000_000  # a person who passes close by is gone by then
    # Where a lit scene went dark there is nothing to compare: no fault comes of it.
    dark_level: float = 30.0
    dark_ratio: float = 0.5  # of the view's level
    recovered_ns: int = 1_500_000_000  # that a cause must be away for its fault to end

    # A scene that has stayed for this long after a move is a view like the first. Covered and out of focus never are.
    accepted_ns: int = 600_000_000_000
    views: int = 6  # kept: day, night, a few presets of a camera that turns

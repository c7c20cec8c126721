"""Every limit of the detectors and of the picture health, with unit and reason. None is fitted to a single scene."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from embereye.v1.types_pb2 import Term


@dataclass(frozen=True)
class Weight:
    """The weight of one measured quantity for or against fire, in natural log odds: 0 at its limit."""

    limit: float
    slope: float  # log odds per unit above the limit, or per factor e if `relative`; negative: more is less fire
    least: float  # log odds: largest weight against fire …
    most: float  # … and for fire of a single quantity
    relative: bool = False
    unit: str = "1"
    scale: float = 1.0  # factor from the quantity to the value shown to people

    @property
    def neutral(self) -> float:
        """The value without weight; 0 if the quantity can only speak against fire."""
        return self.limit if self.most > 0 else 0.0

    def of(self, value: float) -> float:
        """Return the log odds of `value`."""
        distance = math.log(max(value / self.limit, 1e-3)) if self.relative else value - self.limit
        odds = self.slope * distance
        # min() and max() would take longer than everything else here, for 25 weights per site
        if not odds > self.least:
            return self.least
        if odds > self.most:
            return self.most
        return odds

    def times(self, factor: float) -> "Weight":
        """Return the same weight multiplied by `factor`."""
        return replace(self, slope=factor * self.slope, least=factor * self.least, most=factor * self.most)

    def term(self, kind: str, name: str, value: float) -> Term:
        """Return `value` and its limit as a term for people."""
        below = ".below" if self.slope < 0 else ""
        return Term(
            name=f"{kind}.{name}{below}", value=self.scale * value, threshold=self.scale * self.limit, unit=self.unit
        )


def least_odds(score_min: float) -> float:
    """Convert a minimum score (0..1) to natural log odds; 0 and 1 are treated as almost that."""
    score = min(0.999, max(0.001, score_min))
    return math.log(score / (1.0 - score))


FLICKER_RATE = 3.0  # pictures/s below which flicker cannot be measured and no flame is detected

SUGGESTED_PRIOR = -1.9  # log odds: most flame-coloured things are no flames


def suggested_weights() -> dict[str, Weight]:
    """Return the weights of a flame's terms by physics and by eye: neutral value, direction, and limits."""
    return {
        # Share of the time that the site's pixels swing: 0.33 to 0.6 in flames; passing things reach 0.25 to 0.33.
        "flicker": Weight(0.33, 4.0, -2.0, 1.6, relative=True, unit="%", scale=100),
        # Share of the coloured time that is hot core. Painted or dyed orange has a single hue; a lamp is all core.
        "core": Weight(0.025, 0.25, -0.8, 0.4, relative=True, unit="%", scale=100),
        # A flame is the light, its surroundings are darker: red of its brighter pixels above the surroundings, counts.
        "contrast": Weight(50.0, 0.5, -1.5, 0.5, relative=True),
        # Share of its bright time that a site has flame colour: an over-exposed flame has it only at its rim.
        "colour": Weight(0.35, 2.0, -1.5, 0.5),
        "border": Weight(0.30, -1.0, -0.5, 0.0),
        # A flame has a still base and flickers above its middle, by 0.03 to 0.13 of its height; lamps, cloth and cars
        # do not.
        "rise": Weight(0.03, 10.0, -0.5, 0.6, unit="%", scale=100),
        # Log odds of the network: of the whole picture, and of a close-up of the site.
        "appearance": Weight(0.0, 0.5, -1.5, 2.0),
        "close_up": Weight(0.0, 0.4, -1.2, 1.2),
        "area": Weight(16 / 19200, 0.1, -0.3, 0.3, relative=True, unit="%", scale=100),
        # Seen there for long at this time of day, and no larger: the other terms have to be clear.
        "familiar": Weight(0.0, -4.0, -4.0, 0.0, unit="%", scale=100),
        # A thing that moves as a whole is found again a few pixels away: 0.0 to 0.2 in flames, 0.5 and more in things.
        "travel": Weight(0.20, -6.0, -4.0, 1.2),
        # After something passes, a wall looks as before: 0.3 to 0.45 of the time is noise, and flames.
        "rest": Weight(0.52, -20.0, -4.0, 1.8),
        # A lamp, a screen and the exposure change everywhere at once: flames 0.2 to 0.6.
        "unity": Weight(0.55, -4.0, -3.0, 0.5),
        # A flame never returns to an earlier picture; a beacon, a fan, a needle and a waving hand do.
        "repetition": Weight(0.40, -10.0, -4.0, 0.0),
    }


def _movement() -> dict[str, Weight]:
    suggested = suggested_weights()
    return {name: suggested[name] for name in ("flicker", "travel", "unity", "repetition")}


# Factors of the weights: `embereye bench detection --folds` fits this table to labelled clips and prints it.
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
    red_min: int = 130  # a flame emits light: something darker is no flame, or is outshone and shows no colour
    chroma_min: int = 40  # Cr - Cb
    red_over_blue_min: int = 50  # skin, wood and sunlit walls have less
    # The hot core. Soot at 1,300 K and more saturates red and lifts green into yellow; painted or dyed orange has a
    # single hue, and pale skin in hard light has nearly as much blue as green.
    core_red_min: int = 230
    core_green_min: int = 150
    core_green_over_blue_min: int = 40
    # An over-exposed flame is white, so any colour counts that is not bluish.
    glow_red_min: int = 225
    glow_green_min: int = 170
    glow_blue_over_red_max: int = 16
    # counts of green: against a darker background, the rim of such a flame swings by far more
    glow_swing_min: float = 60.0
    # Infrared pictures have no colour: the spread of red over blue is below this, a camera's noise. A flame of 12
    # pixels in a grey room reaches 8. Without colour a flame is at most a pre-alarm.
    colour_spread_min: float = 4.0  # counts, standard deviation
    colour_every_ns: int = 1_000_000_000
    # Cast: log2 of red over blue in the least coloured pixels. A warm white balance has 0.5, and grey then has Cr - Cb
    # above chroma_min. At this limit the brightest grey has 39. What is clipped in red has lost its hue.
    cast_max: float = 0.4
    cast_red_max: int = 250
    cast_every_ns: int = 10_000_000_000  # between two measurements, and …
    cast_rate: float = 0.15  # … the weight of one: a minute until it is learned
    # A camera that never gets brighter than this share of 255 is judged as one that does: the limits above are scaled.
    white_least: float = 0.65
    white_memory_ns: int = 60_000_000_000  # after which a brightest level that is not seen again is forgotten

    # Flicker. A second difference over equal time steps cancels slow change and steady motion of a gradient. Steps of
    # 60 to 80 ms respond to 3 to 8 Hz, where flames have most of their energy.
    step_ns: int = 60_000_000
    step_max_ns: int = 700_000_000  # longer gaps cannot show flicker
    swing_min: float = 20.0  # counts of green (red saturates); sensor and coding noise stay below 12
    swing_over_noise: float = 9.0  # times the median of half the second difference: 3 standard deviations of noise
    swing_most: float = 40.0  # counts; flames swing by more even in the worst noise
    flicker_min: float = 0.25  # share of the time that a pixel swings; at a passing edge it swings for a few frames
    occupancy_min: float = 0.20  # share of the time that a pixel has flame colour
    memory_ns: int = 1_000_000_000  # time constant of both shares
    frame_max_ns: int = 300_000_000  # longest time that one frame counts
    # An over-exposed flame is clipped inside and flickers at its rim: with enough flicker, both are one site.
    body_green_min: int = 235
    body_tinted_min: int = 240  # red and blue, both: a wrong white balance makes clipped white pink
    body_occupancy_min: float = 0.5  # share of the time
    body_area_min: int = 24  # pixels
    # share of the rim: furniture may hide the rest; something that passes a window causes less
    body_rim_min: float = 0.20
    # Rain and people pass in front of all of a lamp. Of a flame's body at least this share swings for at most this
    # share of the time. In few pictures a body may be still by chance.
    body_still_min: float = 0.4
    body_still: float = 0.008
    # Clipped pixels show no change: pixels of a site with such a body that rest brighter than this, in counts of green,
    # do not count for rest. A white wall with people in front is no such body.
    body_rest_max: float = 215.0
    body_step_max_ns: int = 110_000_000
    area_min: float = 16.0  # pixels of the working picture; fewer cannot be distinguished from noise
    # of the picture's longer side: a site no wider and no higher is decoded with more pixels, if there are any
    distant_share: float = 0.10
    detail_period_ns: int = 150_000_000  # between pictures: in rare pictures, few pixels look like flames by chance
    detail_doubt: float = 1.0  # log odds against a flame in a detail: many places are inspected closely
    # Pixels of the whole picture: a site with fewer loses up to `few_doubt` log odds, less the network's odds for it.
    few_area: float = 40.0
    few_doubt: float = 1.0
    forget_ns: int = 6_000_000_000  # without any flame colour: after six time constants nothing is left to remember
    # If the whole picture swings, the camera moves or the scene was cut, and the frame is not learned.
    disturbed_share: float = 0.30  # of the pixels that are not flame-like

    # Weighing. Interval between judgements of the sites, and the interval over which a shift is measured.
    judge_ns: int = 150_000_000
    glance_ns: int = 300_000_000  # … while no site has any evidence
    travel_ns: int = 100_000_000  # or more, at low frame rates
    judge_memory_ns: int = 700_000_000
    weights: Mapping[str, Weight] = field(default_factory=_flame_weights)
    prior: float = FITTED_PRIOR  # log odds
    # The network's odds for a site are limited by its movement. A lamp looks like a flame, and the network errs most in
    # lamps; but lamps travel, or change everywhere at once. In log odds, as suggested: 1 to 3 for real flames, -3 to 0
    # for drawn lamps, headlights and screens.
    movement: Mapping[str, Weight] = field(default_factory=_movement)
    movement_least: float = -0.5
    network_slope: float = 2.0  # network log odds that are accepted per log odds of movement above that
    turns_odds: float = 3.0  # log odds that a site's other terms may gain until the next inspection
    resembles_odds: float = -1.5  # log odds from which a site is learned as usual for the view
    # For a site without a close-up although the network inspects the camera: a thing that moves away before that is
    # less likely a fire than one that stays.
    unseen_odds: float = -1.0
    # Odds for an alarm from the network alone, by folds: its highest error in four inspections in a row was 1.0.
    likeness_min: float = 1.75  # log odds of the whole picture, above the usual odds of the view
    # share of the picture that moves between two inspections: a still picture only shows a fire
    likeness_motion_min: float = 0.002
    likeness_alarm_ns: int = 4_000_000_000
    repeat_shortest_ns: int = 250_000_000
    repeat_longest_ns: int = 1_600_000_000

    # Persistence belongs to pixels, not to the picture. Nothing that walks or drives past covers a pixel this long.
    pre_alarm_ns: int = 800_000_000
    alarm_ns: int = 2_700_000_000
    # A large site is many independently flickering pixels. If they are clear, they are as much evidence in less time.
    # That is too short to notice slow repetition, but no large lookalike needed it.
    large_share: float = 0.02  # of the picture
    large_score: float = 0.8
    agreed_odds: float = 0.5  # log odds of the network's two terms for a smaller site to need as little time
    alarm_large_ns: int = 2_000_000_000
    often_ns: int = (
        110_000_000  # between pictures, at most: with fewer, a single passing thing changes half of them in that time
    )
    persistence_max_ns: int = 6_000_000_000  # so that an end is noticed after a few seconds
    decay: float = 0.5  # of the persistence lost per time without evidence: flames dip
    decay_most: float = 1.5  # … and with evidence against a flame
    score_min: float = 0.5  # even odds


def _smoke_weights() -> dict[str, Weight]:
    return {
        # Share of the background's contrast that is lost: a change of light also loses a little.
        "loss": Weight(0.25, 4.0, -1.5, 1.0, unit="%", scale=100),
        # A cloud of less than 8 of 300 blocks is steam from a cup, or a person whose clothes resemble the wall.
        "size": Weight(10 / 300, 0.7, -1.0, 1.0, relative=True, unit="%", scale=100),
        # Structure comes through smoke weakened but unchanged.
        "structure": Weight(0.75, 4.0, -1.0, 0.8),
        # The veil adds one grey everywhere; things that differ from their background add several.
        "spread": Weight(40.0, -0.06, -2.5, 1.0),
        # A lens out of focus seems to add to each block the block's previous content: correlation of the two.
        "echo": Weight(0.55, -15.0, -5.0, 0.0),
        # Smoke is grey, or slightly blue or brown: largest difference of its colour's channels, counts.
        "hue": Weight(60.0, -0.04, -2.0, 0.6),
        # Smoke is never still. A still veil is something that was removed after the background was learned. Change of a
        # block's mean within a second, counts.
        "stir": Weight(1.3, 5.0, -4.0, 0.0, relative=True),
    }


class SmokeScene(Enum):
    """The kind of place that a camera watches."""

    ROOM = "room"
    YARD = "yard"
    LANDSCAPE = "landscape"

    @property
    def patience(self) -> float:
        """Factor of the time for which the network must see smoke: outdoors, more resembles it and it is farther."""
        return {SmokeScene.ROOM: 1.0, SmokeScene.YARD: 1.5, SmokeScene.LANDSCAPE: 3.0}[self]


@dataclass(frozen=True)
class SmokeThresholds:
    """Limits of the smoke detector."""

    scene: SmokeScene = SmokeScene.ROOM

    period_ns: int = 240_000_000  # between two detections; smoke is slow
    gap_max_ns: int = 500_000_000  # longest time that one detection counts
    # The background is followed slowly, so that a room that fills within a minute or two is noticed.
    memory_ns: int = 60_000_000_000
    begin_ns: int = 1_500_000_000  # learned everywhere for this long at first
    # Requirements for a block to be measured, and to be veiled.
    texture_min: float = 6.0  # counts, standard deviation: a flat wall shows no veil
    through_max: float = 0.82  # share of the background that comes through; exposure drifts by a tenth
    through_min: float = 0.08  # less cannot be distinguished from a thing in front
    structure_min: float = 0.70  # correlation with the background
    airlight_min: float = 60.0  # counts; a shadow is a veil with an airlight of 0 to 40
    airlight_max: float = 245.0
    shift_min: float = 4.0  # counts by which the block has to become brighter or darker; defocus causes neither
    # A block has to be veiled most of the time: cars and waves veil it for a detection or two.
    lasting_rate: float = 0.15  # weight of a detection in that share: six detections, 1.5 s
    lasting_min: float = 0.5
    blocks_min: int = 8
    weights: Mapping[str, Weight] = field(default_factory=_smoke_weights)
    prior: float = -0.5
    # More textured blocks than step_to at once, after fewer than step_from a second ago, mean a new exposure.
    step_to: float = 0.60
    step_from: float = 0.20
    step_persistence_s: float = 1.0
    # This share of a veil never disappears between two detections, unless the picture was cut.
    cleared_share: float = 0.85
    # Persistence. Dust, breath and steam thin out within 4 to 10 s; a source continues.
    pre_alarm_ns: int = 12_000_000_000
    alarm_ns: int = 16_000_000_000
    persistence_max_ns: int = 30_000_000_000
    decay: float = 1.0  # of the persistence lost per time without evidence: traffic and waves are sometimes veils
    score_min: float = 0.5  # even odds

    # The appearance network. An inspection takes 5 ms. Intervals: calm, and while smoke is suspected.
    inspect_ns: int = 5_000_000_000
    inspect_suspected_ns: int = 1_000_000_000
    suspect_odds: float = 0.0  # log odds of a single inspection, for the shorter interval
    span_ns: int = 5_500_000_000  # whose inspections count, as their mean
    inspections_min: int = 3  # for a mean
    gap_ns: int = 15_000_000_000  # longest interval between two inspections
    before_ns: int = 9_000_000_000  # older inspections show what was before
    before_rate: float = 0.2  # weight of an inspection in that
    top_places: int = 3  # of 64: smoke of 5 % of the picture
    # Levels: log odds of the whole picture plus those of its top places, both above the usual of the view.
    likeness_pre: float = 2.0
    likeness_pre_new: float = 0.0  # in a part of the picture that was clear before
    likeness_alarm: float = 3.6
    likeness_alarm_new: float = 2.7  # if it rose or grows
    rise_odds: float = 1.5  # by which top places exceed what was before
    cover_share: float = 0.85  # of the places that rise together: fog, a lens that mists over
    fog_share: float = 0.6  # of the places: smoke that covers more from the start may be fog, a pre-alarm at most
    growth_places: int = 3
    drift_min: float = 0.06  # of the picture
    # Smoke stirs; mist over hills and a painted cloud do not. Counts of grey within stir_ns.
    stir_ns: int = 500_000_000
    stir_rate: float = 0.3  # weight of a measurement
    stir_counts: float = 0.4  # noise with a deviation of 10 leaves up to 0.3
    # A change of all places by step_counts at once is a new exposure or a lamp.
    step_counts: float = 12.0
    step_share: float = 0.7
    step_ns: int = 2_000_000_000  # after which inspections count again
    flash_ns: int = 10_000_000_000  # a second change within this time is a light that flashes
    likeness_pre_ns: int = 2_000_000_000
    likeness_new_ns: int = 4_000_000_000
    likeness_ns: int = 8_000_000_000  # smoke-like from the first picture on
    likeness_most_ns: int = 40_000_000_000


@dataclass(frozen=True)
class MotionThresholds:
    """Limits of the background model."""

    memory_ns: int = 10_000_000_000  # time constant of the background
    learn_ns: int = 200_000_000  # between two steps of learning
    difference_min: float = 18.0  # counts; three times the noise of a cheap camera at night


@dataclass(frozen=True)
class CalmThresholds:
    """Limits by which a camera counts as calm, so that fewer of its pictures are decoded. Levels are 8-bit counts."""

    difference_min: float = 8.0  # of half-size green, between two pictures about a second apart
    over_noise: float = 8.0  # times the median difference: five standard deviations of noise
    few: int = 1  # half-size pixels: as many may change by chance
    learn_ns: int = 900_000_000  # between two compared pictures
    usual_share: float = 0.25  # of the comparisons in which a place changes, from which it says nothing
    usual_rate: float = 1 / 60  # weight of the newest comparison
    usual_after: int = 20  # comparisons; before that nothing is usual
    motion_max: float = 0.003  # share of the picture that may differ from the background
    quiet_ns: int = 5_000_000_000  # without anything, after which a camera is calm


CALM = CalmThresholds()


@dataclass(frozen=True)
class HealthThresholds:
    """Limits of the picture health. Levels are 8-bit counts; times are nanoseconds."""

    period_ns: int = 600_000_000  # between two checks: three black ones fit into a deadline of 2 s
    whole_ns: int = 1_800_000_000  # without a whole picture, after which damaged ones are checked
    damaged_ns: int = 10_000_000_000  # with damaged pictures only, after which that is reported
    compare_ns: int = 1_100_000_000  # between two comparisons with a view; the problems they find last for seconds

    # Black, white, blank: a cut, a flash or a shutter is over within a second.
    blind_ns: int = 1_000_000_000
    black_level: int = 24  # noise and black level stay below it
    white_level: int = 235  # video white; a scene has something darker
    lit_share: float = 0.005  # of the pixels above black for a picture: a lamp at night is enough. The same for white
    blank_deviation: float = 1.0  # a grey "no signal" picture

    # Frozen. A still scene has noise, which no encoder hides this long in every block.
    frozen_ns: int = 5_000_000_000
    # A clock or a logo over a dead picture changes a few blocks. Encoders that skip still parts renew everything with
    # every key frame, at least every 10 s: this allows three of them.
    overlay_ns: int = 30_000_000_000
    overlay_share: float = 0.12  # of the blocks: two lines of text

    # Exposure. Sky, snow and lamps clip a third of a good picture; clipped white shows neither smoke nor flame.
    # Darkness is no fault until the picture is black: a flame is a light source.
    clipped_level: int = 250
    clipped_share: float = 0.6
    exposure_ns: int = 5_000_000_000  # an automatic exposure has adjusted by then

    # Comparison with the learned view. In the development clips, edges of the same scene agree by 0.84 and more, in
    # other light (a tenth to twice as bright, fog, infrared noise) by 0.5 and more, of another scene by less than 0.4.
    impression_ns: int = 2_500_000_000  # time constant of the present picture in comparisons
    view_memory_ns: int = 300_000_000_000  # time constant of a view: the sun moves, and shadows with it
    learn_ns: int = 2_000_000_000  # between two steps of learning
    established_ns: int = 15_000_000_000  # how long a view is learned before pictures are compared with it
    place_min: float = 0.4  # agreement of edges below which the scene is another one; a shift by a tenth suffices
    steady_min: float = 0.6  # agreement that a new scene has with itself while it is learned
    # A panning or carried camera. In the development clips only those shift this much in several checks in a row; below
    # it a flame stays in place long enough to be judged.
    speed_min: float = 0.02  # of the longer side per second
    moving_ns: int = 2_000_000_000  # a jolt is over by then
    shift_gap_ns: int = 3_000_000_000  # longest interval between two pictures to compare
    unmoved_min: float = 0.95  # agreement of unshifted edges above which no shift is searched
    shift_response_min: float = 0.2  # of the phase correlation: after a fast pan little is in common
    shift_agreement_min: float = 0.45  # of edges after undoing the shift
    shift_quarter_min: float = 0.05  # of all edges that a quarter of the picture needs to be compared too
    shift_quarters: int = 3  # quarters with so much structure, at least
    moved_ns: int = 15_000_000_000  # a lorry that stops in front of the lens has usually left by then
    sharpness_min: float = 0.4  # of the usual detail; a blur of 1.5 pixels of the working picture leaves a third
    blurred_place_min: float = 0.2  # a blur weakens edges too: above this it is the same scene, out of focus
    focus_ns: int = 10_000_000_000  # autofocus has adjusted by then
    lost_ratio: float = 0.3  # of a block's usual gradient; below it the structure is lost
    lost_share: float = 0.6  # of the structured blocks without structure: paint, cloth, a hand, thick smoke
    structure_min: float = 0.7  # counts per pixel; averaged noise has less
    bare_share: float = 0.02  # of the blocks with any structure; with fewer there is no scene, only a covered lens
    covered_ns: int = 8_000_000_000  # a person who passes close by has left by then
    # A lit scene that became dark cannot be compared, so there is no fault.
    dark_level: float = 30.0
    dark_ratio: float = 0.5  # of the view's level
    recovered_ns: int = 1_500_000_000  # how long a cause must be absent before its fault ends

    # A scene that lasts this long after a move becomes a view. Covered or blurred scenes never do.
    accepted_ns: int = 600_000_000_000
    views: int = 6  # stored views: day, night, a few presets of a turning camera

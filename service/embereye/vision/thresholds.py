"""Every limit of the flame detector, with its unit and its reason. None is fitted to one scene."""

from dataclasses import dataclass

SECOND = 1_000_000_000  # nanoseconds


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
    core_share_min: float = 0.025  # of the flame-coloured time of a site; dyed cloth stays below 0.012

    # Flicker. A second difference over equal steps of time cancels slow change and steady motion of a gradient;
    # 60 to 80 ms a step looks at 3 to 8 Hz, where flames have most of their energy.
    step_ns: int = 60_000_000
    step_max_ns: int = 700_000_000  # longer gaps say nothing about flicker
    swing_min: float = 20.0  # counts of green (red saturates); sensor and coding noise stay under 12
    flicker_min: float = 0.25  # share of the time that a pixel swings; an edge that passes swings for a few frames
    occupancy_min: float = 0.20  # share of the time that a pixel has a flame's colour
    memory_ns: int = 1_000_000_000  # time constant of both shares
    frame_max_ns: int = 250_000_000  # one frame never counts for more time than this
    # A flame is the light, what it lights is darker: red at the site's brighter pixels against its surroundings.
    contrast_min: float = 40.0  # counts
    area_min: float = 16.0  # pixels of the working picture: less cannot be told from noise
    forget_ns: int = 6_000_000_000  # without any flame colour: six time constants, nothing is left to remember
    # A whole picture that swings is a camera that moves, or a cut: nothing is learnt from such a frame.
    disturbed_share: float = 0.30  # of the pixels that do not look like flame

    # A flame never returns to a picture it had; a beacon, a fan, a needle and a wave of the hand do.
    repeat_max: float = 0.60  # correlation of the site with its own past; flames stay below 0.4
    repeat_shortest_ns: int = 250_000_000
    repeat_longest_ns: int = 1_600_000_000

    # Persistence: the same pixels, not the same picture. What walks or drives by holds no pixel this long.
    pre_alarm_ns: int = 800_000_000
    alarm_ns: int = 3_100_000_000
    # A large site is many flickering pixels that do not know of each other: as much evidence in less time.
    large_share: float = 0.02  # of the picture
    alarm_large_ns: int = 2_000_000_000
    held_max_ns: int = 6_000_000_000  # so that an end is noticed after a few seconds
    decay: float = 0.5  # of the held time lost per time without evidence: flames dip
    score_min: float = 0.5  # by construction the score at which every term is just at its limit


@dataclass(frozen=True)
class MotionThresholds:
    """Limits of the background model."""

    memory_ns: int = 10_000_000_000  # time constant of the background
    difference_min: float = 18.0  # counts; three times the noise of a cheap camera at night
    black_level: int = 24  # counts; noise and black level stay below it
    lit_share: float = 0.005  # of the pixels above black_level that make a picture: a lamp at night is one
    blank_deviation: float = 1.0  # counts; a lens that is covered, or a grey "no signal" picture

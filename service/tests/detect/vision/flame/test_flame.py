from dataclasses import replace

import cv2
import numpy as np
import pytest

from embereye.detect.vision.detector import Detector, rasterize
from embereye.detect.vision.flame.character import rest_and_unity
from embereye.detect.vision.flame.flame import colour_cast, core_coloured, flame_coloured, glowing
from embereye.detect.vision.flame.recent import Recent
from embereye.detect.vision.networks.appearance import Inspection
from embereye.detect.vision.pixels import NOWHERE, Planes
from embereye.detect.vision.thresholds import FlameThresholds
from embereye.detect.vision.working import working_scale
from embereye.levels import Kind, Level
from embereye.sim.scenes.lookalikes import candle, filmed
from embereye.sim.scenes.scene import Room
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask

LIMITS = FlameThresholds()
START = 1_700_000_000 * SECOND
RNG = np.random.default_rng(7)


def decoded(jpegs, scale=2):
    flag = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 1: cv2.IMREAD_COLOR}[scale]
    return [cv2.imdecode(np.frombuffer(jpeg, np.uint8), flag) for jpeg in jpegs]


def watch(pictures, rate=15.0, detector=None, start=START):
    detector = detector or Detector()
    return [detector.detect(picture, start + int(n / rate * SECOND)) for n, picture in enumerate(pictures)]


def highest(seen):
    return max(observation.level for observation in seen)


@pytest.fixture(scope="module")
def room():
    return Room(320, 240, 4)


@pytest.fixture(scope="module")
def fire(room):
    return decoded(room.fire(0.0, 90, 15.0))


@pytest.fixture(scope="module")
def quiet(room):
    return decoded(room.quiet(30))


def noisy(picture):
    return np.clip(picture + RNG.normal(0, 2.5, picture.shape), 0, 255).astype(np.uint8)


def scene():
    picture = np.full((120, 160, 3), (90, 100, 105), np.uint8)
    cv2.rectangle(picture, (20, 60), (60, 119), (60, 80, 70), -1)
    return picture


@pytest.mark.parametrize(
    ("colour", "flame", "core"),
    [
        ((40, 190, 255), True, True),  # yellow-orange flame
        ((20, 100, 220), True, False),  # deep orange edge
        ((15, 110, 250), True, False),  # orange cloth
        ((140, 170, 220), True, False),  # skin in warm light: only the missing core distinguishes it
        ((165, 175, 200), False, False),  # skin in white light
        ((255, 255, 255), False, False),  # lamp
        ((200, 240, 255), False, True),  # warm white: the middle of a flame, or a bulb
        ((200, 80, 40), False, False),  # blue paint
        ((40, 160, 60), False, False),  # leaves
        ((10, 20, 90), False, False),  # dark red
    ],
)
def test_colours_are_classified_by_the_rules(colour, flame, core):
    picture = Planes.of(np.full((20, 20, 3), colour, np.uint8))
    coloured, hot = flame_coloured(picture, LIMITS, 1.0), core_coloured(picture, LIMITS, 1.0)
    assert (coloured.size, hot.size) == (400 * flame, 400 * core)
    assert coloured.window == ((slice(0, 20), slice(0, 20)) if flame else NOWHERE)
    dim = Planes.of(np.full((20, 20, 3), [0.7 * value for value in colour], np.uint8))
    coloured, hot = flame_coloured(dim, LIMITS, 0.7), core_coloured(dim, LIMITS, 0.7)
    assert (coloured.size, hot.size) == (400 * flame, 400 * core), "a camera that clips at 180 sees the same"


@pytest.mark.parametrize(
    ("colour", "glows"),
    [
        ((255, 255, 255), True),  # clipped
        ((255, 225, 255), True),  # tinted violet by the white balance
        ((200, 240, 255), True),  # warm white
        ((25, 115, 250), False),  # orange cloth in hard light has a colour
        ((255, 230, 225), False),  # bluish sky
        ((190, 190, 190), False),  # a wall
    ],
)
def test_a_place_too_bright_for_colour_may_be_a_flame(colour, glows):
    assert glowing(Planes.of(np.full((20, 20, 3), colour, np.uint8)), LIMITS, 1.0).size == 400 * glows


def test_a_fire_is_first_suspected_and_raises_an_alarm_once_it_has_lasted(quiet, fire):
    seen = watch([*quiet, *fire])
    levels = [observation.level for observation in seen]
    assert set(levels[:30]) == {Level.CLEAR}
    first = {level: levels.index(level) / 15 for level in (Level.PRE_ALARM, Level.ALARM)}
    assert first[Level.PRE_ALARM] < first[Level.ALARM] < 2 + 5
    alarm = seen[levels.index(Level.ALARM)].findings[0]
    assert alarm.kind == Kind.FLAME
    assert alarm.score >= 0.5
    x, y, width, height = alarm.box
    assert 0 <= x < x + width <= 1
    assert 0 <= y < y + height <= 1
    assert {term.name for term in alarm.terms} >= {"flame.flicker", "flame.travel.below", "flame.lasted"}


@pytest.mark.parametrize("rate", [5.0, 7.5, 30.0])
def test_a_fire_is_detected_at_other_frame_rates(room, rate):
    assert highest(watch(decoded(room.fire(3.0, int(8 * rate), rate)), rate)) == Level.ALARM


def test_a_fire_is_detected_with_irregular_frames(fire):
    detector, time_ns, levels = Detector(), START, []
    for number, picture in enumerate(fire):
        if number % 7 not in {2, 5}:
            levels.append(detector.detect(picture, START + int(number / 15 * SECOND) + number % 3 * 8_000_000).level)
    assert time_ns == START
    assert max(levels) == Level.ALARM


def test_a_large_clear_flame_needs_less_time(room):
    fire = decoded(room.fire(3.0, 90, 15.0))

    def first_alarm(limits):
        seen = watch(fire, detector=Detector(limits))
        number = [observation.level for observation in seen].index(Level.ALARM)
        return number, {term.name: term for term in seen[number].findings[0].terms}["flame.lasted"].threshold

    limits = FlameThresholds()
    soon, needed = first_alarm(limits)
    assert needed == limits.alarm_large_ns / SECOND
    assert soon < first_alarm(replace(limits, large_share=1.0))[0]


def test_a_threshold_of_0_detects_as_much_as_one_just_above(fire):
    def persistence(score_min):
        seen = watch(fire[:60], detector=Detector(replace(LIMITS, score_min=score_min), smoke=None))
        return [observation.findings[0].lasted_ns for observation in seen]

    assert persistence(0.0) == persistence(0.001) != persistence(0.5)


def rise_of(pictures):
    watch(pictures, detector=(detector := Detector()))
    return max(detector.flame.sites, key=lambda site: site.mask.sum()).values["rise"]


def test_a_flame_flickers_above_its_middle(fire):
    limit = LIMITS.weights["rise"].limit
    assert rise_of(fire[:45]) > limit
    assert rise_of([cv2.flip(picture, 0) for picture in fire[:45]]) < 0


def test_an_evenly_glowing_thing_has_no_rise(quiet):
    def lamp(number):
        picture = quiet[number].copy()
        cv2.circle(picture, (80, 60), 12, (40, 150 + 50 * (number // 2 % 2), 250), -1)
        return picture

    assert abs(rise_of([lamp(number) for number in range(30)])) < LIMITS.weights["rise"].limit


def test_few_pixels_count_less_unless_the_network_agrees():
    """Lights on a frosty motorway, of 20 pixels each, looked like a flame once in 19 minutes."""

    def odds(limits, logit):
        detector = Detector(limits)
        for number, picture in enumerate(pictures):
            time_ns = START + int(number / 15 * SECOND)
            if (close_ups := detector.due_inspection(time_ns)) is not None:
                detector.add_inspection(Inspection(time_ns, logit, tuple((box, logit) for box in close_ups)))
            detector.detect(picture, time_ns)
        [site] = detector.flame.sites
        assert np.count_nonzero(site.mask) < LIMITS.few_area
        return site.odds

    pictures = [picture for picture, _ in filmed(candle(6), 15.0, 4)]
    sure = replace(LIMITS, few_doubt=0.0)
    doubt, agreed = (odds(sure, logit) - odds(LIMITS, logit) for logit in (0.0, 4.0))
    assert 0 <= agreed < 0.5 * doubt


def test_the_alarm_ends_a_few_seconds_after_the_fire(quiet, fire):
    seen = watch([*fire, *quiet * 8])
    assert seen[len(fire) - 1].level == Level.ALARM
    assert seen[-1].level == Level.CLEAR


@pytest.mark.parametrize("seconds", [3, 30])
def test_an_alarm_survives_only_seconds_of_a_shaking_camera(fire, seconds):
    snow = RNG.integers(0, 255, (8, *fire[0].shape), dtype=np.uint8)
    seen = watch([*fire, *(snow[number % 8] for number in range(15 * seconds))])
    assert seen[len(fire) - 1].level == Level.ALARM
    assert seen[-1].level == (Level.ALARM if seconds == 3 else Level.CLEAR)


def test_a_fire_behind_a_mask_is_ignored(fire):
    everything = Mask(x=[0, 1, 1, 0], y=[0, 0, 1, 1])
    assert highest(watch(fire, detector=Detector(masks=[everything]))) == Level.CLEAR


def test_lost_parts_of_a_picture_are_ignored(fire):
    detector = Detector()
    everything = ((0.0, 0.0, 1.0, 1.0),)
    seen = [detector.detect(picture, START + int(n / 15 * SECOND), everything) for n, picture in enumerate(fire)]
    assert highest(seen) == Level.CLEAR


LEFT = 0.45  # of the picture


@pytest.mark.parametrize(
    ("masks", "lost"),
    [([Mask(x=[0, LEFT, LEFT, 0], y=[0, 0, 1, 1])], ()), ([], [(0.0, 0.0, LEFT, 1.0)])],
    ids=["masked", "lost"],
)
def test_a_fire_is_detected_next_to_masked_or_lost_parts_that_swing(masks, lost):
    detector, random, seen = Detector(smoke=None, masks=masks), np.random.default_rng(4), []
    for picture, at in filmed(candle(24), 15.0, 8):
        columns = int(LEFT * picture.shape[1])
        picture[:, :columns] = random.integers(60, 200, (len(picture), columns, 1))
        seen.append(detector.detect(picture, START + int(at * SECOND), lost))
    assert highest(seen) == Level.ALARM


def test_a_mask_covers_only_its_polygon():
    pixels = rasterize([Mask(x=[0, 0.5, 0.5, 0], y=[0, 0, 1, 1])], 100, 50)
    assert pixels[:, :49].all()
    assert not pixels[:, 52:].any()
    assert rasterize([Mask(x=[0, 1], y=[0, 1])], 10, 10) is None


def test_a_disabled_detector_has_no_findings(fire):
    seen = watch(fire[:30], detector=Detector(flame=None, smoke=None))
    assert not any(observation.findings or observation.suspected for observation in seen)
    assert highest(seen) == Level.CLEAR


def test_a_large_picture_is_analysed_in_the_working_size(room):
    seen = watch(decoded(room.fire(3.0, 90, 15.0), scale=1))
    assert highest(seen) == Level.ALARM


def steady_lamp(n):
    picture = scene()
    cv2.circle(picture, (100, 40), 8, (60, 200, 255), -1)
    return picture


def flashing_beacon(n):
    return steady_lamp(n) if n % 8 < 4 else scene()


def orange_box_passes(n):
    picture = scene()
    cv2.rectangle(picture, (3 * n - 40, 70), (3 * n, 100), (20, 120, 255), -1)
    return picture


def orange_cloth_waves(n):
    picture = scene()
    edge = int(20 * np.sin(n * 0.8))
    corners = np.array([(80, 20), (110, 20), (110 + edge, 90), (80 + edge, 95)])
    cv2.fillPoly(picture, [corners], (25, 115, 250))
    cv2.line(picture, (95, 20), (95 + edge, 92), (15, 80, 200), 5)
    return picture


def headlights_pass(n):
    picture = (scene() * 0.2).astype(np.uint8)
    for offset in (0, 14):
        cv2.circle(picture, (2 * n + offset - 20, 80), 4, (235, 250, 255), -1)
    return picture


def room_light_flickers(n):
    return (scene() * (0.6 + 0.4 * (n % 2))).astype(np.uint8)


def camera_shakes(n):
    picture = steady_lamp(n)
    picture[::6] = (200, 60, 30)
    return np.roll(picture, (n * 7 % 5, n * 11 % 9), axis=(0, 1))


@pytest.mark.parametrize(
    "draw",
    [steady_lamp, flashing_beacon, orange_box_passes, orange_cloth_waves, headlights_pass, room_light_flickers,
     camera_shakes],
)  # fmt: skip
def test_simple_lookalikes_are_no_fire(draw):
    seen = watch([noisy(draw(n)) for n in range(120)])
    assert highest(seen) <= Level.CLEAR


def test_jumping_or_constant_time_stamps_cause_no_error(fire):
    detector = Detector()
    for number, picture in enumerate(fire[:40]):
        time_ns = START + (0 if number % 5 == 0 else number * 66_000_000) - (number % 11) * SECOND
        assert detector.detect(picture, time_ns).level == Level.CLEAR
    later = START + 100 * SECOND
    assert highest(watch(fire, detector=detector, start=later)) == Level.ALARM


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 300, 3), (7, 5, 3), (240, 320, 3), (4, 160, 3), (160, 3, 3)])
def test_a_picture_of_any_size_is_analysed(shape):
    pictures = [RNG.integers(0, 255, shape, dtype=np.uint8) for _ in range(12)]
    assert len(watch(pictures)) == 12


def test_a_change_of_picture_size_resets_the_memory(fire):
    detector = Detector()
    watch(fire[:60], detector=detector)
    seen = watch([picture[::2, ::2].copy() for picture in fire[:10]], detector=detector, start=START + 5 * SECOND)
    assert seen[-1].level == Level.CLEAR


@pytest.mark.parametrize(
    ("size", "scale"),
    [((176, 144), 1), ((320, 240), 2), ((480, 640), 4), ((640, 480), 4), ((1920, 1080), 8), ((8, 8), 1)],
)
def test_pictures_are_reduced_to_about_the_same_size(size, scale):
    assert working_scale(*size) == scale


VIOLET_WHITE, PINK_WHITE = (255, 238, 252), (246, 222, 250)  # clipped white, tinted by the camera's white balance


def rest_share(clipped, shown, **limits):
    """Return the rest of pixels of which `clipped` are white except for dips, and `shown` flicker."""
    random, recent = np.random.default_rng(3), Recent()
    window = slice(0, 2 * (clipped + shown)), slice(0, 40)
    for number in range(30):
        picture = np.full((2 * (clipped + shown), 40), 225, np.uint8)
        picture[: 2 * clipped][random.random((2 * clipped, 40)) < 0.2] = 90
        picture[2 * clipped :] = random.integers(40, 200, (2 * shown, 40))
        recent.see(picture, window, START + number * SECOND // 15)
    pixels = np.ones((2 * (clipped + shown), 40), bool)
    rest, _ = rest_and_unity(recent, (0, 0, 40, len(pixels)), pixels, START + 2 * SECOND, **limits)
    return rest


def test_clipped_pixels_do_not_count_for_rest_if_enough_others_remain():
    assert rest_share(clipped=4, shown=6) > 0.45
    assert rest_share(clipped=4, shown=6, shown_max=215.0) < 0.35
    assert rest_share(clipped=6, shown=4, shown_max=215.0) == rest_share(clipped=6, shown=4), (
        "less than half of it is unclipped"
    )


def sofa_fire(t, random, white=VIOLET_WHITE):
    """Draw a clipped flame, wider than its tongues are high, behind the arm of a sofa that hides one side."""
    rows, columns = np.mgrid[0:120, 0:160].astype(np.float32)
    tongues = sum(
        (4 + 3 * random.random()) * np.sin(columns / (2.1 + n) + (5 + 3 * n) * t + 2 * np.sin((7 + n) * t))
        for n in range(3)
    )
    sides = 60 + 4 * np.sin(rows / 3 + 9 * t) * random.random(), 112 + 3 * random.random()
    burns = (rows > 48 - tongues) & (rows < 92) & (columns > sides[0]) & (columns < sides[1])
    picture = np.full((120, 160, 3), (52, 40, 48), np.float32)
    picture[burns] = white
    picture[92:, 40:130] = picture[60:, 108:150] = (30, 22, 26)
    return cv2.GaussianBlur(picture, (5, 5), 0)


@pytest.mark.parametrize("white", [VIOLET_WHITE, PINK_WHITE])
def test_a_clipped_flame_partly_hidden_by_furniture_is_one_site(white):
    random, detector = np.random.default_rng(5), Detector()
    watch([noisy(sofa_fire(n / 15, random, white)) for n in range(75)], detector=detector)
    largest = max(detector.flame.sites, key=lambda site: np.count_nonzero(site.mask))
    assert np.count_nonzero(largest.mask) > 1500
    assert largest is max(detector.flame.sites, key=lambda site: site.odds)


@pytest.mark.parametrize("white", [(250, 250, 255), PINK_WHITE])
def test_a_window_that_somebody_passes_is_no_part_of_a_flicker_in_front(white):
    detector = Detector()
    pictures = []
    for n in range(60):
        picture = scene()
        cv2.rectangle(picture, (70, 20), (140, 90), white, -1)
        cv2.rectangle(picture, (60 + 2 * n, 30), (72 + 2 * n, 119), (40, 40, 50), -1)
        pictures.append(noisy(picture))
    seen = watch(pictures, detector=detector)
    assert highest(seen) < Level.PRE_ALARM


WARM = (0.75, 0.95, 1.15)  # factors of blue, green and red in a white balance that is too warm


def in_light(picture, gains):
    return np.clip(picture * np.array(gains), 0, 255).astype(np.uint8)


def test_a_cast_is_measured_in_what_is_grey():
    room = noisy(scene())
    assert colour_cast(Planes.of(room)) == pytest.approx(np.log2(105 / 90), abs=0.1)
    assert colour_cast(Planes.of(in_light(room, WARM))) == pytest.approx(np.log2(105 / 90 * 1.15 / 0.75), abs=0.1)
    assert colour_cast(Planes.of(room // 8)) is None, "the dark has no colour"


@pytest.mark.parametrize("gains", [(1, 1, 1), WARM, (0.6, 0.92, 1.2)])
def test_something_grey_that_moves_like_a_flame_is_no_fire_in_any_white_balance(gains):
    film = [picture.max(axis=2, keepdims=True).repeat(3, axis=2) for picture, _ in filmed(candle(40), 15.0, 8)]
    assert highest(watch([in_light(0.7 * picture, gains) for picture in film])) == Level.CLEAR


@pytest.mark.parametrize("gains", [WARM, (0.6, 0.92, 1.2)])
@pytest.mark.parametrize("size", [12, 24, 40])
def test_a_fire_is_detected_in_a_warm_white_balance(gains, size):
    assert highest(watch([in_light(picture, gains) for picture, _ in filmed(candle(size), 15.0, 8)])) == Level.ALARM


@pytest.mark.parametrize("dark", [1.0, 0.1])
def test_a_fire_is_detected_whose_light_colours_the_room(dark):
    """Before the fire the room is neutral, or too dark for colour."""
    film = [picture for picture, _ in filmed(candle(24), 15.0, 20)]
    room = [in_light(noisy(scene()), (dark, dark, dark)) for _ in range(30)]
    lit = [in_light(picture, (1 - 0.6 * min(1, n / 30), 1, 1)) for n, picture in enumerate(film)]
    levels = [observation.level for observation in watch([*room, *lit])]
    assert Level.ALARM in levels[: 30 + 5 * 15]
    assert levels[-1] == Level.ALARM

"""What is not fire and looks like it, drawn with its physics, at the frame rates that cameras have."""

import cv2
import numpy as np
import pytest

from embereye.camera.decode.image import decode
from embereye.detect.vision.detector import Detector
from embereye.levels import Level

START = 1_700_000_000 * 1_000_000_000
ROWS, COLUMNS = np.mgrid[0:120, 0:160].astype(np.float32)
SECONDS = 20


def soft(seed, cells, size=(160, 120)):
    """A smooth random texture, 0..1, height x width."""
    coarse = np.random.default_rng(seed).random((cells, cells), np.float32)
    return np.clip(cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC), 0, 1)


ROOM = np.dstack([95 + 60 * soft(1, 9), 100 + 60 * soft(2, 9), 105 + 60 * soft(3, 9)])
NIGHT = 0.18 * ROOM
WIDE = soft(4, 60, (640, 240))
FINE = soft(5, 40, (320, 240))


def glow(picture, x, y, size, colour, *, strength=1.0):
    """A light with its halo, added as a lens adds it."""
    distance = (COLUMNS - x) ** 2 + (ROWS - y) ** 2
    light = np.exp(-distance / size**2) + 0.25 * np.exp(-distance / (4 * size) ** 2)
    return picture + strength * light[..., None] * np.array(colour, np.float32)


def neon_blinks(t, random):
    on = (t % 1.3) < 0.7
    picture = NIGHT.copy()
    if on:
        for x in (50, 70, 90, 110):
            picture = glow(picture, x, 40, 5, (60, 150, 330))
    return picture


def neon_runs(t, random):
    picture = NIGHT.copy()
    for number in range(8):
        if (number - int(6 * t)) % 4 == 0:
            picture = glow(picture, 30 + 13 * number, 50, 5, (50, 190, 330))
    return picture


def neon_tube_fails(t, random):
    on = random.random() < 0.5
    return glow(NIGHT, 80, 50, 12, (60, 170, 330), strength=1.0 if on else 0.3)


def television(t, random):
    """Cuts every second or two between pictures, most of them warm, that move."""
    picture = 0.4 * ROOM
    shot = int(t / 1.4)
    colours = np.random.default_rng(shot).random((4, 6, 3)) * (140, 200, 255)
    screen = cv2.resize(colours.astype(np.float32), (50, 34), interpolation=cv2.INTER_LINEAR)
    screen = np.roll(screen, int(9 * t), axis=1)
    picture[40:74, 55:105] = screen
    return picture


def beacon_turns(t, random):
    strength = max(0.0, np.cos(2 * np.pi * t / 0.9)) ** 8
    return glow(0.6 * ROOM, 80, 40, 6, (20, 160, 330), strength=strength)


def sunset_clouds(t, random):
    sky = np.dstack([60 + 60 * ROWS / 120, 110 + 70 * ROWS / 120, 200 + 60 * ROWS / 120])
    clouds = WIDE[:120, int(3 * t) : int(3 * t) + 160][..., None]
    picture = sky * (0.55 + 0.6 * clouds)
    picture[85:] = (25, 25, 30)
    return glow(picture, 110, 80, 9, (90, 170, 260))


def sun_on_water(t, random):
    """A sun's path on waves: glints that come and go, each for itself."""
    picture = np.dstack([50 + 0 * ROWS, 80 + 0 * ROWS, 120 + 0 * ROWS])
    wave = FINE[(ROWS + 5 * np.sin(1.7 * t)).astype(int) % 240, (COLUMNS + int(11 * t)).astype(int) % 320]
    other = FINE[(ROWS * 1.7 + 13 * t).astype(int) % 240, (COLUMNS + 160 - int(7 * t)).astype(int) % 320]
    glints = np.clip((wave + other - 1.05) * 6, 0, 1) * (np.abs(COLUMNS - 80) < 18) * (ROWS > 50)
    return picture + glints[..., None] * (90, 160, 230)


def headlights_in_rain(t, random):
    picture = NIGHT.copy()
    for offset in (0.0, 2.3, 4.1):
        near = ((t + offset) % 6) / 6
        for side in (-1, 1):
            picture = glow(picture, 80 + side * (3 + 26 * near), 50 + 30 * near, 2 + 9 * near, (170, 230, 300))
    for _ in range(40):
        x, y = int(random.integers(0, 160)), int(random.integers(0, 110))
        cv2.line(picture, (x, y), (x - 1, y + 8), (95, 95, 95), 1)
    return picture


def brake_lights_queue(t, random):
    picture = NIGHT.copy()
    for number in range(5):
        bright = 1.0 if (t + 1.3 * number) % 4 < 2 else 0.35
        for side in (-4, 4):
            picture = glow(picture, 20 + 28 * number + side, 70 + 3 * (number % 2), 2.5, (60, 70, 330), strength=bright)
    return picture


def jacket(colour):
    def draw(t, random):
        picture = ROOM.copy()
        x = int(80 + 60 * np.sin(0.9 * t))
        sway = int(4 * np.sin(7 * t))
        cv2.line(picture, (x, 80), (x + sway, 112), (60, 50, 45), 8)
        cv2.ellipse(picture, (x, 62), (11, 20), sway, 0, 360, colour, -1)
        cv2.ellipse(picture, (x + 2 + sway // 2, 66), (3, 14), sway, 0, 360, [0.7 * value for value in colour], -1)
        cv2.circle(picture, (x, 36), 6, (130, 160, 200), -1)
        return picture

    return draw


def cloth_waves(t, random):
    picture = ROOM.copy()
    for number in range(30):
        lean = 12 * np.sin(4.4 * t + 0.25 * number) * number / 30
        shade = 1 + 0.25 * np.sin(4.4 * t + 0.5 * number)
        row = 30 + 2 * number
        cv2.line(picture, (int(60 + lean), row), (int(105 + lean), row), (25 * shade, 120 * shade, 245 * shade), 2)
    return picture


def leaves_in_wind(t, random):
    sway = (4 * np.sin(2.6 * t + 0.05 * ROWS + 0.03 * COLUMNS) + 2 * np.sin(5.1 * t + 0.1 * COLUMNS)).astype(np.float32)
    leaf = cv2.remap(FINE, COLUMNS + 40 + sway, ROWS + 40 + 0.5 * sway, cv2.INTER_LINEAR)[..., None]
    picture = np.where(leaf > 0.5, np.array((40, 170, 235)) * (0.5 + leaf), np.array((40, 60, 60)))
    return picture.astype(np.float32)


def lamps_on_a_wet_floor(t, random):
    picture = 0.35 * ROOM
    for x in (50, 110):
        picture = glow(picture, x, 25, 4, (130, 200, 280))
        drift = 2 * np.sin(2 * np.pi * 1.3 * t + ROWS / 5) + np.sin(2 * np.pi * 0.7 * t + ROWS / 3)
        stripe = np.exp(-(((COLUMNS - x - drift) / 4) ** 2)) * (ROWS > 70) * 0.55
        picture = picture + stripe[..., None] * np.array((110, 190, 260))
    return picture


def grinder_sparks(t, random):
    """Bursts of streaks of some tenths of a second, a pause after each."""
    picture = ROOM.copy()
    if t % 2.5 < 0.7:
        for _ in range(25):
            angle, length = random.normal(0.4, 0.15), random.uniform(10, 60)
            end = int(60 + length * np.cos(angle)), int(70 + length * np.sin(angle))
            start = int(60 + 0.7 * length * np.cos(angle)), int(70 + 0.7 * length * np.sin(angle))
            cv2.line(picture, start, end, (120, 210, 255), 1)
    return picture


def noise_of_the_night(t, random):
    """What a cheap camera makes of a floor under an orange lamp."""
    picture = glow(0.4 * ROOM, 80, 60, 35, (20, 110, 190))
    return picture + random.normal(0, 7, ROOM.shape)


def light_comes_and_goes(t, random):
    return ROOM * (1.0 + 0.35 * np.sin(2 * np.pi * 0.8 * t)) + (0, 10, 30)


LOOKALIKES = {
    "neon that blinks": neon_blinks,
    "neon that runs": neon_runs,
    "a tube that fails": neon_tube_fails,
    "television": television,
    "a beacon": beacon_turns,
    "a sunset": sunset_clouds,
    "headlights in rain": headlights_in_rain,
    "brake lights": brake_lights_queue,
    "a red jacket": jacket((30, 35, 215)),
    "an orange jacket": jacket((40, 130, 255)),
    "a yellow jacket": jacket((60, 235, 240)),
    "cloth": cloth_waves,
    "leaves": leaves_in_wind,
    "lamps on a wet floor": lamps_on_a_wet_floor,
    "noise": noise_of_the_night,
    "sparks": grinder_sparks,
    "light that comes and goes": light_comes_and_goes,
}


def candle(size):
    """A small flame of `size` pixels in height that licks, leans and is torn as flames are."""

    def draw(t, random):
        picture = 0.6 * ROOM
        height = size * (0.8 + 0.25 * np.sin(23 * t + 2 * np.sin(9 * t)) + 0.15 * random.normal())
        lean = 0.25 * size * np.sin(11 * t + random.normal(0, 0.6))
        up = (80 - ROWS) / max(2.0, height)
        width = np.clip(0.35 * size * (1.05 - up) * (0.8 + 0.4 * random.random()), 0.4, None)
        heat = np.exp(-(((COLUMNS - 80 - lean * up) / width) ** 2)) * (up > 0) * (up < 1) * (1.1 - 0.4 * up)
        flame = np.dstack([60 * heat**3, 215 * heat**1.5, 265 * heat**0.7])
        return picture * (1 - np.clip(1.4 * heat, 0, 1))[..., None] + flame * np.clip(1.4 * heat, 0, 1)[..., None]

    return draw


def watch(draw, rate, seconds=SECONDS, quality=80):
    random, detector = np.random.default_rng(11), Detector()
    worst = Level.CLEAR
    for number in range(int(seconds * rate)):
        picture = draw(number / rate, random) + random.normal(0, 3, ROOM.shape)
        coded = cv2.imencode(".jpg", np.clip(picture, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        seen = detector.detect(decode(coded.tobytes(), 1), START + int(number / rate * 1e9))
        worst = max(worst, seen.level)
    return worst


@pytest.mark.parametrize("rate", [15.0, 6.0])
@pytest.mark.parametrize("name", LOOKALIKES)
def test_what_looks_like_fire_raises_no_alarm(name, rate):
    assert watch(LOOKALIKES[name], rate) < Level.ALARM


@pytest.mark.parametrize("rate", [30.0, 15.0, 8.0, 5.0])
def test_a_flame_among_them_is_found_at_any_usual_frame_rate(rate):
    assert watch(candle(24), rate, seconds=8) == Level.ALARM


@pytest.mark.parametrize("quality", [30, 60, 90])
def test_a_flame_is_found_in_pictures_of_any_usual_quality(quality):
    assert watch(candle(24), 15.0, seconds=8, quality=quality) == Level.ALARM


def test_a_flame_that_stays_is_not_forgotten():
    random, detector, levels = np.random.default_rng(11), Detector(), []
    for number in range(100 * 6):
        picture = np.clip(candle(24)(number / 6, random) + random.normal(0, 3, ROOM.shape), 0, 255).astype(np.uint8)
        levels.append(detector.detect(picture, START + int(number / 6 * 1e9)).level)
    assert min(levels[60:]) >= Level.PRE_ALARM  # the evidence keeps the level it once had
    assert levels[-60:].count(Level.ALARM) > 30


def test_a_flame_without_colour_is_not_found():
    """At night, in infrared light, a picture has no colour: what the colour rules cannot see is not claimed."""

    def grey(t, random):
        return np.repeat(candle(24)(t, random).mean(axis=2, keepdims=True), 3, axis=2)

    assert watch(grey, 15.0, seconds=8) < Level.ALARM


@pytest.mark.xfail(reason="each glint flickers as a flame does; a mask is the remedy")
def test_the_suns_path_on_waves_is_no_fire():
    assert watch(sun_on_water, 15.0) < Level.ALARM

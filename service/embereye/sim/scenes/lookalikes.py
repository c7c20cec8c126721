"""Draw things that look like fire but are not, and a small flame, from their physics.

Each is a function from time and a random generator to a picture of 160 x 120 pixels; `LOOKALIKES` names all of them.
`filmed` shows one as a camera does, with noise and JPEG. The detectors' benchmarks judge by them, and fit to them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Picture = Any  # an array (120, 160, 3), BGR, 0..255 and above
Draw = Callable[[float, np.random.Generator], Picture]  # draws the picture at a time in seconds

ROWS, COLUMNS = np.mgrid[0:120, 0:160].astype(np.float32)


def _soft(seed: int, cells: int, size: tuple[int, int] = (160, 120)) -> Picture:
    """A smooth random texture, 0..1, height x width."""
    coarse = np.random.default_rng(seed).random((cells, cells), np.float32)
    return np.clip(cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC), 0, 1)


ROOM = np.dstack([95 + 60 * _soft(1, 9), 100 + 60 * _soft(2, 9), 105 + 60 * _soft(3, 9)])
NIGHT = 0.18 * ROOM
WIDE = _soft(4, 60, (640, 240))
FINE = _soft(5, 40, (320, 240))


def _glow(
    picture: Picture, x: float, y: float, size: float, colour: tuple[float, ...], *, strength: float = 1.0
) -> Picture:
    """Add a light with its halo, as a lens does."""
    distance = (COLUMNS - x) ** 2 + (ROWS - y) ** 2
    light = np.exp(-distance / size**2) + 0.25 * np.exp(-distance / (4 * size) ** 2)
    return picture + strength * light[..., None] * np.array(colour, np.float32)


def _blinking_neon(t: float, random: np.random.Generator) -> Picture:
    on = (t % 1.3) < 0.7
    picture = NIGHT.copy()
    if on:
        for x in (50, 70, 90, 110):
            picture = _glow(picture, x, 40, 5, (60, 150, 330))
    return picture


def _running_neon(t: float, random: np.random.Generator) -> Picture:
    picture = NIGHT.copy()
    for number in range(8):
        if (number - int(6 * t)) % 4 == 0:
            picture = _glow(picture, 30 + 13 * number, 50, 5, (50, 190, 330))
    return picture


def _failing_neon_tube(t: float, random: np.random.Generator) -> Picture:
    on = random.random() < 0.5
    return _glow(NIGHT, 80, 50, 12, (60, 170, 330), strength=1.0 if on else 0.3)


def _television(t: float, random: np.random.Generator) -> Picture:
    """Moving pictures, most of them warm, with a cut every second or two."""
    picture = 0.4 * ROOM
    shot = int(t / 1.4)
    colours = np.random.default_rng(shot).random((4, 6, 3)) * (140, 200, 255)
    screen = cv2.resize(colours.astype(np.float32), (50, 34), interpolation=cv2.INTER_LINEAR)
    screen = np.roll(screen, int(9 * t), axis=1)
    picture[40:74, 55:105] = screen
    return picture


def _turning_beacon(t: float, random: np.random.Generator) -> Picture:
    strength = max(0.0, np.cos(2 * np.pi * t / 0.9)) ** 8
    return _glow(0.6 * ROOM, 80, 40, 6, (20, 160, 330), strength=strength)


def _sunset_clouds(t: float, random: np.random.Generator) -> Picture:
    sky = np.dstack([60 + 60 * ROWS / 120, 110 + 70 * ROWS / 120, 200 + 60 * ROWS / 120])
    clouds = WIDE[:120, int(3 * t) : int(3 * t) + 160][..., None]
    picture = sky * (0.55 + 0.6 * clouds)
    picture[85:] = (25, 25, 30)
    return _glow(picture, 110, 80, 9, (90, 170, 260))


def _headlights_in_rain(t: float, random: np.random.Generator) -> Picture:
    picture = NIGHT.copy()
    for offset in (0.0, 2.3, 4.1):
        near = ((t + offset) % 6) / 6
        for side in (-1, 1):
            picture = _glow(picture, 80 + side * (3 + 26 * near), 50 + 30 * near, 2 + 9 * near, (170, 230, 300))
    for _ in range(40):
        x, y = int(random.integers(0, 160)), int(random.integers(0, 110))
        cv2.line(picture, (x, y), (x - 1, y + 8), (95, 95, 95), 1)
    return picture


def _brake_lights_queue(t: float, random: np.random.Generator) -> Picture:
    picture = NIGHT.copy()
    for number in range(5):
        bright = 1.0 if (t + 1.3 * number) % 4 < 2 else 0.35
        for side in (-4, 4):
            picture = _glow(
                picture, 20 + 28 * number + side, 70 + 3 * (number % 2), 2.5, (60, 70, 330), strength=bright
            )
    return picture


def _jacket(colour: tuple[float, float, float]) -> Draw:
    def draw(t: float, random: np.random.Generator) -> Picture:
        picture = ROOM.copy()
        x = int(80 + 60 * np.sin(0.9 * t))
        sway = int(4 * np.sin(7 * t))
        cv2.line(picture, (x, 80), (x + sway, 112), (60, 50, 45), 8)
        cv2.ellipse(picture, (x, 62), (11, 20), sway, 0, 360, colour, -1)
        cv2.ellipse(picture, (x + 2 + sway // 2, 66), (3, 14), sway, 0, 360, [0.7 * value for value in colour], -1)
        cv2.circle(picture, (x, 36), 6, (130, 160, 200), -1)
        return picture

    return draw


def _waving_cloth(t: float, random: np.random.Generator) -> Picture:
    picture = ROOM.copy()
    for number in range(30):
        lean = 12 * np.sin(4.4 * t + 0.25 * number) * number / 30
        shade = 1 + 0.25 * np.sin(4.4 * t + 0.5 * number)
        row = 30 + 2 * number
        cv2.line(picture, (int(60 + lean), row), (int(105 + lean), row), (25 * shade, 120 * shade, 245 * shade), 2)
    return picture


def _windy_leaves(t: float, random: np.random.Generator) -> Picture:
    sway = (4 * np.sin(2.6 * t + 0.05 * ROWS + 0.03 * COLUMNS) + 2 * np.sin(5.1 * t + 0.1 * COLUMNS)).astype(np.float32)
    leaf = cv2.remap(FINE, COLUMNS + 40 + sway, ROWS + 40 + 0.5 * sway, cv2.INTER_LINEAR)[..., None]
    picture = np.where(leaf > 0.5, np.array((40, 170, 235)) * (0.5 + leaf), np.array((40, 60, 60)))
    return picture.astype(np.float32)


def _lamps_on_a_wet_floor(t: float, random: np.random.Generator) -> Picture:
    picture = 0.35 * ROOM
    for x in (50, 110):
        picture = _glow(picture, x, 25, 4, (130, 200, 280))
        drift = 2 * np.sin(2 * np.pi * 1.3 * t + ROWS / 5) + np.sin(2 * np.pi * 0.7 * t + ROWS / 3)
        stripe = np.exp(-(((COLUMNS - x - drift) / 4) ** 2)) * (ROWS > 70) * 0.55
        picture = picture + stripe[..., None] * np.array((110, 190, 260))
    return picture


def _grinder_sparks(t: float, random: np.random.Generator) -> Picture:
    """Bursts of streaks that last some tenths of a second, with pauses."""
    picture = ROOM.copy()
    if t % 2.5 < 0.7:
        for _ in range(25):
            angle, length = random.normal(0.4, 0.15), random.uniform(10, 60)
            end = int(60 + length * np.cos(angle)), int(70 + length * np.sin(angle))
            start = int(60 + 0.7 * length * np.cos(angle)), int(70 + 0.7 * length * np.sin(angle))
            cv2.line(picture, start, end, (120, 210, 255), 1)
    return picture


def _noise_of_the_night(t: float, random: np.random.Generator) -> Picture:
    """The noise of a cheap camera that watches a floor under an orange lamp."""
    picture = _glow(0.4 * ROOM, 80, 60, 35, (20, 110, 190))
    return picture + random.normal(0, 7, ROOM.shape)


def _fluctuating_light(t: float, random: np.random.Generator) -> Picture:
    return ROOM * (1.0 + 0.35 * np.sin(2 * np.pi * 0.8 * t)) + (0, 10, 30)


LOOKALIKES = {
    "neon that blinks": _blinking_neon,
    "neon that runs": _running_neon,
    "a tube that fails": _failing_neon_tube,
    "television": _television,
    "a beacon": _turning_beacon,
    "a sunset": _sunset_clouds,
    "headlights in rain": _headlights_in_rain,
    "brake lights": _brake_lights_queue,
    "a red jacket": _jacket((30, 35, 215)),
    "an orange jacket": _jacket((40, 130, 255)),
    "a yellow jacket": _jacket((60, 235, 240)),
    "cloth": _waving_cloth,
    "leaves": _windy_leaves,
    "lamps on a wet floor": _lamps_on_a_wet_floor,
    "noise": _noise_of_the_night,
    "sparks": _grinder_sparks,
    "light that comes and goes": _fluctuating_light,
}


def candle(size: float) -> Draw:
    """A small flame, `size` pixels high, that licks, leans and tears as real flames do."""

    def draw(t: float, random: np.random.Generator) -> Picture:
        picture = 0.6 * ROOM
        height = size * (0.8 + 0.25 * np.sin(23 * t + 2 * np.sin(9 * t)) + 0.15 * random.normal())
        lean = 0.25 * size * np.sin(11 * t + random.normal(0, 0.6))
        up = (80 - ROWS) / max(2.0, height)
        width = np.clip(0.35 * size * (1.05 - up) * (0.8 + 0.4 * random.random()), 0.4, None)
        heat = np.exp(-(((COLUMNS - 80 - lean * up) / width) ** 2)) * (up > 0) * (up < 1) * (1.1 - 0.4 * up)
        flame = np.dstack([60 * heat**3, 215 * heat**1.5, 265 * heat**0.7])
        return picture * (1 - np.clip(1.4 * heat, 0, 1))[..., None] + flame * np.clip(1.4 * heat, 0, 1)[..., None]

    return draw


def filmed(draw: Draw, rate: float, seconds: float, quality: int = 80) -> Iterator[tuple[npt.NDArray[np.uint8], float]]:
    """Yield `draw` as a camera of `rate` frames/s sends it, noisy, as JPEG of `quality`, with its time in seconds."""
    random = np.random.default_rng(11)
    for number in range(int(seconds * rate)):
        picture = draw(number / rate, random)
        noisy = np.clip(picture + random.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
        coded = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        yield cv2.imdecode(coded, cv2.IMREAD_COLOR), number / rate  # type: ignore[misc]

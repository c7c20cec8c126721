"""Draw an invented room: quiet, with a person walking through, or on fire.

A `Room` draws its furniture once, from the seed. A frame is a copy of that picture with a person or a fire on it, then
the noise of a camera's sensor, then JPEG. Flames are noise textures that rise through a swaying shape, coloured by
their heat. Frames are drawn when they are first shown, and then stored in their loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Field = npt.NDArray[np.float32]

QUALITY = 75  # JPEG quality; cameras use 70 to 85
NOISE = 3.0  # counts, standard deviation of the sensor
NOISES = 16  # different noise pictures; each is used in eight orientations and signs
GLOW = 60.0  # counts that a fire of full size adds to its surroundings
QUIET_SECONDS = 3.0
WALK_SECONDS = 6.0
GROWTH_SECONDS = 8.0  # until a fire is at full size
FIRST_SIZE = 0.6  # share of the full size: a waste-paper basket, not a candle
BLAZE_SECONDS = 6.0  # of a fire at full size, repeated
# Colour of a flame by heat, BGR: transparent smoke-red, deep orange, orange, yellow, nearly white.
_HEAT = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_COLOUR = np.array([[5, 10, 90], [8, 45, 210], [20, 115, 255], [60, 205, 255], [170, 248, 255]], np.float64)
_TEXTURE = 128  # side length in pixels of the noise textures of flames


class Frames(Sequence[bytes]):
    """JPEG frames, each drawn when it is first used, so that a room costs nothing until it is shown."""

    def __init__(self, count: int, draw: Callable[[int], bytes]) -> None:
        self._frames: list[bytes | None] = [None] * count
        self._draw = draw

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        frame = self._frames[index]
        if frame is None:
            frame = self._frames[index] = self._draw(index)
        return frame


@dataclass(frozen=True)
class Loops:
    """JPEG frames of one room."""

    quiet: Frames  # repeated
    walk: Frames  # somebody crosses the room once
    growth: Frames  # a fire from its first flame to its full size
    blaze: Frames  # repeated


class Room:
    """Draws one room; rooms of different seeds look different. Everything depends only on seed and time."""

    def __init__(self, width: int, height: int, seed: int) -> None:
        self.width, self.height = width, height
        self._random = np.random.default_rng(seed)
        self._base = self._furnish()
        self._hearth = (0.3 + 0.4 * self._random.random(), 0.86)  # place of a fire, 0..1
        self._textures = [self._cloud(octave) for octave in (4, 8)]
        self._noises = self._random.normal(0, NOISE, (NOISES, height, width, 3)).round().astype(np.int8)
        self._glow = self._light_of_fire()

    def quiet(self, count: int) -> Frames:
        """`count` frames without motion, apart from the sensor's noise."""
        return Frames(count, lambda _: self._expose(self._base))

    def walk(self, count: int) -> Frames:
        """`count` frames of a person who crosses the room."""
        shirt = tuple(float(value) for value in self._random.integers(40, 190, 3))

        def draw(number: int) -> bytes:
            picture = self._base.copy()
            progress = number / max(1, count - 1)
            height = int(0.5 * self.height)
            x = int((-0.1 + 1.2 * progress) * self.width)
            foot = int(0.93 * self.height + 0.008 * self.height * np.sin(number * 0.9))
            thick = max(2, height // 5)
            swing = int(0.35 * thick * np.sin(number * 0.9))
            for side in (-1, 1):
                cv2.line(picture, (x, foot - height // 2), (x + side * swing, foot), (60, 50, 45), max(2, thick // 2))
            cv2.ellipse(picture, (x, foot - int(0.62 * height)), (thick // 2, int(0.24 * height)), 0, 0, 360, shirt, -1)
            cv2.circle(picture, (x, foot - int(0.93 * height)), max(2, thick // 3), (120, 150, 190), -1)
            return self._expose(picture)

        return Frames(count, draw)

    def fire(self, seconds: float, count: int, rate: float) -> Frames:
        """`count` frames of a fire at `rate` frames/s, the first `seconds` after it started."""
        return Frames(count, lambda number: self._expose(self._burn(seconds + number / rate)))

    def _furnish(self) -> Image:
        random, width, height = self._random, self.width, self.height
        wall = random.integers(120, 180, 3)
        floor = random.integers(60, 110, 3)
        picture = np.empty((height, width, 3), np.float32)
        edge = int(0.66 * height)
        light = np.linspace(1.08, 0.86, width, dtype=np.float32)[None, :, None]
        picture[:edge] = wall * light
        picture[edge:] = floor * light
        room = np.clip(picture, 0, 255).astype(np.uint8)
        for _ in range(5):
            x, y = int(random.random() * 0.8 * width), int((0.15 + 0.5 * random.random()) * height)
            w, h = int((0.06 + 0.14 * random.random()) * width), int((0.1 + 0.25 * random.random()) * height)
            shade = tuple(float(value) for value in random.integers(50, 200, 3))
            cv2.rectangle(room, (x, y), (x + w, y + h), shade, -1)
            cv2.rectangle(room, (x, y), (x + w, y + h), tuple(0.6 * value for value in shade), 2)
        return cv2.GaussianBlur(room, (3, 3), 0)  # type: ignore[return-value]

    def _cloud(self, cells: int) -> Field:
        """Make a noise texture that repeats at its edges, 0..1."""
        coarse = self._random.random((cells, cells), np.float32)
        wrapped = np.pad(coarse, 2, mode="wrap")
        scale = _TEXTURE // cells
        large = cv2.resize(wrapped, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        cloud: Field = np.clip(large[2 * scale : -2 * scale, 2 * scale : -2 * scale], 0, 1)
        return cloud

    def _burn(self, seconds: float) -> Image:
        size = FIRST_SIZE + (1 - FIRST_SIZE) * min(1.0, seconds / GROWTH_SECONDS)
        width, height = max(8, int(0.22 * size * self.width)), max(12, int(0.5 * size * self.height))
        heat = self._heat(width, height, seconds)
        colour = np.stack([np.interp(heat, _HEAT, _COLOUR[:, channel]) for channel in range(3)], axis=-1)
        opacity = np.clip((heat - 0.12) / 0.25, 0, 1)[..., None]
        left = int(np.clip(self._hearth[0] * self.width - width / 2, 0, self.width - width))
        top = int(self._hearth[1] * self.height) - height
        picture = cv2.addWeighted(self._base, 1.0, self._glow, float(heat.mean()) * size * GLOW / 255, 0.0)
        window = picture[top : top + height, left : left + width]
        window[:] = window * (1 - opacity) + colour * opacity
        return picture  # type: ignore[return-value]

    def _heat(self, width: int, height: int, seconds: float) -> Field:
        """Heat 0..1 of a flame that fills `height` x `width`: hot below, ragged above, and rising."""
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        up, across = 1 - y / height, (x + 0.5) / width * 2 - 1
        turbulence = np.zeros((height, width), np.float32)
        for texture, rise, share, stretch in zip(self._textures, (1.3, 2.1), (0.6, 0.4), (0.5, 0.8), strict=True):
            # Textures rise at `rise` flame heights a second and drift a little sideways.
            row = ((y / height * stretch + rise * seconds) * _TEXTURE) % _TEXTURE
            column = ((across * 0.4 + 0.17 * seconds) * _TEXTURE) % _TEXTURE
            turbulence += share * cv2.remap(texture, column, row, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        sway = 0.25 * up * np.sin(2 * np.pi * 1.9 * seconds + 3 * up) * (turbulence.mean() * 2)
        body = 1 - np.abs(across + sway) / (1.02 - 0.75 * up)
        heat: Field = 1.5 * np.clip(body, 0, 1) ** 0.7 * (1.15 - up) * (0.25 + 1.5 * turbulence)
        np.clip(heat, 0, 1, out=heat)
        return heat

    def _light_of_fire(self) -> Image:
        """The light that a fire adds to the room, 0..255."""
        x, y = self._hearth[0] * self.width, (self._hearth[1] - 0.2) * self.height
        rows, columns = np.ogrid[0 : self.height, 0 : self.width]
        near = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (0.3 * self.width) ** 2)
        light: Image = (near[..., None] * np.array([0.05, 0.35, 0.8]) * 255).astype(np.uint8)
        return light

    def _expose(self, picture: Image) -> bytes:
        noise = self._noises[self._random.integers(NOISES)]
        flips = self._random.integers(0, 2, 3)
        noise = noise[:: 1 - 2 * flips[0], :: 1 - 2 * flips[1]]
        noisy = cv2.add(picture, -noise if flips[2] else noise, dtype=cv2.CV_8U)
        # A restart interval for every row of MCUs: a lost packet costs only a row or two.
        options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, cv2.IMWRITE_JPEG_RST_INTERVAL, -(-self.width // 16)]
        return cv2.imencode(".jpg", noisy, options)[1].tobytes()


def render(width: int, height: int, seed: int, rate: float) -> Loops:
    """Set up all loops of one room at `rate` frames/s."""
    cv2.setNumThreads(1)
    room = Room(width, height, seed)
    growth, blaze = max(2, int(GROWTH_SECONDS * rate)), max(2, int(BLAZE_SECONDS * rate))
    return Loops(
        quiet=room.quiet(max(2, int(QUIET_SECONDS * rate))),
        walk=room.walk(max(2, int(WALK_SECONDS * rate))),
        growth=room.fire(0.0, growth, rate),
        blaze=room.fire(GROWTH_SECONDS, blaze, rate),
    )

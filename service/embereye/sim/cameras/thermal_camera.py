"""Simulate a radiometric camera: 16-bit centikelvin of a room in which fires break out as scripted."""

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from embereye.sim.scenes.fire import Fire

WIDTH, HEIGHT = 160, 120  # pixels
RATE = 9.0  # frames/s; usual for such cameras without export restrictions
NOISE_K = 0.05  # standard deviation of a pixel
ROOM_C, GRADIENT_C = 20.0, 3.0  # room temperature at the left edge; increase towards the right
FLAME_C = 450.0  # above the room, at full strength
SPREAD = 7.0  # pixels; hot gases and optics
SHUTTER_EVERY = 30.0  # seconds between shutter corrections, during which the picture freezes
SHUTTER_SECONDS = 0.5
FLICKER_HZ = 2.3
ZERO_C = 273.15


class ThermalRoom:
    """Draws the temperatures of one room; everything except the noise depends only on seed and time."""

    def __init__(self, seed: int, fires: Sequence[Fire]) -> None:
        self._random = np.random.default_rng(seed)
        self._fires = fires
        self._place = self._random.integers(30, WIDTH - 30), self._random.integers(40, HEIGHT - 20)
        warmth = self._random.normal(0, 6, (6, 8)).astype(np.float32)
        furniture = cv2.resize(warmth, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC) / 6
        self._base = ROOM_C + np.linspace(0, GRADIENT_C, WIDTH)[None, :] + furniture
        rows, columns = np.mgrid[:HEIGHT, :WIDTH]
        x, y = self._place
        self._flame = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * SPREAD**2))
        self._shown = self._words(0.0)
        self._shown_at = -1.0

    def frame(self, seconds: float) -> bytes:
        """Little-endian words, HEIGHT rows of WIDTH, `seconds` after the start."""
        shut = seconds % SHUTTER_EVERY < SHUTTER_SECONDS
        if not shut or self._shown_at < 0:
            self._shown, self._shown_at = self._words(seconds), seconds
        return self._shown.tobytes()

    def _words(self, seconds: float) -> npt.NDArray[np.uint16]:
        strength = max((fire.intensity(seconds) for fire in self._fires), default=0.0)
        flicker = 1 + 0.15 * np.sin(2 * np.pi * FLICKER_HZ * seconds)
        celsius = self._base + strength * flicker * FLAME_C * self._flame
        celsius += self._random.normal(0, NOISE_K, celsius.shape)
        words: npt.NDArray[np.uint16] = np.clip((celsius + ZERO_C) * 100, 1, 65_534).round().astype("<u2")
        return words

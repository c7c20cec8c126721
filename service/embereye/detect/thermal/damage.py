"""Detection of words that were damaged on their way from a thermal sensor, which has no checksum on any line.

`PixelFilter` finds pixels that optics cannot show: a lone pixel that jumps while its neighbours do not change. Optics
blur, so even a source of one pixel warms its neighbours by a few per cent of the radiation. Such a pixel counts from
the second different frame on that shows it. `AuxiliaryFilter` finds frames whose supply, chip temperature, gain or
compensation pixels jump: one damaged word there shifts the whole picture. Such a frame counts if the next one agrees.

Pure. A frame without a jump costs a few microseconds.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.health import BLUR_SHARE, doubt
from embereye.detect.thermal.mlx90640 import (
    COLUMNS,
    CP_0,
    CP_1,
    KELVIN,
    PIXELS,
    ROWS,
    Calibration,
    counts_scale,
    words_of,
)

JUMP_K = 20.0  # from one frame to the next; smaller ones cannot raise an alarm alone
JUMP_COUNTS = 150.0  # about 15 K in 18 bits, for a device without a calibration
REJECTED_FRAMES = 2  # in a row at most: a sensor that is noisy itself must not be ignored

# Changes of the auxiliary words from one frame to the next that a working sensor may show.
_AUXILIARY = struct.Struct(">1536x h 14x h 2x h 42x h 14x h 2x h 42x H 2x")  # VBE CP_0 GAIN PTAT CP_1 VDD control
AMBIENT_COUNTS = 400  # of VBE: 3 K of the chip
PTAT_COUNTS = 30  # 3 K of the chip
COMPENSATION_COUNTS = 24  # in 18 bits
SUPPLY_COUNTS = 320  # in 18 bits: 0.1 V
GAIN_SHARE = 0.03
# The first frame has no predecessor, so its words are compared with the calibration.
FIRST_GAIN_SHARE = 0.1
FIRST_COMPENSATION_COUNTS = 60
FIRST_AMBIENT_RANGE = (-20.0, 50.0)  # °C of the chip

Words = tuple[int, int, int, int, int, int, int]
Values = NDArray[np.float32]  # (768,) °C or counts


class PixelFilter:
    """Finds the damaged pixels in one device's frames."""

    def __init__(self, jump: float, *, kelvin: bool) -> None:
        """Set the least `jump` to examine. With `kelvin`, values are °C and radiation follows their fourth power."""
        self._jump = jump
        self._kelvin = kelvin
        self._before: Values | None = None  # values of the last frame, without its damaged pixels
        self._suspects: dict[int, bool] = {}  # lone pixels of the last frame → True if they became hotter

    def damaged(self, values: Values, *, repeated: bool = False) -> list[int]:
        """Return the pixels of a frame's (768,) `values` that no second frame or neighbour confirms.

        A `repeated` frame, with the same words as the last one, confirms nothing.
        """
        before = _surroundings(values) if self._before is None else self._before
        jumps = values - before
        places = np.flatnonzero(np.abs(jumps) > self._jump)
        if not len(places):
            self._before, self._suspects = values, {}
            return []
        excess = self._radiation(values) - self._radiation(before)
        around = _neighbours_mean(excess)
        lone = {
            int(place): bool(jumps[place] > 0)
            for place in places
            if abs(around[place]) < BLUR_SHARE * abs(excess[place]) or around[place] * excess[place] < 0
        }
        if not repeated:
            lone = {place: hotter for place, hotter in lone.items() if self._suspects.get(place) != hotter}
        self._suspects = lone
        self._before = mend(values, list(lone))
        return list(lone)

    def _radiation(self, values: Values) -> NDArray[np.float64]:
        return (values.astype(np.float64) + KELVIN) ** 4 if self._kelvin else values.astype(np.float64)


class AuxiliaryFilter:
    """Finds the frames of one device whose auxiliary words are damaged."""

    def __init__(self) -> None:
        self._before: Words | None = None  # of the last accepted frame
        self._suspect: Words | None = None  # of a frame that was rejected since
        self._rejected = 0  # in a row

    def is_damaged(self, frame: bytes, calibration: Calibration) -> bool:
        """True if a frame of 834 big-endian words is not confirmed by its predecessor, or by the frame before it."""
        words: Words = _AUXILIARY.unpack(frame)
        expected = _is_plausible(frame, calibration) if self._before is None else _is_near(words, self._before)
        confirmed = expected or (self._suspect is not None and _is_near(words, self._suspect))
        if not confirmed and self._rejected < REJECTED_FRAMES:
            self._suspect = words
            self._rejected += 1
            return True
        self._before, self._suspect, self._rejected = words, None, 0
        return False


def mend(values: Values, damaged: list[int]) -> Values:
    """Return (768,) values with the `damaged` pixels replaced by the median of their other neighbours."""
    if not damaged:
        return values
    picture = values.copy().reshape(ROWS, COLUMNS)
    for pixel in damaged:
        picture[divmod(pixel, COLUMNS)] = np.nan
    mended = picture.copy()
    for pixel in damaged:
        row, column = divmod(pixel, COLUMNS)
        near = picture[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        mended[row, column] = np.nanmedian(near) if np.isfinite(near).any() else np.nan
    return mended.ravel()


def _surroundings(values: Values) -> Values:
    """The median of each row's neighbourhood, as the value that a pixel of a first frame would have had."""
    wide = np.pad(values.reshape(ROWS, COLUMNS), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(wide, (5, 5)).reshape(PIXELS, 25)
    medians: Values = np.median(windows, axis=1)
    return medians


def _neighbours_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each pixel's measured neighbours, eight inside the picture; 0 if none is measured."""
    wide = np.pad(values.reshape(ROWS, COLUMNS), 1, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3)).reshape(PIXELS, 9)
    others = np.delete(windows, 4, axis=1)
    measured = np.isfinite(others)
    sums = np.where(measured, others, 0).sum(axis=1)
    mean: NDArray[np.float64] = sums / np.maximum(measured.sum(axis=1), 1)
    return mean


def _is_near(words: Words, before: Words) -> bool:
    """True if a working sensor's auxiliary words may change from `before` to `words` between two frames."""
    if words[6] != before[6]:
        return False
    scale = 2.0 ** (((words[6] >> 10) & 3) - 2)
    return (
        abs(words[0] - before[0]) <= AMBIENT_COUNTS
        and abs(words[1] - before[1]) <= COMPENSATION_COUNTS * max(scale, 1)
        and abs(words[2] - before[2]) <= GAIN_SHARE * abs(before[2])
        and abs(words[3] - before[3]) <= PTAT_COUNTS
        and abs(words[4] - before[4]) <= COMPENSATION_COUNTS * max(scale, 1)
        and abs(words[5] - before[5]) <= SUPPLY_COUNTS * max(scale, 1)
    )


def _is_plausible(frame: bytes, calibration: Calibration) -> bool:
    """True if the auxiliary words of a first frame fit the calibration."""
    words = words_of(frame)
    if doubt(calibration, words):
        return False
    known = calibration.auxiliary(words[None])
    gain, scale = float(known.gain_drift[0]), counts_scale(words)
    if not FIRST_AMBIENT_RANGE[0] <= known.ambient[0] <= FIRST_AMBIENT_RANGE[1]:
        return False
    drift = (1 + calibration.cp_kta * (known.ambient[0] - 25)) * (1 + calibration.cp_kv * (known.vdd[0] - 3.3))
    signed = words.view(np.int16)
    compensation = (
        abs(float(signed[word]) / scale * gain - offset * drift)
        for word, offset in zip((CP_0, CP_1), calibration.cp_offset, strict=True)
    )
    return abs(gain - 1) <= FIRST_GAIN_SHARE and max(compensation) <= FIRST_COMPENSATION_COUNTS

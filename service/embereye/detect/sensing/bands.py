"""Bands: ranges of ADC counts in which a sensor's levels do not change, so that numpy can skip such readings.

Pure. A reading whose values all lie inside their bands confirms the current levels. Only other readings are assessed,
one by one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.mq135 import Mq135, counts_at
from embereye.detect.sensing.thresholds import HYSTERESIS, Thresholds
from embereye.levels import Level

Band = tuple[float, float]  # ADC counts from, inclusive; to, exclusive
NOWHERE: Band = (math.inf, math.inf)
MARGIN = 1e-6  # of an edge; this close to it the exact calculation decides
FIRST_ROWS = 16  # of a table; it doubles when it is full


class Bands:
    """The bands of one device in ADC counts: the steps of its thresholds, converted back."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._upper = math.nextafter(thresholds.full_scale, math.inf)  # the first value that the converter cannot give
        board, full_scale = thresholds.board, thresholds.full_scale
        levels = (Level.CLEAR, Level.PRE_ALARM, Level.ALARM)
        # Computed once, because the inverse of a gas curve is expensive and bands change with every reading of a sign.
        self._gas = {
            current: self._between(
                *(_counts_at(amount, board, full_scale) for amount in thresholds.gas.stay_range(current))
            )
            for current in levels
        }

    def smoke(self, current: Level) -> Band:
        """Return the band of the `current` smoke level."""
        return self._between(*map(self._from_percent, self._thresholds.smoke.stay_range(current)))

    def gas(self, current: Level) -> Band:
        """Return the band of the `current` gas level."""
        return self._gas[max(Level.CLEAR, min(current, Level.ALARM))]

    def flame(self, current: Level, *, digital: bool) -> Band:
        """Return the band of the `current` flame level while the digital output is `digital`."""
        steps = self._thresholds.flame
        if not digital:
            return self._between(*map(self._from_percent, steps.stay_range(current)))
        agrees = self._from_percent(steps.pre_alarm * (1 - HYSTERESIS))  # from here on the analog value agrees with it
        if current >= Level.ALARM:
            return self._between(agrees, math.inf)
        return self._between(0.0, agrees) if current == Level.PRE_ALARM else NOWHERE

    def _from_percent(self, value: float) -> float:
        return value / 100 * self._thresholds.full_scale

    def _between(self, low: float, high: float) -> Band:
        return low * (1 + MARGIN), min(high * (1 - MARGIN), self._upper)


def _counts_at(amount_ppm: float, board: Mq135, full_scale: float) -> float:
    return math.inf if math.isinf(amount_ppm) else counts_at(amount_ppm, board, full_scale)


class BandTable:
    """The bands of all devices of a shard, one row each, to compare a batch of readings with."""

    def __init__(self) -> None:
        self.low: NDArray[np.float64] = np.full((FIRST_ROWS, 4), math.inf)
        self.high: NDArray[np.float64] = np.full((FIRST_ROWS, 4), math.inf)
        self._free = list(range(FIRST_ROWS))

    def allocate(self) -> int:
        """Return an unused row, whose bands contain no value."""
        if not self._free:
            size = len(self.low)
            self.low = np.vstack([self.low, np.full((size, 4), math.inf)])
            self.high = np.vstack([self.high, np.full((size, 4), math.inf)])
            self._free = list(range(size, 2 * size))
        return self._free.pop()

    def release(self, row: int) -> None:
        """Return a row to the unused ones."""
        self.low[row] = self.high[row] = math.inf
        self._free.append(row)

    def set(self, row: int, bands: tuple[Band, Band, Band, Band]) -> None:
        """Set the bands of smoke, flame, gas and digital flame."""
        self.low[row] = [band[0] for band in bands]
        self.high[row] = [band[1] for band in bands]

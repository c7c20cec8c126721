"""Bands: between which ADC counts a sensor's levels stay as they are, so that numpy can pass over what changes nothing.

Pure. A reading whose values all lie inside of their bands leads to the levels that are held already; only the others
are assessed, one by one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.mq135 import Mq135, counts_at
from embereye.detect.sensing.thresholds import HYSTERESIS, Thresholds
from embereye.levels import Level

Band = tuple[float, float]  # ADC counts from, inclusive; to, exclusive
NOWHERE: Band = (math.inf, math.inf)
MARGIN = 1e-6  # of an edge: this close to it the exact calculation decides
FIRST_ROWS = 16  # of a table; it doubles when it is full


class Bands:
    """Where each level of one device stays, in ADC counts: the steps of its thresholds, converted back."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._upper = math.nextafter(thresholds.full_scale, math.inf)  # the first value that the converter cannot give
        board, full_scale = thresholds.board, thresholds.full_scale
        levels = (Level.CLEAR, Level.PRE_ALARM, Level.ALARM)
        # The inverse of a gas curve is worth keeping: bands are set anew with every reading of a sign that goes on.
        self._gas = {
            held: self._between(*(_counts_at(amount, board, full_scale) for amount in thresholds.gas.stays(held)))
            for held in levels
        }

    def smoke(self, held: Level) -> Band:
        """Where a smoke level stays."""
        return self._between(*map(self._from_percent, self._thresholds.smoke.stays(held)))

    def gas(self, held: Level) -> Band:
        """Where a gas level stays."""
        return self._gas[max(Level.CLEAR, min(held, Level.ALARM))]

    def flame(self, held: Level, *, digital: bool) -> Band:
        """Where a flame level stays while the digital output says `digital`."""
        steps = self._thresholds.flame
        if not digital:
            return self._between(*map(self._from_percent, steps.stays(held)))
        agrees = self._from_percent(steps.pre_alarm * (1 - HYSTERESIS))  # from here on the analog value does
        if held >= Level.ALARM:
            return self._between(agrees, math.inf)
        return self._between(0.0, agrees) if held == Level.PRE_ALARM else NOWHERE

    def _from_percent(self, value: float) -> float:
        return value / 100 * self._thresholds.full_scale

    def _between(self, low: float, high: float) -> Band:
        return low * (1 + MARGIN), min(high * (1 - MARGIN), self._upper)


def _counts_at(amount_ppm: float, board: Mq135, full_scale: float) -> float:
    return math.inf if math.isinf(amount_ppm) else counts_at(amount_ppm, board, full_scale)


class BandTable:
    """The bands of all devices of a shard, one row each: what a batch of readings is held against."""

    def __init__(self) -> None:
        self.low: NDArray[np.float64] = np.full((FIRST_ROWS, 4), math.inf)
        self.high: NDArray[np.float64] = np.full((FIRST_ROWS, 4), math.inf)
        self._free = list(range(FIRST_ROWS))

    def allocate(self) -> int:
        """A row that is nobody else's, outside of which everything lies."""
        if not self._free:
            size = len(self.low)
            self.low = np.vstack([self.low, np.full((size, 4), math.inf)])
            self.high = np.vstack([self.high, np.full((size, 4), math.inf)])
            self._free = list(range(size, 2 * size))
        return self._free.pop()

    def release(self, row: int) -> None:
        """Give a row back."""
        self.low[row] = self.high[row] = math.inf
        self._free.append(row)

    def set(self, row: int, bands: tuple[Band, Band, Band, Band]) -> None:
        """Set the bands of smoke, flame, gas and digital flame."""
        self.low[row] = [band[0] for band in bands]
        self.high[row] = [band[1] for band in bands]

"""Bands: between which ADC counts a sensor's levels stay as they are, so that numpy can pass over what changes nothing.

Pure. A reading whose values all lie inside of their bands leads to the levels that are held already; only the others
need a closer look, one by one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.calibration import full_scale_of
from embereye.detect.sensing.thresholds import (
    FLAME_DEFAULTS,
    HYSTERESIS,
    SMOKE_DEFAULTS,
    complete_gas,
    complete_percent,
)
from embereye.levels import Level
from embereye.v1.shard_pb2 import GasThresholds, PercentThresholds, SensorSettings

Band = tuple[float, float]  # from, inclusive; to, exclusive
NOWHERE: Band = (math.inf, math.inf)
MARGIN = 1e-6  # of an edge: this close to it the exact calculation decides


def percent_counts(thresholds: PercentThresholds, full_scale: float) -> tuple[float, float]:
    """ADC counts at which pre-alarm and alarm start."""
    return thresholds.pre_alarm / 100 * full_scale, thresholds.alarm / 100 * full_scale


def gas_counts(amount_ppm: float, thresholds: GasThresholds, full_scale: float) -> float:
    """The ADC counts of an MQ-135 in so many ppm: the inverse of `thresholds.ppm`."""
    resistance = thresholds.r0_kohm * (amount_ppm / thresholds.curve_scale) ** (1 / thresholds.curve_exponent)
    counts = full_scale * thresholds.supply_ratio * thresholds.load_kohm / (thresholds.load_kohm + resistance)
    return float(min(counts, full_scale - 0.5))  # what lies beyond the converter's end begins there


def level_band(level: Level, pre_alarm: float, alarm: float, held_pre: float, held_alarm: float) -> Band:
    """Where `level` stays: it is entered at `pre_alarm`, `alarm`, and left under `held_pre`, `held_alarm`."""
    if level >= Level.ALARM:
        low, high = held_alarm, math.inf
    elif level == Level.PRE_ALARM:
        low, high = held_pre, alarm
    else:
        low, high = 0.0, min(pre_alarm, alarm)
    return (low * (1 + MARGIN), high * (1 - MARGIN))


class Limits:
    """A fleet's thresholds in counts, and the bands they make."""

    def __init__(self, settings: SensorSettings) -> None:
        gas = complete_gas(settings.gas)
        full_scale = full_scale_of(settings)
        self._upper = math.nextafter(full_scale, math.inf)  # the first value that the converter cannot give
        self._smoke = percent_counts(complete_percent(settings.smoke, SMOKE_DEFAULTS), full_scale)
        self._flame = percent_counts(complete_percent(settings.flame, FLAME_DEFAULTS), full_scale)
        amounts = [gas.pre_alarm_ppm, gas.alarm_ppm]
        amounts += [amount * (1 - HYSTERESIS) for amount in amounts]
        self._gas = [gas_counts(amount, gas, full_scale) for amount in amounts]

    def smoke(self, held: Level) -> Band:
        """Where a smoke level stays."""
        return self._linear(held, self._smoke)

    def gas(self, held: Level) -> Band:
        """Where a gas level stays."""
        return self._within(level_band(held, *self._gas))

    def flame(self, held: Level, *, digital: bool) -> Band:
        """Where a flame level stays while the digital output stays as it is."""
        if not digital:
            return self._linear(held, self._flame)
        keep = self._flame[0] * (1 - HYSTERESIS)
        if held >= Level.ALARM:
            return (keep * (1 + MARGIN), self._upper)
        return (0.0, keep * (1 - MARGIN)) if held == Level.PRE_ALARM else NOWHERE

    def _linear(self, held: Level, starts: tuple[float, float]) -> Band:
        pre_alarm, alarm = starts
        keep = 1 - HYSTERESIS
        return self._within(level_band(held, pre_alarm, alarm, pre_alarm * keep, alarm * keep))

    def _within(self, band: Band) -> Band:
        return (band[0], min(band[1], self._upper))


class BandTable:
    """The bands of all devices of a shard, one row each: what a batch of readings is held against."""

    def __init__(self) -> None:
        self.low: NDArray[np.float64] = np.full((16, 4), math.inf)
        self.high: NDArray[np.float64] = np.full((16, 4), math.inf)
        self._free = list(range(16))

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

"""An MQ-135 gas sensor: conversion of ADC counts to its resistance, its resistance to ppm, and back.

The sensor and a load resistor divide the supply: counts / full scale = supply ratio x load / (load + Rs). The gas
concentration follows a line of the datasheet's sensitivity chart: ppm = scale (Rs / R0)^exponent.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OUTDOOR_PPM = 425.0  # CO2 in clean outdoor air
MAX_PPM = 1_000_000.0  # pure gas
MIN_KOHM = 1e-3  # counts as zero resistance
MIN_COUNTS = 1e-3  # a converter that reads 0 sees a sensor with nearly infinite resistance
HALF_A_COUNT = 0.5  # the converter's last step begins here, and includes everything beyond its range


class Mq135(NamedTuple):
    """A sensor's wiring and curve."""

    load_kohm: float  # kΩ, load resistor
    r0_kohm: float  # kΩ, the sensor's resistance at curve_scale
    supply_ratio: float  # 1, sensor supply / converter reference
    curve_scale: float  # ppm
    curve_exponent: float  # 1, negative


def resistance_kohm(adc: NDArray[np.floating[Any]] | float, board: Mq135, full_scale: float) -> Any:
    """Convert ADC counts, one or many, to the sensor's resistance Rs in kΩ.

    A converter at the end of its range may hide any smaller resistance, so that counts as zero.
    """
    counts = np.asarray(adc, np.float64)
    most = (full_scale - HALF_A_COUNT) * min(board.supply_ratio, 1.0)
    resistance = board.load_kohm * (board.supply_ratio * full_scale / np.clip(counts, MIN_COUNTS, most) - 1)
    return np.where(counts >= most, MIN_KOHM, resistance)


def ppm(adc: NDArray[np.floating[Any]] | float, board: Mq135, full_scale: float) -> Any:
    """Convert ADC counts, one or many, to ppm of CO2-equivalent."""
    ratio = resistance_kohm(adc, board, full_scale) / board.r0_kohm
    amount = np.minimum(board.curve_scale * ratio**board.curve_exponent, MAX_PPM)
    return amount if amount.ndim else float(amount)


def counts_at(amount_ppm: float, board: Mq135, full_scale: float) -> float:
    """Return the ADC counts in air with `amount_ppm`: the inverse of `ppm`."""
    if amount_ppm <= 0:
        return 0.0
    resistance = board.r0_kohm * (amount_ppm / board.curve_scale) ** (1 / board.curve_exponent)
    counts = full_scale * board.supply_ratio * board.load_kohm / (board.load_kohm + resistance)
    return float(min(counts, full_scale - HALF_A_COUNT))


def r0_kohm(resistance: float, amount_ppm: float, *, curve_scale: float, curve_exponent: float) -> float:
    """Return the R0 in kΩ of a sensor that has a `resistance` in kΩ in air with `amount_ppm`."""
    return float(resistance / (amount_ppm / curve_scale) ** (1 / curve_exponent))

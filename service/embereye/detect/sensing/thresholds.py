"""Smoke, flame and gas readings to evidence: ADC counts to per cent and ppm, held against a fleet's thresholds.

Pure: no state, no clock. Pass the level in force as `held`: a value has to fall clearly below a threshold to leave it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embereye.levels import Level
from embereye.v1.shard_pb2 import GasThresholds, PercentThresholds
from embereye.v1.types_pb2 import Term

FULL_SCALE = 4095.0  # counts of a 12-bit converter, which devices have unless their fleet says otherwise
HYSTERESIS = 0.1  # of a threshold

# Where a fleet's settings leave a threshold at 0. The devices known so far rest at 7 % smoke and 32 % flame.
SMOKE_DEFAULTS = PercentThresholds(pre_alarm=15, alarm=25)
FLAME_DEFAULTS = PercentThresholds(pre_alarm=55, alarm=75)
# 5,000 ppm CO2 is the usual occupational limit. 10 kΩ is what the common MQ-135 boards load the sensor with; 76.63 kΩ
# is where the curve below meets the 400 ppm of outdoor air for the specimen it was fitted to: calibrate r0_kohm.
# The curve is the CO2 line of the MQ-135 datasheet's sensitivity chart, ppm = scale (Rs/R0)^exponent, as fitted by
# G. Krocker.
GAS_DEFAULTS = GasThresholds(
    pre_alarm_ppm=2000,
    alarm_ppm=5000,
    load_kohm=10,
    r0_kohm=76.63,
    supply_ratio=1,
    curve_scale=116.6020682,
    curve_exponent=-2.769034857,
)
OUTDOOR_PPM = 425.0  # CO2 in clean outdoor air
MOST_PPM = 1_000_000.0
LEAST_KOHM = 1e-3


@dataclass(frozen=True)
class Assessment:
    """What a reading says. `blind` is why it says nothing (its level is then unspecified); empty: it does."""

    level: Level
    score: float  # 0..1
    terms: tuple[Term, ...]
    note: str = ""
    blind: str = ""


def percent(adc: NDArray[np.floating[Any]] | float, full_scale: float = FULL_SCALE) -> Any:
    """ADC counts, one or many, as % of the converter's range."""
    return adc / full_scale * 100


def ppm(
    adc: NDArray[np.floating[Any]] | float, thresholds: GasThresholds = GAS_DEFAULTS, full_scale: float = FULL_SCALE
) -> Any:
    """MQ-135 ADC counts, one or many, as ppm of CO2-equivalent."""
    limits = complete_gas(thresholds)
    ratio = sensor_kohm(adc, limits, full_scale) / limits.r0_kohm
    amount = np.minimum(limits.curve_scale * ratio**limits.curve_exponent, MOST_PPM)
    return amount if amount.ndim else float(amount)


def sensor_kohm(adc: NDArray[np.floating[Any]] | float, thresholds: GasThresholds, full_scale: float) -> Any:
    """MQ-135 ADC counts, one or many, as the sensor's resistance Rs in kΩ.

    It divides the supply with the load resistor: counts / full scale = supply ratio x load / (load + Rs). A converter
    at its end does not say how much more there is: that counts as no resistance left.
    """
    limits = complete_gas(thresholds)
    counts = np.asarray(adc, np.float64)
    most = (full_scale - 0.5) * min(limits.supply_ratio, 1.0)
    resistance = limits.load_kohm * (limits.supply_ratio * full_scale / np.clip(counts, 1e-3, most) - 1)
    return np.where(counts >= most, LEAST_KOHM, resistance)


def r0_kohm(resistance_kohm: float, amount_ppm: float, thresholds: GasThresholds = GAS_DEFAULTS) -> float:
    """The R0 in kΩ of a sensor that has a resistance of `resistance_kohm` in air with `amount_ppm`."""
    limits = complete_gas(thresholds)
    return float(resistance_kohm / (amount_ppm / limits.curve_scale) ** (1 / limits.curve_exponent))


def complete_gas(thresholds: GasThresholds) -> GasThresholds:
    """`thresholds` with the default in place of each 0."""
    known = GasThresholds()
    known.CopyFrom(GAS_DEFAULTS)
    known.MergeFrom(thresholds)
    return known


def complete_percent(thresholds: PercentThresholds, defaults: PercentThresholds) -> PercentThresholds:
    """`thresholds` with the default in place of each 0."""
    known = PercentThresholds()
    known.CopyFrom(defaults)
    known.MergeFrom(thresholds)
    return known


def assess_smoke(
    adc: float,
    thresholds: PercentThresholds,
    held: Level = Level.CLEAR,
    full_scale: float = FULL_SCALE,
) -> Assessment:
    """Hold a smoke sensor's ADC counts against `thresholds`; at most ALARM."""
    if fault := _fault("smoke", adc, full_scale):
        return fault
    limits = complete_percent(thresholds, SMOKE_DEFAULTS)
    return _assess("smoke", float(percent(adc, full_scale)), limits.pre_alarm, limits.alarm, "%", held=held)


def assess_gas(
    adc: float, thresholds: GasThresholds, held: Level = Level.CLEAR, full_scale: float = FULL_SCALE
) -> Assessment:
    """Hold an MQ-135's ADC counts against `thresholds`; at most ALARM."""
    if fault := _fault("gas", adc, full_scale):
        return fault
    limits = complete_gas(thresholds)
    amount = float(ppm(adc, limits, full_scale))
    return _assess("gas", amount, limits.pre_alarm_ppm, limits.alarm_ppm, "ppm", held=held)


def assess_flame(
    adc: float | None,
    detected: bool | None,
    thresholds: PercentThresholds,
    held: Level = Level.CLEAR,
    full_scale: float = FULL_SCALE,
) -> Assessment:
    """Hold a flame sensor against `thresholds`: its analog counts, its digital output, or both; None: not said.

    The digital output has its own threshold, a screw on the board that anybody may have turned, and sunlight sets it
    off: alone it is a pre-alarm. With the analog value past its pre-alarm as well it is an alarm.
    """
    if adc is None and detected is None:
        return Assessment(Level.UNSPECIFIED, 0.0, (), blind="no flame reading")
    fault = None if adc is None else _fault("flame", adc, full_scale)
    if fault and not detected:
        return fault
    limits = complete_percent(thresholds, FLAME_DEFAULTS)
    if adc is None or fault:
        analog = Assessment(Level.CLEAR, 0.0, ())
    else:
        value = float(percent(adc, full_scale))
        analog = _assess("flame", value, limits.pre_alarm, limits.alarm, "%", held=held)
    if detected is None:
        return analog
    terms = (*analog.terms, Term(name="flame.digital", value=float(detected), threshold=1.0, unit="1"))
    if not detected:
        return Assessment(analog.level, analog.score, terms, analog.note)
    if analog.level >= Level.PRE_ALARM:
        return Assessment(Level.ALARM, max(analog.score, 0.8), terms)
    return Assessment(Level.PRE_ALARM, max(analog.score, 0.5), terms, "digital flame output alone")


def _fault(name: str, adc: float, full_scale: float) -> Assessment | None:
    if math.isfinite(adc) and 0 <= adc <= full_scale:
        return None
    sentence = f"{name} reads {adc:g} counts, outside of its converter's 0 to {full_scale:g}"
    return Assessment(Level.UNSPECIFIED, 0.0, (), blind=sentence)


def _assess(name: str, value: float, pre_alarm: float, alarm: float, unit: str, *, held: Level) -> Assessment:
    level: Level = Level.CLEAR
    for candidate, start in ((Level.ALARM, alarm), (Level.PRE_ALARM, pre_alarm)):
        if value >= start * (1 - HYSTERESIS if held >= candidate else 1):
            level = candidate
            break
    threshold = alarm if level == Level.ALARM else pre_alarm
    # 0.4 at pre-alarm, 0.7 at alarm, 1 at twice the alarm's threshold.
    score = float(np.interp(value, [0, pre_alarm, max(alarm, pre_alarm), 2 * max(alarm, pre_alarm)], [0, 0.4, 0.7, 1]))
    return Assessment(level, score, (Term(name=name, value=value, threshold=threshold, unit=unit),))

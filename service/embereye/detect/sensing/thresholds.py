"""Assessment of smoke, flame and gas readings: from ADC counts to a level, a score and the terms that explain it.

Pure: no clock. The only state is the `current` level, which the caller passes, because a value has to fall clearly
below a threshold to leave its level. `bands` derives from the same `Steps` the ranges without change.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.calibration import full_scale_of, is_active_low
from embereye.detect.sensing.mq135 import Mq135, ppm
from embereye.levels import Level
from embereye.margins import Measured
from embereye.v1.shard_pb2 import GasThresholds, PercentThresholds, SensorSettings
from embereye.v1.types_pb2 import Term

HYSTERESIS = 0.1  # of a threshold; a level is left this far below it
PRE_ALARM_SCORE, ALARM_SCORE = 0.4, 0.7  # at the thresholds; a score of 1 is reached at twice the alarm's
DIGITAL_SCORE = 0.5  # for a digital flame output alone
BOTH_SCORE = 0.8  # at least, if the analog value agrees


@dataclass(frozen=True)
class Assessment:
    """The assessment of a reading. `blind` says why it has none (its level is then unspecified); empty: it has one."""

    level: Level
    score: float  # 0..1
    terms: tuple[Term, ...]
    note: str = ""
    blind: str = ""
    decisive: Measured | None = None  # the value that decides about an alarm, beside the limit of an alarm


class Steps(NamedTuple):
    """The values at which levels are entered, in any unit that rises with the danger."""

    pre_alarm: float
    alarm: float

    def level(self, value: float, current: Level) -> Level:
        """The level at `value` if `current` is in force; at most ALARM."""
        if value >= self.alarm * (1 - HYSTERESIS if current >= Level.ALARM else 1):
            return Level.ALARM
        if value >= self.pre_alarm * (1 - HYSTERESIS if current >= Level.PRE_ALARM else 1):
            return Level.PRE_ALARM
        return Level.CLEAR

    def stay_range(self, current: Level) -> tuple[float, float]:
        """Return the range, from inclusive, to exclusive, in which `level` returns `current` again."""
        if current >= Level.ALARM:
            return self.alarm * (1 - HYSTERESIS), math.inf
        if current == Level.PRE_ALARM:
            return self.pre_alarm * (1 - HYSTERESIS), self.alarm
        return 0.0, min(self.pre_alarm, self.alarm)


class Thresholds:
    """One device's thresholds, from its complete settings."""

    def __init__(self, settings: SensorSettings) -> None:
        self.full_scale = full_scale_of(settings)  # ADC counts
        self.active_low = is_active_low(settings)
        self.smoke = _percent_steps(settings.smoke)  # % of the converter's range
        self.flame = _percent_steps(settings.flame)  # % of the converter's range
        self.gas = Steps(settings.gas.pre_alarm_ppm, settings.gas.alarm_ppm)  # ppm
        self.board = board_of(settings.gas)

    def assess_smoke(self, adc: float, current: Level = Level.CLEAR) -> Assessment:
        """Assess a smoke sensor's ADC counts."""
        if fault := self._fault("smoke", adc):
            return fault
        return _assess("smoke", float(percent(adc, self.full_scale)), self.smoke, "%", current)

    def assess_gas(self, adc: float, current: Level = Level.CLEAR) -> Assessment:
        """Assess an MQ-135's ADC counts."""
        if fault := self._fault("gas", adc):
            return fault
        return _assess("gas", float(ppm(adc, self.board, self.full_scale)), self.gas, "ppm", current)

    def assess_flame(self, adc: float | None, detected: bool | None, current: Level = Level.CLEAR) -> Assessment:
        """Assess a flame sensor's analog counts, its digital output, or both; None: not given.

        The digital output's threshold is a screw on the board that anyone may have turned, and sunlight triggers it, so
        alone it is a pre-alarm. With the analog value above its pre-alarm too, it is an alarm.
        """
        if adc is None and detected is None:
            return Assessment(Level.UNSPECIFIED, 0.0, (), blind="no flame reading")
        fault = None if adc is None else self._fault("flame", adc)
        if fault and not detected:
            return fault
        if adc is None or fault:
            analog = Assessment(Level.CLEAR, 0.0, ())
        else:
            analog = _assess("flame", float(percent(adc, self.full_scale)), self.flame, "%", current)
        return analog if detected is None else _with_digital(analog, detected, self.flame)

    def _fault(self, name: str, adc: float) -> Assessment | None:
        if math.isfinite(adc) and 0 <= adc <= self.full_scale:
            return None
        sentence = f"{name} reads {adc:g} counts, outside its converter's 0 to {self.full_scale:g}"
        return Assessment(Level.UNSPECIFIED, 0.0, (), blind=sentence)


def percent(adc: NDArray[np.floating[Any]] | float, full_scale: float) -> Any:
    """Convert ADC counts, one or many, to % of the converter's range."""
    return adc / full_scale * 100


def board_of(gas: GasThresholds) -> Mq135:
    """The wiring and curve of a fleet's or a device's gas sensor."""
    return Mq135(gas.load_kohm, gas.r0_kohm, gas.supply_ratio, gas.curve_scale, gas.curve_exponent)


def _percent_steps(thresholds: PercentThresholds) -> Steps:
    return Steps(thresholds.pre_alarm, thresholds.alarm)


def _assess(name: str, value: float, steps: Steps, unit: str, current: Level) -> Assessment:
    level = steps.level(value, current)
    pre_alarm, alarm = steps
    most = max(alarm, pre_alarm)
    score = float(np.interp(value, [0, pre_alarm, most, 2 * most], [0, PRE_ALARM_SCORE, ALARM_SCORE, 1]))
    threshold = alarm if level == Level.ALARM else pre_alarm
    term = Term(name=name, value=value, threshold=threshold, unit=unit)
    return Assessment(level, score, (term,), decisive=(name, value, most, unit))


def _with_digital(analog: Assessment, detected: bool, steps: Steps) -> Assessment:
    terms = (*analog.terms, Term(name="flame.digital", value=float(detected), threshold=1.0, unit="1"))
    if not detected:
        return Assessment(analog.level, analog.score, terms, analog.note, decisive=analog.decisive)
    decisive = (*analog.decisive[:2], steps.pre_alarm, "%") if analog.decisive else None
    if analog.level >= Level.PRE_ALARM:
        return Assessment(Level.ALARM, max(analog.score, BOTH_SCORE), terms, decisive=decisive)
    score = max(analog.score, DIGITAL_SCORE)
    return Assessment(Level.PRE_ALARM, score, terms, "digital flame output alone", decisive=decisive)

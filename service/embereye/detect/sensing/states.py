"""The assessment of what bought devices report: on and off, or slow measurements. Pure.

An approved detector has decided already, so its alarm is one. Thresholds for carbon monoxide follow
EN 50291-1, which requires an alarm within 10 to 40 minutes at 100 ppm and within 3 minutes at 300 ppm: without the time
at hand, 100 ppm is a pre-alarm and 300 ppm an alarm. Thresholds for temperature are the fleet's for heat; a device that
reports every few minutes has no rate of rise.
"""

from embereye.detect.sensing.thresholds import Assessment, Steps
from embereye.levels import Kind, Level
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Term

ALARMS = {
    "smoke": Kind.SMOKE,
    "heat": Kind.HEAT,
    "flame": Kind.FLAME,
    "carbonMonoxide": Kind.GAS,
    "gas": Kind.GAS,
}  # binary quantity → kind of its sign
CARBON_MONOXIDE = Steps(100.0, 300.0)  # ppm
BATTERY_LOW_PERCENT = 10.0  # at which a battery counts as nearly empty
HEAT_HYSTERESIS = 3.0  # °C


def assess_state(quantity: str, *, on: bool, note: str = "") -> Assessment:
    """Assess an alarm that a device reports as on or off; `note` is for people."""
    term = Term(name=f"{quantity}.reported", value=float(on), threshold=1.0, unit="1")
    return Assessment(Level.ALARM if on else Level.CLEAR, float(on), (term,), note if on else "")


def level_of(quantity: str, value: float, current: Level, settings: SensorSettings) -> Level:
    """The level of a temperature (°C) or a concentration of carbon monoxide (ppm) while `current` is in force."""
    if quantity != "temperature":
        return CARBON_MONOXIDE.level(value, current)
    limits = settings.heat
    if value < limits.pre_alarm_c - HEAT_HYSTERESIS:
        return Level.CLEAR  # nearly always
    steps = ((Level.CRITICAL, limits.critical_c), (Level.ALARM, limits.alarm_c), (Level.PRE_ALARM, limits.pre_alarm_c))
    return next(
        (step for step, limit in steps if value >= limit - (HEAT_HYSTERESIS if current >= step else 0.0)), Level.CLEAR
    )


def assess_level(quantity: str, value: float, current: Level, settings: SensorSettings) -> Assessment:
    """Assess a temperature (°C) or a concentration of carbon monoxide (ppm) while `current` is in force."""
    level = level_of(quantity, value, current, settings)
    if quantity == "temperature":
        return _heat(value, level, settings)
    term = Term(name="carbonMonoxide", value=value, threshold=_threshold(CARBON_MONOXIDE, level), unit="ppm")
    decisive = ("carbonMonoxide", value, CARBON_MONOXIDE.alarm, "ppm")
    return Assessment(level, min(1.0, value / CARBON_MONOXIDE.alarm), (term,), decisive=decisive)


def _heat(value: float, level: Level, settings: SensorSettings) -> Assessment:
    limits = settings.heat
    threshold = {Level.CRITICAL: limits.critical_c, Level.ALARM: limits.alarm_c}.get(level, limits.pre_alarm_c)
    term = Term(name="temperature", value=value, threshold=threshold, unit="°C")
    score = min(1.0, max(0.0, value / limits.critical_c))
    return Assessment(level, score, (term,), decisive=("temperature", value, limits.alarm_c, "°C"))


def _threshold(steps: Steps, level: Level) -> float:
    return steps.alarm if level >= Level.ALARM else steps.pre_alarm

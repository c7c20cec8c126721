"""Thermal frames to heat evidence, one watch per device: how hot it is, how fast it rises, how sure that is.

Informed by EN 54-5's fixed and rate-of-rise classes; no claim of compliance is made.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embereye.thermal.mlx90640 import COLUMNS, NOT_MEASURED, PIXELS, unmeasured
from embereye.v1.shard_pb2 import HeatThresholds
from embereye.v1.types_pb2 import Level, Term

SECOND = 1_000_000_000  # nanoseconds

# Where a fleet's settings leave a threshold at 0. °C, °C/min.
DEFAULTS = HeatThresholds(
    pre_alarm_c=47, alarm_c=57, critical_c=90, rise_c_per_min=4, rise_allowance_c=10
)  # fmt: skip
HYSTERESIS_C = 3.0  # a level is left this far below the threshold by which it was entered
# An alarm needs this many hot frames in a row, or two that lie this far apart where frames are rare.
CONFIRM_FRAMES = 3
CONFIRM_NS = 1 * SECOND
# The rise is the distance between a quick and a slow running mean, over the distance between their lags.
QUICK_S = 5.0
SLOW_S = 60.0
WARM_UP_NS = 15 * SECOND  # before that the two means know too little to tell a rise
BASELINE_S = 300.0  # how quickly normal is learnt
# Under suspicion normal is not learnt: a fire would become it. But a heater that was turned on would otherwise
# stay suspicious for ever, so that after FREEZE_NS learning goes on, slowly.
FREEZE_NS = 600 * SECOND
SUSPICIOUS_BASELINE_S = 600.0
VISIBLE_SHARE = 0.5  # with fewer pixels than this a frame cannot tell that nothing is hot

# Uncalibrated: about 0.1 K a count at room temperature, so a spot that became some 25 K hotter.
RELATIVE_RISE_COUNTS = 250.0


@dataclass(frozen=True)
class HeatAssessment:
    """What a frame says of heat. `blind` is why it cannot say that nothing is hot; empty: it can."""

    level: Level.ValueType
    score: float  # 0..1
    terms: tuple[Term, ...]
    hottest: tuple[int, int] | None  # row, column
    relative: bool = False  # a rise of raw counts, not a temperature
    note: str = ""
    blind: str = ""


def complete(thresholds: HeatThresholds) -> HeatThresholds:
    """`thresholds` with the default in place of each 0."""
    known = HeatThresholds()
    known.CopyFrom(DEFAULTS)
    known.MergeFrom(thresholds)  # merging leaves out a scalar's 0
    return known


class HeatWatch:
    """Follows one device's frames. Times are nanoseconds since the Unix epoch."""

    def __init__(self, thresholds: HeatThresholds) -> None:
        self.configure(thresholds)
        self._calibrated = _Calibrated()
        self._relative = _Relative()

    def configure(self, thresholds: HeatThresholds) -> None:
        """Hold what comes next against other thresholds; what was learnt stays."""
        self._thresholds = complete(thresholds)

    def observe(self, celsius: NDArray[np.floating[Any]], now_ns: int) -> HeatAssessment:
        """Assess a calibrated frame: (24, 32) °C, NaN where nothing was measured."""
        return self._calibrated.observe(celsius, now_ns, self._thresholds)

    def observe_words(self, pixels: NDArray[np.uint16], now_ns: int) -> HeatAssessment:
        """Assess a frame of a device without calibration: its 768 raw words (more are ignored). At most pre-alarm."""
        return self._relative.observe(pixels, now_ns)


class _RunningMean:
    """An exponential mean of irregular samples."""

    def __init__(self) -> None:
        self.value = math.nan

    def add(self, sample: float, elapsed_ns: int, time_constant_s: float) -> None:
        if math.isnan(self.value):
            self.value = sample
        else:
            self.value += (sample - self.value) * -math.expm1(-elapsed_ns / SECOND / time_constant_s)


class _Calibrated:
    def __init__(self) -> None:
        self._quick, self._slow, self._baseline = _RunningMean(), _RunningMean(), _RunningMean()
        self._first_ns = 0
        self._last_ns = 0
        self._rising = False
        self._hot_since_ns = 0
        self._hot_frames = 0
        self._suspicious_since_ns = 0
        self._level = Level.LEVEL_CLEAR

    def observe(self, celsius: NDArray[np.floating[Any]], now_ns: int, limits: HeatThresholds) -> HeatAssessment:
        flat = celsius.ravel()
        pixel, hottest, visible = int(flat.argmax()), float(flat.max()), len(flat)
        if math.isnan(hottest):  # some pixels, at least, were not measured
            visible -= int(np.count_nonzero(np.isnan(flat)))
            if visible:
                pixel = int(np.nanargmax(flat))
                hottest = float(flat[pixel])
        blind = "" if visible >= VISIBLE_SHARE * len(flat) else f"only {visible} of {len(flat)} pixels are measured"
        if not visible:
            return HeatAssessment(Level.LEVEL_UNSPECIFIED, 0.0, (), None, blind=blind)
        rate = self._rate(hottest, now_ns)
        over = hottest - self._baseline.value
        allowance = limits.rise_allowance_c
        # What rose quickly stays suspect while it is still well above normal, although it rises no further.
        self._rising = rate >= limits.rise_c_per_min or (
            self._rising and (rate >= limits.rise_c_per_min / 2 or over >= allowance / 2)
        )
        lowered = allowance if self._rising else 0.0
        starts = {
            Level.LEVEL_PRE_ALARM: limits.pre_alarm_c - lowered,
            Level.LEVEL_ALARM: limits.alarm_c - lowered,
            Level.LEVEL_CRITICAL: limits.critical_c,
        }
        self._level = level = self._next_level(hottest, now_ns, starts)
        self._learn(hottest, now_ns, suspicious=level >= Level.LEVEL_PRE_ALARM)
        held = starts.get(level, starts[Level.LEVEL_PRE_ALARM])
        terms = [Term(name="temperature.max", value=hottest, threshold=held, unit="°C")]
        if now_ns - self._first_ns >= WARM_UP_NS:
            terms.append(Term(name="temperature.rise", value=rate, threshold=limits.rise_c_per_min, unit="°C/min"))
            terms.append(Term(name="temperature.over_normal", value=over, threshold=allowance, unit="°C"))
        unconfirmed = level == Level.LEVEL_PRE_ALARM and hottest >= starts[Level.LEVEL_ALARM]
        note = self._note(level, lowered, unconfirmed=unconfirmed)
        row, column = divmod(pixel, celsius.shape[-1])
        return HeatAssessment(level, _score(hottest, starts), tuple(terms), (row, column), note=note, blind=blind)

    def _rate(self, hottest: float, now_ns: int) -> float:
        """°C/min; also moves the running means on."""
        if not self._first_ns:
            self._first_ns = self._last_ns = now_ns
            self._baseline.add(hottest, 0, BASELINE_S)
        elapsed = max(now_ns - self._last_ns, 0)
        self._quick.add(hottest, elapsed, QUICK_S)
        self._slow.add(hottest, elapsed, SLOW_S)
        if now_ns - self._first_ns < WARM_UP_NS:
            return 0.0
        return (self._quick.value - self._slow.value) / (SLOW_S - QUICK_S) * 60

    def _next_level(self, hottest: float, now_ns: int, starts: dict[Level.ValueType, float]) -> Level.ValueType:
        if hottest >= starts[Level.LEVEL_ALARM]:
            self._hot_frames += 1
            self._hot_since_ns = self._hot_since_ns or now_ns
        elif hottest < starts[Level.LEVEL_ALARM] - HYSTERESIS_C:
            self._hot_frames = self._hot_since_ns = 0
        confirmed = self._hot_frames >= CONFIRM_FRAMES or (
            self._hot_frames >= 2 and now_ns - self._hot_since_ns >= CONFIRM_NS
        )
        for level in (Level.LEVEL_CRITICAL, Level.LEVEL_ALARM, Level.LEVEL_PRE_ALARM):
            if level == Level.LEVEL_ALARM and not confirmed and self._level < level:
                continue
            if hottest >= starts[level] - (HYSTERESIS_C if self._level >= level else 0.0):
                return level
        return Level.LEVEL_CLEAR

    def _learn(self, hottest: float, now_ns: int, *, suspicious: bool) -> None:
        elapsed = max(now_ns - self._last_ns, 0)
        self._last_ns = max(now_ns, self._last_ns)
        if not suspicious:
            self._suspicious_since_ns = 0
            self._baseline.add(hottest, elapsed, BASELINE_S)
            return
        self._suspicious_since_ns = self._suspicious_since_ns or now_ns
        if now_ns - self._suspicious_since_ns > FREEZE_NS:
            self._baseline.add(hottest, elapsed, SUSPICIOUS_BASELINE_S)

    @staticmethod
    def _note(level: Level.ValueType, lowered: float, *, unconfirmed: bool) -> str:
        if unconfirmed:
            return "hot enough for an alarm, not confirmed yet"
        return (
            f"thresholds lowered by {lowered:g} °C because of the rise" if lowered and level > Level.LEVEL_CLEAR else ""
        )


def _score(hottest: float, starts: dict[Level.ValueType, float]) -> float:
    """0 from 20 °C under the pre-alarm on, 0.4 at pre-alarm, 0.7 at alarm, 1 at critical."""
    pre_alarm, alarm, critical = starts.values()
    if hottest <= pre_alarm - 20:
        return 0.0
    steps = np.maximum.accumulate([pre_alarm - 20, pre_alarm, alarm, critical])
    return float(np.interp(hottest, steps, [0.0, 0.4, 0.7, 1.0]))


class _Relative:
    def __init__(self) -> None:
        self._normal: NDArray[np.float32] | None = None
        self._last_ns = 0
        self._suspicious_since_ns = 0
        self._suspicious = False

    def observe(self, pixels: NDArray[np.uint16], now_ns: int) -> HeatAssessment:
        words = pixels.ravel()[:PIXELS].astype(np.uint16)
        counts = words.view(np.int16).astype(np.float32)
        visible = len(counts)
        if (words == NOT_MEASURED).any():
            counts[unmeasured(words)] = np.nan
            visible = int(np.count_nonzero(np.isfinite(counts)))
        blind = "" if visible >= VISIBLE_SHARE * len(counts) else f"only {visible} of {len(counts)} pixels are measured"
        if not visible:
            return HeatAssessment(Level.LEVEL_UNSPECIFIED, 0.0, (), None, relative=True, blind=blind)
        if self._normal is None:
            self._normal, self._last_ns = counts.copy(), now_ns
        unknown = np.isnan(self._normal)
        self._normal[unknown] = counts[unknown]
        rises = counts - self._normal
        rises[~np.isfinite(rises)] = -np.inf
        pixel = int(np.argmax(rises))
        rise = float(rises[pixel])
        start = RELATIVE_RISE_COUNTS * (0.8 if self._suspicious else 1.0)
        self._suspicious = rise >= start
        self._learn(counts, now_ns)
        term = Term(name="counts.rise", value=rise, threshold=RELATIVE_RISE_COUNTS, unit="1")
        return HeatAssessment(
            Level.LEVEL_PRE_ALARM if self._suspicious else Level.LEVEL_CLEAR,
            min(max(rise / RELATIVE_RISE_COUNTS, 0.0), 1.0) * 0.4,
            (term,),
            divmod(pixel, COLUMNS),
            relative=True,
            note="no calibration: a rise of raw counts, not a temperature" if self._suspicious else "",
            blind=blind,
        )

    def _learn(self, counts: NDArray[np.float32], now_ns: int) -> None:
        elapsed = max(now_ns - self._last_ns, 0)
        self._last_ns = max(now_ns, self._last_ns)
        time_constant = BASELINE_S
        if self._suspicious:
            self._suspicious_since_ns = self._suspicious_since_ns or now_ns
            if now_ns - self._suspicious_since_ns <= FREEZE_NS:
                return
            time_constant = SUSPICIOUS_BASELINE_S
        else:
            self._suspicious_since_ns = 0
        assert self._normal is not None
        step = (counts - self._normal) * np.float32(-math.expm1(-elapsed / SECOND / time_constant))
        self._normal += np.where(np.isfinite(step), step, 0)

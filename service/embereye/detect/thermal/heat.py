"""Heat findings from thermal frames, per device: how hot it is, how fast the temperature rises, how sure that is.

Informed by the fixed and rate-of-rise classes of EN 54-5; no claim of compliance is made.

The hottest pixel decides. Its temperature is compared with fixed thresholds, which a fast rise lowers; the rise is the
difference of two running means. A place that rises next to a hotter one is compared too (`places`). A baseline learns
the normal temperature, but slowly or not at all under suspicion. A device without calibration has only raw counts; a
rise of them is a pre-alarm at most.

| level | entered at | left at |
| --- | --- | --- |
| pre-alarm | the pre-alarm threshold | 3 °C below it |
| alarm | the alarm threshold, in 3 frames in a row or 2 frames 1 s apart | 3 °C below it |
| critical | the critical threshold, in one frame | 3 °C below it |
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import COLUMNS, NOT_MEASURED, PIXELS, counts_scale, unmeasured
from embereye.detect.thermal.places import Places, Rising
from embereye.levels import Level
from embereye.margins import Measured
from embereye.units import SECOND
from embereye.v1.shard_pb2 import HeatThresholds
from embereye.v1.types_pb2 import Term

HYSTERESIS_C = 3.0  # a level is left this far below its threshold
# An alarm needs this many hot frames in a row, or two this far apart if frames are rare.
CONFIRM_FRAMES = 3
CONFIRM_NS = 1 * SECOND
# The rise is the distance between a quick and a slow running mean, divided by the distance between their lags.
QUICK_S = 5.0
SLOW_S = 60.0
WARM_UP_NS = 15 * SECOND  # before that the two means are too young to show a rise
BASELINE_S = 300.0  # time constant for learning the normal temperature
# Normal is not learned under suspicion, or a fire would become normal. After FREEZE_NS it is learned again, slowly:
# otherwise a heater that was turned on would stay suspicious for ever.
FREEZE_NS = 600 * SECOND
SUSPICIOUS_BASELINE_S = 600.0
VISIBLE_SHARE = 0.5  # of the pixels; with fewer, a frame cannot rule out heat

# Uncalibrated: about 0.1 K per count in 18 bits at room temperature, so a spot that became about 25 K hotter.
RELATIVE_RISE_COUNTS = 250.0


# Looked up once, because an enum's attribute access costs more than a comparison.
UNKNOWN, CLEAR, PRE_ALARM = Level.UNSPECIFIED, Level.CLEAR, Level.PRE_ALARM
ALARM, CRITICAL = Level.ALARM, Level.CRITICAL
SCORES = {PRE_ALARM: 0.4, ALARM: 0.7, CRITICAL: 1.0}  # at the threshold


class HeatAssessment(NamedTuple):
    """The heat assessment of a frame. `blind` says why it cannot rule out heat; empty if it can."""

    level: Level
    score: float  # 0..1
    measured: tuple[Measured, ...]
    hottest: tuple[int, int] | None  # row, column
    relative: bool = False  # from a rise of raw counts, not from temperatures
    note: str = ""
    blind: str = ""
    decisive: Measured | None = None  # the value that decides about an alarm, beside the limit of an alarm

    @property
    def terms(self) -> tuple[Term, ...]:
        """The measurements as messages."""
        return tuple(
            Term(name=name, value=value, threshold=threshold, unit=unit)
            for name, value, threshold, unit in self.measured
        )


class Extreme(NamedTuple):
    """The hottest pixel of a frame."""

    pixel: int  # row by row; -1: none is measured
    value: float  # °C
    visible: int  # measured pixels


def extremes(celsius: NDArray[np.floating[Any]]) -> list[Extreme]:
    """Find the hottest pixel of each frame of (n, 24, 32) °C."""
    flat = celsius.reshape(len(celsius), PIXELS)
    pixels = flat.argmax(axis=1)  # the first NaN, if there is one
    values = flat[np.arange(len(flat)), pixels]
    results = [Extreme(*pair, flat.shape[1]) for pair in zip(pixels.tolist(), values.tolist(), strict=True)]
    for number in np.flatnonzero(np.isnan(values)).tolist():
        visible = int(np.count_nonzero(~np.isnan(flat[number])))
        pixel = int(np.nanargmax(flat[number])) if visible else -1
        results[number] = Extreme(pixel, float(flat[number, pixel]) if visible else math.nan, visible)
    return results


class HeatWatch:
    """Monitors one device's frames. Times are nanoseconds since the Unix epoch."""

    def __init__(self, thresholds: HeatThresholds, *, pixels: int = PIXELS, columns: int = COLUMNS) -> None:
        """Create a watch for frames of `pixels` unmasked pixels, in rows of `columns`."""
        self.configure(thresholds)
        self._calibrated = _Calibrated(pixels, columns)
        self._relative = _Relative()

    def configure(self, thresholds: HeatThresholds) -> None:
        """Use other thresholds for later frames; the learned state remains."""
        self._limits = _Limits(
            thresholds.pre_alarm_c,
            thresholds.alarm_c,
            thresholds.critical_c,
            thresholds.rise_c_per_min,
            thresholds.rise_allowance_c,
        )

    def observe(self, celsius: NDArray[np.floating[Any]], now_ns: int) -> HeatAssessment:
        """Assess a calibrated frame: (24, 32) °C, NaN where nothing was measured."""
        return self.observe_extreme(celsius, extremes(celsius[None])[0], now_ns)

    def observe_extreme(self, celsius: NDArray[np.floating[Any]], extreme: Extreme, now_ns: int) -> HeatAssessment:
        """Assess a calibrated frame whose hottest pixel is known; `extremes` finds it for many frames at once."""
        return self._calibrated.observe(celsius, extreme, now_ns, self._limits)

    def observe_words(self, pixels: NDArray[np.uint16], now_ns: int, deviating: Collection[int] = ()) -> HeatAssessment:
        """Assess a frame of a device without calibration by its 768 raw words (more are ignored). At most pre-alarm.

        `deviating` pixels are ignored.
        """
        return self._relative.observe(pixels, now_ns, deviating)


class _Limits(NamedTuple):
    pre_alarm: float  # °C
    alarm: float  # °C
    critical: float  # °C
    rise: float  # °C/min
    allowance: float  # °C


class RunningMean:
    """An exponential mean of irregular samples."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = math.nan

    def add(self, sample: float, elapsed_ns: int, time_constant_s: float) -> None:
        """Add a `sample` taken `elapsed_ns` after the previous one."""
        if self.value != self.value:
            self.value = sample
        elif not elapsed_ns:
            return
        else:
            self.value += (sample - self.value) * -math.expm1(-elapsed_ns / SECOND / time_constant_s)


class _Calibrated:
    def __init__(self, pixels: int, columns: int) -> None:
        self._pixels, self._columns = pixels, columns
        self._quick, self._slow, self._baseline = RunningMean(), RunningMean(), RunningMean()
        self._places = Places()
        self._place: Rising | None = None  # the place that rises
        self._first_ns = 0
        self._last_ns = 0
        self._rising = False
        self._hot_since_ns = 0
        self._hot_frames = 0
        self._suspicious_since_ns = 0
        self._level: Level = CLEAR

    def observe(
        self, celsius: NDArray[np.floating[Any]], extreme: Extreme, now_ns: int, limits: _Limits
    ) -> HeatAssessment:
        pixel, hottest, visible = extreme
        seen = visible >= max(1, VISIBLE_SHARE * self._pixels)
        blind = "" if seen else f"only {visible} of {self._pixels} pixels are measured"
        if not visible:
            return HeatAssessment(UNKNOWN, 0.0, (), None, blind=blind)
        rate = self._rate(hottest, now_ns)
        over = hottest - self._baseline.value
        allowance = limits.allowance
        # A quick rise stays suspect while the temperature is well above normal, even if it stops rising.
        self._rising = rate >= limits.rise or (self._rising and (rate >= limits.rise / 2 or over >= allowance / 2))
        lowered = allowance if self._rising else 0.0
        decisive = hottest
        place = self._rising_place(celsius, hottest, now_ns, limits)
        if place:
            pixel, rate, over = place
            decisive, lowered = float(celsius.flat[pixel]), allowance
        pre_alarm, alarm, critical = limits.pre_alarm - lowered, limits.alarm - lowered, limits.critical
        self._level = level = self._next_level(decisive, now_ns, pre_alarm, alarm, critical)
        self._learn(hottest, now_ns, suspicious=level >= PRE_ALARM)
        threshold = critical if level == CRITICAL else alarm if level == ALARM else pre_alarm
        measured: tuple[Measured, ...] = (("temperature.max", hottest, limits.alarm if place else threshold, "°C"),)
        if place:
            measured = (("temperature.rising", decisive, threshold, "°C"), *measured)
        if now_ns - self._first_ns >= WARM_UP_NS:
            measured = (
                *measured,
                ("temperature.rise", rate, limits.rise, "°C/min"),
                ("temperature.over_normal", over, allowance, "K"),
            )
        note = ""
        if level == PRE_ALARM and decisive >= alarm:
            note = "hot enough for an alarm, not confirmed yet"
        elif lowered and level > CLEAR:
            note = f"thresholds lowered by {lowered:g} °C because of the rise"
        score = _score(decisive, pre_alarm, alarm, critical)
        name = "temperature.rising" if place else "temperature.max"
        return HeatAssessment(
            level, score, measured, divmod(pixel, self._columns), note=note, blind=blind,
            decisive=(name, decisive, min(alarm, critical), "°C"),
        )  # fmt: skip

    def _rising_place(
        self, celsius: NDArray[np.floating[Any]], hottest: float, now_ns: int, limits: _Limits
    ) -> Rising | None:
        """Return the rising place if it is nearer to its thresholds than the hottest pixel."""
        if self._places.is_due(now_ns):
            self._place = self._places.observe_frame(celsius, now_ns, limits.rise, limits.allowance)
        place = self._place
        if place is None or self._rising or hottest >= limits.critical - HYSTERESIS_C:
            return None
        return place if float(celsius.flat[place.pixel]) + limits.allowance > hottest else None

    def _rate(self, hottest: float, now_ns: int) -> float:
        """Update the running means and return the rise in °C/min."""
        if not self._first_ns:
            self._first_ns = self._last_ns = now_ns
            self._baseline.add(hottest, 0, BASELINE_S)
        elapsed = max(now_ns - self._last_ns, 0)
        # Frames of one batch arrive at one moment, so only the first changes the means.
        self._quick.add(hottest, elapsed, QUICK_S)
        self._slow.add(hottest, elapsed, SLOW_S)
        if now_ns - self._first_ns < WARM_UP_NS:
            return 0.0
        return (self._quick.value - self._slow.value) / (SLOW_S - QUICK_S) * 60

    def _next_level(self, hottest: float, now_ns: int, pre_alarm: float, alarm: float, critical: float) -> Level:
        current = self._level
        if hottest >= alarm:
            self._hot_frames += 1
            self._hot_since_ns = self._hot_since_ns or now_ns
        elif hottest < alarm - HYSTERESIS_C:
            self._hot_frames = self._hot_since_ns = 0
        if hottest >= critical - (HYSTERESIS_C if current >= CRITICAL else 0.0):
            return CRITICAL
        if hottest >= alarm - (HYSTERESIS_C if current >= ALARM else 0.0) and (
            current >= ALARM
            or self._hot_frames >= CONFIRM_FRAMES
            or (self._hot_frames >= 2 and now_ns - self._hot_since_ns >= CONFIRM_NS)
        ):
            return ALARM
        return PRE_ALARM if hottest >= pre_alarm - (HYSTERESIS_C if current >= PRE_ALARM else 0.0) else CLEAR

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


def _score(hottest: float, pre_alarm: float, alarm: float, critical: float) -> float:
    """The score: 0 up to 20 °C below the pre-alarm, and those of `SCORES` at the thresholds."""
    low, low_score = pre_alarm - 20, 0.0
    if hottest <= low:
        return 0.0
    thresholds = pre_alarm, max(alarm, pre_alarm), max(alarm, pre_alarm, critical)
    for high, high_score in zip(thresholds, SCORES.values(), strict=True):
        if hottest < high:
            return low_score + (high_score - low_score) * (hottest - low) / (high - low)
        low, low_score = high, high_score
    return 1.0


class _Relative:
    def __init__(self) -> None:
        self._normal: NDArray[np.float32] | None = None
        self._last_ns = 0
        self._suspicious_since_ns = 0
        self._suspicious = False

    def observe(self, pixels: NDArray[np.uint16], now_ns: int, deviating: Collection[int]) -> HeatAssessment:
        scale = counts_scale(pixels.ravel())
        words = pixels.ravel()[:PIXELS].astype(np.uint16)
        counts = words.view(np.int16).astype(np.float32) / np.float32(scale)  # as in 18 bits
        counts[list(deviating)] = np.nan
        if (words == NOT_MEASURED).any():
            counts[unmeasured(words)] = np.nan
        visible = int(np.count_nonzero(np.isfinite(counts)))
        blind = "" if visible >= VISIBLE_SHARE * len(counts) else f"only {visible} of {len(counts)} pixels are measured"
        if not visible:
            return HeatAssessment(UNKNOWN, 0.0, (), None, relative=True, blind=blind)
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
        term = ("counts.rise", rise, RELATIVE_RISE_COUNTS, "1")
        return HeatAssessment(
            PRE_ALARM if self._suspicious else CLEAR,
            min(max(rise / RELATIVE_RISE_COUNTS, 0.0), 1.0) * SCORES[PRE_ALARM],
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

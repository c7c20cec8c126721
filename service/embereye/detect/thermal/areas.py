"""Measuring areas of thermal pictures: named polygons with separate limits.

An area is measured in every frame. Its highest temperature replaces the fleet's thresholds there: a belt that is always
at 70 °C gets a limit of 80 °C. The mean and the rise are measured in addition, and the fleet's thresholds remain. A
value at its limit is a pre-alarm, and an alarm once it is confirmed as in `heat`. An area without any measured pixel
makes its device blind. Pure; times are nanoseconds since the Unix epoch.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.heat import (
    ALARM,
    CLEAR,
    CONFIRM_FRAMES,
    CONFIRM_NS,
    HYSTERESIS_C,
    PRE_ALARM,
    QUICK_S,
    SCORES,
    SLOW_S,
    UNKNOWN,
    WARM_UP_NS,
    HeatAssessment,
    RunningMean,
)
from embereye.levels import Level
from embereye.margins import Measured, nearest_of
from embereye.v1.types_pb2 import Area

WORDS = {Area.KIND_HIGHEST: "highest", Area.KIND_MEAN: "mean", Area.KIND_RISE: "rise"}
UNIT = {Area.KIND_RISE: "°C/min"}

Mask = NDArray[np.bool_]


class _Watched(NamedTuple):
    """The result of one area. `hottest` is row, column; None: nothing is measured."""

    level: Level
    measured: Measured
    hottest: tuple[int, int] | None
    blind: str


def drawn(xs: Sequence[float], ys: Sequence[float], rows: int, columns: int) -> Mask:
    """Return the pixels, (rows, columns), whose centres are in a polygon of shares 0..1; at least one pixel."""
    top, left = np.mgrid[0.5:rows, 0.5:columns]
    inside = np.zeros((rows, columns), np.bool_)
    corners = [(x * columns, y * rows) for x, y in zip(xs, ys, strict=False)]
    for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y1 != y2:
            crossed = (top < y1) != (top < y2)
            inside ^= crossed & (left < x1 + (top - y1) * (x2 - x1) / (y2 - y1))
    if not inside.any():  # smaller than a pixel
        row, column = (sum(corner[axis] for corner in corners) / len(corners) for axis in (1, 0))
        inside[min(int(row), rows - 1), min(int(column), columns - 1)] = True
    return inside


class AreaWatch:
    """Measures the areas of one device in frames of (rows, columns) pixels."""

    def __init__(self, areas: Iterable[Area], rows: int, columns: int) -> None:
        self._areas = [_AreaState(area, rows, columns) for area in areas]
        separate = [state.mask for state in self._areas if state.area.kind == Area.KIND_HIGHEST]
        # The fleet's thresholds skip these.
        self.separate_pixels: Mask | None = np.logical_or.reduce(separate) if separate else None

    def without_separate_pixels(self, celsius: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return `celsius` with NaN where an area's highest temperature replaces the fleet's thresholds."""
        return celsius if self.separate_pixels is None else np.where(self.separate_pixels, np.float32(np.nan), celsius)

    def around(self, celsius: NDArray[np.floating[Any]], pixel: tuple[int, int]) -> NDArray[np.floating[Any]]:
        """Return `celsius` with NaN where other thresholds apply than at `pixel` (row, column)."""
        if self.separate_pixels is None or not self.separate_pixels[pixel]:
            return self.without_separate_pixels(celsius)
        return np.where(self.separate_pixels, celsius, np.float32(np.nan))

    def combined(self, whole: HeatAssessment, celsius: NDArray[np.floating[Any]], now_ns: int) -> HeatAssessment:
        """Measure each area in a frame of °C (NaN: not measured), and add the results to those of the other pixels."""
        if not self._areas:
            return whole
        results = [state.observe(celsius, now_ns) for state in self._areas]
        is_covered = self.separate_pixels is not None and bool(self.separate_pixels.all())
        blind = "; ".join(filter(None, ["" if is_covered else whole.blind, *(result.blind for result in results)]))
        leading = max(results, key=lambda result: result.level)
        values = tuple(result.measured for result in results if not result.blind)
        if leading.level <= CLEAR or leading.level < whole.level:
            level = max(whole.level, leading.level)
            if level == CLEAR and any(result.blind for result in results):
                level = UNKNOWN  # an area that is not measured cannot end a sign
            measured = (*whole.measured, *values)
            hottest = whole.hottest or leading.hottest
            decisive = nearest_of((whole.decisive, *values) if whole.decisive else values)
            return whole._replace(level=level, measured=measured, hottest=hottest, blind=blind, decisive=decisive)
        others = tuple(value for value in values if value is not leading.measured)
        return HeatAssessment(
            leading.level,
            max(SCORES[leading.level], whole.score),
            (leading.measured, *others, *whole.measured),
            leading.hottest,
            note="at the limit, not confirmed yet" if leading.level == PRE_ALARM else "",
            blind=blind,
            decisive=leading.measured,
        )


class _AreaState:
    def __init__(self, area: Area, rows: int, columns: int) -> None:
        self.area = area
        self.mask = drawn(area.outline.x, area.outline.y, rows, columns)
        self._name = f"area.{area.name}.{WORDS[area.kind]}"
        self._unit = UNIT.get(area.kind, "°C")
        # A rise ends at half of its limit.
        self._leave = area.limit / 2 if area.kind == Area.KIND_RISE else area.limit - HYSTERESIS_C
        self._quick, self._slow = RunningMean(), RunningMean()
        self._first_ns = self._last_ns = 0
        self._level: Level = CLEAR
        self._frames, self._since_ns = 0, 0  # at or over the limit

    def observe(self, celsius: NDArray[np.floating[Any]], now_ns: int) -> _Watched:
        pixels = np.where(self.mask, celsius, np.float32(np.nan))
        if np.isnan(pixels).all():
            blind = f"area {self.area.name}: none of its pixels is measured"
            return _Watched(UNKNOWN, (self._name, math.nan, self.area.limit, self._unit), None, blind)
        pixel = int(np.nanargmax(pixels))
        hottest = divmod(pixel, celsius.shape[1])
        value = self._value(pixels, float(pixels.flat[pixel]), now_ns)
        self._level = self._next_level(value, now_ns)
        return _Watched(self._level, (self._name, value, self.area.limit, self._unit), hottest, "")

    def _value(self, pixels: NDArray[np.floating[Any]], highest: float, now_ns: int) -> float:
        if self.area.kind == Area.KIND_MEAN:
            return float(np.nanmean(pixels, dtype=np.float64))
        return self._rise(highest, now_ns) if self.area.kind == Area.KIND_RISE else highest

    def _rise(self, highest: float, now_ns: int) -> float:
        """Return the rise of the highest temperature in °C/min; 0 in the first seconds."""
        self._first_ns = self._first_ns or now_ns
        elapsed = max(now_ns - self._last_ns, 0) if self._last_ns else 0
        self._last_ns = max(now_ns, self._last_ns)
        self._quick.add(highest, elapsed, QUICK_S)
        self._slow.add(highest, elapsed, SLOW_S)
        if now_ns - self._first_ns < WARM_UP_NS:
            return 0.0
        return (self._quick.value - self._slow.value) / (SLOW_S - QUICK_S) * 60

    def _next_level(self, value: float, now_ns: int) -> Level:
        if value >= self.area.limit:
            self._frames += 1
            self._since_ns = self._since_ns or now_ns
        elif value < self._leave:
            self._frames = self._since_ns = 0
        if self._level == ALARM and value >= self._leave:
            return ALARM
        lasted = now_ns - self._since_ns >= CONFIRM_NS
        if value >= self.area.limit and (self._frames >= CONFIRM_FRAMES or (self._frames >= 2 and lasted)):
            return ALARM
        return PRE_ALARM if value >= (self._leave if self._level == PRE_ALARM else self.area.limit) else CLEAR

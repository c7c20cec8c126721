"""Rate of rise per place in a thermal picture, so that a fire shows next to something that is always hotter.

Pure. The hottest pixel alone is not enough: next to a machine of 52 °C a fire would be unseen until it is hotter.

Once a second each pixel updates three running means: quick, slow and normal. The rate of rise follows from the distance
of the first two. A rising place is not learned as normal until it has stayed hot for ten minutes. `HeatWatch` compares
the hottest rising place in addition to the hottest pixel.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.units import SECOND

EVERY_NS = 1 * SECOND  # between two analysed frames; a flood of frames in between costs nothing
QUICK_S = 5.0  # lags of the two running means; the rise is the distance of the means over the distance of the lags
SLOW_S = 60.0
NORMAL_S = 300.0  # time constant for learning normal, where nothing rises
WARM_UP_NS = 15 * SECOND  # before that the means are too young
FREEZE_NS = 600 * SECOND  # after that a place that rose and stays hot is learned too: a heater was turned on

Floats32 = NDArray[np.float32]


class Rising(NamedTuple):
    """The hottest place that is heating up, or did so and is still well above normal."""

    pixel: int  # row by row
    rate: float  # °C/min
    over: float  # °C above normal at that place


class Places:
    """Monitors every pixel of one device."""

    def __init__(self) -> None:
        self._quick: Floats32 | None = None
        self._slow: Floats32
        self._normal: Floats32
        self._rising: NDArray[np.bool_]
        self._since: NDArray[np.int64]  # when each pixel began to rise
        self._first_ns = self._last_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """True if enough time has passed for the next comparison."""
        return now_ns - self._last_ns >= EVERY_NS

    def observe_frame(
        self, celsius: NDArray[np.floating[Any]], now_ns: int, rise: float, allowance: float
    ) -> Rising | None:
        """Return the rising place in a frame of °C (NaN: not measured); None if nothing rises or it is too early.

        A place rises from `rise` °C/min on, until it is less than half of `allowance` °C above normal.
        """
        frame = celsius.astype(np.float32, copy=False).ravel()
        if self._quick is None:
            self._quick, self._slow, self._normal = frame.copy(), frame.copy(), frame.copy()
            self._rising = np.zeros(len(frame), np.bool_)
            self._since = np.zeros(len(frame), np.int64)
            self._first_ns = self._last_ns = now_ns
            return None
        elapsed_s = max(now_ns - self._last_ns, 0) / SECOND
        self._last_ns = max(now_ns, self._last_ns)
        for mean, lag in ((self._quick, QUICK_S), (self._slow, SLOW_S)):
            _learn(mean, frame, elapsed_s, lag)
        learnt = ~self._rising | (now_ns - self._since > FREEZE_NS)
        _learn(self._normal, np.where(learnt, frame, np.float32(np.nan)), elapsed_s, NORMAL_S)
        if now_ns - self._first_ns < WARM_UP_NS:
            return None
        rate = (self._quick - self._slow) * np.float32(60 / (SLOW_S - QUICK_S))
        still_rising = self._rising & ((rate >= rise / 2) | (frame - self._normal >= allowance / 2))
        rising = (rate >= rise) | still_rising
        self._since[rising & ~self._rising] = now_ns
        self._rising = rising
        if not rising.any():
            return None
        pixel = int(np.nanargmax(np.where(rising, self._quick, np.float32(-np.inf))))
        return Rising(pixel, float(rate[pixel]), float(frame[pixel] - self._normal[pixel]))


def _learn(mean: Floats32, frame: Floats32, elapsed_s: float, lag_s: float) -> None:
    """Update a running mean. Unmeasured pixels leave it unchanged; pixels without a mean start at their value."""
    step = (frame - mean) * np.float32(-math.expm1(-elapsed_s / lag_s))
    np.copyto(mean, frame, where=np.isnan(mean))
    mean += np.where(np.isnan(step), np.float32(0), step)

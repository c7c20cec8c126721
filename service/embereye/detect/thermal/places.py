"""How fast each place in a thermal picture heats up, so that a fire shows beside something that is always hotter.

Pure. The hottest pixel alone does not tell: beside a machine of 52 °C a fire rises unseen until it is hotter than that.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.units import SECOND

EVERY_NS = 1 * SECOND  # between two looks: a frame more often is not looked at, so that a flood of them costs nothing
QUICK_S = 5.0  # lags of the two running means; the rise is the distance between them over the distance of their lags
SLOW_S = 60.0
NORMAL_S = 300.0  # how quickly normal is learnt, where nothing rises
WARM_UP_NS = 15 * SECOND  # before that the means know too little
FREEZE_NS = 600 * SECOND  # then what rose and stays is learnt all the same: a heater was turned on

Floats32 = NDArray[np.float32]


class Rising(NamedTuple):
    """The hottest place that is heating up, or did and is still well above normal."""

    pixel: int  # row by row
    rate: float  # °C/min
    over: float  # °C above what is normal there


class Places:
    """Follows every pixel of one device."""

    def __init__(self) -> None:
        self._quick: Floats32 | None = None
        self._slow: Floats32
        self._normal: Floats32
        self._rising: NDArray[np.bool_]
        self._since: NDArray[np.int64]  # when each began to rise
        self._first_ns = self._last_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether enough time has passed to compare again."""
        return now_ns - self._last_ns >= EVERY_NS

    def observe_frame(
        self, celsius: NDArray[np.floating[Any]], now_ns: int, rise: float, allowance: float
    ) -> Rising | None:
        """The place that rises in a frame of °C, NaN where nothing was measured; None: none does, or it is too early.

        A place rises from `rise` °C/min on, and until it is less than half of `allowance` °C above normal.
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
        stays = self._rising & ((rate >= rise / 2) | (frame - self._normal >= allowance / 2))
        rising = (rate >= rise) | stays
        self._since[rising & ~self._rising] = now_ns
        self._rising = rising
        if not rising.any():
            return None
        pixel = int(np.nanargmax(np.where(rising, self._quick, np.float32(-np.inf))))
        return Rising(pixel, float(rate[pixel]), float(frame[pixel] - self._normal[pixel]))


def _learn(mean: Floats32, frame: Floats32, elapsed_s: float, lag_s: float) -> None:
    """Move a running mean on; what is not measured leaves it, what was not known before is known now."""
    step = (frame - mean) * np.float32(-math.expm1(-elapsed_s / lag_s))
    np.copyto(mean, frame, where=np.isnan(mean))
    mean += np.where(np.isnan(step), np.float32(0), step)

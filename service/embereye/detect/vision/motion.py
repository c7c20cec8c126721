"""The background of a camera, and the motion in front of it."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import at_least
from embereye.detect.vision.thresholds import MotionThresholds
from embereye.units import SECOND

Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Motion:
    """The motion in one picture."""

    share: float  # 0..1 of the picture


class MotionGate:
    """A running average of one plane of the picture, at half its size. It does not learn where fire is suspected."""

    def __init__(self) -> None:
        self._thresholds = MotionThresholds()
        self._average: npt.NDArray[np.float32] | None = None
        self._background: Grey = np.zeros((0, 0), np.uint8)  # the average, rounded
        self._time_ns = 0  # when it was last learned

    def observe(
        self,
        grey: Grey,
        time_ns: int,
        frozen: npt.NDArray[np.bool_] | None = None,
        ignored: npt.NDArray[np.bool_] | None = None,
    ) -> Motion:
        """Compare `grey` (height x width, 0..255) with the background, then learn it outside `frozen`.

        Nothing moves in `ignored`.
        """
        limits = self._thresholds
        size = (max(1, grey.shape[1] // 2), max(1, grey.shape[0] // 2))
        half: Grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
        if self._average is None or self._average.shape != half.shape:
            self._average, self._background = half.astype(np.float32), half
            self._time_ns = time_ns
            return Motion(0.0)
        difference = cv2.absdiff(self._background, half)
        changed = at_least(difference, limits.difference_min + 1)  # type: ignore[arg-type]
        if ignored is not None:
            changed[cv2.resize(ignored.view(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0] = 0
        share = cv2.countNonZero(changed) / half.size
        elapsed = time_ns - self._time_ns
        if not 0 <= elapsed < limits.learn_ns:
            self._time_ns = time_ns
            rate = 1.0 - math.exp(-min(max(0, elapsed), SECOND) / limits.memory_ns)
            learn = None
            if frozen is not None:
                whole = at_least(frozen.view(np.uint8), 1)
                touched = cv2.resize(whole, size, interpolation=cv2.INTER_AREA)
                learn = cv2.bitwise_not(at_least(touched, 1))  # type: ignore[arg-type]
            cv2.accumulateWeighted(half, self._average, rate, mask=learn)
            self._background = cv2.convertScaleAbs(self._average)  # type: ignore[assignment]
        return Motion(share)

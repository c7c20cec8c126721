"""The background of a camera, and what differs from it."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.vision.pixels import at_least
from embereye.vision.thresholds import SECOND, MotionThresholds

Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Motion:
    """How much of one picture moves."""

    share: float  # 0..1 of the picture


class MotionGate:
    """Running average of one plane of the picture; it does not learn where, and while, fire is suspected."""

    def __init__(self, thresholds: MotionThresholds | None = None) -> None:
        self._thresholds = thresholds or MotionThresholds()
        self._background: npt.NDArray[np.float32] | None = None
        self._time_ns = 0

    def observe(self, grey: Grey, time_ns: int, frozen: npt.NDArray[np.bool_] | None = None) -> Motion:
        """Compare `grey` (height x width, 0..255) with the background, then learn it outside `frozen`."""
        limits = self._thresholds
        if self._background is None or self._background.shape != grey.shape:
            self._background = grey.astype(np.float32)
            self._time_ns = time_ns
            return Motion(0.0)
        difference = cv2.absdiff(cv2.convertScaleAbs(self._background), grey)
        share = cv2.countNonZero(at_least(difference, limits.difference_min + 1)) / grey.size  # type: ignore[arg-type]
        elapsed = min(max(0, time_ns - self._time_ns), SECOND)
        self._time_ns = time_ns
        rate = 1.0 - math.exp(-elapsed / limits.memory_ns)
        learn = None if frozen is None else np.where(frozen, 0, 255).astype(np.uint8)
        cv2.accumulateWeighted(grey, self._background, rate, mask=learn)
        return Motion(share)

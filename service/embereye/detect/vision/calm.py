"""The change between two pictures of a calm camera, about a second apart.

While nothing happens, few pictures are decoded. `SceneChange` compares each with the previous one, before the detectors
get it: if anything has changed, the pictures between the two are analysed first. It is more sensitive than the
detectors, because it only decides what they get. Places that change all the time, as a clock in the picture, do
not count after a while, except where they have the colour of a flame.
"""

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.flame import flame_coloured, glowing
from embereye.detect.vision.pixels import Mask, Picture, Planes, at_least, both, median, overlaid
from embereye.detect.vision.thresholds import CALM, FlameThresholds

FLAME = FlameThresholds()


class SceneChange:
    """The latest picture that was compared, and where the view usually changes. Pictures are BGR, of the working size.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._grey: Picture | None = None  # half the size
        self._usual: npt.NDArray[np.float32] | None = None  # share of the comparisons in which each pixel changed, 0..1
        self._comparisons = 0
        self._time_ns = 0

    def has_changed(self, picture: Picture, ignored: Mask | None = None) -> bool:
        """True if `picture` shows a change outside `ignored` since the one that was learned last, or none was."""
        changed = self._changed(_half(picture))
        if changed is None:
            return True
        if ignored is not None and ignored.shape == picture.shape[:2]:
            size = changed.shape[1], changed.shape[0]
            hidden: Picture = cv2.resize(ignored.view(np.uint8), size, interpolation=cv2.INTER_NEAREST)  # type: ignore[assignment]
            changed[hidden > 0] = 0
        if cv2.countNonZero(changed) <= CALM.few:
            return False
        if self._usual is None or self._comparisons < CALM.usual_after:
            return True
        usual: Picture = cv2.compare(self._usual, CALM.usual_share, cv2.CMP_GE)  # type: ignore[call-overload]
        if cv2.countNonZero(cv2.subtract(changed, usual)) > CALM.few:
            return True
        return _is_hot(picture, both(changed, usual))

    def is_due(self, time_ns: int) -> bool:
        """True if the picture of `time_ns` is to be learned: about one a second."""
        return not 0 <= time_ns - self._time_ns < CALM.learn_ns

    def learn(self, picture: Picture, time_ns: int) -> None:
        """Compare later pictures with `picture`, taken at `time_ns`."""
        grey = _half(picture)
        changed = self._changed(grey)
        if changed is None or self._usual is None:
            self._usual, self._comparisons = np.zeros(grey.shape, np.float32), 0
        else:
            self._comparisons += 1
            rate = max(1.0 / self._comparisons, CALM.usual_rate)
            cv2.accumulateWeighted(at_least(changed, 1) // 255, self._usual, rate)
        self._grey, self._time_ns = grey, time_ns

    def _changed(self, grey: Picture) -> Picture | None:
        """Return 255 where `grey` differs from the previous picture by more than noise; None if there is none."""
        if self._grey is None or self._grey.shape != grey.shape:
            return None
        difference: Picture = cv2.absdiff(grey, self._grey)  # type: ignore[assignment]
        sample = difference[1::4, 1::4]
        noise = median(sample) if sample.size else 0.0
        return at_least(difference, max(CALM.difference_min, CALM.over_noise * noise))


def _half(picture: Picture) -> Picture:
    """The green of `picture` at half its size."""
    green = cv2.extractChannel(picture, 1)
    size = max(1, green.shape[1] // 2), max(1, green.shape[0] // 2)
    return cv2.resize(green, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def _is_hot(picture: Picture, changed: Picture) -> bool:
    """True if `picture` has the colour of a flame, or glows, in any pixel of `changed`, a mask of half its size."""
    planes = Planes.of(picture)
    whole = slice(0, picture.shape[0]), slice(0, picture.shape[1])
    hot = overlaid(whole, flame_coloured(planes, FLAME, 1.0), glowing(planes, FLAME, 1.0))
    size = changed.shape[1], changed.shape[0]
    small: Picture = cv2.resize(hot, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    return cv2.countNonZero(both(changed, at_least(small, 1))) > 0

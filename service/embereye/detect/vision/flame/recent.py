"""The last seconds of a camera, small, where anything of a flame's colour swings."""

from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import NOWHERE, Window, put

Grey = npt.NDArray[np.uint8]

PICTURES = 48
SAMPLES = 24  # of them, further apart, and so over a longer time where pictures come fast
SPAN_NS = 2_000_000_000  # that samples reach back
SWINGS = 20
SWING_NS = 200_000_000  # that each of them is the mean of


@dataclass(slots=True, eq=False)
class Seen:
    """One picture; both lists have the same."""

    time_ns: int
    half: Grey


class Recent:
    """Pictures, and where they swung, at half the resolution and of one window, whose edges are even.

    A window that becomes larger shows of earlier pictures what it shows now: as if nothing had ever changed there.
    """

    def __init__(self) -> None:
        self.window: Window = NOWHERE
        self.pictures: deque[Seen] = deque(maxlen=PICTURES)
        self.samples: deque[Seen] = deque(maxlen=SAMPLES)
        self.swings: deque[Grey] = deque(maxlen=SWINGS)  # shares of the time, 255: all of it
        self._swing: npt.NDArray[np.float32] | None = None  # the sum of those since …
        self._swing_ns = 0
        self._swing_frames = 0
        self._since_ns = 0  # when the first swing since everything was forgotten was noted

    def known_ns(self, time_ns: int) -> int:
        """For how long it is known where the picture swings."""
        return time_ns - self._since_ns if self._since_ns else 0

    def see(self, grey: Grey, window: Window, time_ns: int) -> None:
        """Note what `window`, which holds all windows before, shows of a picture (height x width)."""
        half = grey[window][::2, ::2].copy()
        if window != self.window:
            self._widen(window, half)
        seen = Seen(time_ns, half)
        self.pictures.append(seen)
        if not self.samples or time_ns - self.samples[-1].time_ns >= SPAN_NS // SAMPLES:
            self.samples.append(seen)

    def swing(self, swinging: Grey, time_ns: int) -> None:
        """Note where the picture that was seen last swings: 255 there, 0 elsewhere (height x width)."""
        part = swinging[self.window]
        size = ((part.shape[1] + 1) // 2, (part.shape[0] + 1) // 2)
        small = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
        if self._swing is None:
            self._swing, self._swing_ns, self._swing_frames = np.zeros(small.shape, np.float32), time_ns, 0
            self._since_ns = self._since_ns or time_ns
        cv2.accumulate(small, self._swing)
        self._swing_frames += 1
        if time_ns - self._swing_ns >= SWING_NS:
            self.swings.append((self._swing / self._swing_frames).astype(np.uint8))
            self._swing = None

    def _widen(self, window: Window, half: Grey) -> None:
        before, self.window = self.window, window
        for earlier in {*self.pictures, *self.samples}:
            earlier.half = put(earlier.half, before, half.copy(), window, 2)
        self.swings = deque((put(swing, before, np.zeros_like(half), window, 2) for swing in self.swings), SWINGS)
        if self._swing is not None:
            self._swing = put(self._swing, before, np.zeros(half.shape, np.float32), window, 2)

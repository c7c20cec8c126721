"""Whether a thermal sensor works, judged by its frames: supply voltage, chip temperature, pixels.

Pure. It is asked every few seconds, not for each frame, so that it costs the path of the frames nothing.
"""

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import COLUMNS, PIXELS, ROWS, Calibration, unmeasured
from embereye.units import SECOND

# The manufacturer's limits, plus the tolerance of the measurement itself. Beyond it temperatures are still
# calculated, as far as they can be: a chip hotter than this may be in a fire.
SUPPLY_RANGE = (2.9, 3.7)  # V; 3.0 to 3.6 is specified
CHIP_RANGE = (-40.0, 85.0)  # °C
# A real device's pixels change from frame to frame in 70 % of all cases, the calmest of them in 38 %: none of them is
# the same in so many looks in a row.
STUCK_LOOKS = 60
LIVELY_SHARE = 0.2  # of inspections in which a typical pixel must change before others are judged by it
LIVELY_LOOKS = STUCK_LOOKS / 4  # inspections over which that share is averaged
# A real device's noise is 1 to 2 counts. A noisy pixel strays from what is usual for it by this much, to both sides:
# a flame that flickers in one pixel makes it hotter than usual, never colder.
NOISY_COUNTS = 20.0  # some 2 K
NOISY_SPREADS = 8.0  # times the spread of a typical pixel
NOISY_SHARE = 0.15  # of inspections, in each direction
WINDOW_LOOKS = 120  # inspections after which noise is judged
# A source too hot for the converter reads the same for minutes. But optics blur: it warms the pixels around it by some
# per cent of that at least.
SATURATED_COUNTS = 32_000.0
BLUR_SHARE = 0.02
LIMIT = PIXELS // 10  # pixels that may be replaced; beyond that a picture would be mostly invented

# Frames that stop, or are the same over and over, while everything else goes on. A device that sends them only when it
# is asked sends few, or rarely: it is given as many times its usual interval.
FRAMES_LOST_NS = 30 * SECOND
FRAMES_LOST_INTERVALS = 10
FRAMES_ESTABLISHED = 20  # frames before any more are expected
INTERVAL_FRAMES = 8  # frames over which the usual interval is averaged

Counts = NDArray[np.float32]  # (24, 32)


class FrameRhythm:
    """Follows when one device's frames come and when they change. Times are nanoseconds since the Unix epoch."""

    def __init__(self) -> None:
        self.latest_ns = 0
        self._frames = 0
        self._changed_ns = 0  # when a frame was heard that differs from the one before
        self._interval_ns = 0.0  # usually between two

    def observe(self, now_ns: int, *, changed: bool) -> None:
        """Record that a frame came; `changed` says whether it differs from the one before."""
        if changed:
            self._changed_ns = now_ns
        if self._frames:
            interval_ns: float = now_ns - self.latest_ns
            if self.established:  # an absence that was a fault does not become usual at once
                interval_ns = min(interval_ns, self._patience_ns)
            self._interval_ns += (interval_ns - self._interval_ns) / INTERVAL_FRAMES
        self._frames += 1
        self.latest_ns = now_ns

    @property
    def established(self) -> bool:
        """Whether enough frames have come for more to be expected."""
        return self._frames >= FRAMES_ESTABLISHED

    @property
    def _patience_ns(self) -> float:
        return max(FRAMES_LOST_NS, FRAMES_LOST_INTERVALS * self._interval_ns)

    def fault(self, now_ns: int) -> str:
        """Why frames are missing or meaningless at `now_ns`; empty if they are not."""
        patience_ns = self._patience_ns
        if (gone_ns := now_ns - self.latest_ns) > patience_ns:
            return f"its thermal frames stopped {gone_ns / SECOND:.0f} s ago"
        if (same_ns := now_ns - self._changed_ns) > patience_ns:
            return f"its thermal picture is frozen: the same words for {same_ns / SECOND:.0f} s"
        return ""


def doubt(calibration: Calibration, frame: NDArray[np.uint16]) -> str:
    """Why a frame's (834,) words about the sensor itself cannot be trusted; empty if they can."""
    known = calibration.auxiliary(frame[None])
    supply, chip, gain = (float(value[0]) for value in (known.vdd, known.ambient, known.gain))
    if not SUPPLY_RANGE[0] <= supply <= SUPPLY_RANGE[1]:
        return f"its thermal sensor's supply reads {supply:.2f} V, not 3.0 to 3.6 V: check its wiring and regulator"
    if not CHIP_RANGE[0] <= chip <= CHIP_RANGE[1]:
        return f"its thermal sensor's chip reads {chip:.0f} °C, outside of {CHIP_RANGE[0]:g} to {CHIP_RANGE[1]:g} °C"
    if not known.valid[0]:
        return f"its thermal frames carry no usable gain ({gain:.2f} of the calibrated one): damaged, or not measured"
    return ""


class PixelWatch:
    """Follows one device's raw words for pixels that are stuck or noisy."""

    def __init__(self) -> None:
        self.deviating: frozenset[int] = frozenset()
        self._words: NDArray[np.uint16] | None = None
        self._same = np.zeros(PIXELS, np.uint16)  # looks in a row without a change
        self._lively = 1.0  # share of looks in which the usual pixel changes, a running mean
        self._usual: Counts | None = None  # of each pixel above its neighbours
        self._looks = 0  # in the window
        self._over = np.zeros(PIXELS, np.uint16)  # looks in which it strayed upwards
        self._under = np.zeros(PIXELS, np.uint16)
        self._noisy: frozenset[int] = frozenset()
        self._stuck: frozenset[int] = frozenset()

    def inspect_pixels(self, pixels: NDArray[np.uint16], *, quiet: bool) -> None:
        """Inspect the 768 raw words of the latest frame. Noise is judged only while `quiet`, when nothing is hot."""
        if unmeasured(pixels).any():
            return  # rows that hold nothing yet are the same for another reason
        if self._words is not None:
            same = pixels == self._words
            self._same = np.where(same, np.minimum(self._same + 1, STUCK_LOOKS), 0).astype(np.uint16)
            self._lively += (float(np.median(~same)) - self._lively) / LIVELY_LOOKS
        self._words = pixels
        counts = pixels.view(np.int16).astype(np.float32).reshape(ROWS, COLUMNS)
        above = counts - _around(counts)
        if quiet:
            self._stray(above)
        else:
            self._restart()
        found = set(np.flatnonzero(self._same >= STUCK_LOOKS).tolist())
        if self._lively < LIVELY_SHARE:
            found &= self._stuck
        self._stuck = frozenset(pixel for pixel in found if pixel in self._stuck or not _blazes(counts, pixel))
        self.deviating = self._noisy | self._stuck

    def _stray(self, above: Counts) -> None:
        if self._usual is None:
            self._usual = above.copy()
        # A step of fixed size in the direction of each new value leads to the median: half of noise is on each side.
        step = above - self._usual
        spread = float(np.median(np.abs(step)))
        self._usual += np.sign(step) * np.float32(max(spread, 1.0) / 4)
        limit = max(NOISY_COUNTS, NOISY_SPREADS * spread)
        self._over += (step > limit).ravel()
        self._under += (step < -limit).ravel()
        self._looks += 1
        if self._looks < WINDOW_LOOKS:
            return
        least = np.minimum(self._over, self._under)
        picture = least.astype(np.float32).reshape(ROWS, COLUMNS)
        peaks = least >= 2 * _around(picture).ravel()  # its neighbours stray with it, a quarter as far
        self._noisy = frozenset(np.flatnonzero(peaks & (least >= NOISY_SHARE * WINDOW_LOOKS)).tolist())
        self._restart()

    def _restart(self) -> None:
        self._looks = 0
        self._over[:] = 0
        self._under[:] = 0


def _around(picture: Counts) -> Counts:
    """The mean of the four neighbours of each pixel; at the border, of those that there are twice."""
    wide = np.pad(picture, 1, mode="reflect")
    mean: Counts = (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / np.float32(4)
    return mean


def _blazes(counts: Counts, pixel: int) -> bool:
    """Whether a pixel is saturated as by a real source, with its neighbours."""
    row, column = divmod(pixel, COLUMNS)
    value, usual = float(counts[row, column]), float(np.median(counts))
    near = counts[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
    around = (float(near.sum()) - value) / (near.size - 1)
    return value >= SATURATED_COUNTS and around - usual > BLUR_SHARE * (value - usual)

"""Health of a thermal sensor, judged by its frames: supply voltage, chip temperature, pixels.

Pure. Call it every few seconds, not per frame, so that frames are not slowed down.

`FrameRhythm` notices frames that stop or repeat. `doubt` checks the sensor's own values in one frame. `PixelWatch`
compares each pixel's raw word with its previous one and with its neighbours, and names the pixels that are stuck or
noisy. Its owner, `FrameAnalysis`, has these replaced by their neighbours.
"""

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import COLUMNS, PIXELS, ROWS, Calibration, unmeasured
from embereye.units import SECOND

# The manufacturer's limits plus the measurement's tolerance. Temperatures are still calculated beyond them if possible,
# because a chip this hot may be in a fire.
SUPPLY_RANGE = (2.9, 3.7)  # V; specified: 3.0 to 3.6
CHIP_RANGE = (-40.0, 85.0)  # °C
# A pixel is stuck if it stays the same while the others change. A check counts as the share of pixels that changed in
# it: 70 % for a real device in 18 bits, whose calmest pixel changes in 38 %. A frame that repeats another counts as 0.
STUCK_CHANGES = 42.0  # 60 checks of a real device
LIVELY_SHARE = 0.2  # with fewer changed pixels, a check says nothing about the others
# A real device's noise is 1 to 2 counts. A noisy pixel deviates this much from its usual value, in both directions. A
# flame that flickers in one pixel makes it hotter than usual, never colder.
NOISY_COUNTS = 20.0  # about 2 K in 18 bits
NOISY_SPREADS = 8.0  # times the spread of a typical pixel
NOISY_SHARE = 0.15  # of checks, in each direction
WINDOW_CHECKS = 120  # checks after which noise is judged
# A source too hot for the converter reads the same for minutes. But optics blur: it also warms the pixels around it by
# at least a few per cent.
SATURATED_COUNTS = 32_000.0
BLUR_SHARE = 0.02
LIMIT = PIXELS // 10  # pixels that may be replaced; with more, a picture would be mostly invented

# Frames that stop, or are all the same, while the device still sends other data. A device that sends frames rarely gets
# a multiple of its usual interval.
FRAMES_LOST_NS = 30 * SECOND
FRAMES_LOST_INTERVALS = 10
FRAMES_ESTABLISHED = 20  # frames before more are expected
INTERVAL_FRAMES = 8  # frames over which the usual interval is averaged
# A device that sent nothing for longer was away itself: it is not its thermal sensor that stopped meanwhile.
SILENCE_NS = 10 * SECOND

Counts = NDArray[np.float32]  # (24, 32)


class FrameRhythm:
    """Monitors when one device's frames arrive and change. Times are nanoseconds since the Unix epoch."""

    def __init__(self) -> None:
        self.latest_ns = 0
        self._frames = 0
        # Since when frames, and changes of frames, are missing: since the latest one, without times of absence.
        self._missing_ns = 0
        self._unchanged_ns = 0
        self._interval_ns = 0.0  # usual time between frames

    def observe(self, now_ns: int, *, changed: bool) -> None:
        """Record that a frame arrived; `changed`: it differs from the one before."""
        self._missing_ns = now_ns
        if changed:
            self._unchanged_ns = now_ns
        if self._frames:
            interval_ns: float = now_ns - self.latest_ns
            if self.is_established:  # a gap that was a fault must not become usual at once
                interval_ns = min(interval_ns, self._patience_ns)
            self._interval_ns += (interval_ns - self._interval_ns) / INTERVAL_FRAMES
        self._frames += 1
        self.latest_ns = now_ns

    def note_gap(self, gap_ns: int, heard_ns: int) -> None:
        """Note that the device sent nothing at all for `gap_ns` until about `heard_ns`."""
        away_ns = int(gap_ns - max(SILENCE_NS, self._interval_ns))
        if away_ns > 0:
            self._missing_ns = min(self._missing_ns + away_ns, heard_ns)
            self._unchanged_ns = min(self._unchanged_ns + away_ns, heard_ns)

    @property
    def is_established(self) -> bool:
        """True if enough frames have arrived to expect more."""
        return self._frames >= FRAMES_ESTABLISHED

    @property
    def _patience_ns(self) -> float:
        return max(FRAMES_LOST_NS, FRAMES_LOST_INTERVALS * self._interval_ns)

    def fault(self, now_ns: int) -> str:
        """Return why frames are missing or meaningless at `now_ns`, or ''."""
        patience_ns = self._patience_ns
        if now_ns - self._missing_ns > patience_ns:
            return f"its thermal frames stopped {(now_ns - self.latest_ns) / SECOND:.0f} s ago"
        if (same_ns := now_ns - self._unchanged_ns) > patience_ns:
            return f"its thermal picture is frozen: the same data for {same_ns / SECOND:.0f} s"
        return ""


def doubt(calibration: Calibration, frame: NDArray[np.uint16]) -> str:
    """Return why the sensor's own values in a frame's (834,) words cannot be trusted, or ''."""
    known = calibration.auxiliary(frame[None])
    supply, chip, gain = (float(value[0]) for value in (known.vdd, known.ambient, known.gain_drift))
    if not SUPPLY_RANGE[0] <= supply <= SUPPLY_RANGE[1]:
        return f"its thermal sensor's supply reads {supply:.2f} V, not 3.0 to 3.6 V. Check its wiring and regulator"
    if not CHIP_RANGE[0] <= chip <= CHIP_RANGE[1]:
        return f"its thermal sensor's chip reads {chip:.0f} °C, outside {CHIP_RANGE[0]:g} to {CHIP_RANGE[1]:g} °C"
    if not known.valid[0]:
        return f"its thermal frames are damaged or not measured: the gain is {gain:.2f} of the calibrated one"
    return ""


class PixelWatch:
    """Monitors one device's raw words for stuck or noisy pixels."""

    def __init__(self) -> None:
        self.deviating: frozenset[int] = frozenset()
        self._words: NDArray[np.uint16] | None = None
        self._same = np.zeros(PIXELS, np.float32)  # changes of a typical pixel since its last one
        self._usual: Counts | None = None  # of each pixel above its neighbours
        self._checks = 0  # in the window
        self._over = np.zeros(PIXELS, np.uint16)  # checks in which it deviated upwards
        self._under = np.zeros(PIXELS, np.uint16)
        self._noisy: frozenset[int] = frozenset()
        self._stuck: frozenset[int] = frozenset()

    def inspect_pixels(self, pixels: NDArray[np.uint16], *, quiet: bool, scale: float = 1.0) -> None:
        """Inspect the 768 raw words of the latest frame. Noise is judged only while `quiet`, when nothing is hot.

        `scale` is `counts_scale` of the frame.
        """
        if unmeasured(pixels).any():
            return  # rows without a measurement are equal for another reason
        if self._words is not None:
            same = pixels == self._words
            changed = 1 - float(same.mean())
            self._same[~same] = 0
            if changed >= LIVELY_SHARE:
                self._same[same] += changed
        self._words = pixels
        counts = pixels.view(np.int16).astype(np.float32).reshape(ROWS, COLUMNS)
        above = counts - _around(counts)
        if quiet:
            self._stray(above, scale)
        else:
            self._restart()
        stuck = np.flatnonzero(self._same >= STUCK_CHANGES).tolist()
        self._stuck = frozenset(pixel for pixel in stuck if pixel in self._stuck or not _is_saturated(counts, pixel))
        self.deviating = self._noisy | self._stuck

    def _stray(self, above: Counts, scale: float) -> None:
        if self._usual is None:
            self._usual = above.copy()
        # A fixed step towards each new value converges to the median: half of the noise is on each side.
        step = above - self._usual
        spread = float(np.median(np.abs(step)))
        self._usual += np.sign(step) * np.float32(max(spread, scale) / 4)
        limit = max(NOISY_COUNTS * scale, NOISY_SPREADS * spread)
        self._over += (step > limit).ravel()
        self._under += (step < -limit).ravel()
        self._checks += 1
        if self._checks < WINDOW_CHECKS:
            return
        least = np.minimum(self._over, self._under)
        picture = least.astype(np.float32).reshape(ROWS, COLUMNS)
        peaks = least >= 2 * _around(picture).ravel()  # its neighbours deviate with it, a quarter as much
        self._noisy = frozenset(np.flatnonzero(peaks & (least >= NOISY_SHARE * WINDOW_CHECKS)).tolist())
        self._restart()

    def _restart(self) -> None:
        self._checks = 0
        self._over[:] = 0
        self._under[:] = 0


def _around(picture: Counts) -> Counts:
    """Average the four neighbours of each pixel; at the border one neighbour counts twice."""
    wide = np.pad(picture, 1, mode="reflect")
    mean: Counts = (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / np.float32(4)
    return mean


def _is_saturated(counts: Counts, pixel: int) -> bool:
    """True if a pixel and its neighbours are saturated as by a real source."""
    row, column = divmod(pixel, COLUMNS)
    value, usual = float(counts[row, column]), float(np.median(counts))
    near = counts[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
    around = (float(near.sum()) - value) / (near.size - 1)
    return value >= SATURATED_COUNTS and around - usual > BLUR_SHARE * (value - usual)

"""The last seconds of a camera, at low resolution, where something flame-coloured swings.

`Recent` has three films of one window at half the resolution: all pictures, samples of them over two seconds, and
swings, each the mean of a fifth of a second. `character` measures rest and unity in the samples, `periodicity` finds
repetition in pictures and swings.
"""

from collections import deque

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import NOWHERE, Window, put

Grey = npt.NDArray[np.uint8]

PICTURES = 48
SAMPLES = 24  # pictures at larger intervals, and so over a longer time if pictures come fast
SPAN_NS = 2_000_000_000  # how far samples reach back
SWINGS = 20
SWING_NS = 200_000_000  # duration that each swing averages
_ROOM = 1.25  # buffer size relative to the pictures; they are moved to its beginning only when it is full


class Film:
    """The latest `most` pictures of one size, contiguous in memory, so that one call reads pixels of all of them.

    Each picture has a slot number, one more than the previous one's; after a gap in time the number grows by the
    missing pictures. Pictures more than twice `most` slots back are dropped.
    """

    def __init__(self, most: int) -> None:
        self.times: deque[int] = deque(maxlen=most)
        self.slots: deque[int] = deque(maxlen=most)
        self.cut = False  # there is a gap after the latest picture
        self._room: Grey = np.zeros((0, 0, 0), np.uint8)
        self._end = 0

    @property
    def pictures(self) -> Grey:
        """All pictures (number x height x width), the earliest first."""
        return self._room[self._end - len(self.times) : self._end]

    @property
    def slot_ns(self) -> float:
        """The mean time per slot; needs at least two pictures."""
        return (self.times[-1] - self.times[0]) / (self.slots[-1] - self.slots[0])

    @property
    def missing(self) -> int:
        """Number of slots between the pictures without a picture."""
        return self.slots[-1] - self.slots[0] + 1 - len(self.slots) if self.slots else 0

    def note_gap(self) -> None:
        """Note that pictures are missing after the latest one."""
        self.cut = True
        if len(self.times) < 2 or self.slot_ns <= 0:  # the duration of a slot is unknown
            self._forget(len(self.times))

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self.times.popleft()
            self.slots.popleft()

    def append(self, picture: Grey, time_ns: int) -> None:
        """Append `picture`, which has the size of the previous ones."""
        most = self.times.maxlen or 0
        slot = self.slots[-1] + 1 if self.slots else 0
        if self.cut and self.slots:
            slot = max(slot, self.slots[-1] + round((time_ns - self.times[-1]) / self.slot_ns))
            self._forget(sum(before < slot - 2 * most for before in self.slots))
        self.cut = False
        if not self.times:
            self._room, self._end = np.empty((int(_ROOM * most), *picture.shape), np.uint8), 0
        elif self._end == len(self._room):
            self._room[: most - 1] = self._room[self._end - most + 1 :]
            self._end = most - 1
        self._room[self._end] = picture
        self._end += 1
        self.times.append(time_ns)
        self.slots.append(slot)

    def widen(self, before: Window, picture: Grey | int, window: Window) -> None:
        """Fill the area around the known window `before` with `picture` of `window`, at half the resolution."""
        if not self.times:
            return
        small = self.pictures
        rows, columns = ((edge.stop - edge.start + 1) // 2 for edge in window)
        self._room = np.empty((len(self._room), rows, columns), np.uint8)
        self._end = len(small)
        self._room[: self._end] = picture
        put(small, before, self.pictures, window, 2)


def series_of(pictures: Grey, indices: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Read the pixels at flat `indices` of each of `pictures`, one row per picture."""
    return pictures.reshape(len(pictures), -1).take(indices, axis=1).astype(np.float32)


class Recent:
    """Pictures and swings of one window, at half the resolution. The window's edges are even.

    When the window grows, earlier pictures get the new area's current content, as if nothing had changed there.
    """

    def __init__(self) -> None:
        self.window: Window = NOWHERE
        self.pictures = Film(PICTURES)
        self.samples = Film(SAMPLES)
        self.swings = Film(SWINGS)  # shares of the time; 255: always
        self._swing: npt.NDArray[np.float32] | None = None  # sum of the swings since …
        self._swing_ns = 0
        self._swing_frames = 0

    def known_ns(self, time_ns: int) -> float:
        """Return the time for which swings are known, without gaps."""
        swings = self.swings
        if not swings.times:
            return time_ns - self._swing_ns if self._swing is not None else 0
        if swings.cut:
            return len(swings.times) * swings.slot_ns
        return time_ns - swings.times[0] - swings.missing * (swings.slot_ns if swings.missing else 0)

    def note_gap(self) -> None:
        """Note a gap too long to know the change during it."""
        self._swing = None
        self.pictures.note_gap()
        self.swings.note_gap()

    def see(self, grey: Grey, window: Window, time_ns: int) -> None:
        """Store `window`, which contains all earlier windows, of a picture (height x width)."""
        half = grey[window][::2, ::2]
        if window != self.window:
            self._widen(window, half)
        self.pictures.append(half, time_ns)
        times = self.samples.times
        if not times or time_ns - times[-1] >= SPAN_NS // SAMPLES:
            self.samples.append(half, time_ns)

    def swing(self, swinging: Grey, time_ns: int) -> None:
        """Store where the latest picture swings: 255 there, 0 elsewhere (height x width)."""
        part = swinging[self.window]
        size = ((part.shape[1] + 1) // 2, (part.shape[0] + 1) // 2)
        small = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
        if self._swing is None:
            self._swing, self._swing_ns, self._swing_frames = np.zeros(small.shape, np.float32), time_ns, 0
        cv2.accumulate(small, self._swing)
        self._swing_frames += 1
        if time_ns - self._swing_ns >= SWING_NS:
            self.swings.append((self._swing / self._swing_frames).astype(np.uint8), self._swing_ns)
            self._swing = None

    def _widen(self, window: Window, half: Grey) -> None:
        before, self.window = self.window, window
        self.pictures.widen(before, half, window)
        self.samples.widen(before, half, window)
        self.swings.widen(before, 0, window)
        if self._swing is not None:
            self._swing = put(self._swing, before, np.zeros(half.shape, np.float32), window, 2)

"""The last seconds of a camera, as compressed frames in memory, within a number of bytes that the cameras share."""

from collections import deque
from dataclasses import dataclass, field

from embereye.units import SECOND

RING_BYTES = 24 * 1024 * 1024  # of all cameras of a shard: 100 cameras keep 5 s of 640x480 at 1.2 frames/s
SPACING_NS = SECOND // 4  # between frames kept while nothing is suspected
SPACING_MAX_NS = SECOND  # a share that is too small for even this keeps a shorter time, not fewer frames
MEAN_WEIGHT = 0.05  # of the newest frame in the mean size


@dataclass(frozen=True, slots=True)
class Kept:
    """One compressed picture."""

    time_ns: int  # of capture, nanoseconds since the Unix epoch
    jpeg: bytes
    width: int  # pixels
    height: int  # pixels


@dataclass
class Budget:
    """The bytes that all rings of a shard have together."""

    total: int = RING_BYTES
    used: int = 0
    rings: int = 0

    @property
    def share(self) -> int:
        """What each ring may use at any time."""
        return self.total // max(1, self.rings)

    @property
    def free(self) -> int:
        """What nobody uses now: lent to cameras that suspect fire."""
        return max(0, self.total - self.used)


@dataclass
class Ring:
    """One camera's frames. `close` gives its bytes back."""

    budget: Budget
    _frames: deque[Kept] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _mean: float = field(default=0.0, init=False)  # bytes of a frame
    _latest_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.budget.rings += 1

    def add(self, frame: Kept, before_ns: int, *, suspected: bool) -> None:
        """Keep `frame`, unless one is kept from just before it, and let go of what is older than `before_ns`.

        While fire is suspected every frame is kept: what leads to an alarm is seen in full.
        """
        size = len(frame.jpeg)
        self._mean += (size - self._mean) * (MEAN_WEIGHT if self._mean else 1.0)
        if not suspected and 0 <= frame.time_ns - self._latest_ns < self._spacing(before_ns):
            return
        self._latest_ns = frame.time_ns
        self._frames.append(frame)
        self._count(size)
        # The camera's newest frame is kept in any case, and mostly besides.
        allowed = self.budget.share - size + (self.budget.free if suspected else 0)
        while self._frames and (self._bytes > allowed or frame.time_ns - self._frames[0].time_ns > before_ns):
            self._count(-len(self._frames.popleft().jpeg))

    def _spacing(self, before_ns: int) -> int:
        fitting = int(before_ns * self._mean / max(1.0, self.budget.share - self._mean))
        return min(max(SPACING_NS, fitting), SPACING_MAX_NS)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.budget.used += size

    def frames(self) -> list[Kept]:
        """What is kept, oldest first."""
        return list(self._frames)

    def close(self) -> None:
        """Forget everything: the camera is another shard's now."""
        self._frames.clear()
        self._count(-self._bytes)
        self.budget.rings -= 1

"""The last seconds of a camera as compressed pictures in memory, within a budget that all cameras share."""

from collections import deque
from dataclasses import dataclass, field

from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

RING_BYTES = 24 * 1024 * 1024  # of all cameras of a shard: 100 cameras keep 5 s of 640x480 at 1.2 frames/s
VIDEO_RING_BYTES = 96 * 1024 * 1024  # of all videos of a shard: 100 cameras keep 5 s of 1.5 Mbit/s
VIDEO_BYTES = 12 * 1024 * 1024  # of each of them at most: 8 s of 12 Mbit/s, as a stream in full size has
SPACING_NS = SECOND // 4  # between two pictures kept while nothing is suspected: people only need the gist
SPACING_MAX_NS = SECOND  # a share too small for even this spacing keeps a shorter time, not fewer pictures
MEAN_WEIGHT = 0.05  # of the newest frame in the mean size


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """One compressed picture that is kept for a clip."""

    time_ns: int  # of capture, nanoseconds since the Unix epoch
    jpeg: bytes
    width: int  # pixels
    height: int  # pixels

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.jpeg)


@dataclass(frozen=True, slots=True)
class KeptUnit:
    """One access unit of a video that is kept for a clip, as it was coded."""

    time_ns: int  # of capture, nanoseconds since the Unix epoch
    unit: AccessUnit

    @property
    def width(self) -> int:
        """Pixels."""
        return self.unit.size[0]

    @property
    def height(self) -> int:
        """Pixels."""
        return self.unit.size[1]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.unit.data)


Kept = KeptFrame | KeptUnit


@dataclass
class Budget:
    """The bytes that all rings of a shard may use together."""

    total: int = RING_BYTES
    used: int = 0
    rings: int = 0

    @property
    def share(self) -> int:
        """What each ring may use at any time."""
        return self.total // max(1, self.rings)

    @property
    def free(self) -> int:
        """What no ring uses now: lent to cameras that suspect fire."""
        return max(0, self.total - self.used)


@dataclass
class Ring:
    """One camera's pictures. `close` gives its bytes back."""

    budget: Budget
    _frames: deque[KeptFrame] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _mean: float = field(default=0.0, init=False)  # bytes of a frame
    _latest_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.budget.rings += 1

    def add(self, frame: KeptFrame, before_ns: int, *, suspected: bool) -> None:
        """Keep `frame`, unless one is kept from just before it, and let go of what is older than `before_ns`.

        While fire is suspected every frame is kept: what leads to an alarm is seen in full. What is of a later time
        than `frame` goes, as a clock that was ahead has stamped it: clips leave out what comes behind a later picture.
        """
        size = len(frame.jpeg)
        self._mean += (size - self._mean) * (MEAN_WEIGHT if self._mean else 1.0)
        if not suspected and 0 <= frame.time_ns - self._latest_ns < self._spacing(before_ns):
            return
        self._latest_ns = frame.time_ns
        while self._frames and self._frames[-1].time_ns > frame.time_ns:
            self._count(-self._frames.pop().size)
        self._frames.append(frame)
        self._count(size)
        # Less the size of the newest picture: the camera holds it in any case, mostly as a second copy.
        allowed = self.budget.share - size + (self.budget.free if suspected else 0)
        while self._frames and (self._bytes > allowed or frame.time_ns - self._frames[0].time_ns > before_ns):
            self._count(-len(self._frames.popleft().jpeg))

    def _spacing(self, before_ns: int) -> int:
        fitting = int(before_ns * self._mean / max(1.0, self.budget.share - self._mean))
        return min(max(SPACING_NS, fitting), SPACING_MAX_NS)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.budget.used += size

    def frames(self) -> list[KeptFrame]:
        """The pictures that are kept, oldest first."""
        return list(self._frames)

    def close(self) -> None:
        """Forget everything: the camera is another shard's now."""
        self._frames.clear()
        self._count(-self._bytes)
        self.budget.rings -= 1


@dataclass
class VideoRing:
    """One video's access units: whole groups that begin with a key frame. `close` gives its bytes back."""

    budget: Budget
    _groups: deque[list[KeptUnit]] = field(default_factory=deque, init=False)
    _sizes: deque[int] = field(default_factory=deque, init=False)  # bytes of each group

    def __post_init__(self) -> None:
        self.budget.rings += 1

    def add(self, kept: KeptUnit, before_ns: int) -> None:
        """Keep the next unit; let go of groups that ended more than `before_ns` ago, or for which there is no room."""
        if not kept.unit.data:
            return
        if kept.unit.key:
            if self._groups and kept.time_ns - self._groups[-1][-1].time_ns > before_ns:
                self._clear()  # the camera was away: its last pictures before that lead to nothing
            self._groups.append([])
            self._sizes.append(0)
        if not self._groups:
            return
        self._groups[-1].append(kept)
        self._count(kept.size, -1)
        allowed = min(VIDEO_BYTES, self.budget.share)
        while len(self._groups) > 1 and (
            sum(self._sizes) > allowed or self._groups[1][0].time_ns < kept.time_ns - before_ns
        ):
            self._drop()
        if sum(self._sizes) > allowed:  # a group of its own that has no room: its end would be worth nothing
            self._drop()

    def _count(self, size: int, group: int) -> None:
        self._sizes[group] += size
        self.budget.used += size

    def _drop(self) -> None:
        self._groups.popleft()
        self.budget.used -= self._sizes.popleft()

    def frames(self) -> list[KeptUnit]:
        """The units that are kept, in decoding order; the first is a key frame."""
        return [kept for group in self._groups for kept in group]

    def close(self) -> None:
        """Forget everything."""
        self._clear()
        self.budget.rings -= 1

    def _clear(self) -> None:
        while self._groups:
            self._drop()

"""The last seconds of a camera as compressed pictures in memory, within a budget shared by all cameras.

Each camera owns a `Ring` of pictures and, for a video, a `VideoRing`. A clip begins with their contents. All rings of a
shard share a `Budget`: each may use an equal share, and a `Ring` may borrow free bytes while fire is suspected. A
`Ring` stores at most four pictures per second, but every picture under suspicion. A `VideoRing` stores whole groups
from a key frame on, because a part of a group cannot be decoded.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

RING_BYTES = 24 * 1024 * 1024  # of all cameras of a shard: 5 s of 640x480 at 1.2 frames/s for 100 cameras
VIDEO_RING_BYTES = 96 * 1024 * 1024  # of all videos of a shard: 5 s of 1.5 Mbit/s for 100 cameras
VIDEO_BYTES = 12 * 1024 * 1024  # of one video, at most: 8 s of a full-size stream of 12 Mbit/s
SPACING_NS = SECOND // 4  # between two stored pictures while no fire is suspected: people only need the gist
SPACING_MAX_NS = SECOND  # longest spacing; a ring whose share is too small for it covers a shorter time instead
MEAN_WEIGHT = 0.05  # weight of the newest frame in the mean size


@dataclass(frozen=True, slots=True)
class ClipFrame:
    """One compressed picture for a clip."""

    time_ns: int  # of capture, nanoseconds since the Unix epoch
    jpeg: bytes
    width: int  # pixels
    height: int  # pixels

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.jpeg)


class ClipUnit(NamedTuple):
    """One coded access unit of a video for a clip."""

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


ClipPicture = ClipFrame | ClipUnit


@dataclass
class Budget:
    """The bytes that all rings of a shard may use together."""

    total: int = RING_BYTES
    used: int = 0
    rings: int = 0

    @property
    def share(self) -> int:
        """The bytes that each ring may always use."""
        return self.total // max(1, self.rings)

    @property
    def free(self) -> int:
        """The bytes that no ring uses now; cameras that suspect fire may borrow them."""
        return max(0, self.total - self.used)


@dataclass
class Ring:
    """One camera's recent pictures. `close` returns its bytes to the budget."""

    budget: Budget
    _frames: deque[ClipFrame] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _mean: float = field(default=0.0, init=False)  # bytes of a frame
    _latest_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.budget.rings += 1

    def add(self, frame: ClipFrame, before_ns: int, *, suspected: bool) -> None:
        """Store `frame` unless the latest stored one is too recent, and drop pictures older than `before_ns`.

        While fire is suspected every frame is stored, so that clips show the whole development. Pictures stamped later
        than `frame` are dropped: a clock that was ahead stamped them, and clips leave out pictures that come after
        later ones.
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
        # The newest picture does not count: the camera has it in memory anyway.
        allowed = self.budget.share - size + (self.budget.free if suspected else 0)
        while self._frames and (self._bytes > allowed or frame.time_ns - self._frames[0].time_ns > before_ns):
            self._count(-len(self._frames.popleft().jpeg))

    def _spacing(self, before_ns: int) -> int:
        fitting = int(before_ns * self._mean / max(1.0, self.budget.share - self._mean))
        return min(max(SPACING_NS, fitting), SPACING_MAX_NS)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.budget.used += size

    def frames(self) -> list[ClipFrame]:
        """The stored pictures, oldest first."""
        return list(self._frames)

    def close(self) -> None:
        """Drop everything: another shard owns the camera now."""
        self._frames.clear()
        self._count(-self._bytes)
        self.budget.rings -= 1


@dataclass
class VideoRing:
    """One video's recent access units, in whole groups from a key frame on. `close` returns its bytes to the budget."""

    budget: Budget
    encoding: str = field(default="", init=False)  # of the latest unit
    _groups: deque[list[ClipUnit]] = field(default_factory=deque, init=False)
    _sizes: deque[int] = field(default_factory=deque, init=False)  # bytes of each group

    def __post_init__(self) -> None:
        self.budget.rings += 1

    def add(self, unit: ClipUnit, before_ns: int) -> None:
        """Store the next unit. Drop groups that ended more than `before_ns` ago, or that exceed the budget."""
        if not unit.unit.data:
            return
        self.encoding = unit.unit.encoding
        if unit.unit.key:
            if self._groups and unit.time_ns - self._groups[-1][-1].time_ns > before_ns:
                self._clear()  # the camera was away, and its pictures before that do not lead up to anything
            self._groups.append([])
            self._sizes.append(0)
        if not self._groups:
            return
        self._groups[-1].append(unit)
        self._count(unit.size, -1)
        allowed = min(VIDEO_BYTES, self.budget.share)
        while len(self._groups) > 1 and (
            sum(self._sizes) > allowed or self._groups[1][0].time_ns < unit.time_ns - before_ns
        ):
            self._drop()
        if sum(self._sizes) > allowed:  # a single group that exceeds the budget: its end alone could not be decoded
            self._drop()

    def _count(self, size: int, group: int) -> None:
        self._sizes[group] += size
        self.budget.used += size

    def _drop(self) -> None:
        self._groups.popleft()
        self.budget.used -= self._sizes.popleft()

    def frames(self) -> list[ClipUnit]:
        """The stored units in decoding order; the first is a key frame."""
        return [unit for group in self._groups for unit in group]

    def newest_group(self) -> list[ClipUnit]:
        """The stored units from the latest key frame on."""
        return list(self._groups[-1]) if self._groups else []

    def close(self) -> None:
        """Drop everything."""
        self._clear()
        self.budget.rings -= 1

    def _clear(self) -> None:
        while self._groups:
            self._drop()

"""The people who look at cameras, and the shards that can show them.

Each viewer gets the newest picture and no queue: a slow browser gets fewer pictures. Their number is limited. Shards
learn of each change of the cameras that are looked at.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from embereye.process.addresses import place_of

MAX_VIEWERS = 64  # cameras that are looked at, counted once for each window
VIEWERS_PER_ADDRESS = 32  # all windows behind a proxy share one address

CameraKey = tuple[str, str]  # "namespace/kind/name" of its fleet, id


class TooManyViewersError(Exception):
    """No further viewer is allowed now; the message says why."""


@dataclass(eq=False)
class Viewer:
    """One window that shows one camera."""

    _newest: tuple[bytes, int] | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, jpeg: bytes, taken_ns: int) -> None:
        """Replace the picture that waits."""
        self._newest = jpeg, taken_ns
        self._wake.set()

    async def next(self) -> tuple[bytes, int]:
        """Wait for the next picture; return its JPEG and when it was taken, nanoseconds since the Unix epoch."""
        while self._newest is None:
            self._wake.clear()
            await self._wake.wait()
        newest, self._newest = self._newest, None
        return newest


@dataclass(eq=False)
class ShowingShard:
    """One shard that can show its fleet's cameras; `changed` is set when other cameras are looked at."""

    fleet: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Viewers:
    """All viewers and showing shards. For one event loop."""

    def __init__(self) -> None:
        self.bytes = 0  # of pictures that shards sent
        self.pictures = 0  # that shards sent
        self.refused = 0
        self._viewers: dict[CameraKey, set[Viewer]] = {}
        self._places: Counter[str] = Counter()
        self._shards: set[ShowingShard] = set()

    @property
    def count(self) -> int:
        """The number of viewers."""
        return self._places.total()

    @contextlib.contextmanager
    def view(self, camera: CameraKey, address: str) -> Iterator[Viewer]:
        """Look at `camera` from `address` during the block. TooManyViewersError if the limit is reached."""
        place = place_of(address)
        if self.count >= MAX_VIEWERS or self._places[place] >= VIEWERS_PER_ADDRESS:
            self.refused += 1
            most, whose = (VIEWERS_PER_ADDRESS, f" from {place}") if self.count < MAX_VIEWERS else (MAX_VIEWERS, "")
            raise TooManyViewersError(f"{most} live pictures are shown already{whose}. Close one.")
        viewer = Viewer()
        self._places[place] += 1
        self._viewers.setdefault(camera, set()).add(viewer)
        self._notify(camera[0])
        try:
            yield viewer
        finally:
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]
            self._viewers[camera].discard(viewer)
            if not self._viewers[camera]:
                del self._viewers[camera]
                self._notify(camera[0])

    @contextlib.contextmanager
    def connect(self, fleet: str) -> Iterator[ShowingShard]:
        """Connect a shard of `fleet` during the block."""
        shard = ShowingShard(fleet)
        shard.changed.set()
        self._shards.add(shard)
        try:
            yield shard
        finally:
            self._shards.discard(shard)

    def wanted(self, fleet: str) -> list[str]:
        """The cameras of `fleet` that somebody looks at, in order of their ids."""
        return sorted(device for name, device in self._viewers if name == fleet)

    def show(self, camera: CameraKey, jpeg: bytes, taken_ns: int) -> None:
        """Pass a picture on to everybody who looks at `camera`."""
        self.bytes += len(jpeg)
        self.pictures += 1
        for viewer in self._viewers.get(camera, ()):
            viewer.offer(jpeg, taken_ns)

    def _notify(self, fleet: str) -> None:
        for shard in self._shards:
            if shard.fleet == fleet:
                shard.changed.set()

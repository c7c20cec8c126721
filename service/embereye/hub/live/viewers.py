"""The people who look at devices, and the shards that can show them.

Each viewer gets a sensor's thermal pictures, or a camera's video if its browser plays the encoding, else pictures. A
slow browser gets the newest picture, or the video from its next key frame on. Who comes later to a video gets it from
its latest key frame on. The number of viewers is limited. Shards learn of each change of the devices that are looked
at.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from embereye.process.addresses import place_of
from embereye.process.live_queue import LATE_SECONDS, MAX_GROUP, LivePicture, LiveQueue
from embereye.wire.mp4 import is_start_of_video

MAX_VIEWERS = 64  # cameras that are looked at, counted once for each window
VIEWERS_PER_ADDRESS = 32  # all windows behind a proxy share one address

CameraKey = tuple[str, str]  # "namespace/kind/name" of its fleet, id


class TooManyViewersError(Exception):
    """No further viewer is allowed now; the message says why."""


class Viewer:
    """One window that shows one camera; `plays` are the encodings that it plays."""

    def __init__(self, plays: Collection[str] = ()) -> None:
        self.plays = frozenset(plays)
        self.queue = LiveQueue()
        self._refused = ""  # why the shard does not show the camera
        self._wake = asyncio.Event()

    def offer(self, picture: LivePicture) -> None:
        """Pass `picture` on if it is meant for this window."""
        if picture.is_still != (picture.encoding in self.plays):
            self.queue.offer(picture, time.monotonic())
            self._wake.set()

    def refuse(self, why: str) -> None:
        """Let `next` fail."""
        self._refused = why
        self._wake.set()

    async def next(self) -> LivePicture:
        """Wait for the next picture or fragment and return it; TooManyViewersError if the shard refuses to show it."""
        while not (picture := self.queue.take_oldest()):
            if self._refused:
                raise TooManyViewersError(self._refused)
            self._wake.clear()
            await self._wake.wait()
        return picture


class _Group:
    """A video since its latest key frame, for those who come later."""

    def __init__(self) -> None:
        self._pieces: list[LivePicture] = []
        self._bytes = 0
        self._at = 0.0  # of the last piece, seconds

    def add(self, picture: LivePicture, now: float) -> None:
        """Add the next fragment; after more than MAX_GROUP bytes, wait for the next key frame."""
        if is_start_of_video(picture.data):
            self._pieces, self._bytes = [], 0
        elif not self._pieces:
            return
        self._at = now
        self._bytes += len(picture.data)
        self._pieces.append(picture)
        if self._bytes > MAX_GROUP:
            self._pieces = []

    def joined(self, now: float) -> LivePicture | None:
        """All fragments as one; None if there are none, or they are old."""
        if not self._pieces or now - self._at > LATE_SECONDS:
            return None
        newest = self._pieces[-1]
        return LivePicture(b"".join(piece.data for piece in self._pieces), newest.taken_ns, newest.encoding)


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
        self.sent_bytes = 0  # to windows
        self.refused = 0
        self._dropped = 0  # for windows that are closed
        self._viewers: dict[CameraKey, set[Viewer]] = {}
        self._groups: dict[CameraKey, _Group] = {}  # of videos that somebody looks at
        self._places: Counter[str] = Counter()
        self._shards: set[ShowingShard] = set()

    @property
    def count(self) -> int:
        """The number of viewers."""
        return self._places.total()

    @property
    def dropped(self) -> int:
        """The number of pictures and fragments that slow windows did not get."""
        return self._dropped + sum(viewer.queue.dropped for viewers in self._viewers.values() for viewer in viewers)

    @contextlib.contextmanager
    def view(self, camera: CameraKey, address: str, plays: Collection[str] = ()) -> Iterator[Viewer]:
        """Look at `camera` from `address` during the block, with a browser that plays the encodings `plays`.

        TooManyViewersError if the limit is reached.
        """
        place = place_of(address)
        if self.count >= MAX_VIEWERS or self._places[place] >= VIEWERS_PER_ADDRESS:
            self.refused += 1
            most, whose = (VIEWERS_PER_ADDRESS, f" from {place}") if self.count < MAX_VIEWERS else (MAX_VIEWERS, "")
            raise TooManyViewersError(f"{most} live pictures are shown already{whose}. Close one.")
        viewer = Viewer(plays)
        self._places[place] += 1
        self._viewers.setdefault(camera, set()).add(viewer)
        if (group := self._groups.get(camera)) and (joined := group.joined(time.monotonic())):
            viewer.offer(joined)
        self._notify(camera[0])
        try:
            yield viewer
        finally:
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]
            self._dropped += viewer.queue.dropped
            self._viewers[camera].discard(viewer)
            if not self._viewers[camera]:
                del self._viewers[camera]
                self._groups.pop(camera, None)
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

    def wanted(self, fleet: str) -> list[tuple[str, str]]:
        """The cameras of `fleet` that somebody looks at, in order of their ids, and encodings, such as "H264,H265".

        A camera is listed once for each set of encodings that browsers in front of it play.
        """
        return sorted(
            {
                (device, ",".join(sorted(viewer.plays)))
                for (name, device), viewers in self._viewers.items()
                if name == fleet
                for viewer in viewers
            }
        )

    def show(self, camera: CameraKey, picture: LivePicture) -> None:
        """Pass a picture or fragment on to those who look at `camera`."""
        self.bytes += len(picture.data)
        self.pictures += 1
        if camera in self._viewers and not picture.is_still:
            self._groups.setdefault(camera, _Group()).add(picture, time.monotonic())
        for viewer in self._viewers.get(camera, ()):
            viewer.offer(picture)

    def refuse(self, camera: CameraKey, why: str) -> None:
        """End the views of `camera`, because its shard does not show it."""
        for viewer in self._viewers.get(camera, ()):
            self.refused += 1
            viewer.refuse(why)

    def _notify(self, fleet: str) -> None:
        for shard in self._shards:
            if shard.fleet == fleet:
                shard.changed.set()

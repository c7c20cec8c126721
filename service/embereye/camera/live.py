"""Live pictures: sends the pictures or the video of a camera to the hub while somebody looks at it.

`run` keeps a call to the hub open. The hub names the cameras that people look at, and the encodings that their browsers
play. Until then, `offer` and `offer_video` cost a look into an empty table. A video is sent as it arrives, without
recoding. A slow hub gets only the newest picture of each camera, or its video from the next key frame on. A shard
sends at most BYTES_PER_SECOND, and pictures of MAX_CAMERAS cameras.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping

import grpc

from embereye.camera.clips.ring import ClipUnit, VideoRing
from embereye.process.grpc_server import converse
from embereye.process.live_call import open_live
from embereye.process.live_queue import MAX_GROUP, MAX_PICTURE, LivePicture, LiveQueue
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus
from embereye.v1.roster_pb2 import FleetRoster
from embereye.wire.jpeg.header import SOI
from embereye.wire.mp4 import LiveMuxer, Mp4Error

logger = logging.getLogger(__name__)
MAX_CAMERAS = 16  # shown at the same time
BYTES_PER_SECOND = 6_000_000
BATCH_BYTES = 1_000_000  # of one message, which may exceed it by one picture
BATCH_SECONDS = 0.03  # between two messages: fewer, larger ones wake the hub less often
UNASSIGNED_SECONDS = 0.25  # between two looks for the first assignment
PAUSE = 2.0  # seconds; longest pause between two attempts to reach the hub


class LivePictures:
    """The newest pictures and videos of the cameras that people look at."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self._gone = 0  # dropped for cameras that nobody looks at any more
        self._asked: dict[str, list[frozenset[str]]] = {}  # by camera: encodings that browsers in front of it play
        self._queues: dict[tuple[str, bool], LiveQueue] = {}  # by camera, and True for its video
        self._muxers: dict[str, LiveMuxer] = {}
        self._shown: set[str] = set()  # cameras of this shard
        self._refused: dict[str, bool] = {}  # cameras beyond the limit; True: the hub does not know yet
        self._wake = asyncio.Event()

    @property
    def wanted(self) -> Mapping[str, Collection[frozenset[str]]]:
        """The cameras of the fleet that people look at, with the encodings that the browsers play."""
        return self._asked

    @property
    def shown(self) -> int:
        """The number of cameras that this shard shows."""
        return len(self._shown)

    @property
    def dropped(self) -> int:
        """The number of pictures and fragments of videos that were dropped because the hub was slow."""
        return self._gone + sum(queue.dropped for queue in self._queues.values())

    def is_picture_wanted(self, camera: str, encoding: str) -> bool:
        """True if a browser in front of `camera` does not play its `encoding`; '' for a camera that sends pictures."""
        return any(encoding not in plays for plays in self._asked.get(camera, ()))

    def offer(self, camera: str, jpeg: bytes, time_ns: int, encoding: str = "") -> None:
        """Send `jpeg`, taken at `time_ns` (Unix epoch), if somebody wants it; other data is ignored.

        `encoding` is that of the video of which it was made.
        """
        if camera not in self._asked or not self.is_picture_wanted(camera, encoding) or not self._is_shown(camera):
            return
        if jpeg.startswith(SOI) and len(jpeg) <= MAX_PICTURE:
            self._queue(camera, LivePicture(jpeg, time_ns, encoding))

    def offer_video(self, camera: str, unit: ClipUnit, ring: VideoRing) -> None:
        """Send `unit`, the newest in `ring`, if a browser plays it; the first time, with all since the key frame."""
        if camera not in self._asked:
            return
        if not any(unit.unit.encoding in plays for plays in self._asked[camera]) or not self._is_shown(camera):
            self._muxers.pop(camera, None)
            return
        units = [unit]
        if camera not in self._muxers:
            self._muxers[camera] = LiveMuxer()
            group = ring.newest_group()
            if sum(earlier.size for earlier in group) <= MAX_GROUP:
                units = group
        for each in units:
            self._send_unit(camera, each)

    def forget(self, camera: str) -> None:
        """Show `camera` no longer: another shard has it."""
        self._shown.discard(camera)
        self._prune()

    def _send_unit(self, camera: str, unit: ClipUnit) -> None:
        coded = unit.unit
        try:
            data = self._muxers[camera].fragment(coded.encoding, coded.size, coded.data, unit.time_ns, key=coded.key)
        except Mp4Error:  # the next key frame may have its parameter sets
            return
        if len(data) > MAX_PICTURE:
            self._queues[camera, True].skip_group()
        elif data:
            self._queue(camera, LivePicture(data, unit.time_ns, coded.encoding))

    def _is_shown(self, camera: str) -> bool:
        if camera in self._shown:
            return True
        if len(self._shown) < MAX_CAMERAS:
            self._shown.add(camera)
            self._queues[camera, False], self._queues[camera, True] = LiveQueue(), LiveQueue()
            return True
        if camera not in self._refused:
            self._refused[camera] = True
            self._wake.set()
        return False

    def _queue(self, camera: str, picture: LivePicture) -> None:
        self._queues[camera, not picture.data.startswith(SOI)].offer(picture, time.monotonic())
        self._wake.set()

    async def run(self, links: Links, hello: Callable[[], Coverage]) -> None:
        """Keep the call open until cancelled; `hello` makes a report with the fleet's and the shard's names.

        The call names the fleet once, when it is opened, so it waits for the first assignment.
        """
        while not hello().fleet:
            await asyncio.sleep(UNASSIGNED_SECONDS)
        backoff, failed = Backoff(floor=0.2, cap=PAUSE), 0
        while True:
            link, reached = links.hub(failed), False
            try:
                with no_stray_cancellation("the live call"), contextlib.suppress(grpc.aio.AioRpcError):
                    async for roster in converse(open_live(link), lambda call: self._send(call, hello)):
                        reached = True
                        self._look_at(roster)
            except UnrequestedCancellationError as error:
                logger.warning("live pictures: %s; trying again", error)
            finally:
                self._look_at(FleetRoster())
                await link.close(None)
            failed = 0 if reached else failed + 1
            if reached:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _look_at(self, roster: FleetRoster) -> None:
        self._asked = {}
        for device in roster.devices:
            self._asked.setdefault(device.id, []).append(frozenset(device.source.split(",")) - {""})
        self._shown &= self._asked.keys()
        self._refused = {name: new for name, new in self._refused.items() if name in self._asked}
        self._prune()

    def _prune(self) -> None:
        for key in [key for key in self._queues if key[0] not in self._shown]:
            self._gone += self._queues.pop(key).dropped
        self._muxers = {name: muxer for name, muxer in self._muxers.items() if name in self._shown}

    async def _send(
        self, call: "grpc.aio.StreamStreamCall[Coverage, FleetRoster]", hello: Callable[[], Coverage]
    ) -> None:
        await call.write(hello())
        while True:
            await self._wake.wait()
            self._wake.clear()
            while statuses := self._batch():
                report = hello()
                report.time_ns = now_ns()
                report.devices.extend(statuses)
                await call.write(report)
                size = sum(len(status.picture) for status in statuses)
                self.sent_bytes += size
                await asyncio.sleep(max(BATCH_SECONDS, size / BYTES_PER_SECOND))

    def _batch(self) -> list[DeviceStatus]:
        """Take what waits: one piece of each camera in turn, up to BATCH_BYTES."""
        statuses = [
            DeviceStatus(id=name, reason=f"its shard shows {MAX_CAMERAS} cameras already. Close one.")
            for name, new in self._refused.items()
            if new
        ]
        self._refused = dict.fromkeys(self._refused, False)
        size, taken = 0, True
        while taken and size < BATCH_BYTES:
            taken = False
            for (name, _), queue in self._queues.items():
                if size < BATCH_BYTES and (picture := queue.take_oldest()):
                    status = DeviceStatus(id=name, picture=picture.data, state=picture.encoding)
                    status.analysed_ns = picture.taken_ns
                    statuses.append(status)
                    size += len(picture.data)
                    taken = True
        return statuses

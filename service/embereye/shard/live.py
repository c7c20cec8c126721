"""Live pictures: sends the pictures of devices to the hub while somebody looks at them.

`run` keeps a call to the hub open. The hub names the devices that people look at, and the encodings that their browsers
play. A slow hub gets only the newest picture of each device, or its video from the next key frame on. A shard sends at
most BYTES_PER_SECOND, and pictures of MAX_DEVICES devices. In a pause, it refuses to show any device, and says why.
Cameras and sensors add what they offer.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping

import grpc

from embereye.process.grpc_server import converse
from embereye.process.live_call import open_live
from embereye.process.live_queue import LivePicture, LiveQueue
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation, raise_if_cancelled
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus
from embereye.v1.roster_pb2 import FleetRoster

logger = logging.getLogger(__name__)
MAX_DEVICES = 16  # shown at the same time
BYTES_PER_SECOND = 6_000_000
BATCH_BYTES = 1_000_000  # of one message, which may exceed it by one picture
BATCH_SECONDS = 0.03  # between two messages: fewer, larger ones wake the hub less often
UNASSIGNED_SECONDS = 0.25  # between two looks for the first assignment
PAUSE = 2.0  # seconds; longest pause between two attempts to reach the hub


class LiveSender:
    """The newest pictures and videos of the devices that people look at."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self._gone = 0  # dropped for devices that nobody looks at any more
        self._asked: dict[str, list[frozenset[str]]] = {}  # by device: encodings that browsers in front of it play
        self._queues: dict[tuple[str, bool], LiveQueue] = {}  # by device, and True for its video
        self._shown: set[str] = set()  # devices of this shard
        self._refused: dict[str, bool] = {}  # devices that are not shown; True: the hub does not know yet
        self._paused = ""  # why none is shown
        self._wake = asyncio.Event()

    @property
    def wanted(self) -> Mapping[str, Collection[frozenset[str]]]:
        """The devices of the fleet that people look at, with the encodings that the browsers play; none in a pause."""
        return {} if self._paused else self._asked

    @property
    def shown(self) -> int:
        """The number of devices that this shard shows."""
        return len(self._shown)

    @property
    def dropped(self) -> int:
        """The number of pictures and fragments of videos that were dropped because the hub was slow."""
        return self._gone + sum(queue.dropped for queue in self._queues.values())

    def pause(self, why: str) -> None:
        """Show no device, and refuse those that are offered because of `why`; empty: show them again."""
        if why and not self._paused:
            self._shown.clear()
            self._prune()
        self._paused = why

    def forget(self, device: str) -> None:
        """Show `device` no longer: another shard has it."""
        self._shown.discard(device)
        self._prune()

    def _is_shown(self, device: str) -> bool:
        if device in self._shown:
            return True
        if not self._paused and len(self._shown) < MAX_DEVICES:
            self._shown.add(device)
            self._queues[device, False], self._queues[device, True] = LiveQueue(), LiveQueue()
            return True
        if device not in self._refused:
            self._refused[device] = True
            self._wake.set()
        return False

    def _queue(self, device: str, picture: LivePicture) -> None:
        self._queues[device, not picture.is_still].offer(picture, time.monotonic())
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
            raise_if_cancelled()  # gRPC may swallow it
            failed = 0 if reached else failed + 1
            if reached:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _look_at(self, roster: FleetRoster) -> None:
        self._asked = {}
        for device in roster.devices:
            self._asked.setdefault(device.id, []).append(frozenset(device.source.split(",")) - {""})
        self._shown &= self._asked.keys()
        self._refused.clear()  # another window may look at a refused device by now, and has to know, too
        self._prune()

    def _prune(self) -> None:
        for key in [key for key in self._queues if key[0] not in self._shown]:
            self._gone += self._queues.pop(key).dropped

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
        """Take what waits: one piece of each device in turn, up to BATCH_BYTES."""
        why = self._paused or f"its shard shows {MAX_DEVICES} devices already. Close one."
        statuses = [DeviceStatus(id=name, reason=why) for name, new in self._refused.items() if new]
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

"""Live pictures: sends the newest pictures of a camera to the hub while somebody looks at it.

`run` keeps a call to the hub open. The hub names the cameras that people look at. Until then, `offer` costs a look into
an empty set. Of each camera only the newest picture waits, so a slow hub gets fewer pictures, and no frame waits.
A shard sends at most BYTES_PER_SECOND, and pictures of MAX_CAMERAS cameras.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

import grpc

from embereye.process.grpc_server import converse
from embereye.process.live_call import open_live
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus
from embereye.v1.roster_pb2 import FleetRoster
from embereye.wire.jpeg.header import SOI

logger = logging.getLogger(__name__)
MAX_CAMERAS = 16  # shown at the same time
BYTES_PER_SECOND = 4_000_000
MAX_PICTURE = 2_000_000  # bytes; gRPC takes messages of 4 MiB
PAUSE = 10.0  # seconds; longest pause between two attempts to reach the hub


class LivePictures:
    """The newest pictures of the cameras that people look at."""

    def __init__(self) -> None:
        self.wanted: Collection[str] = frozenset()
        self.sent_bytes = 0
        self.replaced = 0  # pictures that a newer one replaced before they were sent
        self._waiting: dict[str, tuple[bytes, int]] = {}  # by camera: JPEG, and when it was taken
        self._wake = asyncio.Event()

    def offer(self, camera: str, jpeg: bytes, time_ns: int) -> None:
        """Send `jpeg`, taken at `time_ns` (Unix epoch), if somebody looks at `camera`; other data is ignored."""
        if camera not in self.wanted or not jpeg.startswith(SOI) or len(jpeg) > MAX_PICTURE:
            return
        self.replaced += camera in self._waiting
        self._waiting[camera] = jpeg, time_ns
        self._wake.set()

    async def run(self, links: Links, hello: Callable[[], Coverage]) -> None:
        """Keep the call open until cancelled; `hello` makes a report with the fleet's and the shard's names."""
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
        self.wanted = frozenset(device.id for device in roster.devices[:MAX_CAMERAS])
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if name in self.wanted}

    async def _send(
        self, call: "grpc.aio.StreamStreamCall[Coverage, FleetRoster]", hello: Callable[[], Coverage]
    ) -> None:
        await call.write(hello())
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            for name, (jpeg, time_ns) in waiting.items():
                report = hello()
                report.time_ns = now_ns()
                report.devices.append(DeviceStatus(id=name, picture=jpeg, analysed_ns=time_ns))
                await call.write(report)
                self.sent_bytes += len(jpeg)
                await asyncio.sleep(len(jpeg) / BYTES_PER_SECOND)

"""The hub's side of `Live/Show`: asks shards for the pictures that people look at, and takes them in."""

import time
from collections.abc import AsyncIterator

import grpc

from embereye.hub.live.viewers import ShowingShard, Viewers
from embereye.process.identity.guard import caller
from embereye.process.live_queue import LivePicture
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

Context = grpc.aio.ServicerContext[Coverage, FleetRoster]


class LiveService:
    """Serves any number of shards."""

    def __init__(self, viewers: Viewers) -> None:
        self._viewers = viewers

    async def show(self, requests: AsyncIterator[Coverage], context: Context) -> AsyncIterator[FleetRoster]:
        """Yield the cameras that somebody looks at, with each change, while the shard's pictures arrive."""
        hello = await anext(aiter(requests), None)
        if hello is None:
            return
        identity = caller(context)
        fleet = identity.fleet if identity else hello.fleet
        with self._viewers.connect(fleet) as shard:
            async with beside(self._read(fleet, requests, shard), name="live-read") as reading:
                while not reading.done():
                    shard.changed.clear()
                    devices = [Device(id=name, source=plays) for name, plays in self._viewers.wanted(fleet)]
                    yield FleetRoster(fleet=fleet, devices=devices)
                    await shard.changed.wait()

    async def _read(self, fleet: str, requests: AsyncIterator[Coverage], shard: ShowingShard) -> None:
        try:
            async for report in requests:
                for status in report.devices:
                    if status.reason:
                        self._viewers.refuse((fleet, status.id), status.reason)
                        continue
                    # The shard's clock may be wrong; the picture's age is not.
                    age_ns = max(0, report.time_ns - status.analysed_ns)
                    picture = LivePicture(status.picture, time.time_ns() - age_ns, status.state)
                    self._viewers.show((fleet, status.id), picture)
        finally:
            shard.changed.set()

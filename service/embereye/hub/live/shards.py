"""The hub's side of `Live/Show`: asks shards for the pictures that people look at, and takes them in."""

import time
from collections.abc import AsyncIterator

import grpc

from embereye.hub.live.viewers import ShowingShard, Viewers
from embereye.process.identity.guard import caller
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
                    devices = [Device(id=name) for name in self._viewers.wanted(fleet)]
                    yield FleetRoster(fleet=fleet, devices=devices)
                    await shard.changed.wait()

    async def _read(self, fleet: str, requests: AsyncIterator[Coverage], shard: ShowingShard) -> None:
        try:
            async for report in requests:
                for status in report.devices:
                    # The shard's clock may be wrong; the picture's age is not.
                    age_ns = max(0, report.time_ns - status.analysed_ns)
                    self._viewers.show((fleet, status.id), status.picture, time.time_ns() - age_ns)
        finally:
            shard.changed.set()

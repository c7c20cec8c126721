"""The hub's side of `Margins/Store`: stores the blocks of shards."""

import time

import grpc

from embereye.hub.hub import Hub
from embereye.hub.margins.store import MarginStore, NotStoredError
from embereye.process.identity.guard import caller
from embereye.process.margins_call import Block

Context = grpc.aio.ServicerContext[bytes, bytes]


class MarginService:
    """Serves any number of shards."""

    def __init__(self, hub: Hub, store: MarginStore) -> None:
        self._hub = hub
        self._store = store

    async def receive(self, request: bytes, context: Context) -> bytes:
        """Store one block."""
        try:
            block = Block.load(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        identity = caller(context)
        if identity and identity.fleet != block.fleet:
            reason = f"{identity} sends margins of its fleet only, not of {block.fleet}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        try:
            await self._store.add(block, time.time_ns(), self._profiles(block.fleet))
        except NotStoredError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return b""

    def _profiles(self, name: str) -> dict[str, str]:
        """The names of the present profiles of a fleet's zones, by zone."""
        fleet, zones = self._hub.coverage.book.fleets.get(name), self._hub.zones
        if fleet is None:
            return {}
        names = {watched.device.zone for watched in fleet.devices.values()}
        profiles = ((zone, zones.profile_of((fleet.namespace, zone))) for zone in names)
        return {zone: profile.name for zone, profile in profiles if profile}

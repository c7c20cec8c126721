"""The hub's side of `Margins/Store`: stores the blocks of shards."""

import time

import grpc

from embereye.hub.margins.store import MarginStore, NotStoredError
from embereye.process.identity.guard import caller
from embereye.process.margins_call import Block

Context = grpc.aio.ServicerContext[bytes, bytes]


class MarginService:
    """Serves any number of shards."""

    def __init__(self, store: MarginStore) -> None:
        self._store = store

    async def store(self, request: bytes, context: Context) -> bytes:
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
            await self._store.add(block, time.time_ns())
        except NotStoredError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return b""

"""Alarms for a program: a feed that notices when its hub is gone."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from embereye.v1.alarms_pb2 import AlarmEvent

ALIVE_MS = 1_000  # for SubscribeRequest.alive_ms
PATIENCE_SECONDS = 3.0


class SilentError(Exception):
    """A feed has sent nothing, not even a sign of life. Call again on a new connection."""


async def listen(call: AsyncIterable[AlarmEvent], patience: float = PATIENCE_SECONDS) -> AsyncIterator[AlarmEvent]:
    """Yield the events of `call`, an Alarms/Subscribe with `alive_ms`, including signs of life.

    SilentError if nothing arrives for `patience` seconds: the hub is stalled, powered off or unreachable, which the
    connection itself does not show. A hub of an older version, which sends no signs of life, is never silent. Errors of
    `call` are passed on.
    """
    arriving, lively = aiter(call), False
    while True:
        try:
            async with asyncio.timeout(patience if lively else None):
                event = await anext(arriving)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SilentError(f"the hub has sent nothing for {patience:g} s") from None
        lively = lively or event.type == AlarmEvent.TYPE_ALIVE
        yield event

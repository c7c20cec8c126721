"""Alarms for a program: a feed that notices when there is no hub behind it any more."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from embereye.v1.alarms_pb2 import AlarmEvent

ALIVE_MS = 1_000  # to ask for, as SubscribeRequest.alive_ms
PATIENCE_SECONDS = 3.0


class SilentError(Exception):
    """A feed says nothing, not even that nothing happens: call again, by a new connection."""


async def listen(call: AsyncIterable[AlarmEvent], patience: float = PATIENCE_SECONDS) -> AsyncIterator[AlarmEvent]:
    """What comes by `call`, an Alarms/Subscribe with `alive_ms`, signs of life too.

    SilentError where nothing comes for `patience` seconds: the hub stands still, or it was powered off or cut off, of
    which a connection tells nothing. One of an older version, which knows of no signs of life, is waited for. Raises
    what `call` raises.
    """
    arriving, lively = aiter(call), False
    while True:
        try:
            async with asyncio.timeout(patience if lively else None):
                event = await anext(arriving)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SilentError(f"nothing was heard for {patience:g} s") from None
        lively = lively or event.type == AlarmEvent.TYPE_ALIVE
        yield event

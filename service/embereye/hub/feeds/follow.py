"""Follow the feed as a part of the hub: across failures of the store, until the feed closes.

`entries_of` yields entries as they are. `follow` yields each event once: one that cannot be stored yet comes at once,
and not again when it is stored. After a crash in between it comes again, so that nothing is lost.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from embereye.hub.database import StoreError
from embereye.hub.feeds.feed import ClosedError, Entry, Feed, Subscription
from embereye.hub.tables.selection import EVERYTHING
from embereye.v1.alarms_pb2 import AlarmEvent

STORE_SECONDS = 1.0  # pause before a failed read of the store is repeated


@dataclass(frozen=True)
class Batch:
    """The next events of the feed."""

    events: Sequence[AlarmEvent]
    cursor: int  # to continue from; events that are not stored yet do not count
    caught_up: bool  # no further event waits


async def entries_of(reader: Subscription, *, pause: float = STORE_SECONDS) -> AsyncIterator[list[Entry]]:
    """Yield the next entries of `reader`, which the caller advances, until the feed closes."""
    while True:
        try:
            entries = await reader.next()
        except ClosedError:
            return
        except StoreError:
            await asyncio.sleep(pause)
            continue
        yield entries


async def follow(feed: Feed, cursor: int, *, pause: float = STORE_SECONDS) -> AsyncIterator[Batch]:
    """Yield all events past `cursor`, each once, until the feed closes. The first batch is empty."""
    # A store that was filled from elsewhere may be behind the stored cursor.
    reader = feed.reader(min(cursor, feed.latest), EVERYTHING)
    early = set[bytes]()  # events that were yielded before they were stored
    yield Batch((), reader.position, reader.caught_up)
    async for entries in entries_of(reader, pause=pause):
        events = []
        for entry in entries:
            content = entry.event.SerializeToString(deterministic=True) if entry.unstored or early else b""
            if entry.unstored:
                early.add(content)
            else:
                reader.advance(entry.event.cursor)
            if entry.unstored or content not in early:
                events.append(entry.event)
            else:
                early.discard(content)
        if reader.caught_up and feed.unstored.start == feed.unstored.end:
            early.clear()  # the rest was never stored
        yield Batch(events, reader.position, reader.caught_up)

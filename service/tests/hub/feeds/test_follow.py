"""A part of the hub that follows the feed gets each event once, across failures of the store."""

import asyncio

from embereye.hub.database import StoreError
from embereye.hub.feeds.feed import BATCH, Feed
from embereye.hub.feeds.follow import Batch, follow
from embereye.v1.alarms_pb2 import AlarmEvent


def events(first: int, last: int, zone: str = "hall") -> list[AlarmEvent]:
    return [AlarmEvent(cursor=n, namespace="default", zone=zone) for n in range(first, last + 1)]


async def no_history(after: int, limit: int) -> list[AlarmEvent]:
    raise AssertionError("everything is in memory")


def cursors(batch: Batch) -> list[int]:
    return [event.cursor for event in batch.events]


async def test_an_event_that_is_stored_late_comes_once_and_does_not_count_before() -> None:
    feed = Feed(7, no_history)
    batches = follow(feed, 9)
    start = await anext(batches)
    assert (cursors(start), start.cursor, start.caught_up) == ([], 7, True), "a cursor ahead of the store is its end"
    late, other = events(8, 8), events(8, 9, "yard")
    feed.publish_unstored(late)
    early = await anext(batches)
    assert (cursors(early), early.cursor) == ([8], 7)
    feed.publish(late + other[1:])
    stored = await anext(batches)
    assert (cursors(stored), stored.cursor, stored.caught_up) == ([9], 9, True)


async def test_another_event_with_the_cursor_of_one_that_was_never_stored_is_not_lost() -> None:
    feed = Feed(0, no_history)
    batches = follow(feed, 0)
    await anext(batches)
    feed.publish_unstored(events(1, 1))
    assert cursors(await anext(batches)) == [1]
    feed.publish(events(1, 1, "yard"))
    assert [event.zone for event in (await anext(batches)).events] == ["yard"]


async def test_a_failing_store_is_read_again_and_a_closed_feed_ends_it() -> None:
    failures = 2

    async def history(after: int, limit: int) -> list[AlarmEvent]:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreError("the disk is full")
        return events(after + 1, min(after + limit, 3 * BATCH))

    feed = Feed(3 * BATCH, history)
    seen: list[int] = []

    async def read() -> None:
        async for batch in follow(feed, 5, pause=0.01):
            seen.extend(cursors(batch))
            if batch.caught_up:
                feed.close()

    await asyncio.wait_for(read(), 60)
    assert seen == list(range(6, 3 * BATCH + 1))

import asyncio

import pytest

from embereye.hub import feed as feed_module
from embereye.hub.feed import BATCH, KEPT, LAG, Feed, TooManyError, TooSlowError
from embereye.v1.alarms_pb2 import AlarmEvent


def events(first: int, last: int, zone: str = "hall") -> list[AlarmEvent]:
    return [AlarmEvent(cursor=n, namespace="default", zone=zone) for n in range(first, last + 1)]


class Stored:
    """A feed over a list for a store."""

    def __init__(self, count: int = 0) -> None:
        self.events = events(1, count)
        self.reads = 0
        self.feed = Feed(count, self.history)

    async def history(self, after: int, limit: int) -> list[AlarmEvent]:
        self.reads += 1
        await asyncio.sleep(0)
        return [event for event in self.events if event.cursor > after][:limit]

    def publish(self, count: int, zone: str = "hall") -> None:
        new = events(self.feed.latest + 1, self.feed.latest + count, zone)
        self.events += new
        self.feed.publish(new)


async def take(feed: Feed, after: int, count: int, zones: tuple[str, ...] = ()) -> list[int]:
    seen: list[int] = []

    async def write() -> None:
        await asyncio.sleep(0)

    with feed.subscribe(after, zones) as subscription:
        while len(seen) < count:
            for entry in await subscription.next():
                await subscription.hand_over(entry, write())
                seen.append(entry.event.cursor)
    return seen


async def test_history_goes_over_into_live_events_without_gap_or_duplicate() -> None:
    stored = Stored(3 * BATCH)
    reading = asyncio.ensure_future(take(stored.feed, 7, 3 * BATCH + 500 - 7))
    for _ in range(50):
        await asyncio.sleep(0.001)
        stored.publish(10)
    assert await asyncio.wait_for(reading, 20) == list(range(8, 3 * BATCH + 501))


async def test_recent_events_are_served_from_memory() -> None:
    stored = Stored()
    stored.publish(5)
    assert await take(stored.feed, 2, 3) == [3, 4, 5]
    assert stored.reads == 0


async def test_events_that_memory_no_longer_holds_come_from_the_store() -> None:
    stored = Stored()
    stored.publish(KEPT + 10)
    assert (await take(stored.feed, 3, 4))[:4] == [4, 5, 6, 7]
    assert stored.reads >= 1


async def test_a_subscriber_whose_events_retention_took_goes_on_with_the_next() -> None:
    stored = Stored(50)
    stored.events.clear()
    reading = asyncio.ensure_future(take(stored.feed, 10, 1))
    await asyncio.sleep(0.01)
    stored.publish(1)
    assert await asyncio.wait_for(reading, 10) == [51]


async def test_a_subscriber_to_one_zone_hears_of_no_other() -> None:
    stored = Stored()
    reading = asyncio.ensure_future(take(stored.feed, 0, 2, ("default/attic",)))
    for zone in ("hall", "attic", "hall", "attic"):
        await asyncio.sleep(0.005)
        stored.publish(1, zone)
    assert await asyncio.wait_for(reading, 10) == [2, 4]


async def test_a_slow_subscriber_is_sent_away_with_its_cursor_and_delays_nobody() -> None:
    stored = Stored()
    stalled = asyncio.Event()

    async def stall() -> None:
        stalled.set()
        await asyncio.Event().wait()

    async def slow() -> None:
        with stored.feed.subscribe(0) as subscription:
            while True:
                for entry in await subscription.next():
                    await subscription.hand_over(entry, stall())

    reading = asyncio.ensure_future(slow())
    await asyncio.sleep(0.01)
    stored.publish(1)
    await stalled.wait()
    quick = asyncio.ensure_future(take(stored.feed, 0, LAG + 2))
    stored.publish(LAG + 1)
    assert await asyncio.wait_for(quick, 20) == list(range(1, LAG + 3))
    with pytest.raises(TooSlowError, match="subscribe again with cursor 0"):
        await asyncio.wait_for(reading, 10)
    assert stored.feed.subscribers == 0


async def test_a_cursor_that_never_was_is_refused() -> None:
    with pytest.raises(ValueError, match="cursor 5 is newer than the newest event, 4"), Stored(4).feed.subscribe(5):
        pass


def test_an_event_is_made_into_json_once() -> None:
    stored = Stored()
    stored.publish(1)
    (entry,) = stored.feed.kept(0) or []
    assert entry.json is entry.json
    assert b'"cursor": "1"' in entry.json


def test_what_one_party_has_for_itself_counts_as_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "OF_ONE_ADDRESS", 1)
    feed = Stored().feed
    with feed.subscribe(0, address="2001:db8::1"):
        with pytest.raises(TooManyError), feed.subscribe(0, address="2001:db8::2"):
            pass
        with feed.subscribe(0, address="2001:db8:0:1::1"), feed.subscribe(0, address="10.0.0.1"):
            assert feed.subscribers == 3
    with feed.subscribe(0, address="2001:db8::2"):
        assert feed.subscribers == 1

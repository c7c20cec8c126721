import asyncio
import contextlib
import random

import pytest
from harness.eventually import eventually

from embereye.hub.feeds import feed as feed_module
from embereye.hub.feeds.feed import (
    BATCH,
    LAG,
    RETAINED_EVENTS,
    ClosedError,
    Entry,
    Feed,
    FutureCursorError,
    Subscription,
    TooManyError,
    TooSlowError,
)
from embereye.hub.tables.selection import EVERYTHING, Selection
from embereye.v1.alarms_pb2 import AlarmEvent, FollowResponse


def events(first: int, last: int, zone: str = "hall") -> list[AlarmEvent]:
    return [AlarmEvent(cursor=n, namespace="default", zone=zone) for n in range(first, last + 1)]


class Stored:
    """A feed with a list as its store."""

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


async def receive(feed: Feed, after: int, count: int, zones: tuple[str, ...] = ()) -> list[int]:
    seen: list[int] = []

    async def send(entry: Entry) -> None:
        await asyncio.sleep(0)
        seen.append(entry.event.cursor)

    with feed.subscribe(after, Selection(zones=frozenset(zones))) as subscription:
        while len(seen) < count:
            await subscription.deliver(send)
    return seen


async def test_history_continues_into_live_events_without_gap_or_duplicate() -> None:
    stored = Stored(3 * BATCH)
    reading = asyncio.ensure_future(receive(stored.feed, 7, 3 * BATCH + 500 - 7))
    for _ in range(50):
        await asyncio.sleep(0.001)
        stored.publish(10)
    assert await asyncio.wait_for(reading, 20) == list(range(8, 3 * BATCH + 501))


async def test_recent_events_are_served_from_memory() -> None:
    stored = Stored()
    stored.publish(5)
    assert await receive(stored.feed, 2, 3) == [3, 4, 5]
    assert stored.reads == 0


async def test_events_that_left_memory_come_from_the_store() -> None:
    stored = Stored()
    stored.publish(RETAINED_EVENTS + 10)
    assert (await receive(stored.feed, 3, 4))[:4] == [4, 5, 6, 7]
    assert stored.reads >= 1


async def test_a_subscriber_whose_events_were_deleted_continues_with_the_next() -> None:
    stored = Stored(50)
    stored.events.clear()
    reading = asyncio.ensure_future(receive(stored.feed, 10, 1))
    await asyncio.sleep(0.01)
    stored.publish(1)
    assert await asyncio.wait_for(reading, 10) == [51]


async def test_a_subscriber_to_one_zone_receives_no_events_of_others() -> None:
    stored = Stored()
    reading = asyncio.ensure_future(receive(stored.feed, 0, 2, ("default/attic",)))
    for zone in ("hall", "attic", "hall", "attic"):
        await asyncio.sleep(0.005)
        stored.publish(1, zone)
    assert await asyncio.wait_for(reading, 10) == [2, 4]


async def test_a_slow_subscriber_is_ended_with_its_cursor_and_delays_nobody() -> None:
    stored = Stored()
    stalled = asyncio.Event()

    async def stall(_: Entry) -> None:
        stalled.set()
        await asyncio.Event().wait()

    async def slow() -> None:
        with stored.feed.subscribe(0) as subscription:
            await subscription.deliver(stall)

    reading = asyncio.ensure_future(slow())
    await asyncio.sleep(0.01)
    stored.publish(1)
    await stalled.wait()
    quick = asyncio.ensure_future(receive(stored.feed, 0, LAG + 2))
    stored.publish(LAG + 1)
    assert await asyncio.wait_for(quick, 20) == list(range(1, LAG + 3))
    with pytest.raises(TooSlowError, match="subscribe again with cursor 0"):
        await asyncio.wait_for(reading, 10)
    assert stored.feed.subscribers == 0


@pytest.mark.parametrize("number", [LAG + 1, 2 * RETAINED_EVENTS])
async def test_a_subscriber_that_has_caught_up_survives_a_large_burst(number: int) -> None:
    stored = Stored()
    reading = asyncio.ensure_future(receive(stored.feed, 0, number + 2))
    stored.publish(1)
    while stored.feed.lag or not stored.feed.subscribers:
        await asyncio.sleep(0)
    stored.publish(number)
    stored.publish(1)
    assert await asyncio.wait_for(reading, 20) == list(range(1, number + 3))


async def test_a_future_cursor_is_refused() -> None:
    refused = pytest.raises(FutureCursorError, match="cursor 5 is newer than the newest event, 4")
    with refused, Stored(4).feed.subscribe(5):
        pass


@pytest.mark.parametrize("size", [1, 200, 70_000])
def test_an_event_is_serialised_and_framed_once_for_all_subscribers(size: int) -> None:
    entry = Entry(AlarmEvent(cursor=1, why="x" * size))
    assert entry.text_frame is entry.text_frame
    assert entry.binary_frame is entry.binary_frame
    assert entry.follow_response is entry.follow_response
    assert b'"cursor": "1"' in entry.json
    assert FollowResponse.FromString(entry.follow_response) == FollowResponse(event=entry.event)
    assert unframed(entry.text_frame) == (0x81, entry.json)
    assert unframed(entry.binary_frame) == (0x82, entry.binary)
    assert AlarmEvent.FromString(entry.binary) == entry.event


def unframed(data: bytes) -> tuple[int, bytes]:
    """Split a WebSocket frame into its first byte and its content."""
    start = {126: 4, 127: 10}.get(data[1], 2)
    length = int.from_bytes(data[2:start]) if start > 2 else data[1]
    assert len(data) == start + length
    return data[0], data[start:]


# Pushed


class Sink:
    """A subscriber's connection, with room for `room` writes."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.data: list[bytes] = []

    def write(self, data: bytes) -> bool:
        if self.room <= 0:
            return False
        self.room -= 1
        self.data.append(data)
        return True


async def follow(subscription: Subscription, sink: Sink, seen: list[int]) -> None:
    """Deliver or push events as the WebSocket does."""

    async def send(entry: Entry) -> None:
        if not len(seen) % 8:
            await asyncio.sleep(0)
        sink.data.append(entry.binary_frame)
        seen.append(entry.event.cursor)

    while True:
        if subscription.caught_up:
            await subscription.push("binary_frame", sink.write)
        else:
            await subscription.deliver(send)


def cursors(sink: Sink) -> list[int]:
    data, numbers, position = b"".join(sink.data), list[int](), 0
    while position < len(data):
        end = position + 2 + data[position + 1]
        numbers.append(AlarmEvent.FromString(data[position + 2 : end]).cursor)
        position = end
    return numbers


async def test_subscribers_with_the_same_selection_are_written_the_same_bytes() -> None:
    stored, sinks = Stored(), [Sink(), Sink(), Sink()]
    with contextlib.ExitStack() as stack:
        running = []
        for sink, zone in zip(sinks, ("hall", "hall", "attic"), strict=True):
            wanted = Selection(zones=frozenset({zone}))
            subscription = stack.enter_context(stored.feed.subscribe(0, wanted))
            running.append(asyncio.ensure_future(follow(subscription, sink, [])))
        await asyncio.sleep(0.01)
        stored.publish(3)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert cursors(sinks[0]) == [1, 2, 3]
    assert sinks[0].data[0] is sinks[1].data[0]
    assert len(sinks[0].data) == 1
    assert sinks[2].data == []
    assert stored.feed.delivered == 6


async def test_a_subscriber_without_room_fetches_events_and_is_then_pushed_to_again() -> None:
    stored, sink, received = Stored(), Sink(room=2), list[int]()
    with stored.feed.subscribe(0) as subscription:
        running = asyncio.ensure_future(follow(subscription, sink, received))
        await asyncio.sleep(0.01)
        for _ in range(4):
            stored.publish(1)
            stored.feed.flush()
        assert stored.feed.lag == 2
        sink.room = 10**9
        await eventually(lambda: (stored.feed.lag, received) == (0, [3, 4]))
        stored.publish(2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert cursors(sink) == [1, 2, 3, 4, 5, 6]


async def test_events_in_quick_succession_share_a_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_module, "GATHER_SECONDS", 100.0)
    monkeypatch.setattr(feed_module, "GATHER_MAX_SECONDS", 0.2)
    stored, sink, late = Stored(), Sink(), Sink()
    with stored.feed.subscribe(0) as subscription, stored.feed.subscribe(0) as joining:
        running = [asyncio.ensure_future(follow(subscription, sink, []))]
        await asyncio.sleep(0.01)
        for _ in range(3):
            stored.publish(1)
        assert cursors(sink) == [1], "the first event after a pause does not wait"
        assert (stored.feed.latest, subscription.position, subscription.caught_up) == (3, 1, False)
        while cursors(sink) != [1, 2, 3]:
            await asyncio.sleep(0.01)
        assert [len(data) for data in sink.data] == [len(sink.data[0]), 2 * len(sink.data[0])]

        stored.publish(2)  # while these wait, a subscriber joins, another changes its selection, and the hub stops
        running.append(asyncio.ensure_future(follow(joining, late, [])))
        while not joining.pushed:
            await asyncio.sleep(0)
        assert cursors(sink) == cursors(late) == [1, 2, 3, 4, 5]
        stored.publish(1)
        assert subscription.select(Selection(zones=frozenset({"attic"}))) == 6
        stored.publish(1)
        stored.feed.close()
        results = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(result, ClosedError) for result in results)
    assert (cursors(sink), cursors(late)) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7])


# Selections


async def test_a_selection_changes_between_two_events_pushed_or_fetched() -> None:
    for pushed in (True, False):
        stored, sink = Stored(), Sink()
        with stored.feed.subscribe(0, Selection(zones=frozenset({"hall"}))) as subscription:
            if pushed:
                running = asyncio.ensure_future(follow(subscription, sink, []))
                await asyncio.sleep(0.01)
            for zone in ("hall", "attic"):
                stored.publish(2, zone)
            if not pushed:
                running = asyncio.ensure_future(follow(subscription, sink, []))
                await asyncio.sleep(0.01)
            assert subscription.select(Selection(zones=frozenset({"attic"}))) == 4
            for zone in ("hall", "attic"):
                stored.publish(2, zone)
            await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert cursors(sink) == [1, 2, 7, 8]


async def test_an_event_of_a_new_selection_is_not_lost_in_the_previous_batch() -> None:
    stored, seen = Stored(), list[int]()
    for zone in ("hall", "attic", "hall"):
        stored.publish(1, zone)
    with stored.feed.subscribe(0, Selection(zones=frozenset({"hall"}))) as subscription:

        async def send(entry: Entry) -> None:
            seen.append(entry.event.cursor)
            if len(seen) == 1:
                assert subscription.select(Selection(zones=frozenset({"attic"}))) == 1

        await subscription.deliver(send)
        await subscription.deliver(send)
    assert seen == [1, 2]


# Far behind


async def test_a_coalescing_subscriber_far_behind_gets_the_newest_of_each_zone_and_device() -> None:
    stored, seen = Stored(), list[Entry]()

    async def send(entry: Entry) -> None:
        seen.append(entry)

    with stored.feed.subscribe(0, coalescing=True) as subscription:
        for number in range(LAG):
            stored.publish(1, f"zone-{number % 7}")
        fault = AlarmEvent(cursor=LAG + 1, namespace="default", zone="zone-0", type=AlarmEvent.TYPE_FAULT)
        fault.fault.device = "s-1"
        stored.feed.publish([fault])
        await subscription.deliver(send)
        assert subscription.caught_up
    assert [entry.event.cursor for entry in seen] == list(range(LAG - 6, LAG + 2))
    assert sum(entry.event.coalesced + 1 for entry in seen) == LAG + 1


async def test_waiting_subscribers_end_immediately_when_the_hub_stops() -> None:
    stored = Stored(3)
    with contextlib.ExitStack() as stack:
        waiting = []
        for number in range(8):
            subscription = stack.enter_context(stored.feed.subscribe(3))
            wait = subscription.next() if number % 2 else subscription.push("text_frame", Sink().write)
            waiting.append(asyncio.ensure_future(wait))
        await asyncio.sleep(0.01)
        stored.feed.close()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        for error in ended[1::2]:
            assert isinstance(error, ClosedError)
            assert "subscribe again with cursor 3" in str(error)
        with pytest.raises(ClosedError):
            await subscription.next()


async def test_each_subscriber_receives_each_event_once_and_in_order(debugged: bool) -> None:
    # In debug mode, records about coroutines take ten times as long as the feed itself.
    producers, consumers, number = 16, 16, 10_000 if debugged else 50_000
    stored, dice = Stored(), random.Random(5)
    seen: list[list[int]] = [[] for _ in range(consumers)]
    sinks = [Sink(room=dice.randrange(500)) for _ in range(consumers // 2)]

    async def produce() -> None:
        while stored.feed.latest < number:
            stored.publish(min(dice.randrange(1, 100), number - stored.feed.latest))
            for sink in sinks:
                sink.room = dice.randrange(500)
            await asyncio.sleep(0)
            while stored.feed.lag > LAG // 2:
                await asyncio.sleep(0.001)

    async def consume(mine: list[int]) -> None:
        async def send(entry: Entry) -> None:
            mine.append(entry.event.cursor)
            if not len(mine) % 64:
                await asyncio.sleep(0)

        with stored.feed.subscribe(0) as subscription, contextlib.suppress(ClosedError):
            while True:
                await subscription.deliver(send)

    with contextlib.ExitStack() as stack:
        running = [asyncio.ensure_future(consume(mine)) for mine in seen[: consumers // 2]]
        followed = [stack.enter_context(stored.feed.subscribe(0)) for _ in sinks]
        running += [asyncio.ensure_future(follow(*pair, [])) for pair in zip(followed, sinks, strict=True)]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*(produce() for _ in range(producers))), 100)
        while stored.feed.lag:
            await asyncio.sleep(0.001)
        stored.feed.close()
        await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 60)
    everything = list(range(1, number + 1))
    assert all(mine == everything for mine in seen[: consumers // 2])
    assert all(cursors(sink) == everything for sink in sinks)


def test_addresses_of_the_same_client_count_as_one() -> None:
    feed = Stored().feed
    feed.max_per_address = 1
    with feed.subscribe(0, address="2001:db8::1"):
        with pytest.raises(TooManyError), feed.subscribe(0, address="2001:db8::2"):
            pass
        with feed.subscribe(0, address="2001:db8:0:1::1"), feed.subscribe(0, address="10.0.0.1"):
            assert feed.subscribers == 3
    with feed.subscribe(0, address="2001:db8::2"):
        assert feed.subscribers == 1


async def test_unstored_events_come_on_request_without_a_cursor_and_again_once_stored() -> None:
    stored, sink, plain = Stored(), Sink(), Sink()
    received = list[tuple[int, bool]]()

    async def receive_all(subscription: Subscription) -> None:
        async def send(entry: Entry) -> None:
            received.append((entry.public_event.cursor, entry.public_event.unstored))

        while True:
            await subscription.deliver(send)

    with (
        stored.feed.subscribe(0, unstored=True) as pushed,
        stored.feed.subscribe(0) as stored_only,
        stored.feed.subscribe(0, unstored=True) as pulled,
    ):
        running = [
            asyncio.ensure_future(follow(pushed, sink, [])), asyncio.ensure_future(follow(stored_only, plain, [])),
            asyncio.ensure_future(receive_all(pulled)),
        ]  # fmt: skip
        await asyncio.sleep(0.01)
        stored.publish(1)
        new = events(2, 3)
        stored.feed.publish_unstored(new[:1])
        stored.feed.publish_unstored(new[1:])
        await asyncio.sleep(0.01)
        with stored.feed.subscribe(1, unstored=True) as late:
            running.append(asyncio.ensure_future(receive_all(late)))
            await eventually(lambda: received == [(1, False), (0, True), (0, True), (0, True), (0, True)])
            assert pulled.position == 1, "nobody can continue from an unstored event"
            stored.publish(2)
            await asyncio.sleep(0.05)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    assert sorted(received[5:]) == [(2, False), (2, False), (3, False), (3, False)]
    assert cursors(sink) == [1, 0, 0, 2, 3]
    assert cursors(plain) == [1, 2, 3]
    assert stored.feed.unstored.since(0) == []


async def test_an_unstored_event_of_a_new_selection_is_not_lost_in_the_previous_batch() -> None:
    feed, zones = Stored().feed, list[str]()
    with feed.subscribe(0, Selection(zones=frozenset({"hall"})), unstored=True) as subscription:

        async def send(entry: Entry) -> None:
            zones.append(entry.event.zone)
            subscription.select(EVERYTHING)

        feed.publish_unstored([*events(1, 2), *events(3, 3, "attic")])
        await subscription.deliver(send)
        await asyncio.wait_for(subscription.deliver(send), 10)
    assert zones == ["hall", "hall", "attic"]


async def test_a_subscriber_without_room_fetches_unstored_events() -> None:
    stored, sink, received = Stored(), Sink(room=1), list[int]()
    with stored.feed.subscribe(0, unstored=True) as subscription:
        running = asyncio.ensure_future(follow(subscription, sink, received))
        await asyncio.sleep(0.01)
        stored.publish(1)
        stored.feed.publish_unstored(events(2, 3))
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (cursors(sink), received) == ([1, 0, 0], [2, 3])


async def test_only_the_newest_unstored_events_are_retained() -> None:
    stored = Stored()
    stored.feed.publish_unstored(events(1, RETAINED_EVENTS + 10))
    retained = stored.feed.unstored.since(0)
    assert (retained[0].event.cursor, retained[-1].event.cursor) == (11, RETAINED_EVENTS + 10)

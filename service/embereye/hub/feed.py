"""Alarm events for any number of subscribers: each continues by its own cursor, none delays another.

A subscriber is a position, not a queue: it takes what follows from the events kept in memory, or from the store where
it is further behind. So nothing is buffered for it, and from history to live there is no seam to lose an event in.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice

from google.protobuf import json_format

from embereye.process.addresses import place_of
from embereye.v1.alarms_pb2 import AlarmEvent

KEPT = 4_096  # events in memory
BATCH = 256  # events handed over at once
LAG = 1_024  # events that a live subscriber may fall behind
STALL_SECONDS = 20.0  # that one event may take to be handed over
SUBSCRIBERS = 2_000
OF_ONE_ADDRESS = SUBSCRIBERS // 2  # a proxy is one address for all behind it

History = Callable[[int, int], Awaitable[list[AlarmEvent]]]  # (after, limit) → ascending events


class TooSlowError(Exception):
    """The subscriber does not keep up; says how to go on."""


class TooManyError(Exception):
    """There are as many subscribers as the hub serves."""


class Entry:
    """One event and, made once for all subscribers, its JSON."""

    def __init__(self, event: AlarmEvent) -> None:
        self.event = event

    @cached_property
    def json(self) -> bytes:
        """One line of protobuf JSON in UTF-8."""
        return json_format.MessageToJson(self.event, indent=None, ensure_ascii=False).encode()


class Subscription:
    """One subscriber's place in the feed."""

    def __init__(self, feed: "Feed", position: int, zones: frozenset[str]) -> None:
        self._feed = feed
        self._zones = zones
        self.position = position  # everything up to here was handed over or filtered out
        self.live = position >= feed.latest  # it has caught up once
        self.overrun = asyncio.Event()

    async def next(self) -> list[Entry]:
        """What comes next, at least one entry; waits for it."""
        while True:
            latest = self._feed.latest
            if self.position >= latest:
                self.live = True
                await self._feed.published()
                continue
            entries = self._feed.kept(self.position)
            if entries is None:
                entries = await self._feed.stored(self.position, latest)
            if wanted := [entry for entry in entries if self._wants(entry.event)]:
                return wanted
            # Nothing for this subscriber, or retention took all of it.
            self.position = entries[-1].event.cursor if entries else latest

    def _wants(self, event: AlarmEvent) -> bool:
        return not self._zones or event.zone in self._zones or f"{event.namespace}/{event.zone}" in self._zones

    async def hand_over(self, entry: Entry, write: Awaitable[None]) -> None:
        """Await `write`, which sends `entry`; TooSlowError where it stalls or the feed runs away from it."""
        # Both end in this function, which is what every event costs every subscriber: the least that does it.
        writing = asyncio.ensure_future(write)  # noqa: TID251 -- see above
        overrun = asyncio.ensure_future(self.overrun.wait())  # noqa: TID251 -- see above
        try:
            await asyncio.wait({writing, overrun}, timeout=STALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise TooSlowError(f"this subscriber does not keep up: subscribe again with cursor {self.position}")
            await writing
        finally:
            overrun.cancel()
            writing.cancel()
        self.position = entry.event.cursor


class Feed:
    """Publishes events that are durable, in order."""

    def __init__(self, latest: int, history: History) -> None:
        self.latest = latest  # cursor of the newest event
        self._history = history
        self._kept: deque[Entry] = deque(maxlen=KEPT)
        self._subscriptions: set[Subscription] = set()
        self._addresses: Counter[str] = Counter()  # of the subscribers
        self._next = asyncio.Event()

    @property
    def subscribers(self) -> int:
        """How many there are now."""
        return len(self._subscriptions)

    @property
    def lag(self) -> int:
        """How many events the subscriber that is furthest behind has not been given."""
        return max((self.latest - subscription.position for subscription in self._subscriptions), default=0)

    def publish(self, events: Sequence[AlarmEvent]) -> None:
        """Hand `events`, which continue the cursor, to all subscribers."""
        if not events:
            return
        self._kept.extend(Entry(event) for event in events)
        self.latest = events[-1].cursor
        for subscription in self._subscriptions:
            if subscription.live and self.latest - subscription.position > LAG:
                subscription.overrun.set()
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def published(self) -> None:
        """Wait for the next `publish`."""
        await self._next.wait()

    def kept(self, position: int) -> list[Entry] | None:
        """The next entries past `position` where memory still holds all of them, else None."""
        if not self._kept or position + 1 < (oldest := self._kept[0].event.cursor):
            return None
        start = position + 1 - oldest  # cursors have no gaps
        return list(islice(self._kept, start, start + BATCH))

    async def stored(self, position: int, latest: int) -> list[Entry]:
        """The next entries past `position` up to `latest`, from the store."""
        return [Entry(event) for event in await self._history(position, BATCH) if event.cursor <= latest]

    @contextmanager
    def subscribe(self, after: int, zones: Sequence[str] = (), address: str = "") -> Iterator[Subscription]:
        """A subscription of `address` that continues past cursor `after`; ValueError where there never was such one.

        TooManyError where there are too many, in all or of that address.
        """
        address = place_of(address)
        if after > self.latest:
            raise ValueError(f"cursor {after} is newer than the newest event, {self.latest}: start again with cursor 0")
        if len(self._subscriptions) >= SUBSCRIBERS:
            raise TooManyError(f"there are {SUBSCRIBERS} subscribers already: try again later")
        if address and self._addresses[address] >= OF_ONE_ADDRESS:
            raise TooManyError(f"there are {OF_ONE_ADDRESS} subscribers at {address} already: others need room, too")
        subscription = Subscription(self, after, frozenset(zones))
        self._subscriptions.add(subscription)
        self._addresses[address] += 1
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

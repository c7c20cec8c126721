"""Alarm events for any number of subscribers: each continues by its own cursor, none delays another.

A subscriber is a position, not a queue: it is given what follows from the events kept in memory, or from the store
where it is further behind. So nothing is buffered for it, and from history to live no event falls in between. One that
has caught up can have events pushed: an event is then serialised and framed once, for all who want it alike, and
written to each as it is published. Where events come so fast that writing them one by one would take half of a core
or more, those of some milliseconds are written at once: what costs is the write, not its bytes.

While the hub can store nothing, whoever asked for that is told what happens all the same: of an alarm that nobody may
rely on yet, as it has no cursor, and is told once more when it is stored.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Literal

from google.protobuf import json_format

from embereye.hub.feeds.selection import EVERYTHING, Selection
from embereye.process.addresses import place_of
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.wire.delimited import varint

KEPT = 4_096  # events in memory
BATCH = 256  # events handed over at once
LAG = 1_024  # events that a live subscriber may fall behind
GATHER_SECONDS = 10e-6  # for each who has events pushed, from one write to the next: twice what a write takes
GATHER_MOST_SECONDS = 0.02
STALL_SECONDS = 20.0  # that a batch may take to be handed over
ALIVE_LEAST_MS = 1_000  # from one sign that the hub is there to the next
SUBSCRIBERS = 6_000
OF_ONE_ADDRESS = SUBSCRIBERS // 2  # a proxy is one address for all behind it

TEXT, BINARY = 0x81, 0x82  # first byte of a whole WebSocket frame (RFC 6455, section 5.2)
FOLLOWED = b"\x0a"  # tag of FollowResponse.event

History = Callable[[int, int], Awaitable[list[AlarmEvent]]]  # (after, limit) → ascending events
Form = Literal["text_frame", "binary_frame"]  # that a subscriber has events pushed in
Group = tuple[Selection, Form, bool]  # of subscribers that are pushed the same, also what is not stored or not
Write = Callable[[bytes], bool]  # False, and nothing written, where there is no room


class TooSlowError(Exception):
    """The subscriber does not keep up; says how to go on."""


class TooManyError(Exception):
    """There are as many subscribers as the hub serves."""


class FutureCursorError(ValueError):
    """There never was an event of that cursor."""


class ClosedError(Exception):
    """The hub stops; says how to go on."""


def alive_seconds(told_ms: int) -> float:
    """How often a subscriber is to be told that the hub is there, in seconds, of what it asked for; 0: never.

    ValueError where that is too often.
    """
    if 0 < told_ms < ALIVE_LEAST_MS:
        raise ValueError(f"alive: {told_ms} ms is less than {ALIVE_LEAST_MS} ms, which is the least")
    return told_ms / 1_000


def frame(first: int, payload: bytes) -> bytes:
    """`payload` as one WebSocket frame of a server, which masks nothing; `first` is its first byte."""
    length = len(payload)
    if length < 126:
        return bytes((first, length)) + payload
    if length < 65_536:
        return bytes((first, 126)) + length.to_bytes(2) + payload
    return bytes((first, 127)) + length.to_bytes(8) + payload


class Entry:
    """One event and, made once for all subscribers, what they are sent of it."""

    def __init__(self, event: AlarmEvent, *, unstored: bool = False) -> None:
        self.event = event
        self.unstored = unstored

    @cached_property
    def told(self) -> AlarmEvent:
        """The event as subscribers get it: by the cursor of what is not stored nobody can go on."""
        if not self.unstored:
            return self.event
        told = AlarmEvent()
        told.CopyFrom(self.event)
        told.cursor, told.unstored = 0, True
        return told

    @property
    def json(self) -> bytes:
        """One line of protobuf JSON in UTF-8."""
        return self._unframed(self.text_frame)

    @cached_property
    def text_frame(self) -> bytes:
        """Its JSON as a WebSocket frame."""
        text = json_format.MessageToJson(self.told, indent=None, ensure_ascii=False)
        return frame(TEXT, text.encode())

    @cached_property
    def binary(self) -> bytes:
        """As protobuf has it on the wire."""
        return self.told.SerializeToString()

    @cached_property
    def binary_frame(self) -> bytes:
        """`binary` as a WebSocket frame."""
        return frame(BINARY, self.binary)

    @cached_property
    def followed(self) -> bytes:
        """A FollowResponse that has it, as protobuf has that on the wire."""
        return FOLLOWED + varint(len(self.binary)) + self.binary

    def payload(self, form: Form) -> bytes:
        """What is in the frame `form`."""
        return self.json if form == "text_frame" else self.binary

    @staticmethod
    def _unframed(framed: bytes) -> bytes:
        return framed[{126: 4, 127: 10}.get(framed[1], 2) :]


def coalesce(entries: Sequence[Entry]) -> list[Entry]:
    """The newest of each kind of `entries`, which says how many it stands for: what a zone, or a device in it, is now.

    The order is that of their cursors. Whoever wants every event asks the history.
    """
    newest: dict[tuple[str, ...], Entry] = {}
    count: Counter[tuple[str, ...]] = Counter()
    for entry in entries:
        event = entry.event
        what = {AlarmEvent.TYPE_STATE: "signs", AlarmEvent.TYPE_EVIDENCE: "signs", AlarmEvent.TYPE_TEST: "test",
                AlarmEvent.TYPE_SILENCE: "silence"}  # fmt: skip
        device = event.silence.device if event.type == AlarmEvent.TYPE_SILENCE else event.fault.device
        key = (event.namespace, event.zone, what.get(event.type, "fault"), device)
        count[key] += 1
        newest.pop(key, None)
        newest[key] = entry
    return [entry if count[key] == 1 else _standing_for(entry, count[key]) for key, entry in newest.items()]


def _standing_for(entry: Entry, number: int) -> Entry:
    event = AlarmEvent()
    event.CopyFrom(entry.event)
    event.coalesced = number - 1
    return Entry(event)


class Subscription:
    """One subscriber's place in the feed."""

    def __init__(self, feed: "Feed", position: int, selection: Selection, *, coalescing: bool, unstored: bool) -> None:
        self._feed = feed
        self._coalescing = coalescing
        self._unstored = unstored
        self._seen = feed.unstored.start  # of what is not stored, counted since the hub's start
        self._position = position
        self._live = position >= feed.latest  # it has caught up since it was away, or since very much came at once
        self._overrun = False
        self._patience: asyncio.Timeout | None = None  # of what is being handed over
        self._sending = 0  # cursor of that
        self._pushed: tuple[Form, Write] | None = None
        self._behind = asyncio.Event()  # while pushed: it no longer keeps up
        self.group: Group | None = None  # that it has events pushed with
        self.selection = selection

    @property
    def position(self) -> int:
        """Everything up to here was handed over or filtered out."""
        return self._feed.handed if self._pushed else self._position

    @property
    def caught_up(self) -> bool:
        """Whether there is nothing to be handed over now."""
        return self.position >= self._feed.latest and not self._missed()

    def _missed(self) -> list[Entry]:
        """What is not stored and was not handed over."""
        return self._feed.unstored.past(self._seen) if self._unstored and not self._pushed else []

    def select(self, selection: Selection) -> int:
        """Want `selection` from now on; returns the cursor of the last event that was chosen by the one before."""
        if self._pushed:
            self._feed.flush()
        self.selection = selection
        if self._pushed:
            self._feed.regroup(self)
        return max(self.position, self._sending)

    async def next(self) -> list[Entry]:
        """What comes next, at least one entry; waits for it. ClosedError where nothing comes any more."""
        while True:
            feed, latest = self._feed, self._feed.latest
            if feed.closed:
                raise ClosedError(f"the hub stops: subscribe again with cursor {self.position}")
            if self._position >= latest:
                self._live = True
                missed, self._seen = self._missed(), feed.unstored.end
                if wanted := [entry for entry in missed if self.selection.wants(entry.event)]:
                    return wanted
                await feed.published()
                continue
            far = self._coalescing and latest - self._position > BATCH
            entries = feed.kept(self._position, KEPT if far else BATCH)
            if entries is None:
                entries = await feed.stored(self._position, latest)
            if wanted := [entry for entry in entries if self.selection.wants(entry.event)]:
                return coalesce(wanted) if far else wanted
            # Nothing for this subscriber, or retention took all of it.
            self._position = entries[-1].event.cursor if entries else latest

    async def deliver(self, send: Callable[[Entry], Awaitable[None]]) -> None:
        """Have `send` send what comes next. TooSlowError where that stalls, or the feed runs away from it."""
        entries, chosen = await self.next(), self.selection
        try:
            async with asyncio.timeout(STALL_SECONDS) as self._patience:
                for entry in entries:
                    if self._overrun:
                        raise self._too_slow()
                    if self.selection is not chosen:  # the rest was chosen by what it wanted a moment ago
                        self._seen = min(self._seen, self._feed.unstored.number(entry))
                        return
                    if entry.unstored:
                        await send(entry)
                        continue
                    self._sending = entry.event.cursor
                    await send(entry)
                    self._position = self._sending
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            self._patience = None

    def advance(self, cursor: int) -> None:
        """What `next` gave was handed over up to `cursor`."""
        self._position = cursor

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(f"this subscriber does not keep up: subscribe again with cursor {self._position}")

    async def push(self, form: Form, write: Write) -> None:
        """Have `write` called with all that follows, as it is published, until it says that there is no room.

        To be called when it has caught up, and without anything awaited in between. ClosedError as of `next`.
        """
        if self._feed.closed:
            raise ClosedError(f"the hub stops: subscribe again with cursor {self.position}")
        self._feed.flush()  # what this one has already
        self._live = True
        self._behind.clear()
        self._pushed = form, write
        self._feed.regroup(self)
        try:
            await self._behind.wait()
        finally:
            self.stop_pushing(self._feed.handed, self._feed.unstored.end)

    def stop_pushing(self, position: int, seen: int) -> None:
        """It no longer keeps up from `position` on, and of what is not stored from `seen` on."""
        if self._pushed:
            self._feed.leave(self)
            self._pushed = None
            self._position, self._seen = position, seen
            self._behind.set()

    def fell_behind(self, before: int, latest: int) -> None:
        """The feed has gone on from `before` to `latest`: notice whether that is too far away."""
        if self._live and not self._coalescing and latest - self.position > LAG:
            if self.position >= before:
                self._live = False  # so much came at once: it has to catch up, as whoever comes back
                return
            self._overrun = True
            if self._patience is not None:
                self._patience.reschedule(asyncio.get_running_loop().time())

    @property
    def pushed(self) -> tuple[Form, Write] | None:
        """How it has events pushed; None: it takes them."""
        return self._pushed

    @property
    def takes_unstored(self) -> bool:
        """Whether it is told what is not stored, too."""
        return self._unstored


class Unstored:
    """What happened and cannot be stored for now, the newest of it: counted since the hub's start."""

    def __init__(self) -> None:
        self.start = 0  # number of the first that is kept
        self._entries: list[Entry] = []

    @property
    def end(self) -> int:
        """Number of the next."""
        return self.start + len(self._entries)

    def past(self, seen: int) -> list[Entry]:
        """Those from number `seen` on."""
        return self._entries[max(0, seen - self.start) :]

    def holds(self, entry: Entry) -> bool:
        """Whether `entry` is not stored yet."""
        return entry in self._entries

    def number(self, entry: Entry) -> int:
        """The number of `entry`, or of the next one where it is stored."""
        return self.start + self._entries.index(entry) if self.holds(entry) else self.end

    def add(self, entries: Sequence[Entry]) -> None:
        """So much more."""
        self._entries += entries
        self._forget(len(self._entries) - KEPT)

    def stored(self) -> None:
        """All of it is stored now."""
        self._forget(len(self._entries))

    def _forget(self, number: int) -> None:
        if number > 0:
            self.start += number
            del self._entries[:number]


class Feed:
    """Publishes events that are durable, in order."""

    def __init__(self, latest: int, history: History) -> None:
        self.latest = latest  # cursor of the newest event
        self.closed = False
        self.delivered = 0  # events written to subscribers that have them pushed
        self.unstored = Unstored()
        self._history = history
        self._kept: deque[Entry] = deque(maxlen=KEPT)
        self._gathered: list[Entry] = []  # that are still to be pushed
        self._gathering: asyncio.TimerHandle | None = None  # until when
        self._free = 0.0  # by the loop's clock: from when on what is published is pushed at once
        self._subscriptions: set[Subscription] = set()
        self._pulling: set[Subscription] = set()  # those that take events
        self._groups: dict[Group, dict[Subscription, Write]] = {}  # those that have them pushed
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
        """Hand `events`, which continue the cursor, to all subscribers. What was not stored is: it is among them."""
        self.unstored.stored()
        if not events:
            return
        before, entries = self.latest, [Entry(event) for event in events]
        self._kept.extend(entries)
        self._gathered += entries
        self.latest = events[-1].cursor
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._free:
                self.flush()
            else:
                self._gathering = loop.call_at(self._free, self.flush)
        for subscription in self._pulling:
            subscription.fell_behind(before, self.latest)
        self._wake()

    def publish_unstored(self, events: Sequence[AlarmEvent]) -> None:
        """Hand `events`, which cannot be stored for now, to those subscribers who asked for that."""
        if not events:
            return
        self.flush()
        before, entries = self.unstored.end, [Entry(event, unstored=True) for event in events]
        self.unstored.add(entries)
        self._push(entries, self.handed, before)
        self._wake()

    def newest(self) -> list[AlarmEvent]:
        """The events that are in memory and stored, ascending."""
        return [entry.event for entry in self._kept]

    @property
    def handed(self) -> int:
        """Everything up to this cursor was pushed to those who have events pushed."""
        return self._gathered[0].event.cursor - 1 if self._gathered else self.latest

    def flush(self) -> None:
        """Push what is still to be pushed."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if not self._gathered:
            return
        number = sum(map(len, self._groups.values()))
        self._free = asyncio.get_running_loop().time() + min(GATHER_SECONDS * number, GATHER_MOST_SECONDS)
        before, entries, self._gathered = self.handed, self._gathered, []
        self._push(entries, before, self.unstored.end)

    def _push(self, entries: Sequence[Entry], before: int, seen: int) -> None:
        behind: list[Subscription] = []
        for (selection, form, unstored), members in self._groups.items():
            wanted = [entry for entry in entries if selection.wants(entry.event) and (unstored or not entry.unstored)]
            if not wanted:
                continue
            data = b"".join([getattr(entry, form) for entry in wanted])
            for subscription, write in members.items():
                if not write(data):
                    behind.append(subscription)
            self.delivered += len(wanted) * len(members)
        for subscription in behind:
            subscription.stop_pushing(before, seen)

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    def close(self) -> None:
        """End all subscriptions: who waits gets ClosedError."""
        self.flush()
        self.closed = True
        for subscription in list(self._subscriptions):
            subscription.stop_pushing(self.latest, self.unstored.end)
        self._wake()

    def regroup(self, subscription: Subscription) -> None:
        """Push to `subscription` from now on what is in its selection."""
        assert subscription.pushed
        self.leave(subscription)
        form, write = subscription.pushed
        subscription.group = subscription.selection, form, subscription.takes_unstored
        self._groups.setdefault(subscription.group, {})[subscription] = write
        self._pulling.discard(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Push nothing more to `subscription`."""
        members = self._groups.get(subscription.group, {}) if subscription.group else {}
        if members.pop(subscription, None) and not members and subscription.group:
            del self._groups[subscription.group]
        subscription.group = None
        if subscription in self._subscriptions:
            self._pulling.add(subscription)

    async def published(self) -> None:
        """Wait for the next `publish`, or `close`."""
        await self._next.wait()

    def kept(self, position: int, limit: int = BATCH) -> list[Entry] | None:
        """Up to `limit` entries past `position` where memory still holds all of them, else None."""
        if not self._kept or position + 1 < (oldest := self._kept[0].event.cursor):
            return None
        start = position + 1 - oldest  # cursors have no gaps
        return list(islice(self._kept, start, start + limit))

    async def stored(self, position: int, latest: int) -> list[Entry]:
        """The next entries past `position` up to `latest`, from the store."""
        return [Entry(event) for event in await self._history(position, BATCH) if event.cursor <= latest]

    def reader(self, after: int, selection: Selection) -> Subscription:
        """A place in the feed for one of the hub's own parts: as a subscription that may fall behind by any number.

        It is told what is not stored, too.
        """
        return Subscription(self, after, selection, coalescing=False, unstored=True)

    @contextmanager
    def subscribe(
        self,
        after: int,
        selection: Selection = EVERYTHING,
        address: str = "",
        *,
        coalescing: bool = False,
        unstored: bool = False,
    ) -> Iterator[Subscription]:
        """A subscription of `address` that continues past cursor `after`; FutureCursorError.

        One that is `coalescing` and far behind gets the newest event of each zone and device, which stands for those
        before; any other is sent away when it falls behind. With `unstored` it is told at once what cannot be stored
        for now, and again when it is. TooManyError where there are too many, in all or of that
        address.
        """
        address = place_of(address)
        if after > self.latest:
            raise FutureCursorError(
                f"cursor {after} is newer than the newest event, {self.latest}: start again with cursor 0"
            )
        if len(self._subscriptions) >= SUBSCRIBERS:
            raise TooManyError(f"there are {SUBSCRIBERS} subscribers already: try again later")
        if address and self._addresses[address] >= OF_ONE_ADDRESS:
            raise TooManyError(f"there are {OF_ONE_ADDRESS} subscribers at {address} already: others need room, too")
        subscription = Subscription(self, after, selection, coalescing=coalescing, unstored=unstored)
        self._subscriptions.add(subscription)
        self._pulling.add(subscription)
        self._addresses[address] += 1
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._pulling.discard(subscription)
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

"""The hub's feed: delivers alarm events to any number of subscribers, each by its cursor.

A subscriber is a position, not a queue, so nothing is buffered for it. It reads the events after its position from
memory, or from the store if it is further behind. No event is lost between history and live events.

A subscriber that has caught up can have events pushed. An event is serialised and framed once for all subscribers with
the same selection, and written to each when it is published. When events come so fast that single writes would take
half a core, the events of some milliseconds are written together: the cost is in the write, not in its bytes.

While the hub's store fails, subscribers that asked for `unstored` events receive them immediately, without a cursor.
They receive each of them again, with its cursor, once it is stored.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Literal

from google.protobuf import json_format

from embereye.hub.refusals import ConflictError, InvalidError
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.selection import EVERYTHING, Selection
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.process.addresses import place_of
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.wire.delimited import varint

RETAINED_EVENTS = 4_096  # events in memory
BATCH = 256  # events delivered at once
LAG = 1_024  # events that a live subscriber may fall behind
GATHER_SECONDS = 10e-6  # between two writes, per subscriber with pushed events: twice the duration of a write
GATHER_MAX_SECONDS = 0.02
ALIVE_SHARED_NS = 100_000_000  # how long subscribers at the same cursor share one sign of life, serialised once
STALL_SECONDS = 20.0  # longest time to deliver a batch
ALIVE_MIN_MS = 1_000  # shortest interval between two alive messages
SUBSCRIBERS = 6_000
SUBSCRIBERS_PER_ADDRESS = SUBSCRIBERS // 2  # all clients behind a proxy share one address

TEXT, BINARY = 0x81, 0x82  # first byte of a whole WebSocket frame (RFC 6455, section 5.2)
FOLLOWED = b"\x0a"  # tag of FollowResponse.event

History = Callable[[int, int], Awaitable[list[AlarmEvent]]]  # (after, limit) → ascending events
Form = Literal["text_frame", "binary_frame"]  # the form of pushed events
Group = tuple[Selection, Form, bool]  # subscribers that are pushed the same bytes; True: with unstored events
Write = Callable[[bytes], bool]  # False if there is no room; then nothing was written


class TooSlowError(Exception):
    """The subscriber does not keep up; the message says how to continue."""


class TooManyError(Exception):
    """The hub serves its maximum number of subscribers."""


class FutureCursorError(ConflictError):
    """The cursor is greater than that of the newest event."""


class ClosedError(Exception):
    """The hub is stopping; the message says how to continue."""


def alive_seconds(requested_ms: int) -> float:
    """The seconds between two alive messages to a subscriber that requested `requested_ms`; 0: none.

    InvalidError if that is too often.
    """
    if 0 < requested_ms < ALIVE_MIN_MS:
        raise InvalidError(f"alive: {requested_ms} ms is too short. Use {ALIVE_MIN_MS} ms or more.")
    return requested_ms / 1_000


def frame(first: int, payload: bytes) -> bytes:
    """Frame `payload` for a WebSocket, unmasked as servers do; `first` is the frame's first byte."""
    length = len(payload)
    if length < 126:
        return bytes((first, length)) + payload
    if length < 65_536:
        return bytes((first, 126)) + length.to_bytes(2) + payload
    return bytes((first, 127)) + length.to_bytes(8) + payload


class Entry:
    """One event and its encodings, which are made once for all subscribers."""

    def __init__(self, event: AlarmEvent, *, unstored: bool = False) -> None:
        self.event = event
        self.unstored = unstored

    @cached_property
    def public_event(self) -> AlarmEvent:
        """The event for subscribers: without a cursor if it is not stored, as nobody can continue from it."""
        if not self.unstored:
            return self.event
        public = AlarmEvent()
        public.CopyFrom(self.event)
        public.cursor, public.unstored = 0, True
        return public

    @property
    def json(self) -> bytes:
        """One line of protobuf JSON in UTF-8."""
        framed = self.text_frame
        return framed[{126: 4, 127: 10}.get(framed[1], 2) :]

    @cached_property
    def text_frame(self) -> bytes:
        """The event's JSON as a WebSocket frame."""
        text = json_format.MessageToJson(self.public_event, indent=None, ensure_ascii=False)
        return frame(TEXT, text.encode())

    @cached_property
    def binary(self) -> bytes:
        """The event as protobuf bytes."""
        return self.public_event.SerializeToString()

    @cached_property
    def binary_frame(self) -> bytes:
        """`binary` as a WebSocket frame."""
        return frame(BINARY, self.binary)

    @cached_property
    def follow_response(self) -> bytes:
        """A FollowResponse with this event, as protobuf bytes."""
        return FOLLOWED + varint(len(self.binary)) + self.binary

    def payload(self, form: Form) -> bytes:
        """The content of the frame `form`."""
        return self.json if form == "text_frame" else self.binary


def coalesce(entries: Sequence[Entry]) -> list[Entry]:
    """Reduce `entries` to the newest of each kind: the present state of a zone, or of a device in it.

    Each result says how many events it replaces. The order is that of the cursors. The history has every event.
    """
    newest: dict[tuple[str, ...], Entry] = {}
    count: Counter[tuple[str, ...]] = Counter()
    for entry in entries:
        event = entry.event
        groups = {AlarmEvent.TYPE_STATE: "signs", AlarmEvent.TYPE_EVIDENCE: "signs", AlarmEvent.TYPE_TEST: "test",
                AlarmEvent.TYPE_SILENCE: "silence"}  # fmt: skip
        device = event.silence.device if event.type == AlarmEvent.TYPE_SILENCE else event.fault.device
        key = (event.namespace, event.zone, groups.get(event.type, "fault"), device)
        count[key] += 1
        newest.pop(key, None)
        newest[key] = entry
    return [entry if count[key] == 1 else _coalesced(entry, count[key]) for key, entry in newest.items()]


def _coalesced(entry: Entry, number: int) -> Entry:
    event = AlarmEvent()
    event.CopyFrom(entry.event)
    event.coalesced = number - 1
    return Entry(event)


class Subscription:
    """One subscriber's position in the feed."""

    def __init__(self, feed: "Feed", position: int, selection: Selection, *, coalescing: bool, unstored: bool) -> None:
        self._feed = feed
        self._coalescing = coalescing
        self.with_unstored = unstored  # it also receives events that cannot be stored for now
        self._unstored_position = feed.unstored.start  # number of the next unstored event for it, since the hub's start
        self._position = position
        self._live = position >= feed.latest  # it has caught up since it subscribed, or since the last large burst
        self._overrun = False
        self._delivery: asyncio.Timeout | None = None  # the time limit of the present delivery
        self._sending = 0  # cursor of the event that is being sent
        self.pushed: tuple[Form, Write] | None = None  # form and writer of pushed events; None: it fetches them
        self._behind = asyncio.Event()  # set when a subscriber with pushed events falls behind
        self.group: Group | None = None  # the subscribers that are pushed the same bytes
        self.selection = selection

    @property
    def position(self) -> int:
        """The cursor up to which every event was delivered or filtered out."""
        return self._feed.pushed_cursor if self.pushed else self._position

    @property
    def caught_up(self) -> bool:
        """True if there is nothing to deliver now."""
        return self.position >= self._feed.latest and not self._undelivered()

    def _undelivered(self) -> list[Entry]:
        """The unstored events that were not delivered."""
        return self._feed.unstored.since(self._unstored_position) if self.with_unstored and not self.pushed else []

    def select(self, selection: Selection) -> int:
        """Deliver `selection` from now on; return the cursor of the last event of the previous selection."""
        if self.pushed:
            self._feed.flush()
        self.selection = selection
        if self.pushed:
            self._feed.regroup(self)
        return max(self.position, self._sending)

    async def next(self) -> list[Entry]:
        """Wait for the next entries, at least one. ClosedError if the feed is closed."""
        while True:
            feed, latest = self._feed, self._feed.latest
            if feed.closed:
                raise ClosedError(f"the hub stops: subscribe again with cursor {self.position}")
            if self._position >= latest:
                self._live = True
                undelivered, self._unstored_position = self._undelivered(), feed.unstored.end
                if selected := [entry for entry in undelivered if self.selection.is_match(entry.event)]:
                    return selected
                await feed.wait_for_events()
                continue
            far = self._coalescing and latest - self._position > BATCH
            entries = feed.in_memory(self._position, RETAINED_EVENTS if far else BATCH)
            if entries is None:
                entries = await feed.from_store(self._position, latest)
            if selected := [entry for entry in entries if self.selection.is_match(entry.event)]:
                return coalesce(selected) if far else selected
            # No entry matches the selection, or retention deleted all of them.
            self._position = entries[-1].event.cursor if entries else latest

    async def deliver(self, send: Callable[[Entry], Awaitable[None]]) -> None:
        """Send the next entries by `send`. TooSlowError if that stalls, or if the subscriber falls too far behind."""
        entries, chosen = await self.next(), self.selection
        try:
            async with asyncio.timeout(STALL_SECONDS) as self._delivery:
                for entry in entries:
                    if self._overrun:
                        raise self._too_slow()
                    if self.selection is not chosen:  # the rest was chosen by the previous selection
                        self._unstored_position = min(self._unstored_position, self._feed.unstored.number(entry))
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
            self._delivery = None

    def advance(self, cursor: int) -> None:
        """Note that the entries from `next` were delivered up to `cursor`."""
        self._position = cursor

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(f"this subscriber does not keep up: subscribe again with cursor {self._position}")

    async def push(self, form: Form, write: Write) -> None:
        """Push all later events by `write` when they are published, until `write` returns False.

        Call it when the subscription has caught up, without awaiting anything in between. ClosedError as in `next`.
        """
        if self._feed.closed:
            raise ClosedError(f"the hub is stopping: subscribe again with cursor {self.position}")
        self._feed.flush()  # this subscriber has these events already
        self._live = True
        self._behind.clear()
        self.pushed = form, write
        self._feed.regroup(self)
        try:
            await self._behind.wait()
        finally:
            self.stop_pushing(self._feed.pushed_cursor, self._feed.unstored.end)

    def stop_pushing(self, position: int, unstored_position: int) -> None:
        """Stop pushing: the subscriber continues at `position` and, among unstored events, at `unstored_position`."""
        if self.pushed:
            self._feed.ungroup(self)
            self.pushed = None
            self._position, self._unstored_position = position, unstored_position
            self._behind.set()

    def check_lag(self, before: int, latest: int) -> None:
        """Check whether the subscriber is too far behind, now that the feed advanced from `before` to `latest`."""
        if self._live and not self._coalescing and latest - self.position > self._feed.max_lag:
            if self.position >= before:
                self._live = False  # a burst: let it catch up, like a subscriber that comes back
                return
            self._overrun = True
            if self._delivery is not None:
                self._delivery.reschedule(asyncio.get_running_loop().time())


class Unstored:
    """The newest events that cannot be stored for now, numbered since the hub's start."""

    def __init__(self) -> None:
        self.start = 0  # number of the first retained event
        self._entries: list[Entry] = []

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self.start + len(self._entries)

    def since(self, number: int) -> list[Entry]:
        """The events from `number` on."""
        return self._entries[max(0, number - self.start) :]

    def has(self, entry: Entry) -> bool:
        """True if `entry` is not stored yet."""
        return entry in self._entries

    def number(self, entry: Entry) -> int:
        """The number of `entry`; that of the next event if `entry` is stored."""
        return self.start + self._entries.index(entry) if self.has(entry) else self.end

    def add(self, entries: Sequence[Entry]) -> None:
        """Add events."""
        self._entries += entries
        self._forget(len(self._entries) - RETAINED_EVENTS)

    def clear(self) -> None:
        """Forget all events: they are stored now."""
        self._forget(len(self._entries))

    def _forget(self, number: int) -> None:
        if number > 0:
            self.start += number
            del self._entries[:number]


class Feed:
    """Publishes stored events, in order."""

    def __init__(self, latest: int, history: History) -> None:
        self.latest = latest  # cursor of the newest event
        self.closed = False
        self.max_lag = LAG
        self.max_per_address = SUBSCRIBERS_PER_ADDRESS
        self.delivered = 0  # events written to subscribers with pushed events
        self.unstored = Unstored()
        self._history = history
        self._recent: deque[Entry] = deque(maxlen=RETAINED_EVENTS)
        self._gathered: list[Entry] = []  # events still to be pushed
        self._gathering: asyncio.TimerHandle | None = None  # ends the gathering
        self._push_from = 0.0  # loop time from which events are pushed immediately
        self._subscriptions: set[Subscription] = set()
        self._pulling: set[Subscription] = set()  # subscribers that fetch events
        self._groups: dict[Group, dict[Subscription, Write]] = {}  # subscribers with pushed events
        self._addresses: Counter[str] = Counter()  # subscribers by address
        self._next = asyncio.Event()
        self._alive = 0, Entry(AlarmEvent())  # when the latest sign of life was made, and the sign

    def sign_of_life(self, cursor: int, why: str, now_ns: int, time_ns: int) -> Entry:
        """The event that shows a subscriber at `cursor` that the hub runs; `why` says why nothing is stored.

        `now_ns` is on the hub's timeline, `time_ns` the same moment on the wall clock.
        """
        made_ns, entry = self._alive
        if (entry.event.cursor, entry.event.why) != (cursor, why) or now_ns - made_ns > ALIVE_SHARED_NS:
            entry = Entry(AlarmEvent(type=AlarmEvent.TYPE_ALIVE, cursor=cursor, time_ns=time_ns, why=why))
            self._alive = now_ns, entry
        return entry

    @property
    def subscribers(self) -> int:
        """The number of subscribers."""
        return len(self._subscriptions)

    @property
    def lag(self) -> int:
        """The largest number of events that a subscriber is behind."""
        return max((self.latest - subscription.position for subscription in self._subscriptions), default=0)

    def publish(self, events: Sequence[AlarmEvent]) -> None:
        """Publish `events`, which continue the cursor, to all subscribers. They include all unstored events."""
        self.unstored.clear()
        if not events:
            return
        before, entries = self.latest, [Entry(event) for event in events]
        self._recent.extend(entries)
        self._gathered += entries
        self.latest = events[-1].cursor
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._push_from:
                self.flush()
            else:
                self._gathering = loop.call_at(self._push_from, self.flush)
        for subscription in self._pulling:
            subscription.check_lag(before, self.latest)
        self._wake()

    def publish_unstored(self, events: Sequence[AlarmEvent]) -> None:
        """Publish `events`, which cannot be stored for now, to the subscribers that asked for unstored events."""
        if not events:
            return
        self.flush()
        before, entries = self.unstored.end, [Entry(event, unstored=True) for event in events]
        self.unstored.add(entries)
        self._push(entries, self.pushed_cursor, before)
        self._wake()

    def restore(self, stored: StoredState) -> None:
        """Restore the cursor of the newest event."""
        self.latest = stored.cursor

    def add_state(self, state: Transaction) -> None:
        """Add the newest stored events and their cursor to `state`."""
        state[EVENTS].extend(entry.event for entry in self._recent)
        state.newest = self.latest

    @property
    def pushed_cursor(self) -> int:
        """The cursor up to which every event was pushed to subscribers with pushed events."""
        return self._gathered[0].event.cursor - 1 if self._gathered else self.latest

    def flush(self) -> None:
        """Push all gathered events."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if not self._gathered:
            return
        subscribers = sum(map(len, self._groups.values()))
        self._push_from = asyncio.get_running_loop().time() + min(GATHER_SECONDS * subscribers, GATHER_MAX_SECONDS)
        before, entries, self._gathered = self.pushed_cursor, self._gathered, []
        self._push(entries, before, self.unstored.end)

    def _push(self, entries: Sequence[Entry], before: int, unstored_before: int) -> None:
        behind: list[Subscription] = []
        for (selection, form, unstored), members in self._groups.items():
            selected = [
                entry for entry in entries if selection.is_match(entry.event) and (unstored or not entry.unstored)
            ]
            if not selected:
                continue
            data = b"".join([getattr(entry, form) for entry in selected])
            for subscription, write in members.items():
                if not write(data):
                    behind.append(subscription)
            self.delivered += len(selected) * len(members)
        for subscription in behind:
            subscription.stop_pushing(before, unstored_before)

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    def close(self) -> None:
        """End all subscriptions: each waiting subscriber gets ClosedError."""
        self.flush()
        self.closed = True
        for subscription in list(self._subscriptions):
            subscription.stop_pushing(self.latest, self.unstored.end)
        self._wake()

    def regroup(self, subscription: Subscription) -> None:
        """Push the events of its present selection to `subscription` from now on."""
        assert subscription.pushed
        self.ungroup(subscription)
        form, write = subscription.pushed
        subscription.group = subscription.selection, form, subscription.with_unstored
        self._groups.setdefault(subscription.group, {})[subscription] = write
        self._pulling.discard(subscription)

    def ungroup(self, subscription: Subscription) -> None:
        """Push nothing more to `subscription`."""
        members = self._groups.get(subscription.group, {}) if subscription.group else {}
        if members.pop(subscription, None) and not members and subscription.group:
            del self._groups[subscription.group]
        subscription.group = None
        if subscription in self._subscriptions:
            self._pulling.add(subscription)

    async def wait_for_events(self) -> None:
        """Wait for the next `publish`, or `close`."""
        await self._next.wait()

    def in_memory(self, position: int, limit: int = BATCH) -> list[Entry] | None:
        """Up to `limit` entries past `position`; None if memory does not have all of them."""
        if not self._recent or position + 1 < (oldest := self._recent[0].event.cursor):
            return None
        start = position + 1 - oldest  # cursors have no gaps
        return list(islice(self._recent, start, start + limit))

    async def from_store(self, position: int, latest: int) -> list[Entry]:
        """The next entries past `position` up to `latest`, from the store."""
        return [Entry(event) for event in await self._history(position, BATCH) if event.cursor <= latest]

    def reader(self, after: int, selection: Selection) -> Subscription:
        """A subscription for a part of the hub: it may fall behind without limit.

        It also receives unstored events.
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
        """Subscribe from `address`, continuing past cursor `after`. FutureCursorError if that event does not exist yet.

        If it is `coalescing` and far behind, it receives only the newest event of each zone and device. Any other
        subscription ends when it falls too far behind. With `unstored` it also receives events that cannot be stored
        for now, and again once they are stored. TooManyError if there are too many subscribers, in total or at
        `address`.
        """
        address = place_of(address)
        if after > self.latest:
            raise FutureCursorError(
                f"cursor {after} is newer than the newest event, {self.latest}. Start again with cursor 0."
            )
        if len(self._subscriptions) >= SUBSCRIBERS:
            raise TooManyError(f"{SUBSCRIBERS} subscribers are connected, which is the maximum. Try again later.")
        if address and self._addresses[address] >= self.max_per_address:
            raise TooManyError(
                f"{self.max_per_address} subscribers are connected from {address}, which is the maximum per address"
            )
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

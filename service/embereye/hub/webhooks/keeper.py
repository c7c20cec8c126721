"""All webhooks: each follows the feed by its cursor, in order, and stores what it could not deliver as dead letters.

A webhook delivers one event at a time and repeats it until the receiver accepts it. If that takes longer than
`give_up`, or the receiver refuses for good, the event becomes a dead letter, and the webhook continues. Its cursor is
stored soon after each delivery: after a crash some events are sent twice, with the same id. An event that cannot be
stored for now is sent immediately, and not again once it is stored.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Committer, Draft, Step, StoreFailingError
from embereye.hub.database import DamagedError, StoreError
from embereye.hub.databases.store import StoreThreads
from embereye.hub.feeds.feed import Entry, Feed, Subscription
from embereye.hub.feeds.follow import entries_of
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.events import recorded_ns
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.webhooks import DEAD_LETTERS, WEBHOOKS, DeadLetter, dead_letters
from embereye.hub.webhooks.options import WebhookOptions
from embereye.hub.webhooks.sender import Refusal, Sender
from embereye.hub.webhooks.signing import delivery_id
from embereye.process.condition import Condition
from embereye.process.tasks import Tasks
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import Timeline
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent

logger = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0  # before an attempt is repeated for the first time
MAX_PAUSE_SECONDS = 60.0
STORE_SECONDS = 1.0  # before a failed read of the store is repeated
MAX_LETTERS = 1_000  # in one answer
TIDY_SECONDS = 60.0  # between two times that positions are stored and dead letters are counted


@dataclass(eq=False)
class Webhook:
    """One webhook and its present state. Plain slots, read when metrics are scraped."""

    options: WebhookOptions
    sender: Sender
    reader: Subscription  # its position in the feed
    dead: int = 0  # dead letters
    delivered: int = 0
    failed: int = 0  # failed attempts
    given_up: int = 0
    failing: Condition = field(  # the latest attempt failed
        default_factory=lambda: Condition(logger, begin=logging.ERROR, first_only=True)
    )
    delivered_ns: int = 0  # time of the latest delivery by the wall clock; 0: none since the start
    resend_queue: deque[int] = field(default_factory=deque)  # cursors of dead letters to be sent again
    resend_requested: asyncio.Event = field(default_factory=asyncio.Event)  # set when the queue grows
    delivered_ids: set[str] = field(default_factory=set)  # ids of delivered events that are not stored yet
    stored_position: int = -1  # the position that is stored, or about to be; -1: none

    @property
    def position(self) -> int:
        """The cursor up to which every event was delivered, given up or not selected."""
        return self.reader.position


@dataclass(eq=False)
class Webhooks:
    """Call `declare`, then let `run` run."""

    committer: Committer
    feed: Feed
    store: StoreThreads
    timeline: Timeline
    backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
    _webhooks: dict[str, Webhook] = field(default_factory=dict, init=False)
    _cursors: Mapping[str, int] = field(default_factory=dict, init=False)  # stored ones, by webhook
    _dead: Mapping[str, int] = field(default_factory=dict, init=False)  # stored numbers of dead letters, by webhook

    def restore(self, stored: StoredState) -> None:
        """Restore the stored cursors and numbers of dead letters, for `declare`."""
        self._cursors, self._dead = stored[WEBHOOKS], stored[DEAD_LETTERS]

    def add_state(self, state: Transaction) -> None:
        """Add all cursors to `state`, also those of webhooks that are not declared now."""
        state[WEBHOOKS].update(self._cursors)
        state[WEBHOOKS].update({name: webhook.position for name, webhook in self._webhooks.items()})

    def declare(self, declared: Sequence[WebhookOptions]) -> None:
        """Set the webhooks. A new one starts with the next event."""
        for options in declared:
            position = self._cursors.get(options.name, self.feed.latest)
            sender = Sender(options, lambda: self.timeline.wall_ns() / SECOND)
            # A store that was filled from elsewhere may be behind the stored position.
            reader = self.feed.reader(min(position, self.feed.latest), options.selection)
            self._webhooks[options.name] = Webhook(options, sender, reader, self._dead.get(options.name, 0))

    def all(self) -> list[Webhook]:
        """All webhooks, ordered by name."""
        return [self._webhooks[name] for name in sorted(self._webhooks)]

    def find(self, name: str) -> Webhook:
        """Return the webhook called `name`; UnknownNameError."""
        if name not in self._webhooks:
            raise UnknownNameError(f'no webhook "{name[:80]}" is declared')
        return self._webhooks[name]

    async def run(self) -> None:
        """Deliver until cancelled, or until the feed closes."""
        if not self._webhooks:
            return
        async with Tasks() as tasks:
            for name, webhook in self._webhooks.items():
                if name not in self._cursors:
                    self._store_position(webhook)
                tasks.start(self._send_again(webhook), name=f"webhook-again-{name}")
                tasks.start(self._follow(webhook), name=f"webhook-{name}")
            tasks.start(self._tidy(), name="webhook-tidy")
            try:
                await tasks.failed.wait()
            finally:
                await asyncio.gather(*(webhook.sender.close() for webhook in self._webhooks.values()))
        raise RuntimeError("a webhook's task failed")

    # Deliveries

    async def _follow(self, webhook: Webhook) -> None:
        async for entries in entries_of(webhook.reader):
            for entry in entries:
                if entry.unstored:
                    await self._deliver_unstored(webhook, entry)
                    continue
                if webhook.sender.is_relevant(entry.event):
                    await self._deliver(webhook, entry.event)
                webhook.reader.advance(entry.event.cursor)
        self._store_position(webhook)

    async def _deliver_unstored(self, webhook: Webhook, entry: Entry) -> None:
        """Send an event that cannot be stored for now, until it is accepted or stored; then it follows the cursor."""
        event, backoff = entry.event, self.backoff()
        while webhook.sender.is_relevant(event) and self.feed.unstored.has(entry):
            refusal = await webhook.sender.attempt(event)
            self._note_attempt(webhook, refusal)
            if refusal is None:
                webhook.delivered_ids.add(delivery_id(event))
                return
            if refusal.final:
                return
            await asyncio.sleep(max(backoff.next(), refusal.wait))

    async def _deliver(self, webhook: Webhook, event: AlarmEvent) -> None:
        """Send `event` until it is accepted or given up; the webhook's new cursor is durable soon."""
        name, backoff, attempts = webhook.options.name, self.backoff(), 0
        if webhook.delivered_ids and delivery_id(event) in webhook.delivered_ids:
            webhook.delivered_ids.discard(delivery_id(event))
            self.committer.enqueue(Step(_cursor_step(name, event.cursor)))
            return
        while True:
            attempts += 1
            refusal = await webhook.sender.attempt(event)
            self._note_attempt(webhook, refusal)
            if refusal is None:
                self.committer.enqueue(Step(_cursor_step(name, event.cursor)))
                return
            if refusal.final or await self._is_late(webhook, event):
                await self._give_up(webhook, event, attempts, refusal.why)
                return
            await asyncio.sleep(max(backoff.next(), refusal.wait))

    async def _is_late(self, webhook: Webhook, event: AlarmEvent) -> bool:
        """True if `event` is too old. Its age is taken from the timeline: its time is a label, and clocks are set."""
        since_ns = self.timeline.now_ns() - int(webhook.options.give_up * SECOND)
        try:
            return await self.store.read(lambda store: recorded_ns(store, event.cursor)) < since_ns
        except DamagedError:
            return event.time_ns < since_ns
        except StoreError:
            return False  # the event is not given up for that

    def _note_attempt(self, webhook: Webhook, refusal: Refusal | None) -> None:
        name = webhook.options.name
        if refusal is None:
            webhook.delivered += 1
            webhook.delivered_ns = self.timeline.wall_ns()
            webhook.failing.clear("webhook %s delivers again", name)
            return
        webhook.failed += 1
        webhook.failing.fail(refusal.why, "webhook %s fails: %s", name, refusal.why)

    async def _give_up(self, webhook: Webhook, event: AlarmEvent, attempts: int, why: str) -> None:
        name = webhook.options.name

        def step(draft: Draft) -> None:
            letter = DeadLetter(name, event.cursor, draft.now_ns, attempts, why, event)
            draft.transaction[DEAD_LETTERS][name, event.cursor] = letter
            draft.transaction[WEBHOOKS][name] = event.cursor

        logger.error(
            "webhook %s: event %d is given up after %s: %s", name, event.cursor, counted(attempts, "attempt"), why
        )
        self.committer.enqueue(Step(step))
        webhook.dead += 1
        webhook.given_up += 1

    def _store_position(self, webhook: Webhook) -> None:
        """Let it continue from here after a restart, even if its selection has changed by then."""
        if webhook.stored_position != webhook.position:
            webhook.stored_position = webhook.position
            self.committer.enqueue(Step(_cursor_step(webhook.options.name, webhook.position)))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            for webhook in self.all():
                self._store_position(webhook)
            if counted := {webhook: webhook.dead for webhook in self.all() if webhook.dead}:
                with contextlib.suppress(StoreFailingError, StoreError):
                    await self._count_again(counted)

    async def _count_again(self, counted: Mapping[Webhook, int]) -> None:
        """Count dead letters again: retention may have deleted some."""
        await self.committer.commit(lambda _: None)  # wait until all dead letters so far are stored
        stored = await self.store.read(DEAD_LETTERS.load)
        for webhook, dead in counted.items():
            if webhook.dead == dead:
                webhook.dead = stored.get(webhook.options.name, 0)

    # Requests by people

    async def dead_letters(self, name: str, after: int, limit: int) -> list[DeadLetter]:
        """Read up to `limit` dead letters past cursor `after`, ascending; UnknownNameError, StoreError.

        Their `died_ns` is by the wall clock.
        """
        self.find(name)
        limit, stepped_ns = min(limit or 100, MAX_LETTERS), self.timeline.stepped_ns()
        letters = await self.store.read(lambda store: dead_letters(store, name, after, limit))
        return [replace(letter, died_ns=letter.died_ns + stepped_ns) for letter in letters]

    async def resend(self, by: Principal, name: str, cursors: Sequence[int] = ()) -> int:
        """Send dead letters again, all or those of `cursors`; return their number.

        UnknownNameError, StoreError, StoreFailingError. A letter that fails again remains a dead letter.
        """
        webhook, wanted, after, named = self.find(name), list[int](), 0, frozenset(cursors)
        while page := await self.dead_letters(name, after, MAX_LETTERS):
            after = page[-1].cursor
            wanted += [letter.cursor for letter in page if not named or letter.cursor in named]
        subject = counted(len(wanted), "dead letter")
        await self.committer.commit(lambda draft: add_entry(draft, by, "resend", name, subject))
        waiting = frozenset(webhook.resend_queue)
        webhook.resend_queue.extend(cursor for cursor in wanted if cursor not in waiting)
        webhook.resend_requested.set()
        return len(wanted)

    async def _send_again(self, webhook: Webhook) -> None:
        while True:
            await webhook.resend_requested.wait()
            webhook.resend_requested.clear()
            while webhook.resend_queue:
                try:
                    await self._send_dead(webhook, webhook.resend_queue[0])
                except StoreError:
                    await asyncio.sleep(STORE_SECONDS)
                    continue
                webhook.resend_queue.popleft()

    async def _send_dead(self, webhook: Webhook, cursor: int) -> None:
        name = webhook.options.name
        letters = await self.store.read(lambda store: dead_letters(store, name, cursor - 1, 1))
        if not letters or letters[0].cursor != cursor:
            return
        letter = letters[0]
        refusal = await webhook.sender.attempt(letter.event)
        self._note_attempt(webhook, refusal)

        def step(draft: Draft) -> None:
            failed = refusal and DeadLetter(
                name, cursor, letter.died_ns, letter.attempts + 1, refusal.why, letter.event
            )
            draft.transaction[DEAD_LETTERS][name, cursor] = failed or None

        self.committer.enqueue(Step(step))
        webhook.dead -= refusal is None

    async def test(self, by: Principal, name: str) -> str:
        """Send a harmless test event by the webhook; return why it failed, '' if it succeeded.

        UnknownNameError, StoreFailingError.
        """
        webhook = self.find(name)
        event = AlarmEvent(
            time_ns=self.timeline.wall_ns(), namespace="default", zone="none", type=AlarmEvent.TYPE_TEST, who=by.name,
            why=f"a test of the webhook {name} by {by.name}",
        )  # fmt: skip
        await self.committer.commit(lambda draft: add_entry(draft, by, "test webhook", name))
        refusal = await webhook.sender.attempt(event)
        self._note_attempt(webhook, refusal)
        return refusal.why if refusal else ""


def _cursor_step(name: str, cursor: int) -> Callable[[Draft], None]:
    def step(draft: Draft) -> None:
        draft.transaction[WEBHOOKS][name] = cursor

    return step

"""All webhooks: each follows the feed by a cursor of its own, in order, and keeps what it could not deliver."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from embereye.hub.access.keeper import add_entry
from embereye.hub.access.roles import Principal
from embereye.hub.databases.interface import DamagedError, StoreError
from embereye.hub.feeds.feed import ClosedError, Entry, Feed, Subscription
from embereye.hub.storage.committer import Committer, Draft, Step, StoreFailingError
from embereye.hub.storage.store import Store, StoreThreads
from embereye.hub.webhooks.options import WebhookOptions
from embereye.hub.webhooks.records import DeadLetter
from embereye.hub.webhooks.sender import Refusal, Sender
from embereye.hub.webhooks.signing import delivery_id
from embereye.process.tasks import Tasks
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import Timeline
from embereye.units import SECOND, counted
from embereye.v1.alarms_pb2 import AlarmEvent

logger = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0  # before the first repetition of an attempt
MOST_PAUSE_SECONDS = 60.0
STORE_SECONDS = 1.0  # before the store is asked again
MAX_LETTERS = 1_000  # in one answer
TIDY_SECONDS = 60.0  # between two times that positions are stored, and dead letters counted anew


class UnknownWebhookError(LookupError):
    """No webhook of that name is declared."""


@dataclass(eq=False)
class Webhook:
    """One webhook, and how it fares. Plain slots, read when metrics are scraped."""

    options: WebhookOptions
    sender: Sender
    reader: Subscription  # its place in the feed
    dead: int = 0  # dead letters
    delivered: int = 0
    failed: int = 0  # attempts
    given_up: int = 0
    failing: str = ""  # why the latest attempt failed; '': it did not
    delivered_ns: int = 0  # when the latest was delivered, by the wall clock; 0: none since the start
    again: deque[int] = field(default_factory=deque)  # cursors of dead letters that are to be sent again
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # something was put there
    taken: set[str] = field(default_factory=set)  # ids of what was delivered and is not stored yet
    kept: int = -1  # position that is stored, or about to be; -1: none is

    @property
    def position(self) -> int:
        """Cursor up to which everything was delivered, given up or not asked for."""
        return self.reader.position


class Webhooks:
    """`declare` them, then let `run` run."""

    def __init__(
        self,
        committer: Committer,
        feed: Feed,
        store: StoreThreads,
        timeline: Timeline,
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(floor=PAUSE_SECONDS, cap=MOST_PAUSE_SECONDS),
    ) -> None:
        self._committer = committer
        self._feed = feed
        self._store = store
        self._timeline = timeline
        self._backoff = backoff
        self._webhooks: dict[str, Webhook] = {}
        self._stored: Mapping[str, tuple[int, int]] = {}

    def restore(self, stored: Mapping[str, tuple[int, int]]) -> None:
        """Go on from what was stored: webhook → its cursor, and how many dead letters it has."""
        self._stored = stored

    def declare(self, declared: Sequence[WebhookOptions]) -> None:
        """These are the webhooks. One that is new begins with what happens next."""
        for options in declared:
            position, dead = self._stored.get(options.name, (self._feed.latest, 0))
            sender = Sender(options, lambda: self._wall_ns() / SECOND)
            # A store that was filled from elsewhere may be behind what we have told.
            reader = self._feed.reader(min(position, self._feed.latest), options.selection)
            self._webhooks[options.name] = Webhook(options, sender, reader, dead)

    def _wall_ns(self) -> int:
        return self._timeline.now_ns() + self._timeline.stepped_ns()

    def all(self) -> list[Webhook]:
        """By name."""
        return [self._webhooks[name] for name in sorted(self._webhooks)]

    def find(self, name: str) -> Webhook:
        """The one of that name; UnknownWebhookError."""
        if name not in self._webhooks:
            raise UnknownWebhookError(f'no webhook "{name[:80]}" is declared')
        return self._webhooks[name]

    async def run(self) -> None:
        """Deliver until cancelled, or until the feed closes."""
        if not self._webhooks:
            return
        async with Tasks() as tasks:
            for name, webhook in self._webhooks.items():
                if name not in self._stored:
                    self._keep_position(webhook)
                tasks.start(self._send_again(webhook), name=f"webhook-again-{name}")
                tasks.start(self._follow(webhook), name=f"webhook-{name}")
            tasks.start(self._tidy(), name="webhook-tidy")
            try:
                await tasks.failed.wait()
            finally:
                await asyncio.gather(*(webhook.sender.close() for webhook in self._webhooks.values()))
        raise RuntimeError("a webhook's task failed")

    # What happens

    async def _follow(self, webhook: Webhook) -> None:
        while True:
            try:
                entries = await webhook.reader.next()
            except ClosedError:
                self._keep_position(webhook)
                return
            except StoreError:
                await asyncio.sleep(STORE_SECONDS)
                continue
            for entry in entries:
                if entry.unstored:
                    await self._deliver_unstored(webhook, entry)
                    continue
                if webhook.sender.concerns(entry.event):
                    await self._deliver(webhook, entry.event)
                webhook.reader.advance(entry.event.cursor)

    async def _deliver_unstored(self, webhook: Webhook, entry: Entry) -> None:
        """Send what cannot be stored for now until it is taken, or stored: then its turn comes with the others."""
        event, backoff = entry.event, self._backoff()
        while webhook.sender.concerns(event) and self._feed.unstored.has(entry):
            refusal = await webhook.sender.attempt(event)
            self._note(webhook, refusal)
            if refusal is None:
                webhook.taken.add(delivery_id(event))
                return
            if refusal.final:
                return
            await asyncio.sleep(max(backoff.next(), refusal.wait))

    async def _deliver(self, webhook: Webhook, event: AlarmEvent) -> None:
        """Send `event` until it is taken or given up; how far that brings the webhook is durable soon."""
        name, backoff, attempts = webhook.options.name, self._backoff(), 0
        if webhook.taken and delivery_id(event) in webhook.taken:
            webhook.taken.discard(delivery_id(event))
            self._committer.enqueue(Step(_cursor_step(name, event.cursor)))
            return
        while True:
            attempts += 1
            refusal = await webhook.sender.attempt(event)
            self._note(webhook, refusal)
            if refusal is None:
                self._committer.enqueue(Step(_cursor_step(name, event.cursor)))
                return
            if refusal.final or await self._is_late(webhook, event):
                await self._give_up(webhook, event, attempts, refusal.why)
                return
            await asyncio.sleep(max(backoff.next(), refusal.wait))

    async def _is_late(self, webhook: Webhook, event: AlarmEvent) -> bool:
        """Whether `event` happened too long ago, or is kept no more; its own time is a label, which a step changes."""
        since_ns = self._timeline.now_ns() - int(webhook.options.give_up * SECOND)
        try:
            return await self._store.read(lambda store: store.recorded_ns(event.cursor)) < since_ns
        except DamagedError:
            return event.time_ns < since_ns
        except StoreError:
            return False  # nothing is forgotten for that

    def _note(self, webhook: Webhook, refusal: Refusal | None) -> None:
        name = webhook.options.name
        if refusal is None:
            webhook.delivered += 1
            webhook.delivered_ns = self._wall_ns()
            if webhook.failing:
                logger.warning("webhook %s delivers again", name)
            webhook.failing = ""
            return
        webhook.failed += 1
        if not webhook.failing:
            logger.error("webhook %s fails: %s", name, refusal.why)
        webhook.failing = refusal.why

    async def _give_up(self, webhook: Webhook, event: AlarmEvent, attempts: int, why: str) -> None:
        name = webhook.options.name

        def step(draft: Draft) -> None:
            letter = DeadLetter(name, event.cursor, draft.now_ns, attempts, why, event)
            draft.transaction.webhooks.dead[name, event.cursor] = letter
            draft.transaction.webhooks.cursors[name] = event.cursor

        logger.error(
            "webhook %s: event %d is given up after %s: %s", name, event.cursor, counted(attempts, "attempt"), why
        )
        self._committer.enqueue(Step(step))
        webhook.dead += 1
        webhook.given_up += 1

    def _keep_position(self, webhook: Webhook) -> None:
        """Have it go on from here next time: what it did not ask for is old by then, whatever it asks for."""
        if webhook.kept != webhook.position:
            webhook.kept = webhook.position
            self._committer.enqueue(Step(_cursor_step(webhook.options.name, webhook.position)))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            for webhook in self.all():
                self._keep_position(webhook)
            if counted := {webhook: webhook.dead for webhook in self.all() if webhook.dead}:
                with contextlib.suppress(StoreFailingError, StoreError):
                    await self._count_again(counted)

    async def _count_again(self, counted: Mapping[Webhook, int]) -> None:
        """Notice which dead letters went with the history of their time."""
        await self._committer.commit(lambda _: None)  # so that what was given up until now is stored
        stored = await self._store.read(Store.webhooks)
        for webhook, dead in counted.items():
            if webhook.dead == dead:
                _, webhook.dead = stored.get(webhook.options.name, (0, 0))

    # What people ask for

    async def dead_letters(self, name: str, after: int, limit: int) -> list[DeadLetter]:
        """Up to `limit` dead letters past cursor `after`, ascending; UnknownWebhookError, StoreError.

        When they died is told by the wall clock.
        """
        self.find(name)
        limit, stepped_ns = min(limit or 100, MAX_LETTERS), self._timeline.stepped_ns()
        letters = await self._store.read(lambda store: store.dead_letters(name, after, limit))
        return [replace(letter, died_ns=letter.died_ns + stepped_ns) for letter in letters]

    async def resend(self, by: Principal, name: str, cursors: Sequence[int] = ()) -> int:
        """Have dead letters sent again, all or those of `cursors`; returns how many that are.

        UnknownWebhookError, StoreError, StoreFailingError. One that fails again stays a dead letter.
        """
        webhook, wanted, after, named = self.find(name), list[int](), 0, frozenset(cursors)
        while page := await self.dead_letters(name, after, MAX_LETTERS):
            after = page[-1].cursor
            wanted += [letter.cursor for letter in page if not named or letter.cursor in named]
        subject = counted(len(wanted), "dead letter")
        await self._committer.commit(lambda draft: add_entry(draft, by, "resend", name, subject))
        waiting = frozenset(webhook.again)
        webhook.again.extend(cursor for cursor in wanted if cursor not in waiting)
        webhook.asked.set()
        return len(wanted)

    async def _send_again(self, webhook: Webhook) -> None:
        while True:
            await webhook.asked.wait()
            webhook.asked.clear()
            while webhook.again:
                try:
                    await self._send_dead(webhook, webhook.again[0])
                except StoreError:
                    await asyncio.sleep(STORE_SECONDS)
                    continue
                webhook.again.popleft()

    async def _send_dead(self, webhook: Webhook, cursor: int) -> None:
        name = webhook.options.name
        letters = await self._store.read(lambda store: store.dead_letters(name, cursor - 1, 1))
        if not letters or letters[0].cursor != cursor:
            return
        letter = letters[0]
        refusal = await webhook.sender.attempt(letter.event)
        self._note(webhook, refusal)

        def step(draft: Draft) -> None:
            failed = refusal and DeadLetter(
                name, cursor, letter.died_ns, letter.attempts + 1, refusal.why, letter.event
            )
            draft.transaction.webhooks.dead[name, cursor] = failed or None

        self._committer.enqueue(Step(step))
        webhook.dead -= refusal is None

    async def test(self, by: Principal, name: str) -> str:
        """Have the webhook told of a test that nobody need mind; why that failed, '' where it did not.

        UnknownWebhookError, StoreFailingError.
        """
        webhook = self.find(name)
        event = AlarmEvent(
            time_ns=self._wall_ns(), namespace="default", zone="none", type=AlarmEvent.TYPE_TEST, who=by.name,
            why=f"a test of the webhook {name} by {by.name}",
        )  # fmt: skip
        await self._committer.commit(lambda draft: add_entry(draft, by, "test webhook", name))
        refusal = await webhook.sender.attempt(event)
        self._note(webhook, refusal)
        return refusal.why if refusal else ""


def _cursor_step(name: str, cursor: int) -> Callable[[Draft], None]:
    def step(draft: Draft) -> None:
        draft.transaction.webhooks.cursors[name] = cursor

    return step

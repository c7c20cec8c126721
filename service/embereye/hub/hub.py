"""The hub without its servers: the parts, wired together, and what they do as time passes."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from embereye.hub.access.keeper import Access
from embereye.hub.actions import Actions
from embereye.hub.bus.records import Position
from embereye.hub.canaries import Canaries
from embereye.hub.coverage.book import CoverageBook
from embereye.hub.coverage.keeper import CoverageKeeper
from embereye.hub.databases.interface import ReloadRequiredError, StoreError
from embereye.hub.false_alarms import FalseAlarms
from embereye.hub.feeds.feed import Entry, Feed
from embereye.hub.feeds.subscriptions import Subscriptions
from embereye.hub.inbox import EvidenceInbox
from embereye.hub.overlays.keeper import Overlays
from embereye.hub.plans.keeper import Plans
from embereye.hub.scaling import Scaling
from embereye.hub.silences import Silences
from embereye.hub.storage.committer import Committer, Draft, Step
from embereye.hub.storage.history import History
from embereye.hub.storage.store import Store, StoreThreads, Transaction
from embereye.hub.tracing import EvidenceTraces
from embereye.hub.webhooks.keeper import Webhooks
from embereye.hub.webhooks.records import WebhookChanges
from embereye.hub.zones import Zones
from embereye.process.timing.clock import Timeline, lease_ns, now_ns
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.sentences import duration

logger = logging.getLogger(__name__)
TICK_SECONDS = 0.25
TIDY_SECONDS = 60.0
SUSPENDED_NS = SECOND  # from which on it counts that the machine was suspended
CHECK_SECONDS = 2.0  # between two looks at whether the database can be reached
ALIVE_SHARED_NS = 100_000_000  # within which all who were told as much get the same sign of life, serialised once
LEDGER_SECONDS = 10.0  # between two times that the ledgers of the present owners are stored


class Hub:
    """`open` it, then `run` it until cancelled. Everything happens on the event loop's thread.

    Shards' evidence goes to `inbox`, their coverage and the operator's rosters to `coverage`, people's actions to
    `actions`, what they call false to `false_alarms`, what they are not to be notified of to `silences`, and `access`
    knows who people are; they change `zones` in transactions of the `committer`, which publishes to `feed`. `history`
    reads.
    """

    def __init__(
        self,
        store: StoreThreads,
        *,
        retention_ns: int,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
        work: Callable[[], int] = time.thread_time_ns,
        leases: Callable[[], int] = lease_ns,
    ) -> None:
        """`leases` is what sessions, silences and tests are timed by: steady, also while the machine is suspended."""
        self._store = store
        self._asleep: Callable[[], int] = lambda: leases() - steady()
        self._slept = self._asleep()  # of that, what has been noted
        self._retention_ns = retention_ns
        self.timeline = Timeline(clock, steady)
        book = CoverageBook(steady())
        self.feed = Feed(0, lambda after, limit: store.read(lambda opened: opened.events(after, limit)))
        self.history = History(store, self.feed, self.timeline)
        self.zones = Zones(book, timeline=self.timeline, steady=lambda: steady() - book.unheard)
        self.committer = Committer(
            store,
            timeline=self.timeline,
            seal=self.zones.store_changes,
            publish=self._publish,
            publish_unstored=self.feed.publish_unstored,
            begin=self._begin_batch,
            hold=self._hold,
        )
        self.canaries = Canaries(clock=self.timeline.now_ns, steady=lambda: steady() - book.unheard)
        self.inbox = EvidenceInbox(self.committer, self.zones, book, self.canaries)
        self.access = Access(self.committer, clock=clock, steady=leases)
        self.coverage = CoverageKeeper(
            self.committer,
            self.zones,
            book,
            retention_ns=retention_ns,
            timeline=self.timeline,
            steady=steady,
            work=work,
        )
        self.actions = Actions(self.committer, self.zones)
        self.subscriptions = Subscriptions(self.committer)
        self.webhooks = Webhooks(self.committer, self.feed, store, self.timeline)
        self.false_alarms = FalseAlarms(self.committer, self.zones, self.history)
        self.silences = Silences(self.committer, self.zones, book)
        self.plans = Plans(self.committer, store)
        self.overlays = Overlays(self.committer)
        self.scaling = Scaling(book)
        self._alive = 0, Entry(AlarmEvent())  # when the latest sign of life was made, and that
        self.consumed: list[Position] = []  # of the streams that reports came by, when it was opened

    def trace(self, traces: EvidenceTraces) -> None:
        """Go on with the traces that reports carry from now on."""
        self.inbox.traces = traces

    def _begin_batch(self) -> None:
        self.coverage.note_listening()

    def _hold(self) -> Transaction:
        """All that the hub goes on from and has in memory, for a database that lost some of it."""
        return Transaction(
            zones=self.zones.dumped(),
            events=self.feed.newest(),
            newest=self.feed.latest,
            rosters={name: (fleet.derived, fleet.roster()) for name, fleet in self.coverage.book.fleets.items()},
            forgotten=dict.fromkeys(self.coverage.book.forgotten, True),
            access=self.access.held(),
            subscriptions={one.name: one for one in self.subscriptions.all()},
            webhooks=WebhookChanges({one.options.name: one.position for one in self.webhooks.all()}),
            false_alarms={mark.alarm: mark for mark in self.false_alarms.all()},
            silences={silence.id: silence for silence in self.silences.all()},
            overlays=dict(self.overlays.all()),
        )

    def _publish(self, events: list[AlarmEvent]) -> None:
        if (traces := self.inbox.traces) is None:
            self.feed.publish(events)
            return
        began = now_ns()
        self.feed.publish(events)
        traces.note_published(began, now_ns())

    async def open(self) -> None:
        """Go on from what the store holds. UserError where that cannot be read, or another hub has it."""
        stored = await self._store.open()
        if ahead := self.timeline.resume(stored.latest_ns):
            logger.warning(
                "the clock is %s %s what this hub stored last: that time does not count, nothing is forgotten for it",
                duration(abs(ahead)), "ahead of" if ahead > 0 else "behind",
            )  # fmt: skip
        self.committer.restore(stored.recent)
        self.false_alarms.restore(stored.false_alarms)
        self.silences.restore(stored.silences)
        self.plans.restore(stored.plans)
        self.overlays.restore(stored.overlays)
        self.zones.restore(stored.zones, stored.cursor)
        self.coverage.restore(stored)
        self.canaries.restore(stored.canaries)
        self.access.restore(stored.access)
        self.subscriptions.restore(stored.subscriptions)
        self.webhooks.restore(stored.webhooks)
        self.feed.latest = stored.cursor
        self.consumed = stored.consumed
        if self._store.failing:
            self.committer.note_failing(self._store.failing)
            return
        still_open = {zone.alarm for zone in self.zones.messages() if zone.alarm}
        with contextlib.suppress(StoreError):
            await self._store.write(lambda store: store.forget_phantoms(still_open))

    @property
    def unreadable(self) -> int:
        """What was stored and could not be read: it was passed over."""
        return self._store.unreadable + self.zones.unreadable

    async def run(self) -> None:
        """Write, let time pass and forget the oldest, until cancelled; if one of these fails, all end.

        ReloadRequiredError where what the hub knows is no longer what the database holds: another hub is to be made.
        """
        try:
            await self._run()
        except BaseExceptionGroup as group:
            for error in group.exceptions:
                if isinstance(error, ReloadRequiredError):
                    raise error from None
            raise

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.committer.run(), name="hub-commit")
            tasks.create_task(self._tick(), name="hub-tick")
            tasks.create_task(self._check_store(), name="hub-check-store")
            tasks.create_task(self.webhooks.run(), name="hub-webhooks")
            tasks.create_task(
                self.history.prune(self.committer, self._retention_ns, self.timeline.now_ns), name="hub-prune"
            )

    def alive(self, cursor: int) -> Entry:
        """That the hub is there, for a subscriber that was told all up to `cursor`; why says what is not stored."""
        at_ns, why = self.timeline.now_ns(), self.committer.failing
        made_ns, told = self._alive
        if (told.event.cursor, told.event.why) != (cursor, why) or at_ns - made_ns > ALIVE_SHARED_NS:
            time_ns = at_ns + self.timeline.stepped_ns()
            told = Entry(AlarmEvent(type=AlarmEvent.TYPE_ALIVE, cursor=cursor, time_ns=time_ns, why=why))
            self._alive = at_ns, told
        return told

    async def pass_time(self) -> None:
        """What happens every tick: signs and silences end, devices go dark or come back. Raises StoreFailingError."""
        self.coverage.note_listening()
        await self.committer.commit(self._pass_time)

    def _pass_time(self, draft: Draft) -> None:
        self._note_suspended()
        self.coverage.pass_time(draft)
        self.silences.pass_time(draft)

    def _note_suspended(self) -> None:
        """Have what people gave a time to end in that time; no sign ages while the machine is suspended."""
        slept = self._asleep() - self._slept
        if slept >= SUSPENDED_NS:
            self._slept += slept
            self.silences.note_suspended(slept)
            self.zones.note_suspended(slept)

    async def _check_store(self) -> None:
        """Notice that the database is gone also while nothing is to be written; the committer has it recover."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._store.write(Store.check)
            except StoreError as error:
                self.committer.note_failing(str(error))

    async def _tick(self) -> None:
        tidied = kept = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.coverage.note_listening()
            self.committer.enqueue(Step(self._pass_time))
            if (now := time.monotonic()) - tidied > TIDY_SECONDS:
                tidied = now
                self.committer.enqueue(Step(self.zones.drop_idle))
                self.committer.enqueue(Step(lambda draft: self.canaries.tidy(draft, self.coverage.book.forgotten)))
                self.coverage.tidy()
                self.access.tidy()
            if now - kept > LEDGER_SECONDS:
                kept = now
                self.coverage.keep_ledgers()

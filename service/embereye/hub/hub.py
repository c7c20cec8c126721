"""The hub without its servers: creates the parts, connects them, and drives them as time passes.

Evidence goes to `inbox`, shards' coverage and the operator's rosters to `coverage`. People's actions go to `actions`,
`false_alarms`, `silences`, `plans` and `overlays`; `access` knows who the people are. All of them change the hub's
state only in transactions of the `committer`. It stores a batch first, then acknowledges it and publishes its events
to `feed`. Webhooks and subscriptions read the feed; `history` reads the database.

`open` restores every part from the database. `run` writes, ticks four times a second, checks the database, delivers
webhooks and prunes. If the database holds something else than this process knows, `run` raises ReloadRequiredError:
the server then makes a new `Hub`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from embereye.hub.access.keeper import Access
from embereye.hub.actions import Actions
from embereye.hub.canaries import Canaries
from embereye.hub.committer import Committer, Draft, Step
from embereye.hub.coverage.book import CoverageBook
from embereye.hub.coverage_keeper import CoverageKeeper
from embereye.hub.database import ReloadRequiredError, StoreError
from embereye.hub.databases import schema
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.false_alarms import FalseAlarms
from embereye.hub.feeds.feed import Entry, Feed
from embereye.hub.feeds.subscriptions import Subscriptions
from embereye.hub.history import History
from embereye.hub.inbox import EvidenceInbox
from embereye.hub.outputs import Outputs
from embereye.hub.overlays.keeper import Overlays
from embereye.hub.plans.keeper import Plans
from embereye.hub.quality import Quality
from embereye.hub.releases import Releases
from embereye.hub.silences import Silences
from embereye.hub.tables.alarms import forget_phantoms
from embereye.hub.tables.events import events_after
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tracing import EvidenceTraces
from embereye.hub.webhooks.keeper import Webhooks
from embereye.hub.zones import VERSION, Zones
from embereye.process.timing.clock import Timeline, lease_ns, now_ns
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.sentences import duration

logger = logging.getLogger(__name__)
R = TypeVar("R")
TICK_SECONDS = 0.25
TIDY_SECONDS = 60.0
SUSPENDED_NS = SECOND  # shortest suspension of the machine that silences and tests take into account
CHECK_SECONDS = 2.0  # between two checks that the database can be reached
LEDGER_SECONDS = 10.0  # between two writes of the current owners' ledgers


class Part(Protocol):
    """A part of the hub with stored state in memory."""

    def restore(self, stored: StoredState) -> None:
        """Restore its state from what was stored."""

    def add_state(self, state: Transaction) -> None:
        """Add its whole state to `state`, to be written again after the database lost commits."""


@dataclass(frozen=True)
class RouteProof:
    """The latest canary message by which a route to people was proved. Times are on the hub's timeline; 0: never."""

    sent_ns: int
    confirmed_ns: int
    state: str  # one word


@dataclass
class _AddedParts:
    """The parts of add-ons, what their tables had at the start, and the routes and outputs that they offer."""

    parts: list[Part] = field(default_factory=list)
    stored: StoredState = field(default_factory=StoredState)
    routes: Callable[[], Mapping[str, RouteProof]] = dict
    reaches: Callable[[], bool | None] = lambda: None
    outputs: Outputs | None = None


class _Suspension:
    """The time in which this machine was suspended: what `leases` has advanced more than `steady`."""

    def __init__(self, leases: Callable[[], int], steady: Callable[[], int]) -> None:
        self._suspended_ns: Callable[[], int] = lambda: leases() - steady()
        self._collected_ns = self._suspended_ns()

    def collect_ns(self) -> int:
        """The suspended time since the last collection; 0 if it is shorter than SUSPENDED_NS, which then adds up."""
        new_ns = self._suspended_ns() - self._collected_ns
        if new_ns < SUSPENDED_NS:
            return 0
        self._collected_ns += new_ns
        return new_ns


class Hub:
    """The hub's parts. `open` it, then `run` it until cancelled, all on the event loop's thread."""

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
        """Wire the parts.

        `leases` times sessions, silences and tests: a steady clock that also advances while the machine is suspended.
        """
        self._store = store
        self._suspension = _Suspension(leases, steady)
        self.timeline = Timeline(clock, steady)
        book = CoverageBook(steady())
        self.feed = Feed(0, lambda after, limit: store.read(lambda opened: events_after(opened, after, limit)))
        self.history = History(store, self.feed, self.timeline, retention_ns)
        self.zones = Zones(book, timeline=self.timeline, steady=lambda: steady() - book.unheard)
        self.committer = Committer(
            store,
            timeline=self.timeline,
            seal=self.zones.store_changes,
            publish=self._publish,
            publish_unstored=self.feed.publish_unstored,
            begin=self._begin_batch,
            full_state=self._full_state,
        )
        self.canaries = Canaries(clock=self.timeline.now_ns, steady=lambda: steady() - book.unheard)
        self.inbox = EvidenceInbox(self.committer, self.zones, book, self.canaries)
        self.access = Access(self.committer, clock=clock, steady=leases, rosters=book)
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
        self.quality = Quality(self.history, self.zones, self.coverage, self.false_alarms, Releases(self.committer))
        self._added = _AddedParts()

    def trace(self, traces: EvidenceTraces) -> None:
        """Continue the traces that reports carry from now on."""
        self.inbox.traces = traces

    def _begin_batch(self) -> None:
        self.coverage.note_listening()

    def _parts(self) -> Sequence[Part]:
        return (
            self.committer, self.feed, self.false_alarms, self.silences, self.plans, self.overlays, self.zones,
            self.inbox, self.coverage, self.canaries, self.access, self.subscriptions, self.webhooks,
            self.quality.releases, *self._added.parts,
        )  # fmt: skip

    def add_part(self, part: Part) -> None:
        """Add the part of an add-on, after `open`: restore it, and write its state again after lost commits."""
        part.restore(self._added.stored)
        self._added.parts.append(part)

    def set_routes(
        self, routes: Callable[[], Mapping[str, RouteProof]], reaches: Callable[[], bool | None] = lambda: None
    ) -> None:
        """Let `routes` return the proofs of all routes to people, by name, and `reaches` if all of them work."""
        self._added.routes, self._added.reaches = routes, reaches

    def routes(self) -> Mapping[str, RouteProof]:
        """The proofs of all routes to people, by name; empty if no add-on has any."""
        return self._added.routes()

    def is_reaching_people(self) -> bool | None:
        """True if every route to people works; None if no add-on has any."""
        return self._added.reaches()

    def offer_outputs(self, outputs: Outputs) -> None:
        """Let other add-ons switch `outputs`."""
        self._added.outputs = outputs

    @property
    def outputs(self) -> Outputs | None:
        """The outputs of actuators; None if no add-on offers them. Available once all add-ons are attached."""
        return self._added.outputs

    async def read(self, query: Callable[[Store], R]) -> R:
        """Run `query` on the database's reading thread. Raises StoreError."""
        return await self._store.read(query)

    def _full_state(self) -> Transaction:
        """The hub's complete in-memory state, to be rewritten after the database lost commits."""
        state = Transaction()
        for part in self._parts():
            part.add_state(state)
        return state

    def _publish(self, events: list[AlarmEvent]) -> None:
        if (traces := self.inbox.traces) is None:
            self.feed.publish(events)
            return
        began = now_ns()
        self.feed.publish(events)
        traces.note_published(began, now_ns())

    async def open(self) -> None:
        """Restore every part from the store. UserError if the store cannot be read, or another hub has it."""
        stored = await self._store.open()
        if ahead := self.timeline.resume(stored.latest_ns):
            logger.warning(
                "clock: %s %s the newest time that this hub stored: the jump is ignored and expires no history",
                duration(abs(ahead)), "ahead of" if ahead > 0 else "behind",
            )  # fmt: skip
        for part in self._parts():
            part.restore(stored)
        self._added.stored = StoredState({table: stored[table] for table in schema.ADDED})
        if self._store.failing:
            self.committer.note_failing(self._store.failing)
            return
        still_open = {zone.alarm for zone in self.zones.messages() if zone.alarm}
        with contextlib.suppress(StoreError):
            await self._store.write(lambda store: forget_phantoms(store.db, still_open))

    @property
    def unreadable(self) -> int:
        """The number of stored rows that could not be read and were skipped."""
        return self._store.unreadable + self.zones.unreadable

    @property
    def database_loss(self) -> str:
        """A sentence on the newest loss of the database; '' if there is none, or a person dismissed it."""
        return self._store.loss

    @property
    def database_losses(self) -> int:
        """The number of losses of the database that no person has dismissed."""
        return len(self._store.losses)

    async def run(self) -> None:
        """Write, let time pass and prune until cancelled; if one of these fails, all end.

        ReloadRequiredError if the database no longer contains the state that the hub has in memory: make a new hub.
        """
        try:
            await self._run()
        except BaseExceptionGroup as group:
            for error in group.exceptions:
                if isinstance(error, ReloadRequiredError):
                    raise error from None
            raise

    async def _run(self) -> None:
        self.quality.releases.note_running(VERSION)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.committer.run(), name="hub-commit")
            tasks.create_task(self._tick(), name="hub-tick")
            tasks.create_task(self._check_store(), name="hub-check-store")
            tasks.create_task(self.webhooks.run(), name="hub-webhooks")
            tasks.create_task(self.history.prune(self.committer), name="hub-prune")
            tasks.create_task(self.quality.run(), name="hub-quality")

    def sign_of_life(self, cursor: int) -> Entry:
        """The event that shows a subscriber at `cursor` that the hub runs; its `why` says why nothing is stored."""
        now_ns = self.timeline.now_ns()
        return self.feed.sign_of_life(cursor, self.committer.failing, now_ns, now_ns + self.timeline.stepped_ns())

    async def pass_time(self) -> None:
        """Do one tick now: end signs and silences, open and clear devices' faults. Raises StoreFailingError."""
        self.coverage.note_listening()
        await self.committer.commit(self._pass_time)

    def _pass_time(self, draft: Draft) -> None:
        self._note_suspended()
        self.coverage.pass_time(draft)
        self.silences.pass_time(draft)

    def _note_suspended(self) -> None:
        """Count a suspension of the machine towards silences and tests, but not towards the age of signs."""
        if new_ns := self._suspension.collect_ns():
            self.silences.note_suspended(new_ns)
            self.zones.note_suspended(new_ns)

    async def _check_store(self) -> None:
        """Notice a lost database even while nothing is to be written; the committer then reconnects."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._store.check()
            except StoreError as error:
                self.committer.note_failing(str(error))

    async def _tick(self) -> None:
        tidied = ledgers_stored = time.monotonic()
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
            if now - ledgers_stored > LEDGER_SECONDS:
                ledgers_stored = now
                self.coverage.store_ledgers()

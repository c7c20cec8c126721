"""The hub's heart: the one owner of zones and coverage, and the one writer of the store.

What arrives is gathered while the last batch is being written; a batch is one transaction: evidence, the steps it
causes in its zones, and their events. Only when it is durable is evidence acknowledged and are events published.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from embereye.hub.coverage import NOBODY, CoverageBook, Fleet, Watched, namespace_of
from embereye.hub.feed import Feed
from embereye.hub.ledgers import LedgerBook
from embereye.hub.store import Picture, Store, StoreThreads, Transaction
from embereye.levels import ZoneState
from embereye.process.lifecycle import UserError
from embereye.v1.alarms_pb2 import AlarmEvent, Zone
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.zone.state import ZoneMachine, key_of

logger = logging.getLogger(__name__)

MAX_PENDING = 20_000  # reports that wait to be written
MAX_PENDING_BYTES = 64 * 1024 * 1024
BATCH = 2_000  # operations in one transaction
RETRY_SECONDS = 0.5  # between attempts to write while the store fails
TICK_SECONDS = 0.25
PRUNE_SECONDS = 60.0
LEDGER_SECONDS = 10.0  # between two times that the ledgers of the present owners are stored
RESET_MEMORY_NS = 86_400_000_000_000  # a reset keeps reports from before it away for a day
NO_ZONE = "unassigned"  # of evidence that names no zone and comes from an undeclared device

ZoneKey = tuple[str, str]  # namespace, name


class UnknownZoneError(Exception):
    """A person named a zone that there is not."""


class StoreFailingError(Exception):
    """Nothing can be written now."""


class OutdatedError(Exception):
    """A roster is older than the one known."""


@dataclass
class _Draft:
    """A transaction in the making."""

    known: set[str]  # evidence ids that were committed before
    now_ns: int
    transaction: Transaction
    touched: dict[ZoneKey, int] = field(default_factory=dict)  # revision before the transaction


@dataclass
class _Report:
    """A shard's report on its way to the store."""

    hub: "Hub"
    item: EvidenceItem
    size: int
    durable: Callable[[str], None]

    def apply(self, draft: _Draft) -> None:
        self.hub.take_report(self.item, draft)

    def done(self, error: Exception | None) -> None:
        if error is None:
            self.durable(self.item.id)


@dataclass
class _Call:
    """Anything else: a person's action, a roster, a fault, the passing of time."""

    action: Callable[[_Draft], None]
    future: "asyncio.Future[None] | None" = None

    def apply(self, draft: _Draft) -> None:
        if self.future is None or not self.future.done():
            self.action(draft)

    def done(self, error: Exception | None) -> None:
        if self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


_Operation = _Report | _Call
_Settled = tuple[_Operation, Exception | None]


@dataclass
class Counters:
    """What the metrics page tells; plain slots, read at scrape time."""

    received: int = 0
    duplicate: int = 0
    unusable: int = 0
    refused: int = 0  # kept away while the store could not write
    events: dict[str, int] = field(default_factory=dict)  # by type
    commits: int = 0
    commit_seconds: float = 0.0
    commit_failures: int = 0


class Hub:
    """Runs the zones. Everything but `open`, `run`, `flush` and what they await happens on the event loop's thread."""

    def __init__(
        self,
        store: StoreThreads,
        *,
        retention_ns: int,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._store = store
        self._retention_ns = retention_ns
        self._clock = clock
        self._steady = steady
        self._zones: dict[ZoneKey, ZoneMachine] = {}
        self._pending: list[_Operation] = []
        self._pending_reports = 0
        self._pending_bytes = 0
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._cursor = 0
        self._attentive = True
        self.counters = Counters()
        self.coverage = CoverageBook(steady())
        self.ledgers = LedgerBook()
        self.feed = Feed(0, self._history)
        self.failing = ""  # why the store cannot be written; empty: it can
        self.failing_changed = asyncio.Event()

    async def open(self) -> None:
        """Go on from what the store holds."""
        stored = await self._store.open()
        for data in stored.zones:
            try:
                machine = ZoneMachine.load(data)
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"the hub's database holds a zone that cannot be read: {error}") from error
            self._zones[machine.namespace, machine.name] = machine
        for derived, roster in stored.rosters:
            self.coverage.restore(roster, derived=derived)
        self.coverage.forgotten.update(stored.forgotten)
        self.ledgers.restore(stored.ledgers)
        self._cursor = stored.cursor
        self.feed = Feed(stored.cursor, self._history)

    # What arrives

    def room(self) -> bool:
        """Whether another report may wait to be written."""
        return self._pending_reports < MAX_PENDING and self._pending_bytes < MAX_PENDING_BYTES

    async def wait_for_room(self) -> None:
        """Wait until the batch that is being written is done with."""
        await self._written.wait()

    def report(self, item: EvidenceItem, durable: Callable[[str], None]) -> None:
        """Take a shard's report; `durable(id)` is called once it is committed, or known to be from before."""
        self.counters.received += 1
        size = item.ByteSize()
        if item.snapshot:
            self.coverage.picture(item.fleet, item.device, item.snapshot, item.until_ns)
        self._pending_reports += 1
        self._pending_bytes += size
        self._enqueue(_Report(self, item, size, durable))

    def report_coverage(self, coverage: Coverage, told: Callable[[int], None] | None = None) -> None:
        """Take a shard's word on its devices; `told(time_ns)` is called once the ledgers that it closes are durable."""
        if coverage.fleet and coverage.fleet not in self.coverage.forgotten:
            self.ledgers.report(coverage)
        if told is not None and (coverage.closed or coverage.final):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            time_ns = coverage.time_ns
            future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else told(time_ns))
            self._enqueue(_Call(self._store_ledgers, future))
        fleet = self.coverage.report(coverage, self._steady())
        if fleet is not None:
            self._enqueue(_Call(lambda draft: self._store_roster(draft, fleet)))

    def keep_ledgers(self) -> None:
        """Store what is known of ledgers now: a shard's last word may have been its last."""
        self._enqueue(_Call(self._store_ledgers))

    async def act(self, action: str, namespace: str, zone: str, who: str, note: str) -> AlarmEvent:
        """A person's "acknowledge", "reset" or "test"; returns the event that it made.

        Raises UnknownZoneError, NotAllowedError and StoreFailingError.
        """
        if not self.zone_exists(namespace, zone):
            raise UnknownZoneError(f"there is no zone {namespace}/{zone}: GET /v1/zones lists them")
        events: list[AlarmEvent] = []

        def step(draft: _Draft) -> None:
            machine = self._touch(draft, (namespace, zone))
            events.extend(getattr(machine, action)(who, note, draft.now_ns))
            self._add_events(draft, events)

        await self._durably(step)
        return events[0]

    async def set_roster(self, roster: FleetRoster) -> None:
        """Replace what ought to be watched of one fleet. Raises OutdatedError, StoreFailingError."""
        known = self.coverage.fleets.get(roster.fleet)
        if known and not known.derived and roster.epoch < known.epoch:
            raise OutdatedError(
                f"roster of {roster.fleet}: epoch {roster.epoch} is older than {known.epoch}, which is in force"
            )
        self.coverage.set_roster(roster, self._steady())

        def step(draft: _Draft) -> None:
            draft.transaction.forgotten[roster.fleet] = False
            if fleet := self.coverage.fleets.get(roster.fleet):
                self._store_roster(draft, fleet)
            self._judge_coverage(draft)

        await self._durably(step)

    async def retain(self, fleets: Iterable[str]) -> None:
        """Forget every fleet that is not named. Raises StoreFailingError."""
        gone = set(self.coverage.fleets) - set(fleets)
        for name in gone:
            self.coverage.forget(name)
            self.ledgers.forget(name)

        def step(draft: _Draft) -> None:
            for name in gone - set(self.coverage.fleets):
                draft.transaction.rosters[name] = None
                draft.transaction.forgotten[name] = True
            self._store_ledgers(draft)
            self._judge_coverage(draft)

        await self._durably(step)

    # What others see

    def zone_exists(self, namespace: str, name: str) -> bool:
        """Whether the zone has devices, or a history that is not over."""
        machine = self._zones.get((namespace, name))
        if machine is not None and not machine.idle:
            return True
        return (namespace, name) in self.coverage.counts(self._steady())

    def zones(self) -> list[Zone]:
        """Every zone, the most urgent first."""
        now_ns, counts = self._clock(), self.coverage.counts(self._steady())
        messages = []
        for key in self._zones.keys() | counts.keys():
            machine = self._zones.get(key) or ZoneMachine(*key)
            if machine.idle and key not in counts:
                continue
            message = machine.message(now_ns)
            message.declared, message.covered = counts.get(key, (0, 0))
            messages.append(message)
        messages.sort(key=lambda zone: (-ZoneState(zone.state).severity, not zone.faults, zone.namespace, zone.name))
        return messages

    def worst(self) -> ZoneState:
        """The most urgent state of any zone."""
        states = [machine.state for machine in self._zones.values()]
        return max(states, key=lambda state: state.severity, default=ZoneState.NORMAL)

    async def history(self, after: int, limit: int, zone: str = "") -> list[AlarmEvent]:
        """Up to `limit` durable events past cursor `after`."""
        latest = self.feed.latest
        events = await self._store.read(lambda store: store.events(after, limit, zone))
        return [event for event in events if event.cursor <= latest]

    async def latest_events(self, limit: int) -> list[AlarmEvent]:
        """The newest `limit` durable events, ascending."""
        latest = self.feed.latest
        return await self._store.read(lambda store: store.latest_events(latest, limit))

    async def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """What `device` saw when its sign joined `alarm`: a JPEG."""
        return await self._store.read(lambda store: store.picture(alarm, device, kind))

    async def episodes(self, alarm: str) -> list[str]:
        """The signs that contributed to `alarm`."""
        return await self._store.read(lambda store: store.episodes(alarm))

    def darkness(self, fleet: Fleet, watched: Watched) -> str:
        """Why a device is not covered right now; '' where it is."""
        return self.coverage.reason(fleet, watched, self._steady())

    async def _history(self, after: int, limit: int) -> list[AlarmEvent]:
        return await self._store.read(lambda store: store.events(after, limit))

    # How a batch is made

    def _enqueue(self, operation: _Operation) -> None:
        self._pending.append(operation)
        self._idle.clear()
        self._arrived.set()

    async def _durably(self, step: Callable[[_Draft], None]) -> None:
        """Do `step` in the next transaction and wait until it is stored."""
        if self.failing:
            raise StoreFailingError(self.failing)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(_Call(step, future))
        changed = asyncio.ensure_future(self.failing_changed.wait())
        try:
            await asyncio.wait((future, changed), return_when=asyncio.FIRST_COMPLETED)
            if not future.done() and self.failing:
                raise StoreFailingError(f"{self.failing}; what was asked for may be stored once this is mended")
            await future
        finally:
            changed.cancel()
            future.cancel()

    def _touch(self, draft: _Draft, key: ZoneKey) -> ZoneMachine:
        machine = self._zones.get(key)
        if machine is None:
            machine = self._zones[key] = ZoneMachine(*key)
        draft.touched.setdefault(key, machine.revision)
        return machine

    def _add_events(self, draft: _Draft, events: Iterable[AlarmEvent]) -> None:
        for event in events:
            self._cursor += 1
            event.cursor = self._cursor
            draft.transaction.events.append(event)
            kind = AlarmEvent.Type.Name(event.type).removeprefix("TYPE_").lower()
            self.counters.events[kind] = self.counters.events.get(kind, 0) + 1

    def take_report(self, item: EvidenceItem, draft: _Draft) -> None:
        """Step the zone of a report that was never taken before."""
        if item.id in draft.known:
            self.counters.duplicate += 1
            return
        machine = self._touch(draft, (namespace_of(item.fleet), self._zone_of(item)))
        announced = machine.told.get(key_of(item), 0)
        self._add_events(draft, machine.evidence(item, draft.now_ns))
        draft.known.add(item.id)
        draft.transaction.evidence.append((item.id, draft.now_ns))
        if machine.alarm and item.episode:
            draft.transaction.episodes[machine.alarm, item.episode] = draft.now_ns
        if item.snapshot and machine.alarm and machine.told.get(key_of(item), 0) > announced:
            picture = Picture(machine.alarm, item.device, item.kind, item.until_ns, item.snapshot)
            draft.transaction.pictures.append(picture)

    def _zone_of(self, item: EvidenceItem) -> str:
        if item.zone:
            return item.zone
        found = self.coverage.find(item.fleet, item.device)
        return found[1].device.zone if found and found[1].device.zone else NO_ZONE

    @staticmethod
    def _store_roster(draft: _Draft, fleet: Fleet) -> None:
        draft.transaction.rosters[fleet.name] = (fleet.derived, fleet.roster())

    def _store_ledgers(self, draft: _Draft) -> None:
        draft.transaction.ledgers.update(self.ledgers.changes())

    def _expire_ledgers(self, draft: _Draft) -> None:
        self.ledgers.expire(draft.now_ns - self._retention_ns)
        self._store_ledgers(draft)

    def _judge_coverage(self, draft: _Draft) -> None:
        """Open the faults of dark devices, clear those of devices that are watched or need not be."""
        now = self._steady()
        for fleet, watched in self.coverage.devices():
            if self.coverage.dark(fleet, watched, now):
                key = fleet.namespace, watched.device.zone
                reason = self.coverage.reason(fleet, watched, now) or NOBODY
                machine = self._zones.get(key)
                if machine is None or (fleet.name, watched.device.id) not in machine.faults:
                    machine = self._touch(draft, key)
                self._add_events(draft, machine.fault(fleet.name, watched.device.id, reason, draft.now_ns))
        for key, machine in list(self._zones.items()):
            for fleet_name, device in list(machine.faults):
                why = self._watched_again(key, fleet_name, device, now)
                if why:
                    self._touch(draft, key)
                    self._add_events(draft, machine.fault_cleared(fleet_name, device, why, draft.now_ns))

    def _watched_again(self, key: ZoneKey, fleet_name: str, device: str, now: int) -> str:
        """Why a known fault is over, or '' where it is not."""
        found = self.coverage.find(fleet_name, device)
        if found is None:
            return "is no longer declared"
        fleet, watched = found
        if (fleet.namespace, watched.device.zone) != key:
            return f"belongs to zone {watched.device.zone} now"
        return "is watched again" if self.coverage.covered(fleet, watched, now) else ""

    def _pass_time(self, draft: _Draft) -> None:
        if not self._attentive:
            return
        for key, machine in list(self._zones.items()):
            if machine.restless:
                revision = machine.revision
                events = machine.tick(draft.now_ns)
                if machine.revision != revision:
                    draft.touched.setdefault(key, revision)
                self._add_events(draft, events)
        self._judge_coverage(draft)

    def _note_zones(self, draft: _Draft) -> None:
        """Put the zones that changed into the transaction; what is idle need not be kept."""
        for key, revision in draft.touched.items():
            machine = self._zones.get(key)
            if machine is None:
                continue
            if machine.idle and draft.now_ns - machine.reset_ns > RESET_MEMORY_NS:
                del self._zones[key]
                draft.transaction.zones[key] = None
            elif machine.revision != revision:
                draft.transaction.zones[key] = machine.dump()

    def _drop_idle(self, draft: _Draft) -> None:
        for key, machine in self._zones.items():
            if machine.idle:
                draft.touched.setdefault(key, machine.revision)

    # How it runs

    async def pass_time(self) -> None:
        """What happens every now and then by itself: signs end, devices go dark or come back."""
        self._attentive = self.coverage.listening(self._steady())
        await self._durably(self._pass_time)

    async def run(self) -> None:
        """Write and let time pass until cancelled."""
        ticking = asyncio.ensure_future(self._tick())
        pruning = asyncio.ensure_future(self._prune())
        try:
            await self._write()
        finally:
            ticking.cancel()
            pruning.cancel()
            await asyncio.gather(ticking, pruning, return_exceptions=True)

    async def flush(self, timeout: float) -> bool:
        """Wait until everything taken is durable; False if `timeout` seconds passed first."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    async def _tick(self) -> None:
        tidied = kept = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            # Asked here and not where time passes: a slow disk delays that, but keeps nobody from being heard.
            self._attentive = self.coverage.listening(self._steady())
            self._enqueue(_Call(self._pass_time))
            if (now := time.monotonic()) - tidied > PRUNE_SECONDS:
                tidied = now
                self.coverage.tidy(self._steady())
                self._enqueue(_Call(self._drop_idle))
                self._enqueue(_Call(self._expire_ledgers))
            if now - kept > LEDGER_SECONDS:
                kept = now
                self.keep_ledgers()

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            before_ns = self._clock() - self._retention_ns
            try:
                while not self.failing:
                    if not await self._store.write(partial(_prune, before_ns)):
                        break
                    await asyncio.sleep(0.05)
            except sqlite3.Error as error:
                logger.warning("old history could not be removed: %s", error)

    async def _write(self) -> None:
        """Write batch after batch.

        While the store fails the zones go on in memory, ahead of the disk, and all that is not stored yet becomes one
        transaction: a fire that cannot be written down is seen all the same.
        """
        transaction, unstored = Transaction(), list[_Settled]()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending or unstored or transaction:
                batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
                started = time.perf_counter()
                try:
                    known = await self._known(batch)
                    unstored += self._apply(batch, known, transaction)
                    batch = []
                    if transaction:
                        await self._store.write(partial(_commit, transaction))
                except sqlite3.Error as error:
                    self._pending[:0] = batch
                    self.counters.commit_failures += 1
                    self._set_failing(f"the hub cannot write its database: {error}")
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._set_failing("")
                if transaction:
                    self.counters.commits += 1
                    self.counters.commit_seconds += time.perf_counter() - started
                    self.feed.publish(transaction.events)
                self._settle(unstored)
                transaction, unstored = Transaction(), []
            self._idle.set()

    async def _known(self, batch: list[_Operation]) -> set[str]:
        ids = [operation.item.id for operation in batch if isinstance(operation, _Report)]
        return await self._store.write(lambda store: store.known(ids)) if ids else set()

    def _apply(self, batch: list[_Operation], known: set[str], transaction: Transaction) -> "list[_Settled]":
        """Do the operations of `batch` in memory; returns those that somebody waits for, with their errors."""
        # What waits for a failing store is known as well as what was stored.
        draft = _Draft(known | {name for name, _ in transaction.evidence}, self._clock(), transaction)
        waiting: list[_Settled] = []
        for operation in batch:
            failure: Exception | None = None
            try:
                operation.apply(draft)
            except Exception as error:
                failure = error
                if not isinstance(operation, _Call) or operation.future is None:
                    logger.exception("could not be processed, and is not acknowledged: %.300s", operation)
            if isinstance(operation, _Report) or operation.future is not None:
                waiting.append((operation, failure))
        self._note_zones(draft)
        return waiting

    def _settle(self, operations: "list[_Settled]") -> None:
        """Tell everybody who waits that it is stored."""
        for operation, failure in operations:
            if isinstance(operation, _Report):
                self._pending_reports -= 1
                self._pending_bytes -= operation.size
            operation.done(failure)
        written, self._written = self._written, asyncio.Event()
        written.set()

    def _set_failing(self, why: str) -> None:
        if why == self.failing:
            return
        if why:
            logger.error("%s; evidence is not acknowledged until this is mended", why)
        else:
            logger.warning("the hub's database can be written again")
        self.failing = why
        changed, self.failing_changed = self.failing_changed, asyncio.Event()
        changed.set()


def _commit(transaction: Transaction, store: Store) -> None:
    store.commit(transaction)


def _prune(before_ns: int, store: Store) -> int:
    return store.prune(before_ns)

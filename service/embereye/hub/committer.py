"""The committer: the only writer of the hub's store.

Every change is an `Operation` in one queue: a report, a person's action, the passing of time. `run` applies a batch of
operations in memory and writes the result as one transaction. Evidence, the zones' steps and the events of those steps
thus become durable together or not at all. Only then are operations finished (evidence acknowledged, people's calls
answered) and events published. The next batch gathers while the previous one is being written.

If a write fails, the hub continues in memory: batches are applied to the same open transaction, and their events are
published as unstored. The committer tries to reconnect every `retry_seconds` and then writes everything at once. If
the database comes back without commits that it had acknowledged, the transaction also carries the hub's full state,
which replaces what the database contains.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.evidence import EVIDENCE, RECENT, committed_keys
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.zones import ZoneKey
from embereye.process.condition import Condition
from embereye.process.tasks import beside
from embereye.process.timing.clock import Timeline
from embereye.v1.alarms_pb2 import AlarmEvent

logger = logging.getLogger(__name__)

BATCH = 2_000  # operations in one transaction
RETRY_SECONDS = 0.5  # between attempts to write while the store fails


class StoreFailingError(Exception):
    """The database cannot be written now."""


@dataclass
class Draft:
    """The open transaction, to which operations add."""

    known: set[str]  # keys of reports that are committed already, or part of the transaction
    now_ns: int  # on the hub's timeline, nanoseconds since the Unix epoch
    transaction: Transaction
    stepped_ns: int = 0  # how far the wall clock is ahead; add it to times for people
    touched: dict[ZoneKey, int] = field(default_factory=dict)  # zones' revisions before the transaction


class Operation(Protocol):
    """A change of the hub's state."""

    @property
    def report_keys(self) -> Sequence[str]:
        """The keys under which its report may be committed already; none if it brings no report."""

    @property
    def is_awaited(self) -> bool:
        """True if `finish` has to be called."""

    def apply(self, draft: Draft) -> None:
        """Change the state in memory and add to `draft` what has to be stored."""

    def finish(self, error: Exception | None) -> None:
        """Note that the operation is durable, or that `apply` raised `error`."""


@dataclass
class Step:
    """An operation that brings no report: a person's action, a roster, a fault, the passing of time."""

    action: Callable[[Draft], None]
    future: "asyncio.Future[None] | None" = None  # of its caller; a step whose caller has left is not applied
    on_durable: Callable[[], None] | None = None
    report_keys: Sequence[str] = field(default=(), init=False)

    @property
    def is_awaited(self) -> bool:
        """True if there is a caller or a callback."""
        return self.future is not None or self.on_durable is not None

    def apply(self, draft: Draft) -> None:
        """Run the action, unless its caller has left."""
        if self.future is None or not self.future.done():
            self.action(draft)

    def finish(self, error: Exception | None) -> None:
        """Run the callback and answer the caller."""
        if self.on_durable is not None and error is None:
            self.on_durable()
        if self.future is None or self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


@dataclass
class CommitCounters:
    """Counters since the start, read when metrics are scraped."""

    commits: int = 0
    commit_seconds: float = 0.0
    failures: int = 0


_Applied = tuple[Operation, Exception | None]


class Committer:
    """Applies operations in order of arrival and commits them in batches.

    | callback | called |
    | --- | --- |
    | `begin()` | before the operations of a batch |
    | `seal(draft)` | after the operations of a batch, before it is written |
    | `publish(events)` | once a transaction is durable |
    | `publish_unstored(events)` | while the store fails, with the new events |
    | `full_state()` | after the database lost commits; returns the hub's complete state |

    Everything but the writing happens on the event loop's thread.
    """

    def __init__(
        self,
        store: StoreThreads,
        *,
        timeline: Timeline,
        seal: Callable[[Draft], None],
        publish: Callable[[list[AlarmEvent]], None],
        publish_unstored: Callable[[list[AlarmEvent]], None] = lambda _: None,
        begin: Callable[[], None] = lambda: None,
        full_state: Callable[[], Transaction] = Transaction,
    ) -> None:
        self._store = store
        self._timeline = timeline
        self._seal = seal
        self._publish = publish
        self._publish_unstored = publish_unstored
        self._known_keys: set[str] = set()  # keys of reports that are committed already, or in the open transaction
        self._published_unstored = 0  # events of the open transaction that were published although not stored
        self._begin = begin
        self._full_state = full_state
        self._pending: list[Operation] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.retry_seconds = RETRY_SECONDS
        self.counters = CommitCounters()
        self._recent: OrderedDict[str, None] = OrderedDict()  # keys of committed reports, newest last
        self._writing = Condition(logger, begin=logging.ERROR)

    def enqueue(self, operation: Operation) -> None:
        """Queue `operation` for the next transaction. The queue is unbounded: callers with many limit themselves."""
        self._pending.append(operation)
        self._idle.clear()
        self._arrived.set()

    @property
    def open_reports(self) -> int:
        """The number of reports of the open transaction, duplicates included."""
        return len(self._known_keys)

    async def commit(self, action: Callable[[Draft], None]) -> None:
        """Run `action` in the next transaction and wait until it is durable.

        Raises the errors of `action`, and StoreFailingError if nothing can be written. If the call is cancelled or
        raises StoreFailingError, an action that has not run yet will not run; one that has run may become durable.
        """
        if self.failing:
            raise StoreFailingError(self.failing)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        self.enqueue(Step(action, future))
        try:
            await future
        finally:
            self._waiting.discard(future)

    async def wait_for_batch(self) -> None:
        """Wait until the current batch is durable, or its write has failed."""
        await self._written.wait()

    async def flush(self, timeout: float) -> bool:
        """Wait until everything enqueued is durable; False if `timeout` seconds passed first."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Write batch after batch until cancelled.

        While the store fails, operations are applied in memory and collect in one transaction, so that people see a
        fire that cannot be stored.
        """
        transaction, applied = Transaction(), list[_Applied]()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending or applied or transaction:
                batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
                started = time.perf_counter()
                try:
                    known = await self._committed_keys(batch)
                    applied += self._apply(batch, known, transaction)
                    batch = []
                    self._publish_unstored_events(transaction)
                    if self._store.lost_commits and transaction.full_state is None:
                        transaction.full_state = self._full_state()
                    if transaction or self._store.failing or self.failing:
                        await self._store.write(partial(_write, transaction))
                except StoreError as error:
                    self._pending[:0] = batch
                    self.counters.failures += 1
                    self.note_failing(str(error))
                    self._publish_unstored_events(transaction)
                    await self._continue_in_memory(transaction, applied)
                    continue
                self._writing.clear("the hub's database can be written again")
                self._published_unstored = 0
                if transaction:
                    self.counters.commits += 1
                    self.counters.commit_seconds += time.perf_counter() - started
                    for key in transaction[EVIDENCE]:
                        self._remember(key)
                    self._publish(transaction[EVENTS])
                self._finish(applied)
                transaction, applied, self._known_keys = Transaction(), [], set()
            self._idle.set()

    async def _continue_in_memory(self, transaction: Transaction, applied: list[_Applied]) -> None:
        """Apply operations in memory and publish their events at once, until the store can be reached again."""
        async with beside(self._reconnect(), name="hub-reconnect") as reconnecting:
            while not reconnecting.done():
                while self._pending:
                    batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
                    applied += self._apply(batch, self._remembered(batch), transaction)
                    self._publish_unstored_events(transaction)
                self._arrived.clear()
                async with beside(self._arrived.wait(), name="hub-arrived") as arriving:
                    await asyncio.wait({reconnecting, arriving}, return_when=asyncio.FIRST_COMPLETED)
            reconnecting.result()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(self.retry_seconds)
            try:
                await self._store.write(Store.reconnect)
            except StoreError as error:
                self.counters.failures += 1
                self.note_failing(str(error))
            else:
                return

    def _publish_unstored_events(self, transaction: Transaction) -> None:
        if self.failing:
            events = transaction[EVENTS][self._published_unstored :]
            self._published_unstored += len(events)
            self._publish_unstored(events)

    async def _committed_keys(self, batch: list[Operation]) -> set[str]:
        """The keys of the reports in `batch` that are committed already; only recent ones while the store fails."""
        keys = [key for operation in batch for key in operation.report_keys]
        if not keys:
            return set()
        try:
            return await self._store.write(partial(committed_keys, keys=keys))
        except StoreError as error:
            self.note_failing(str(error))
            return self._remembered(batch)

    def _remembered(self, batch: list[Operation]) -> set[str]:
        return {key for operation in batch for key in operation.report_keys if key in self._recent}

    def restore(self, stored: StoredState) -> None:
        """Restore the keys of the newest committed reports."""
        for key in stored[EVIDENCE]:
            self._remember(key)

    def add_state(self, state: Transaction) -> None:
        """Add the keys of the newest committed reports to `state`."""
        state[EVIDENCE].update(dict.fromkeys(self._recent, self._timeline.now_ns()))

    def _remember(self, key: str) -> None:
        self._recent[key] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _apply(self, batch: list[Operation], known: set[str], transaction: Transaction) -> list[_Applied]:
        """Apply the operations of `batch` in memory; returns the awaited ones with their errors."""
        self._begin()
        self._known_keys |= known
        draft = Draft(self._known_keys, self._timeline.now_ns(), transaction, self._timeline.stepped_ns())
        transaction.recorded_ns = draft.now_ns
        awaited: list[_Applied] = []
        for operation in batch:
            failure: Exception | None = None
            try:
                operation.apply(draft)
            except Exception as error:
                failure = error
                if not isinstance(operation, Step) or operation.future is None:
                    logger.exception("operation: %.300s: failed, its report is not acknowledged", operation)
            if operation.is_awaited:
                awaited.append((operation, failure))
        self._seal(draft)
        return awaited

    def _finish(self, applied: list[_Applied]) -> None:
        """Finish the awaited operations of a durable transaction."""
        for operation, failure in applied:
            operation.finish(failure)
        self._wake()

    def _wake(self) -> None:
        written, self._written = self._written, asyncio.Event()
        written.set()

    @property
    def failing(self) -> str:
        """The reason why the store cannot be written; '' while it can."""
        return self._writing.why

    def note_failing(self, why: str) -> None:
        """Note that the database cannot be written, and why."""
        why = f"the hub cannot write its database: {why}"
        if self._writing.fail(why, "%s; evidence is not acknowledged until it can be written again", why):
            for future in self._waiting:
                if not future.done():
                    sentence = f"{why}; the request may be stored once it can be written again"
                    future.set_exception(StoreFailingError(sentence))
            self._wake()


def _write(transaction: Transaction, store: Store) -> None:
    store.commit(transaction)

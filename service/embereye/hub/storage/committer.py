"""The only writer of the hub's store, and the boundary of its transactions.

What is to change waits in one queue. A batch of it becomes one transaction: evidence, the steps that it causes in its
zones, and the events of those steps are durable together or not at all. Only then is evidence acknowledged, are calls
of people answered and events published. The next batch gathers while this one is being written.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from embereye.hub.databases.interface import StoreError
from embereye.hub.storage.store import RECENT, Store, StoreThreads, Transaction
from embereye.process.tasks import beside
from embereye.process.timing.clock import Timeline
from embereye.v1.alarms_pb2 import AlarmEvent

logger = logging.getLogger(__name__)

BATCH = 2_000  # operations in one transaction
RETRY_SECONDS = 0.5  # between attempts to write while the store fails

ZoneKey = tuple[str, str]  # namespace, name


class StoreFailingError(Exception):
    """Nothing can be written now."""


@dataclass
class Draft:
    """A transaction in the making, which operations add to."""

    known: set[str]  # ids of reports that were committed before, or are in the transaction
    now_ns: int  # on the hub's timeline, nanoseconds since the Unix epoch
    transaction: Transaction
    stepped_ns: int = 0  # to be added to times for people: how far ahead the wall clock is
    touched: dict[ZoneKey, int] = field(default_factory=dict)  # zones' revisions before the transaction


class Operation(Protocol):
    """Something that changes what the hub knows."""

    @property
    def evidence_id(self) -> str:
        """Id of the report that it brings; '' where it brings none."""
        ...

    @property
    def awaited(self) -> bool:
        """Whether anybody is to be told of its end."""
        ...

    def apply(self, draft: Draft) -> None:
        """Change what is in memory and add to `draft` what has to be stored."""
        ...

    def finish(self, error: Exception | None) -> None:
        """Learn that it is durable, or the `error` that `apply` raised."""
        ...


@dataclass
class Step:
    """An operation that brings no report: a person's action, a roster, a fault, the passing of time."""

    action: Callable[[Draft], None]
    future: "asyncio.Future[None] | None" = None  # of who waits for it; where that is over it is not done any more
    on_durable: Callable[[], None] | None = None
    evidence_id: str = field(default="", init=False)

    @property
    def awaited(self) -> bool:
        """Whether anybody is to be told of its end."""
        return self.future is not None or self.on_durable is not None

    def apply(self, draft: Draft) -> None:
        """Do it, unless whoever waited has given up."""
        if self.future is None or not self.future.done():
            self.action(draft)

    def finish(self, error: Exception | None) -> None:
        """Answer whoever waits."""
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
    """Plain slots, read when metrics are scraped."""

    commits: int = 0
    commit_seconds: float = 0.0
    failures: int = 0


_Applied = tuple[Operation, Exception | None]


class Committer:
    """Applies operations in the order they came and commits them in batches.

    `begin()` is called once per batch, before its operations, and `seal(draft)` after them, before it is written;
    `publish(events)` once it is durable, and before that, where it cannot be written for now,
    `publish_unstored(events)` with what came since. `hold()` returns all that the hub goes on from, for a database that
    lost some of it. Everything but the writing happens on the event loop's thread.
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
        hold: Callable[[], Transaction] = Transaction,
    ) -> None:
        self._store = store
        self._timeline = timeline
        self._seal = seal
        self._publish = publish
        self._publish_unstored = publish_unstored
        self._held: set[str] = set()  # ids of reports that the present transaction need not have, or has
        self._told = 0  # events of the present transaction that were told although they are not stored
        self._begin = begin
        self._hold = hold
        self._pending: list[Operation] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.counters = CommitCounters()
        self._recent: OrderedDict[str, None] = OrderedDict()  # ids of reports that were committed, newest last
        self.failing = ""  # why the store cannot be written; empty: it can

    def enqueue(self, operation: Operation) -> None:
        """Have `operation` done in the next transaction. Unbounded: who brings much asks for room first."""
        self._pending.append(operation)
        self._idle.clear()
        self._arrived.set()

    @property
    def held(self) -> int:
        """How many reports the transaction in the making has, or need not have."""
        return len(self._held)

    async def commit(self, action: Callable[[Draft], None]) -> None:
        """Do `action` in the next transaction and wait until it is durable.

        Raises what `action` raises, and StoreFailingError where nothing can be written. A call that is cancelled, or
        that gets StoreFailingError, leaves an action undone that was not begun; one that was begun may become durable.
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

    async def batch_written(self) -> None:
        """Wait until the batch that is being written is durable, or is found not to be for now."""
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

        While the store fails the zones go on in memory, ahead of the disk, and all that is not stored yet becomes one
        transaction: a fire that cannot be written down is seen all the same.
        """
        transaction, applied = Transaction(), list[_Applied]()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending or applied or transaction:
                batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
                started = time.perf_counter()
                try:
                    known = await self._known(batch)
                    applied += self._apply(batch, known, transaction)
                    batch = []
                    self._tell_unstored(transaction)
                    if self._store.lost_commits and transaction.held is None:
                        transaction.held = self._all_held()
                    if transaction or self._store.failing or self.failing:
                        await self._store.write(partial(_write, transaction))
                except StoreError as error:
                    self._pending[:0] = batch
                    self.counters.failures += 1
                    self.note_failing(str(error))
                    self._tell_unstored(transaction)
                    await self._go_on(transaction, applied)
                    continue
                self._set_failing("")
                self._told = 0
                if transaction:
                    self.counters.commits += 1
                    self.counters.commit_seconds += time.perf_counter() - started
                    for name, _ in transaction.evidence:
                        self._remember(name)
                    self._publish(transaction.events)
                self._finish(applied)
                transaction, applied, self._held = Transaction(), [], set()
            self._idle.set()

    async def _go_on(self, transaction: Transaction, applied: list[_Applied]) -> None:
        """Until the store can be reached again: what comes happens in memory, and is told, as soon as it comes."""
        async with beside(self._reach(), name="hub-reach") as reaching:
            while not reaching.done():
                while self._pending:
                    batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
                    applied += self._apply(batch, self._remembered(batch), transaction)
                    self._tell_unstored(transaction)
                self._arrived.clear()
                async with beside(self._arrived.wait(), name="hub-arrived") as arriving:
                    await asyncio.wait({reaching, arriving}, return_when=asyncio.FIRST_COMPLETED)
            reaching.result()

    async def _reach(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._store.write(Store.reconnect)
            except StoreError as error:
                self.counters.failures += 1
                self.note_failing(str(error))
            else:
                return

    def _all_held(self) -> Transaction:
        held = self._hold()
        now_ns = self._timeline.now_ns()
        held.evidence = [(name, now_ns) for name in self._recent]
        return held

    def _tell_unstored(self, transaction: Transaction) -> None:
        if self.failing:
            events = transaction.events[self._told :]
            self._told += len(events)
            self._publish_unstored(events)

    async def _known(self, batch: list[Operation]) -> set[str]:
        """Which reports of `batch` were committed before; of the newest alone where the store cannot be asked."""
        ids = [operation.evidence_id for operation in batch if operation.evidence_id]
        if not ids:
            return set()
        try:
            return await self._store.write(lambda store: store.known(ids))
        except StoreError as error:
            self.note_failing(str(error))
            return self._remembered(batch)

    def _remembered(self, batch: list[Operation]) -> set[str]:
        return {operation.evidence_id for operation in batch if operation.evidence_id in self._recent}

    def restore(self, recent: Iterable[str]) -> None:
        """Go on from the ids of the newest reports, oldest first."""
        for name in recent:
            self._remember(name)

    def _remember(self, name: str) -> None:
        self._recent[name] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _apply(self, batch: list[Operation], known: set[str], transaction: Transaction) -> list[_Applied]:
        """Do the operations of `batch` in memory; returns those that somebody waits for, with their errors."""
        self._begin()
        self._held |= known
        draft = Draft(self._held, self._timeline.now_ns(), transaction, self._timeline.stepped_ns())
        transaction.recorded_ns = draft.now_ns
        awaited: list[_Applied] = []
        for operation in batch:
            failure: Exception | None = None
            try:
                operation.apply(draft)
            except Exception as error:
                failure = error
                if not isinstance(operation, Step) or operation.future is None:
                    logger.exception("could not be processed, and is not acknowledged: %.300s", operation)
            if operation.awaited:
                awaited.append((operation, failure))
        self._seal(draft)
        return awaited

    def _finish(self, applied: list[_Applied]) -> None:
        """Tell everybody who waits that it is durable."""
        for operation, failure in applied:
            operation.finish(failure)
        self._wake()

    def _wake(self) -> None:
        written, self._written = self._written, asyncio.Event()
        written.set()

    def note_failing(self, why: str) -> None:
        """The database cannot be written, for this reason."""
        self._set_failing(f"the hub cannot write its database: {why}")

    def _set_failing(self, why: str) -> None:
        if why == self.failing:
            return
        if why:
            logger.error("%s; evidence is not acknowledged until this is mended", why)
            for future in self._waiting:
                if not future.done():
                    sentence = f"{why}; what was asked for may be stored once this is mended"
                    future.set_exception(StoreFailingError(sentence))
            self._wake()
        else:
            logger.warning("the hub's database can be written again")
        self.failing = why


def _write(transaction: Transaction, store: Store) -> None:
    store.commit(transaction)

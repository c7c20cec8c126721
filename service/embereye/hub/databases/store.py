"""The hub's store: reads and writes its complete durable state in a database.

`Store` is for one thread. `commit` writes a `Transaction`, and `load` reads the `StoredState` from which a hub starts:
both are loops over the tables of `schema`. The functions in `tables/` search it. Rows that cannot be read are skipped,
counted and logged once.

`StoreThreads` makes two stores available to the event loop: one thread writes, another reads, so that a long search
never delays an alarm. A call that takes too long is interrupted: a database that does not answer counts as failing.

If the outcome of a commit is unknown (the connection broke), the next transaction starts with everything from the
failed one. `owned_transaction` reports whether the failed one took effect. Events and audit entries, the only rows that
cannot be written twice, are then skipped (`_tried`, `_stored`).
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from embereye.hub.database import Database, OwnedError, ReloadRequiredError, StoreError
from embereye.hub.databases import schema
from embereye.hub.databases.losses import describe_losses, note_loss, read_losses
from embereye.hub.databases.salvage import CURSORS_AHEAD
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.roles import Role
from embereye.hub.tables.access import AUDIT, AuditEntry
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.table import Log, RowReader, Table
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.process.extras import needed_by
from embereye.process.files import open_file, system_errors
from embereye.process.lifecycle import UserError
from embereye.process.timing.silence import LATE_SECONDS
from embereye.units import counted

logger = logging.getLogger(__name__)
R = TypeVar("R")

PATIENCE_SECONDS = 4.0  # how long a database may take to answer, before alarms are shown without it
MOST_PATIENCE_SECONDS = 60.0
FOLDER_SECONDS = 5.0  # how long to wait for the folder's lock, which another replica may be about to release
LOAD_SECONDS = 5.0  # how long to try to read the stored state, before the hub starts without it
LOAD_RETRY_SECONDS = 0.25


def lock_folder(folder: Path) -> int:
    """Lock `folder` for this process, for as long as the returned descriptor is open."""
    with system_errors(f"--data {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open_lock(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(f"--data {folder}: is in use by another hub. Stop it, or name another folder.") from error
    return descriptor


def _open_lock(folder: Path) -> int:
    file = folder / "hub.lock"
    # On a full or read-only disk, the hub can still serve what is stored there.
    with contextlib.suppress(OSError):
        return open_file(file, os.O_RDWR | os.O_CREAT)
    # Lock the same file if it exists: another hub may have it locked, or may start once the disk can be written.
    with contextlib.suppress(OSError):
        return open_file(file, os.O_RDONLY)
    return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)


class Store(RowReader):
    """The hub's durable state in a database, for one thread. Every method may raise StoreError.

    If the database cannot be written when it is opened, `failing` says why; reading works until a `commit` succeeds.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        # Numbers of rows of logs in failed commits: in the latest attempt, and known to be stored.
        self._tried = dict[Table[Any, Any], int]()
        self._stored = dict[Table[Any, Any], int]()
        self.unloaded = ""  # why the stored state could not be read at the start; '' if it could
        self.is_incomplete = False  # loading met damage, so the hub has less in memory than can be salvaged

    @property
    def failing(self) -> str:
        """The reason why the database cannot be written; '' if it can, or if that is not known yet."""
        return self.db.failing or self.unloaded

    def note_if_lost(self, folder: Path) -> None:
        """If the database is new although `folder` was used before, list its loss there and in the audit trail."""
        if not self.db.is_new or not _was_used(folder) or self.failing:
            return
        loss = f"{self.db.name}: is gone or empty, although this hub has run before: its history and state are lost."
        note_loss(folder, loss)
        now_ns = time.time_ns()
        entry = AuditEntry(now_ns, "hub", Role.ADMIN, "", "database lost", self.db.name, loss, recorded_ns=now_ns)
        with self.db.transaction():
            AUDIT.write(self.db, [entry])
            # Subscribers that know the lost events must not miss new ones.
            self.db.set_newest_cursor(CURSORS_AHEAD)

    def load(self) -> StoredState:
        """Read the hub's stored state; rows that cannot be read are skipped, counted and logged."""
        loaded = {table: table.load(self) for table in schema.ALL}
        times = [
            time_ns
            for table in schema.ALL
            if table.newest_time
            for time_ns in self.rows(table.newest_time, lambda row: int(row[0] or 0))
        ]
        return StoredState(loaded, self.db.newest_cursor(), max(times, default=0))

    def commit(self, transaction: Transaction) -> None:
        """Make `transaction` durable. StoreError: it is not durable, or its outcome is unknown.

        After an error, the next transaction has to start with everything from this one, which may turn out to be
        stored. ReloadRequiredError if the database no longer matches the hub's state.
        """
        self.reconnect()
        full_state = transaction.full_state
        if self.db.lost_commits and full_state is None:
            raise StoreError(f"{self.db.name} lost {counted(self.db.lost_commits, 'transaction')}")
        if self.db.lost_commits:
            self._stored = {}
        events = transaction[EVENTS]
        newest = max(events[-1].cursor if events else 0, full_state.newest if full_state else 0)
        with self.db.owned_transaction(newest) as took_effect:
            if took_effect:
                self._stored = self._tried
            stored = self._stored
            self._tried = {table: len(rows) for table, rows in transaction.items() if isinstance(table, Log)}
            for table in schema.ALL if full_state else ():
                if full_state and table in full_state.changes:
                    table.rewrite(self.db, full_state.changes[table])
            for table in schema.ALL:
                if changes := transaction.changes.get(table):
                    skipped = stored.get(table, 0)
                    table.write(self.db, changes[skipped:] if skipped else changes, transaction.recorded_ns)
        self._tried, self._stored = {}, {}
        if full_state:
            self.db.lost_commits = 0

    def prune(self, now_ns: int, retention_ns: int) -> int:
        """Remove some rows older than `retention_ns` at `now_ns`; returns their number, 0 when none are left."""
        with self.db.transaction():
            return sum(table.prune(self.db, now_ns, retention_ns) for table in schema.ALL)

    def check(self) -> None:
        """Raise StoreError if the database cannot be reached any more."""
        if not self.failing:
            self.db.check()

    def reconnect(self) -> None:
        """Connect again to a database that failed; StoreError if it still fails.

        ReloadRequiredError if the stored state, which could not be read completely at the start, can be read now.
        """
        if self.unloaded:
            self.load()
            raise ReloadRequiredError(f"{self.db.name}: can be read again, which was not possible at the start")
        if self.db.failing:
            self.db.recover()
            if self.is_incomplete:
                raise ReloadRequiredError(f"{self.db.name}: was damaged and replaced: it is loaded from the new file")

    def interrupt(self) -> None:
        """Interrupt the current call; see `Database.interrupt`."""
        self.db.interrupt()

    def close(self) -> None:
        """Close the database."""
        self.db.close()


def _was_used(folder: Path) -> bool:
    """True if a hub has run with `folder`: it creates folders for clips once it serves."""
    clips = folder / "clips"
    return clips.is_dir() and any(clips.iterdir())


async def _await_patiently(running: "asyncio.Future[R]", store: Store, seconds: float) -> bool:
    """Wait until `running`, which uses `store`, is done; interrupt it after `seconds`. True if it was done in time.

    If this process itself was stopped meanwhile, `running` gets the same time once more.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    done, _ = await asyncio.wait({running}, timeout=seconds)
    if not done and loop.time() - due > LATE_SECONDS:
        done, _ = await asyncio.wait({running}, timeout=seconds)
    patient = bool(done)
    while not done:
        store.interrupt()
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
    return patient


def open_database(folder: Path, address: str = "", *, writer: bool = True, advertisement: str = "") -> Database:
    """Open the database at `address`: a PostgreSQL connection string, or "@FILE" that contains one; '': SQLite.

    SQLite's file is in `folder`. `advertisement` is this replica's address for the others. UserError if the database
    cannot be used; OwnedError if another hub owns it.
    """
    if not address:
        return SqliteDatabase(folder / "hub.sqlite")
    with needed_by("a database in PostgreSQL", "psycopg", "postgres"):
        from embereye.hub.databases.postgres import PostgresDatabase
    return PostgresDatabase(lambda: read_address(address), writer=writer, advertisement=advertisement)


def read_address(address: str) -> str:
    """The connection string in `address`, or in the file that it names as "@FILE"."""
    if not address.startswith("@"):
        return address
    try:
        return Path(address[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise UserError(f"{address[1:]}: the database's address cannot be read from this file ({reason})") from error


class StoreThreads:
    """The store for the event loop: one thread writes, another reads, so that a long search delays no alarm."""

    def __init__(self, folder: Path, address: str = "", advertisement: str = "") -> None:
        """`address` and `advertisement` as in `open_database`."""
        self._advertisement = advertisement
        self._folder = folder
        self._address = address
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="hub-history")
        self._lock: int | None = None
        self._patience = PATIENCE_SECONDS
        self.losses: list[str] = []  # of the database, as listed in the folder

    def _open(self, *, writer: bool = True) -> Store:
        return Store(open_database(self._folder, self._address, writer=writer, advertisement=self._advertisement))

    async def open(self) -> StoredState:
        """Lock the folder, open the database, and return the stored state."""
        loop = asyncio.get_running_loop()
        self._lock = await self._lock_folder()
        self._store = await loop.run_in_executor(self._writer, self._open)
        try:
            await loop.run_in_executor(self._writer, self._store.note_if_lost, self._folder)
        except (OSError, StoreError) as error:
            logger.error("the loss of the database cannot be recorded: %s", error)  # noqa: TRY400 -- says everything
        await self._refresh_losses()
        if self.loss:
            logger.error(self.loss)
        if self._store.failing and self._advertisement:
            # Another replica may own it, or may have owned it a moment ago: only the owner is allowed to serve.
            raise OwnedError(self._store.failing)
        if self._store.failing:
            logger.error("the database cannot be written: %s; the hub serves what is stored", self._store.failing)
        if self._address or not self._store.failing:
            self._history = await loop.run_in_executor(self._reader, partial(self._open, writer=False))
        if self._address and self._store.failing:
            return StoredState()
        deadline = loop.time() + LOAD_SECONDS
        while loop.time() < deadline:
            try:
                loading = loop.run_in_executor(self._writer, self._store.load)
                await _await_patiently(loading, self._store, MOST_PATIENCE_SECONDS)
                state = await loading
            except StoreError as error:
                self._store.unloaded = str(error)
                await asyncio.sleep(LOAD_RETRY_SECONDS)
            else:
                self._store.unloaded = ""
                if self._store.db.is_damaged:
                    await self._replace_damaged()
                return state
        if self._advertisement:
            raise OwnedError(self._store.unloaded)
        logger.error("the database cannot be read: %s; the hub starts empty until it can", self._store.failing)
        return StoredState()

    async def _replace_damaged(self) -> None:
        """Replace the database, in which loading met damage. ReloadRequiredError once that succeeds, now or later."""
        self._store.is_incomplete = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._store.reconnect)
        except StoreError as error:
            logger.error("%s; the hub serves what can be read", error)  # noqa: TRY400 -- the message says everything

    async def _refresh_losses(self) -> None:
        loop = asyncio.get_running_loop()
        self.losses = await loop.run_in_executor(None, read_losses, self._folder)

    @property
    def loss(self) -> str:
        """A sentence on the newest loss of the database; '' if there is none, or its file was removed."""
        return describe_losses(self._folder, self.losses)

    async def check(self) -> None:
        """Notice lost databases and whether losses are still listed. StoreError if the database cannot be reached."""
        await self._refresh_losses()
        await self.write(Store.check)

    async def _lock_folder(self) -> int:
        """Lock the folder; waits for a replica that has just released the database and may still have the lock."""
        deadline = time.monotonic() + (FOLDER_SECONDS if self._advertisement else 0)
        while True:
            try:
                return lock_folder(self._folder)
            except UserError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(0.1)

    @property
    def failing(self) -> str:
        """The reason why the database cannot be written; '' if it can, as far as is known."""
        return self._store.failing

    @property
    def lost_commits(self) -> int:
        """The number of lost commits, as in `Database`. If not 0, the next transaction needs `full_state`."""
        return self._store.db.lost_commits

    @property
    def unreadable(self) -> int:
        """The number of rows that were skipped because they cannot be read."""
        return self._store.unreadable + (self._history.unreadable if hasattr(self, "_history") else 0)

    async def write(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the writing thread.

        A call that takes longer than `_patience` is interrupted and fails. The next one gets twice as long, because
        there may only be much to write.
        """
        running = asyncio.get_running_loop().run_in_executor(self._writer, lambda: method(self._store))
        patient = await _await_patiently(running, self._store, self._patience)
        self._patience = PATIENCE_SECONDS if patient else min(2 * self._patience, MOST_PATIENCE_SECONDS)
        return await running

    async def read(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the reading thread, or in the writing one if only that could be opened."""
        if not hasattr(self, "_history"):
            return await self.write(method)

        def attempt() -> R:
            try:
                return method(self._history)
            except StoreError:
                # A connection that broke while unused is noticed only now; the second attempt connects again.
                return method(self._history)

        running = asyncio.get_running_loop().run_in_executor(self._reader, attempt)
        await _await_patiently(running, self._history, MOST_PATIENCE_SECONDS)
        return await running

    async def close(self) -> None:
        """Finish the running calls, close both stores and unlock the folder."""
        loop = asyncio.get_running_loop()
        for executor, name in ((self._reader, "_history"), (self._writer, "_store")):
            if hasattr(self, name):
                await loop.run_in_executor(executor, getattr(self, name).close)
            executor.shutdown(wait=False)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

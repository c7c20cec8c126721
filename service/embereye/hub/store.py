"""What the hub must not forget, in SQLite: evidence ids, zones, events, rosters."""

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from google.protobuf.message import DecodeError

from embereye.hub.access import records
from embereye.hub.access.records import AccessChanges, AuditEntry, StoredAccess
from embereye.hub.coverage.ledgers import LedgerKey, Part
from embereye.process.lifecycle import UserError
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.roster_pb2 import FleetRoster

logger = logging.getLogger(__name__)
R = TypeVar("R")

SCHEMA = 1
BUSY_SECONDS = 1.0  # to wait for a lock that somebody else's tool holds on the file
PRUNE_ROWS = 5_000  # at once, so that pruning never delays an alarm
KEPT_PICTURES = 2_000  # of past alarms; about 100 MB

TABLES = """
CREATE TABLE IF NOT EXISTS evidence (id TEXT PRIMARY KEY, received_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS evidence_received ON evidence (received_ns);
CREATE TABLE IF NOT EXISTS zones (namespace TEXT NOT NULL, name TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (cursor INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL,
    namespace TEXT NOT NULL, zone TEXT NOT NULL, event BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_zone ON events (zone, cursor);
CREATE TABLE IF NOT EXISTS rosters (fleet TEXT PRIMARY KEY, derived INTEGER NOT NULL, roster BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledgers (fleet TEXT NOT NULL, device TEXT NOT NULL, shard TEXT NOT NULL,
    since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, final INTEGER NOT NULL, ledger BLOB NOT NULL,
    PRIMARY KEY (fleet, device, shard, since_ns)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (fleet TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pictures (number INTEGER PRIMARY KEY AUTOINCREMENT, alarm TEXT NOT NULL,
    device TEXT NOT NULL, kind INTEGER NOT NULL, time_ns INTEGER NOT NULL, jpeg BLOB NOT NULL,
    UNIQUE (alarm, device, kind));
CREATE TABLE IF NOT EXISTS episodes (alarm TEXT NOT NULL, episode TEXT NOT NULL, time_ns INTEGER NOT NULL,
    PRIMARY KEY (alarm, episode)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS canaries (fleet TEXT NOT NULL, shard TEXT NOT NULL, alarmed_ns INTEGER NOT NULL,
    delay_ns INTEGER NOT NULL, PRIMARY KEY (fleet, shard)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class StoredPicture:
    """What a device saw when its sign joined an alarm."""

    alarm: str
    device: str
    kind: int
    time_ns: int
    jpeg: bytes


@dataclass
class Transaction:
    """Everything that takes effect together, or not at all."""

    evidence: list[tuple[str, int]] = field(default_factory=list)  # id, received
    zones: dict[tuple[str, str], bytes | None] = field(default_factory=dict)  # None: removed
    events: list[AlarmEvent] = field(default_factory=list)  # ascending cursor
    rosters: dict[str, tuple[bool, FleetRoster] | None] = field(default_factory=dict)  # derived?, None: removed
    forgotten: dict[str, bool] = field(default_factory=dict)  # fleet → forgotten from now on, or no longer
    pictures: list[StoredPicture] = field(default_factory=list)
    ledgers: dict[LedgerKey, Part | None] = field(default_factory=dict)  # None: removed
    episodes: dict[tuple[str, str], int] = field(default_factory=dict)  # alarm, episode: until
    # fleet, shard: when its latest canary was an alarm, after how many nanoseconds; None: removed
    canaries: dict[tuple[str, str], tuple[int, int] | None] = field(default_factory=dict)
    access: AccessChanges = field(default_factory=AccessChanges)
    recorded_ns: int = 0  # when, on the hub's timeline, which retention goes by; an event's own time is for people

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self) if each.name != "recorded_ns")


@dataclass(frozen=True)
class StoredState:
    """What was stored when the hub last ended, however it ended."""

    zones: list[bytes]
    rosters: list[tuple[bool, FleetRoster]]  # derived?
    forgotten: list[str]
    ledgers: list[Part]
    cursor: int  # of the newest event there ever was
    access: StoredAccess = field(default_factory=StoredAccess)
    latest_ns: int = 0  # the newest time on the hub's timeline; 0: nothing was stored yet
    canaries: list[tuple[str, str, int, int]] = field(default_factory=list)  # fleet, shard, when alarmed, delay


def lock_folder(folder: Path) -> int:
    """Make `folder` this process's own for as long as the returned descriptor is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder / "hub.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:  # a full disk, or one that cannot be written: what it holds can be served all the same
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"--data {folder}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(f"--data {folder} is in use by another hub: stop that one, or name another folder") from error
    return descriptor


class Store:
    """The database. Not to be shared between threads.

    Where it cannot be written when it is opened, `failing` says why, and it serves what can be read until a `commit`
    succeeds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failing = ""
        self.unreadable = 0  # rows that were passed over
        self._loaded = 0  # cursor of the newest event that the hub went on from
        try:
            self._db = self._open()
        except sqlite3.OperationalError as error:
            self.failing = str(error)
            self._db = self._open_readable()

    def _open(self) -> sqlite3.Connection:
        """A connection that can write; sqlite3.OperationalError where there is none to be had now."""
        db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            self._check_version(db)
            # FULL: an acknowledgement promises that the report outlives a power cut.
            db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {TABLES} {records.TABLES}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                raise UserError(f"{self._path} cannot be used as the hub's database: {error}") from error
            raise
        return db

    def _open_readable(self) -> sqlite3.Connection:
        """A connection that reads what there is, whatever it takes; an empty database where nothing can be read."""
        # Without room for the file that readers share, one alone can read. The last one misses what is in the log.
        for options, mode in (("mode=rw", "EXCLUSIVE"), ("mode=ro", "NORMAL"), ("immutable=1", "NORMAL")):
            uri = f"file:{quote(str(self._path))}?{options}"
            with contextlib.suppress(sqlite3.OperationalError):
                db = sqlite3.connect(uri, uri=True, isolation_level=None)
                try:
                    db.execute(f"PRAGMA locking_mode = {mode}")
                    self._check_version(db)
                    db.execute("SELECT COUNT(*) FROM zones")
                except sqlite3.Error:
                    db.close()
                    raise
                return db
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(TABLES + records.TABLES)
        return db

    def _check_version(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise UserError(f"{self._path} was written by a newer version of the hub (format {version}, not {SCHEMA})")

    def _reopen(self) -> None:
        """Go on with a connection that can write; sqlite3.OperationalError where that is still not to be had.

        RuntimeError where it turns out to hold more than could be read: the hub has to begin anew, from all of it.
        """
        # As it is the only one allowed, the one that reads has to go first.
        self._db.close()
        try:
            self._db = self._open()
        except sqlite3.OperationalError:
            self._db = self._open_readable()
            raise
        newest = self._newest_cursor()
        if newest > self._loaded:
            raise RuntimeError(
                f"{self._path} holds events up to {newest}, of which {self._loaded} could be read before"
            )
        self.failing = ""

    def _newest_cursor(self) -> int:
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
        return max(self._rows(query, lambda row: int(row[0])), default=0)

    def load(self) -> StoredState:
        """All that the hub goes on from; what cannot be read is passed over, counted and logged."""
        self._loaded = self._newest_cursor()
        return StoredState(
            zones=list(self._rows("SELECT state FROM zones", lambda row: bytes(row[0]))),
            rosters=list(
                self._rows(
                    "SELECT derived, roster FROM rosters",
                    lambda row: (bool(row[0]), FleetRoster.FromString(row[1])),
                )
            ),
            forgotten=list(self._rows("SELECT fleet FROM forgotten", lambda row: str(row[0]))),
            ledgers=list(
                self._rows(
                    "SELECT fleet, device, shard, since_ns, until_ns, final, ledger FROM ledgers ORDER BY since_ns",
                    lambda row: Part(LedgerKey(*row[:4]), int(row[4]), bool(row[5]), Ledger.FromString(row[6])),
                )
            ),
            cursor=self._loaded,
            access=records.load(self._db),
            latest_ns=self._latest_ns(),
            canaries=list(
                self._rows(
                    "SELECT fleet, shard, alarmed_ns, delay_ns FROM canaries",
                    lambda row: (str(row[0]), str(row[1]), int(row[2]), int(row[3])),
                )
            ),
        )

    def _latest_ns(self) -> int:
        newest = (
            "SELECT MAX(received_ns) FROM evidence",
            "SELECT time_ns FROM events ORDER BY cursor DESC LIMIT 1",
            "SELECT MAX(until_ns) FROM ledgers",
        )
        return max((time for query in newest for time in self._rows(query, lambda row: int(row[0] or 0))), default=0)

    def _rows(self, query: str, read: Callable[[Any], R], arguments: Sequence[object] = ()) -> Iterator[R]:
        """What `read` makes of each row of `query`; a row that it cannot read is passed over."""
        rows = self._db.execute(query, arguments)
        while True:
            try:
                row = rows.fetchone()
                if row is None:
                    return
                yield read(row)
            except sqlite3.DatabaseError as error:  # the file is damaged: there is no way past this place
                self._pass_over(query, error)
                return
            except (DecodeError, ValueError, TypeError) as error:
                self._pass_over(query, error)

    def _pass_over(self, query: str, error: Exception) -> None:
        self.unreadable += 1
        logger.error("%s: a row cannot be read and is passed over: %s (%s)", self._path, error, query)

    def known(self, ids: Iterable[str]) -> set[str]:
        """Which of `ids` were committed before."""
        wanted = list(ids)
        found: set[str] = set()
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            found.update(row[0] for row in self._db.execute(f"SELECT id FROM evidence WHERE id IN ({marks})", part))
        return found

    def commit(self, transaction: Transaction) -> None:
        """Make `transaction` durable; sqlite3.Error where that failed, and then nothing of it is stored."""
        if self.failing:
            self._reopen()
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany("INSERT OR IGNORE INTO evidence VALUES (?, ?)", transaction.evidence)
            for (namespace, name), state in transaction.zones.items():
                if state is None:
                    db.execute("DELETE FROM zones WHERE namespace = ? AND name = ?", (namespace, name))
                else:
                    db.execute("INSERT OR REPLACE INTO zones VALUES (?, ?, ?)", (namespace, name, state))
            db.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                [
                    (e.cursor, transaction.recorded_ns or e.time_ns, e.namespace, e.zone, e.SerializeToString())
                    for e in transaction.events
                ],
            )
            for fleet, entry in transaction.rosters.items():
                if entry is None:
                    db.execute("DELETE FROM rosters WHERE fleet = ?", (fleet,))
                else:
                    row = (fleet, int(entry[0]), entry[1].SerializeToString())
                    db.execute("INSERT OR REPLACE INTO rosters VALUES (?, ?, ?)", row)
            for fleet, forgotten in transaction.forgotten.items():
                remember, remove = "INSERT OR IGNORE INTO forgotten VALUES (?)", "DELETE FROM forgotten WHERE fleet = ?"
                db.execute(remember if forgotten else remove, (fleet,))
            db.executemany(
                "INSERT OR REPLACE INTO pictures (alarm, device, kind, time_ns, jpeg) VALUES (?, ?, ?, ?, ?)",
                [(p.alarm, p.device, p.kind, p.time_ns, p.jpeg) for p in transaction.pictures],
            )
            db.executemany(
                "DELETE FROM ledgers WHERE fleet = ? AND device = ? AND shard = ? AND since_ns = ?",
                [key for key, part in transaction.ledgers.items() if part is None],
            )
            db.executemany(
                "INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (*key, part.until_ns, int(part.final), part.ledger.SerializeToString())
                    for key, part in transaction.ledgers.items()
                    if part is not None
                ],
            )
            db.executemany(
                "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?)",
                [(alarm, episode, time_ns) for (alarm, episode), time_ns in transaction.episodes.items()],
            )
            for (fleet, shard), alarmed in transaction.canaries.items():
                if alarmed is None:
                    db.execute("DELETE FROM canaries WHERE fleet = ? AND shard = ?", (fleet, shard))
                else:
                    db.execute("INSERT OR REPLACE INTO canaries VALUES (?, ?, ?, ?)", (fleet, shard, *alarmed))
            records.write(db, transaction.access)
            db.execute("COMMIT")
        except BaseException:
            # A full disk rolls back by itself, and then there is nothing left to roll back.
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise

    def prune(self, before_ns: int) -> int:
        """Forget some of what is older than `before_ns`; returns how many rows went, 0 when there are no more."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            gone = db.execute(
                "DELETE FROM evidence WHERE id IN (SELECT id FROM evidence WHERE received_ns < ? LIMIT ?)",
                (before_ns, PRUNE_ROWS),
            ).rowcount
            # Events are old at the front: looking at all of them once a minute would not do.
            gone += db.execute(
                """DELETE FROM events WHERE time_ns < ?
                    AND cursor IN (SELECT cursor FROM events ORDER BY cursor LIMIT ?)""",
                (before_ns, PRUNE_ROWS),
            ).rowcount
            gone += records.prune(db, before_ns)
            gone += db.execute("DELETE FROM episodes WHERE time_ns < ?", (before_ns,)).rowcount
            gone += db.execute(
                "DELETE FROM pictures WHERE time_ns < ? OR number <= (SELECT MAX(number) FROM pictures) - ?",
                (before_ns, KEPT_PICTURES),
            ).rowcount
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        return gone

    def events(self, after: int, limit: int, zone: str = "") -> list[AlarmEvent]:
        """Up to `limit` events past cursor `after`, ascending; `zone` is "name", "namespace/name" or '' for all."""
        namespace, _, name = zone.partition("/")
        # A zone's own name may contain a slash, a namespace's may not.
        where = "AND (zone = ? OR (zone = ? AND namespace = ?))" if zone else ""
        arguments = (zone, name, namespace) if zone else ()
        query = f"SELECT event FROM events WHERE cursor > ? {where} ORDER BY cursor LIMIT ?"
        return list(self._rows(query, _event, (after, *arguments, limit)))

    def latest_events(self, before: int, limit: int) -> list[AlarmEvent]:
        """The last `limit` events up to cursor `before`, ascending."""
        query = "SELECT event FROM events WHERE cursor <= ? ORDER BY cursor DESC LIMIT ?"
        return list(self._rows(query, _event, (before, limit)))[::-1]

    def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """The JPEG that was kept of `device` for `alarm`."""
        row = self._db.execute(
            "SELECT jpeg FROM pictures WHERE alarm = ? AND device = ? AND kind = ?", (alarm, device, kind)
        ).fetchone()
        return row[0] if row else None

    def episodes(self, alarm: str) -> list[str]:
        """The signs that contributed to `alarm`."""
        return [row[0] for row in self._db.execute("SELECT episode FROM episodes WHERE alarm = ?", (alarm,))]

    def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """As `records.audit`."""
        return records.audit(self._db, before, limit)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _event(row: tuple[bytes]) -> AlarmEvent:
    return AlarmEvent.FromString(row[0])


class StoreThreads:
    """The store for the event loop: one thread writes, another reads, so that a long history delays no alarm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="hub-history")
        self._lock: int | None = None

    async def open(self) -> StoredState:
        """Lock the folder, open the database in it, and return what it holds."""
        loop = asyncio.get_running_loop()
        self._lock = lock_folder(self._folder)
        path = self._folder / "hub.sqlite"
        self._store = await loop.run_in_executor(self._writer, Store, path)
        if self._store.failing:
            logger.error("%s cannot be written: %s; what it holds is served", path, self._store.failing)
        else:
            self._history = await loop.run_in_executor(self._reader, Store, path)
        return await self.write(Store.load)

    @property
    def failing(self) -> str:
        """Why the database could not be written when it was opened, nor since; '' where it can."""
        return self._store.failing

    @property
    def unreadable(self) -> int:
        """Rows that were passed over because they cannot be read."""
        return self._store.unreadable + (self._history.unreadable if hasattr(self, "_history") else 0)

    async def write(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the writing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, lambda: method(self._store))

    async def read(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the reading thread; in the writing one where there was no room for two."""
        if not hasattr(self, "_history"):
            return await self.write(method)
        return await asyncio.get_running_loop().run_in_executor(self._reader, lambda: method(self._history))

    async def close(self) -> None:
        """Finish what is under way and let go of the folder."""
        loop = asyncio.get_running_loop()
        for executor, name in ((self._reader, "_history"), (self._writer, "_store")):
            if hasattr(self, name):
                await loop.run_in_executor(executor, getattr(self, name).close)
            executor.shutdown(wait=False)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

"""The outbox: unacknowledged batches on disk, by device, epoch and sequence.

The client stores each batch and its device's latest sequence in one transaction, before it sends the batch. Memory has
only numbers and sizes of batches; a batch is read back when it is sent, and removed once it is acknowledged.

Before each step, the outbox checks that its file is still there. A damaged or removed file is moved aside, and the step
runs in a new one, which has the batches that could be read.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from embereye.process.sqlite_files import SqliteFiles
from embereye.units import counted
from embereye.v1.ingest_pb2 import DeviceBatch

logger = logging.getLogger(__name__)
R = TypeVar("R")
Row = tuple[int, str, int, int, int, bytes]  # number, device, epoch, last sequence, items, batch

# With NORMAL, batches survive a crash of the process; a power cut may lose the last moments.
TABLES = """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS counting (device TEXT PRIMARY KEY, epoch INTEGER, sequence INTEGER);
CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL,
    epoch INTEGER NOT NULL, last INTEGER NOT NULL, items INTEGER NOT NULL, body BLOB NOT NULL);"""
IN_USE_SECONDS = 5.0  # wait for a spool that another program uses, in case it is ending
INSERT = "INSERT INTO batch (number, device, epoch, last, items, body) VALUES (?, ?, ?, ?, ?, ?)"
COUNT = "REPLACE INTO counting VALUES (?, ?, ?)"


class SpoolFullError(Exception):
    """The spool has no room for more unacknowledged readings: the reading was not queued."""


@dataclass(slots=True)
class Spooled:
    """A batch on disk."""

    number: int
    epoch: int
    last: int  # last sequence in it
    items: int


@dataclass(slots=True)
class Counting:
    """The latest epoch and sequence of a device."""

    epoch: int
    sequence: int


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open the database at `path`, None: in memory. sqlite3.DatabaseError if it is damaged or in use."""
    db = sqlite3.connect(":memory:" if path is None else path, timeout=IN_USE_SECONDS, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # two programs would give their batches the same numbers
        if (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(verdict)
        db.executescript(TABLES)
    except sqlite3.Error as error:
        db.close()
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
            raise sqlite3.OperationalError(f"{path} is used by another program: name a separate spool") from error
        raise
    return db


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, sqlite3.OperationalError)  # a full or missing disk


def _salvage(db: sqlite3.Connection) -> list[Row]:
    """Read batches from both ends towards a damaged place; return those that can be read."""
    batches: dict[int, Row] = {}
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.Error):
            for row in db.execute(
                f"SELECT number, device, epoch, last, items, body FROM batch ORDER BY number {order}"
            ):
                if row[0] in batches:
                    break
                with contextlib.suppress(DecodeError, TypeError):
                    DeviceBatch.FromString(row[5])
                    batches[row[0]] = row
    return sorted(batches.values())


class Outbox:
    """A file of batches. Only batches in it are sent, so a sequence has the same meaning after every restart.

    A file that is damaged or was removed is moved aside, and its readable batches are written to a new one. After the
    next restart, devices then start a new epoch.
    """

    def __init__(self, path: Path | None, capacity: int) -> None:
        """Open the file; sqlite3.OperationalError if it cannot be opened or written."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._files = SqliteFiles(path) if path else None
        self._capacity = capacity
        self._done: list[tuple[int]] = []  # numbers of acknowledged batches that are not removed yet
        self._items: dict[int, int] = {}  # number of items in each batch, by its number
        self._latest = 0  # number of the latest batch
        try:
            self._db = _connect(path)
            self._index()
        except sqlite3.DatabaseError as error:
            if path is None or not _is_damage(error):
                raise
            self._db = sqlite3.connect(path, isolation_level=None)
            self._replace_file(error)
        if self._files:
            self._files.note()

    def _index(self) -> None:
        self._items = dict(self._db.execute("SELECT number, items FROM batch"))
        self._latest = max(self._latest, *self._items, 0)
        self.items: int = sum(self._items.values())

    def load(self) -> dict[str, list[Spooled]]:
        """All unacknowledged batches, by device, oldest first."""
        batches: dict[str, list[Spooled]] = {}
        rows = self._db.execute("SELECT device, number, epoch, last, items FROM batch ORDER BY number")
        for device, number, epoch, last, items in rows:
            batches.setdefault(device, []).append(Spooled(number, epoch, last, items))
        return batches

    def counting(self, device: str) -> Counting:
        """The latest epoch and sequence of `device`. For a new device, the epoch is the present time."""
        query = "SELECT epoch, sequence FROM counting WHERE device = ?"
        row = self._guard(lambda: self._db.execute(query, (device,)).fetchone())
        return Counting(*row) if row else Counting(time.time_ns(), 0)

    def check_room(self, pending: int) -> None:
        """Raise SpoolFullError if there is no room for `pending` items and one more."""
        if self.items + pending >= self._capacity:
            unacknowledged = self.items + pending
            raise SpoolFullError(f"the spool is full: {unacknowledged} readings are not acknowledged yet")

    def put(self, batches: list[tuple[DeviceBatch, int, int]]) -> list[Spooled]:
        """Store batches, each with its last sequence and its number of items: all, or sqlite3.Error and none."""
        spooled = self._guard(lambda: self._insert(batches))
        for batch in spooled:
            self._items[batch.number] = batch.items
            self.items += batch.items
            self._latest = batch.number
        return spooled

    def _insert(self, batches: list[tuple[DeviceBatch, int, int]]) -> list[Spooled]:
        spooled = []
        with self._transaction():
            for number, (batch, last, items) in enumerate(batches, self._latest + 1):
                row = (number, batch.device, batch.epoch, last, items, batch.SerializeToString())
                self._db.execute(INSERT, row)
                self._db.execute(COUNT, (batch.device, batch.epoch, last))
                spooled.append(Spooled(number, batch.epoch, last, items))
        return spooled

    def body(self, number: int) -> DeviceBatch | None:
        """The batch with this number; None if it was lost with a damaged file."""
        return self._guard(lambda: self._read(number))

    def _read(self, number: int) -> DeviceBatch | None:
        row = self._db.execute("SELECT epoch, body FROM batch WHERE number = ?", (number,)).fetchone()
        if row is None:
            return None
        try:
            batch = DeviceBatch.FromString(row[1])
            batch.epoch = row[0]  # `renew` may have changed it
        except (DecodeError, TypeError, ValueError) as error:
            raise sqlite3.DatabaseError(f"rows are garbled: {error}") from error
        return batch

    def renew(self, device: str, batches: list[tuple[Spooled, int]], counting: Counting) -> None:
        """Move a device's batches to other epochs, and continue with `counting`: all, or sqlite3.Error and nothing."""
        self._guard(lambda: self._renew(device, batches, counting))
        for batch, epoch in batches:
            batch.epoch = epoch

    def _renew(self, device: str, batches: list[tuple[Spooled, int]], counting: Counting) -> None:
        with self._transaction():
            numbers = [(epoch, batch.number) for batch, epoch in batches]
            self._db.executemany("UPDATE batch SET epoch = ? WHERE number = ?", numbers)
            self._db.execute(COUNT, (device, counting.epoch, counting.sequence))

    def forget(self, spooled: list[Spooled]) -> None:
        """Remove acknowledged batches. If the disk cannot be written, they are removed with later ones."""
        self.items -= sum(self._items.pop(batch.number, 0) for batch in spooled)
        self._done += [(batch.number,) for batch in spooled]
        with contextlib.suppress(sqlite3.Error):
            self._guard(self._remove)
            self._done.clear()

    def _remove(self) -> None:
        with self._transaction():
            self._db.executemany("DELETE FROM batch WHERE number = ?", self._done)

    def _guard(self, step: Callable[[], R]) -> R:
        """Run `step` and return its result; in a new file if the old one is damaged. sqlite3.Error if it fails."""
        if self._files and (why := self._files.replaced_file()):
            self._replace_file(why)
        try:
            return step()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._replace_file(error)
            return step()

    def _replace_file(self, why: object) -> None:
        """Move the damaged file aside, and continue in a new one with the readable batches."""
        done = {number for (number,) in self._done}
        rows = [row for row in _salvage(self._db) if row[0] not in done]
        logger.error(
            "spool %s was damaged (%s): a new file has %s, the unreadable ones are lost",
            self._path, why, counted(len(rows), "batch", "batches"),
        )  # fmt: skip
        self._db.close()
        try:
            if self._files:
                self._files.move_aside()
            self._db = _connect(self._path)
            self._write(rows)
            if self._files:
                self._files.note()
        except (OSError, sqlite3.Error) as error:
            logger.warning(
                "%s cannot be written (%s): readings wait in memory, and a restart loses them", self._path, error
            )
            self._files = None
            self._db = _connect(None)
            self._write(rows)
        self._index()

    def _write(self, rows: list[Row]) -> None:
        with self._transaction():
            self._db.executemany(INSERT, rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # on a full disk SQLite has already rolled back
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

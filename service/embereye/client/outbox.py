"""What is not acknowledged yet, on disk: batches by device, epoch and sequence."""

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

# NORMAL outlives the process, which is what it is for; a power cut may cost the last moments.
TABLES = """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS counting (device TEXT PRIMARY KEY, epoch INTEGER, sequence INTEGER);
CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL,
    epoch INTEGER NOT NULL, last INTEGER NOT NULL, items INTEGER NOT NULL, body BLOB NOT NULL);"""
IN_USE_SECONDS = 5.0  # that a spool which another program has is waited for: it may be ending
INSERT = "INSERT INTO batch (number, device, epoch, last, items, body) VALUES (?, ?, ?, ?, ?, ?)"
COUNT = "REPLACE INTO counting VALUES (?, ?, ?)"


class SpoolFullError(Exception):
    """More is unacknowledged than the spool may hold: the reading was not queued."""


@dataclass(slots=True)
class Spooled:
    """A batch on disk."""

    number: int
    epoch: int
    last: int  # sequence
    items: int


@dataclass(slots=True)
class Counting:
    """How far a device has counted."""

    epoch: int
    sequence: int


def _connect(path: Path | None) -> sqlite3.Connection:
    """The database at `path`, None: in memory. sqlite3.DatabaseError where it is damaged, or another program has it."""
    db = sqlite3.connect(":memory:" if path is None else path, timeout=IN_USE_SECONDS, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # two programs would give their batches the same numbers
        if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        db.executescript(TABLES)
    except sqlite3.Error as error:
        db.close()
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
            raise sqlite3.OperationalError(f"{path} is another program's: each has a spool of its own") from error
        raise
    return db


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, sqlite3.OperationalError)  # those are of a disk that is full, or not there


def _salvage(db: sqlite3.Connection) -> list[Row]:
    """The batches that can be read, from both ends towards the place that cannot."""
    found: dict[int, Row] = {}
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.Error):
            for row in db.execute(
                f"SELECT number, device, epoch, last, items, body FROM batch ORDER BY number {order}"
            ):
                if row[0] in found:
                    break
                with contextlib.suppress(DecodeError, TypeError):
                    DeviceBatch.FromString(row[5])
                    found[row[0]] = row
    return sorted(found.values())


class Outbox:
    """A file of batches. Only what is in it is ever sent, so a sequence means the same after every restart.

    One that turns out to be damaged, or that somebody removed, is put aside whenever that is found; what can be read
    goes on in a new one, and devices count in a new epoch after the next restart.
    """

    def __init__(self, path: Path | None, capacity: int) -> None:
        """sqlite3.OperationalError where the file cannot be opened or written."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._files = SqliteFiles(path) if path else None
        self._capacity = capacity
        self._over: list[tuple[int]] = []  # numbers of batches that are acknowledged and still there
        self._items: dict[int, int] = {}  # of the batches that are there, by number
        self._latest = 0  # number
        try:
            self._db = _connect(path)
            self._know()
        except sqlite3.DatabaseError as error:
            if path is None or not _is_damage(error):
                raise
            self._db = sqlite3.connect(path, isolation_level=None)
            self._begin_anew(error)
        if self._files:
            self._files.note()

    def _know(self) -> None:
        self._items = dict(self._db.execute("SELECT number, items FROM batch"))
        self._latest = max(self._latest, *self._items, 0)
        self.items: int = sum(self._items.values())

    def load(self) -> dict[str, list[Spooled]]:
        """Everything that is not acknowledged, by device, oldest first."""
        found: dict[str, list[Spooled]] = {}
        rows = self._db.execute("SELECT device, number, epoch, last, items FROM batch ORDER BY number")
        for device, number, epoch, last, items in rows:
            found.setdefault(device, []).append(Spooled(number, epoch, last, items))
        return found

    def counting(self, device: str) -> Counting:
        """How far `device` has counted; a new device starts an epoch later than those before, as far as clocks tell."""
        ask = "SELECT epoch, sequence FROM counting WHERE device = ?"
        row = self._guard(lambda: self._db.execute(ask, (device,)).fetchone())
        return Counting(*row) if row else Counting(time.time_ns(), 0)

    def check_room(self, pending: int) -> None:
        """SpoolFullError where `pending` items and one more do not fit."""
        if self.items + pending >= self._capacity:
            unacknowledged = self.items + pending
            raise SpoolFullError(f"{unacknowledged} readings are not acknowledged yet, the most that are kept")

    def put(self, batches: list[tuple[DeviceBatch, int, int]]) -> list[Spooled]:
        """Keep batches, each with its last sequence and its number of items: all, or sqlite3.Error and none."""
        found = self._guard(lambda: self._insert(batches))
        for one in found:
            self._items[one.number] = one.items
            self.items += one.items
            self._latest = one.number
        return found

    def _insert(self, batches: list[tuple[DeviceBatch, int, int]]) -> list[Spooled]:
        found = []
        with self._transaction():
            for number, (batch, last, items) in enumerate(batches, self._latest + 1):
                row = (number, batch.device, batch.epoch, last, items, batch.SerializeToString())
                self._db.execute(INSERT, row)
                self._db.execute(COUNT, (batch.device, batch.epoch, last))
                found.append(Spooled(number, batch.epoch, last, items))
        return found

    def body(self, number: int) -> DeviceBatch | None:
        """The batch with this number; None where it was lost with a damaged file."""
        return self._guard(lambda: self._read(number))

    def _read(self, number: int) -> DeviceBatch | None:
        row = self._db.execute("SELECT epoch, body FROM batch WHERE number = ?", (number,)).fetchone()
        if row is None:
            return None
        try:
            batch = DeviceBatch.FromString(row[1])
            batch.epoch = row[0]  # it may be another one since it was put
        except (DecodeError, TypeError, ValueError) as error:
            raise sqlite3.DatabaseError(f"rows are garbled: {error}") from error
        return batch

    def renew(self, device: str, batches: list[tuple[Spooled, int]], counting: Counting) -> None:
        """Have a device's batches counted in other epochs, and what comes as `counting` says.

        All, or sqlite3.Error and none.
        """
        self._guard(lambda: self._renew(device, batches, counting))
        for one, epoch in batches:
            one.epoch = epoch

    def _renew(self, device: str, batches: list[tuple[Spooled, int]], counting: Counting) -> None:
        with self._transaction():
            numbers = [(epoch, one.number) for one, epoch in batches]
            self._db.executemany("UPDATE batch SET epoch = ? WHERE number = ?", numbers)
            self._db.execute(COUNT, (device, counting.epoch, counting.sequence))

    def forget(self, spooled: list[Spooled]) -> None:
        """Forget what is acknowledged; from a disk that cannot be written now it is removed with what comes later."""
        self.items -= sum(self._items.pop(one.number, 0) for one in spooled)
        self._over += [(one.number,) for one in spooled]
        with contextlib.suppress(sqlite3.Error):
            self._guard(self._remove)
            self._over.clear()

    def _remove(self) -> None:
        with self._transaction():
            self._db.executemany("DELETE FROM batch WHERE number = ?", self._over)

    def _guard(self, step: Callable[[], R]) -> R:
        """The result of `step`, in a new file where the old one is damaged. sqlite3.Error where it cannot be done."""
        if self._files and (why := self._files.replaced_file()):
            self._begin_anew(why)
        try:
            return step()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._begin_anew(error)
            return step()

    def _begin_anew(self, why: object) -> None:
        """Put the damaged file aside and go on, in a new one, with what can be read of it."""
        over = {number for (number,) in self._over}
        rows = [row for row in _salvage(self._db) if row[0] not in over]
        logger.error(
            "spool %s was damaged (%s): %s on in a new file, what could not be read is lost",
            self._path, why, counted(len(rows), "batch goes", "batches go"),
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
                "%s cannot be written (%s): readings wait in memory, which a restart loses", self._path, error
            )
            self._files = None
            self._db = _connect(None)
            self._write(rows)
        self._know()

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
            with contextlib.suppress(sqlite3.Error):  # a full disk rolls back by itself
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

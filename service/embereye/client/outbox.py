"""What is not acknowledged yet, on disk: batches by device, epoch and sequence."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embereye.v1.ingest_pb2 import DeviceBatch


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


class Outbox:
    """A file of batches. Only what is in it is ever sent, so a sequence means the same after every restart."""

    def __init__(self, path: Path | None, capacity: int) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        # NORMAL outlives the process, which is what it is for; a power cut may cost the last moments.
        self._db.executescript(
            """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
            CREATE TABLE IF NOT EXISTS counting (device TEXT PRIMARY KEY, epoch INTEGER, sequence INTEGER);
            CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL,
                epoch INTEGER NOT NULL, last INTEGER NOT NULL, items INTEGER NOT NULL, body BLOB NOT NULL);"""
        )
        self._capacity = capacity
        self._over: list[tuple[int]] = []  # numbers of batches that are acknowledged and still there
        self.items: int = self._db.execute("SELECT COALESCE(SUM(items), 0) FROM batch").fetchone()[0]

    def load(self) -> dict[str, list[Spooled]]:
        """Everything that is not acknowledged, by device, oldest first."""
        found: dict[str, list[Spooled]] = {}
        rows = self._db.execute("SELECT device, number, epoch, last, items FROM batch ORDER BY number")
        for device, number, epoch, last, items in rows:
            found.setdefault(device, []).append(Spooled(number, epoch, last, items))
        return found

    def counting(self, device: str) -> Counting:
        """How far `device` has counted; a new device starts an epoch that is later than any it can have had."""
        row = self._db.execute("SELECT epoch, sequence FROM counting WHERE device = ?", (device,)).fetchone()
        return Counting(*row) if row else Counting(time.time_ns(), 0)

    def check_room(self, pending: int) -> None:
        """SpoolFullError where `pending` items and one more do not fit."""
        if self.items + pending >= self._capacity:
            unacknowledged = self.items + pending
            raise SpoolFullError(f"{unacknowledged} readings are not acknowledged yet, the most that are kept")

    def put(self, batches: list[tuple[DeviceBatch, int, int]]) -> list[Spooled]:
        """Keep batches, each with its last sequence and its number of items: all, or sqlite3.Error and none."""
        found = []
        with self._transaction():
            for batch, last, items in batches:
                cursor = self._db.execute(
                    "INSERT INTO batch (device, epoch, last, items, body) VALUES (?, ?, ?, ?, ?)",
                    (batch.device, batch.epoch, last, items, batch.SerializeToString()),
                )
                self._db.execute("REPLACE INTO counting VALUES (?, ?, ?)", (batch.device, batch.epoch, last))
                found.append(Spooled(cursor.lastrowid or 0, batch.epoch, last, items))
        self.items += sum(one.items for one in found)
        return found

    def body(self, number: int) -> DeviceBatch:
        """The batch with this number."""
        return DeviceBatch.FromString(
            self._db.execute("SELECT body FROM batch WHERE number = ?", (number,)).fetchone()[0]
        )

    def forget(self, spooled: list[Spooled]) -> None:
        """Forget what is acknowledged; from a disk that cannot be written now it is removed with what comes later."""
        self.items -= sum(one.items for one in spooled)
        self._over += [(one.number,) for one in spooled]
        with contextlib.suppress(sqlite3.Error):
            with self._transaction():
                self._db.executemany("DELETE FROM batch WHERE number = ?", self._over)
            self._over.clear()

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

"""Evidence on disk until the hub has acknowledged it: a shard or hub that dies loses none."""

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from embereye.v1.evidence_pb2 import EvidenceItem

logger = logging.getLogger(__name__)
CAPACITY = 20_000  # reports; about 10 MB without snapshots


def _open(path: Path | None) -> tuple[sqlite3.Connection, int]:
    """The database at `path`, None: in memory, and how many reports it holds."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
    try:
        # NORMAL outlives the process, which is what a spool is for; a fsync per report would delay the alarm.
        db.executescript(
            """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
            CREATE TABLE IF NOT EXISTS spool (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,
                episode TEXT NOT NULL, level INTEGER NOT NULL, report BLOB NOT NULL);
            CREATE INDEX IF NOT EXISTS spool_episode ON spool (episode, level);"""
        )
        return db, db.execute("SELECT COUNT(*) FROM spool").fetchone()[0]
    except sqlite3.Error:
        db.close()
        raise


class Spool:
    """A queue of unacknowledged reports, oldest first.

    Reports of one episode replace each other when they are of the same level: the later one says all that the earlier
    one said. So the queue is bounded by what really happened; past `capacity` the weakest, oldest reports go first and
    `dropped` counts them.
    """

    def __init__(self, path: Path | None, *, capacity: int = CAPACITY) -> None:
        try:
            self._db, self._count = _open(path)
        except (OSError, sqlite3.Error) as error:  # whoever cannot keep reports still has to watch
            logger.warning("%s cannot be used: %s; reports wait in memory, which a restart loses", path, error)
            self._db, self._count = _open(None)
        self._disk: sqlite3.Connection | None = None  # while it cannot be written and reports are kept in memory
        self._capacity = capacity
        self._idle = time.monotonic()  # when it was empty, or reports were acknowledged, last
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def waiting_seconds(self) -> float:
        """While reports wait: how long none has been acknowledged; 0 where none waits."""
        return time.monotonic() - self._idle if self._count else 0.0

    def put(self, report: EvidenceItem) -> int:
        """Keep `report`; returns its number, by which `after` continues. A full disk keeps no alarm back."""
        if not self._count:
            self._idle = time.monotonic()
        try:
            return self._insert(report)
        except sqlite3.Error as error:
            self._leave_disk(error)
            return self._insert(report)

    def _insert(self, report: EvidenceItem) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        superseded = self._db.execute(
            "DELETE FROM spool WHERE episode = ? AND level = ?", (report.episode, report.level)
        ).rowcount
        cursor = self._db.execute(
            "INSERT INTO spool (id, episode, level, report) VALUES (?, ?, ?, ?)",
            (report.id, report.episode, report.level, report.SerializeToString()),
        )
        number = cursor.lastrowid or 0
        self._count += 1 - superseded
        if self._count > self._capacity:
            self._count -= self._db.execute(
                "DELETE FROM spool WHERE number = (SELECT number FROM spool ORDER BY level, number LIMIT 1)"
            ).rowcount
            self.dropped += 1
        self._db.execute("COMMIT")
        return number

    def after(self, number: int, limit: int = 256) -> list[tuple[int, EvidenceItem]]:
        """Up to `limit` reports numbered above `number`, oldest first."""
        rows = self._db.execute(
            "SELECT number, report FROM spool WHERE number > ? ORDER BY number LIMIT ?", (number, limit)
        ).fetchall()
        return [(row[0], EvidenceItem.FromString(row[1])) for row in rows]

    def acknowledge(self, ids: list[str]) -> None:
        """Forget the reports with these ids."""
        try:
            self._remove(ids)
        except sqlite3.Error as error:
            self._leave_disk(error)
            self._remove(ids)
        self._idle = time.monotonic()
        if self._disk is not None and not self._count:
            self._return_to_disk()

    def _leave_disk(self, error: sqlite3.Error) -> None:
        """Go on in memory with all that is on the disk."""
        if self._disk is not None:
            raise error
        logger.error("reports cannot be written to the disk: %s; they wait in memory, which a restart loses", error)
        self._roll_back(self._db)
        memory = sqlite3.connect(":memory:", isolation_level=None)
        self._db.backup(memory)
        self._disk, self._db = self._db, memory
        self._count = memory.execute("SELECT COUNT(*) FROM spool").fetchone()[0]

    def _return_to_disk(self) -> None:
        """Go on on the disk, where that can be written again; numbers go on where they are."""
        assert self._disk is not None
        latest = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'spool'").fetchone()[0]
        try:
            self._disk.execute("BEGIN IMMEDIATE")
            # A row carries the number over, also where the disk never had one.
            self._disk.execute(
                "INSERT OR REPLACE INTO spool (number, id, episode, level, report) VALUES (?, '', '', 0, '')", (latest,)
            )
            self._disk.execute("DELETE FROM spool")
            self._disk.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back(self._disk)
            return
        self._db.close()
        self._db, self._disk = self._disk, None
        logger.warning("reports can be written to the disk again")

    @staticmethod
    def _roll_back(db: sqlite3.Connection) -> None:
        # A full disk rolls back by itself, and then there is nothing left to roll back.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")

    def _remove(self, ids: list[str]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            marks = ",".join("?" * len(part))
            self._count -= self._db.execute(f"DELETE FROM spool WHERE id IN ({marks})", part).rowcount
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._disk is not None:
            self._disk.close()

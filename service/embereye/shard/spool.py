"""Evidence on disk until the hub has acknowledged it: a shard or hub that dies loses none."""

import sqlite3
from pathlib import Path

from embereye.v1.evidence_pb2 import EvidenceItem

CAPACITY = 20_000  # reports; about 10 MB without snapshots


class Spool:
    """A queue of unacknowledged reports, oldest first.

    Reports of one episode replace each other when they are of the same level: the later one says all that the earlier
    one said. So the queue is bounded by what really happened; past `capacity` the weakest, oldest reports go first and
    `dropped` counts them.
    """

    def __init__(self, path: Path | None, *, capacity: int = CAPACITY) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        # NORMAL outlives the process, which is what a spool is for; a fsync per report would delay the alarm.
        self._db.executescript(
            """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
            CREATE TABLE IF NOT EXISTS spool (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,
                episode TEXT NOT NULL, level INTEGER NOT NULL, report BLOB NOT NULL);
            CREATE INDEX IF NOT EXISTS spool_episode ON spool (episode, level);"""
        )
        self._capacity = capacity
        self._count: int = self._db.execute("SELECT COUNT(*) FROM spool").fetchone()[0]
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def put(self, report: EvidenceItem) -> int:
        """Keep `report`; returns its number, by which `after` continues."""
        self._db.execute("BEGIN")
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
        self._db.execute("BEGIN")
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            marks = ",".join("?" * len(part))
            self._count -= self._db.execute(f"DELETE FROM spool WHERE id IN ({marks})", part).rowcount
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

"""The spool: evidence on disk until the hub has acknowledged it, so that no crash loses any.

Reports are rows of an SQLite database, numbered in order. The spool has three states:

    on disk      every report is written to the file
    in memory    the disk cannot be written; retried every RETURN_SECONDS, with all waiting reports
    new file     the file was damaged, removed or replaced: it is moved aside, and its readable reports are written to
                 a new file (or to memory)
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from embereye.process.condition import Condition
from embereye.process.sqlite_files import SqliteFiles
from embereye.units import counted
from embereye.v1.evidence_pb2 import EvidenceItem

logger = logging.getLogger(__name__)
R = TypeVar("R")
CAPACITY = 20_000  # reports; about 10 MB without snapshots
NAMED = 5  # most devices in a sentence
GARBLED = "rows are garbled"
UNWRITABLE = (
    "evidence spool: %s cannot be written (%s): reports wait in memory, and a restart loses them. Make room on that "
    "disk, or make it writable."
)
RETURN_SECONDS = 5.0  # between checks whether a disk can be written again

# With NORMAL, reports survive a crash of the process; a fsync per report would delay the alarm.
TABLES = """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS spool (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,
    episode TEXT NOT NULL, level INTEGER NOT NULL, report BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS spool_episode ON spool (episode, level);
CREATE INDEX IF NOT EXISTS spool_weakest ON spool (level, number);"""

Row = tuple[int, EvidenceItem]  # number, report


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open the database at `path`, None: in memory. sqlite3.DatabaseError if it is damaged, or OSError."""
    emptied = new = False
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        emptied = path.is_file() and not path.stat().st_size
    db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
    try:
        if emptied:
            raise sqlite3.DatabaseError("the file is empty")
        if (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(verdict)
        db.executescript(TABLES)
    except sqlite3.Error:
        db.close()
        if path is not None and new:
            path.unlink(missing_ok=True)  # on a full disk it is empty, and would count as damaged later
        raise
    return db


def _place(report: EvidenceItem) -> tuple[str, str, int]:
    """The id, episode and level of a report's row; an inherited report never replaces one of this shard."""
    shard, inherited, _ = report.id.partition("/")
    return report.id, f"{shard}/{report.episode}" if inherited else report.episode, report.level


def _write_rows(db: sqlite3.Connection, rows: Iterable[tuple[int, str, str, int, bytes]]) -> None:
    db.executemany("INSERT OR IGNORE INTO spool (number, id, episode, level, report) VALUES (?, ?, ?, ?, ?)", rows)


def _salvage(db: sqlite3.Connection, *, brief: bool = False) -> tuple[list[Row], int]:
    """Read rows from both ends towards a damaged place; return those that can be read, and the number of garbled rows.

    With `brief` reports have only id and device, because all reports with pictures may not fit into memory.
    """
    reports: dict[int, EvidenceItem] = {}
    garbled = set[int]()
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.Error):
            for number, text in db.execute(f"SELECT number, report FROM spool ORDER BY number {order}"):
                if number in reports:
                    break
                try:
                    report = EvidenceItem.FromString(text)
                except (DecodeError, TypeError):
                    garbled.add(number)
                    continue
                reports[number] = EvidenceItem(id=report.id, device=report.device) if brief else report
    return sorted(reports.items()), len(garbled)


def _named(devices: Sequence[str]) -> str:
    return ", ".join(devices[:NAMED]) + (" and others" if len(devices) > NAMED else "")


class Spool:
    """A queue of unacknowledged reports, oldest first.

    A report replaces earlier ones of the same episode and level, because it includes them. This bounds the queue by the
    number of episodes; beyond `capacity` the weakest, oldest reports are dropped, and counted in `dropped`. `degraded`
    says if reports wait in memory or were lost.
    """

    def __init__(self, path: Path | None, *, capacity: int = CAPACITY) -> None:
        self._path = path
        self._files = SqliteFiles(path) if path else None
        self._capacity = capacity
        self._devices: dict[str, str] = {}  # report id → device, of all waiting reports
        self._latest = 0  # number of the latest report
        self._disk: sqlite3.Connection | None = None  # the open file while reports wait in memory
        self._unwritable = Condition(logger, begin=logging.ERROR)  # reports wait in memory
        self._return_due = 0.0  # when to try the disk again, monotonic seconds
        self._in_use = False  # `_devices` has all reports in the file
        self._damaged = ""  # what was lost, and why; '' if nothing was
        self.dropped = 0
        try:
            self._db = _connect(path)
            rows, garbled = _salvage(self._db, brief=True)
            self._index(rows)
            if garbled:
                self._replace_file(GARBLED, garbled=garbled)
        except (OSError, sqlite3.OperationalError) as error:  # the shard has to watch even without a disk
            self._db = _connect(None)
            self._use_memory(error)
        except sqlite3.DatabaseError as error:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._replace_file(str(error))
        self._note_files()
        self._in_use = True
        self._idle = time.monotonic()  # when it was last empty, or a report was last acknowledged

    def __len__(self) -> int:
        return len(self._devices)

    def _index(self, rows: list[Row]) -> None:
        self._devices = {report.id: report.device for _, report in rows}
        self._latest = max(self._latest, *(number for number, _ in rows), 0)

    @property
    def degraded(self) -> str:
        """The loss if there was one, and the reason why reports wait in memory, with a remedy; '' if all is well."""
        waits = UNWRITABLE % (self._path, self._unwritable.why) if self._unwritable else ""
        return "; ".join(filter(None, (self._damaged, waits)))

    def subjects(self) -> str:
        """The devices of the waiting reports, in words."""
        return _named(sorted(set(self._devices.values())))

    def waiting_seconds(self) -> float:
        """The time in which no waiting report was acknowledged; 0 if none waits."""
        return time.monotonic() - self._idle if self._devices else 0.0

    def put(self, report: EvidenceItem) -> int:
        """Store `report`; return its number, for `after`. It succeeds even if the disk is full."""
        if not self._devices:
            self._idle = time.monotonic()
        self._return_to_disk()
        self._guard(lambda: self._insert(report))
        return self._latest

    def _guard(self, step: Callable[[], R]) -> R:
        """Run `step` and return its result; in memory if the disk is full, in a new file if the file is damaged."""
        if why := self._altered_file():
            self._replace_file(why)
        try:
            result = step()
        except sqlite3.Error as error:
            if self._unwritable or not isinstance(error, sqlite3.OperationalError) or not self._leave_disk(error):
                self._replace_file(str(error))
            result = step()
        self._note_files()
        return result

    def _altered_file(self) -> str:
        """Say which file another program removed, replaced or truncated; '' if none."""
        return (
            self._files.replaced_file() or self._files.truncated_file() if self._files and not self._unwritable else ""
        )

    def _note_files(self) -> None:
        if self._files and not self._unwritable:
            self._files.note()

    def _insert(self, report: EvidenceItem) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        gone = self._db.execute(
            "DELETE FROM spool WHERE episode = ? AND level = ? RETURNING id", _place(report)[1:]
        ).fetchall()
        self._db.execute(
            "INSERT OR REPLACE INTO spool (number, id, episode, level, report) VALUES (?, ?, ?, ?, ?)",
            (self._latest + 1, *_place(report), report.SerializeToString()),
        )
        surplus: list[tuple[str]] = []
        if len(self._devices) + 1 - len(gone) > self._capacity:
            surplus = self._db.execute(
                "DELETE FROM spool WHERE number = (SELECT number FROM spool ORDER BY level, number LIMIT 1)"
                " RETURNING id"
            ).fetchall()
        self._db.execute("COMMIT")
        self._latest += 1
        for (name,) in gone:  # may include its own id, if it is put again
            self._devices.pop(name, None)
        self._devices[report.id] = report.device
        for (name,) in surplus:
            self._devices.pop(name, None)
            self.dropped += 1

    def after(self, number: int, limit: int = 256) -> list[Row]:
        """Up to `limit` reports numbered above `number`, oldest first."""
        return self._guard(lambda: self._read(number, limit))

    def _read(self, number: int, limit: int) -> list[Row]:
        rows = self._db.execute(
            "SELECT number, report FROM spool WHERE number > ? ORDER BY number LIMIT ?", (number, limit)
        ).fetchall()
        try:
            return [(row[0], EvidenceItem.FromString(row[1])) for row in rows]
        except (DecodeError, TypeError) as error:
            raise sqlite3.DatabaseError(f"{GARBLED}: {error}") from error

    def discard(self, episode: str) -> None:
        """Remove the reports of `episode` without sending them."""
        query = "SELECT id FROM spool WHERE episode = ?"
        self.acknowledge([name for (name,) in self._guard(lambda: self._db.execute(query, (episode,)).fetchall())])

    def acknowledge(self, ids: list[str]) -> None:
        """Remove the reports with these ids; an empty list does not count as an acknowledgement."""
        if ids:
            self._guard(lambda: self._remove(ids))
            self._idle = time.monotonic()
        self._return_to_disk()

    def _leave_disk(self, error: sqlite3.Error) -> bool:
        """Copy all reports to memory and continue there; False if they cannot be read."""
        self._roll_back(self._db)
        memory = sqlite3.connect(":memory:", isolation_level=None)
        try:
            self._db.backup(memory)
            self._index(_salvage(memory, brief=True)[0])
        except sqlite3.Error:
            memory.close()
            return False
        self._disk, self._db = self._db, memory
        self._use_memory(error)
        return True

    def _use_memory(self, error: Exception) -> None:
        self._return_due = time.monotonic() + RETURN_SECONDS
        self._unwritable.fail(str(error), UNWRITABLE, self._path, error)

    def _replace_file(self, why: str, *, garbled: int = 0, unopened: Sequence[EvidenceItem] | None = None) -> None:
        """Move the damaged file aside, and continue in a new one with the readable reports.

        `garbled` is the number of unreadable rows. `unopened` are the readable reports of a file that was not in use;
        None: the file in use is damaged.
        """
        self._roll_back(self._db)
        rows, _ = _salvage(self._db)
        saved = {report.id for _, report in rows}
        loss = self._loss(saved, garbled, known=self._in_use and unopened is None)
        # Reports of an unopened file are sent after those that were added since.
        rows += enumerate((report for report in unopened or () if report.id not in saved), self._latest + 1)
        before, self._damaged = self._damaged, f"evidence spool: {self._path} was damaged ({why}): {loss}"
        if self._damaged != before:
            logger.error("%s; a new file has %s", self._damaged, counted(len(rows), "report"))
        self._db.close()
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        try:
            if self._files is not None:
                self._files.move_aside()
            self._db = _connect(self._path)
            self._write_all(rows)
            self._unwritable.clear()
        except (OSError, sqlite3.Error) as error:
            self._db = _connect(None)
            self._use_memory(error)
            self._write_all(rows)
        self._index(rows)
        self._note_files()

    def _loss(self, saved: Set[str], garbled: int, *, known: bool) -> str:
        """Describe the loss if the reports `saved` remain. `known`: `_devices` has all reports of the damaged file."""
        if lost := sorted({device for name, device in self._devices.items() if name not in saved}):
            return f"reports about {_named(lost)} are lost"
        if garbled:
            return f"{counted(garbled, 'report is', 'reports are')} lost"
        return "nothing is lost" if known else "its unreadable reports are lost"

    def _write_all(self, rows: list[Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        _write_rows(
            self._db,
            ((number, *_place(item), item.SerializeToString()) for number, item in rows),
        )
        self._db.execute("COMMIT")

    def _return_to_disk(self) -> None:
        """Continue on the disk if it is time to try and there is room."""
        if not self._unwritable or time.monotonic() < self._return_due:
            return
        self._return_due = time.monotonic() + RETURN_SECONDS
        assert self._files is not None
        try:
            self._files.check_room()
        except OSError:
            return
        self._write_to_disk()

    def _write_to_disk(self) -> None:
        """Continue on the disk with all waiting reports, if it can be written. Numbers continue."""
        assert self._files is not None
        disk = self._disk
        try:
            if disk is not None and (why := self._files.replaced_file() or self._files.truncated_file()):
                raise sqlite3.DatabaseError(why)
            disk = disk or _connect(self._path)
            # A file that could not be opened before may have reports. They are sent after those that were added since.
            salvaged, garbled = ([], 0) if self._disk is not None else _salvage(disk)
            if garbled:
                disk.close()
                self._replace_file(GARBLED, garbled=garbled, unopened=[report for _, report in salvaged])
                return
            disk.execute("BEGIN IMMEDIATE")
            disk.execute("DELETE FROM spool")
            _write_rows(disk, self._db.execute("SELECT number, id, episode, level, report FROM spool ORDER BY number"))
            numbered = enumerate((report for _, report in salvaged), self._latest + 1)
            _write_rows(
                disk,
                ((number, *_place(item), item.SerializeToString()) for number, item in numbered),
            )
            disk.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            if disk is not None:
                self._roll_back(disk)
            if disk is not None and disk is not self._disk:
                disk.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self._replace_file(str(error), unopened=None if self._disk is not None else self._readable())
            return
        self._db.close()
        self._db, self._disk = disk, None
        self._unwritable.clear("evidence spool: %s can be written again: reports wait on the disk", self._path)
        self._index(_salvage(disk, brief=True)[0])
        self._note_files()

    def _readable(self) -> list[EvidenceItem]:
        """The readable reports of the damaged file, which is not open."""
        with contextlib.closing(sqlite3.connect(self._path or ":memory:")) as damaged:
            return [report for _, report in _salvage(damaged)[0]]

    @staticmethod
    def _roll_back(db: sqlite3.Connection) -> None:
        # On a full disk SQLite has already rolled back, and this fails.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")

    def _remove(self, ids: list[str]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        # One by one: statements for many different numbers of ids would stay in the cache, 100 KB each.
        self._db.executemany("DELETE FROM spool WHERE id = ?", [(name,) for name in ids])
        self._db.execute("COMMIT")
        for name in ids:
            self._devices.pop(name, None)

    def is_durable(self) -> bool:
        """True if a restart preserves all waiting reports. Call `save` first to improve that."""
        return self._path is not None and not self._unwritable and not self._altered_file()

    def save(self) -> None:
        """Write all waiting reports to the disk, if possible, so that a restart preserves them."""
        if self._unwritable:
            self._write_to_disk()
        elif why := self._altered_file():
            self._replace_file(why)

    def close(self) -> None:
        """Save all waiting reports, if possible, and close the file."""
        self.save()
        self._db.close()
        if self._disk is not None:
            self._disk.close()

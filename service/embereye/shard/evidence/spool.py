"""Evidence on disk until the hub has acknowledged it: a shard or hub that dies loses none."""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from embereye.process.sqlite_files import SqliteFiles
from embereye.units import counted
from embereye.v1.evidence_pb2 import EvidenceItem

logger = logging.getLogger(__name__)
R = TypeVar("R")
CAPACITY = 20_000  # reports; about 10 MB without snapshots
NAMED = 5  # devices in a sentence
GARBLED = "rows are garbled"
RETURN_SECONDS = 5.0  # between looks whether a disk can be written again

# NORMAL outlives the process, which is what a spool is for; a fsync per report would delay the alarm.
TABLES = """PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS spool (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL,
    episode TEXT NOT NULL, level INTEGER NOT NULL, report BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS spool_episode ON spool (episode, level);
CREATE INDEX IF NOT EXISTS spool_weakest ON spool (level, number);"""

Row = tuple[int, EvidenceItem]  # number, report


def _connect(path: Path | None) -> sqlite3.Connection:
    """The database at `path`, None: in memory. sqlite3.DatabaseError where it is damaged, OSError."""
    emptied = new = False
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        emptied = path.is_file() and not path.stat().st_size
    db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
    try:
        if emptied:
            raise sqlite3.DatabaseError("the file is empty")
        if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        db.executescript(TABLES)
    except sqlite3.Error:
        db.close()
        if path is not None and new:
            path.unlink(missing_ok=True)  # a full disk leaves it empty, as one that was damaged is
        raise
    return db


def _write_rows(db: sqlite3.Connection, rows: Iterable[tuple[int, str, str, int, bytes]]) -> None:
    db.executemany("INSERT OR IGNORE INTO spool (number, id, episode, level, report) VALUES (?, ?, ?, ?, ?)", rows)


def _salvage(db: sqlite3.Connection, *, brief: bool = False) -> tuple[list[Row], int]:
    """What can be read, from both ends towards the place that cannot, and how many of the rows cannot be understood.

    `brief`: of each only which report it is, of which device: with their pictures all of them are too much for memory.
    """
    found: dict[int, EvidenceItem] = {}
    garbled = set[int]()
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.Error):
            for number, text in db.execute(f"SELECT number, report FROM spool ORDER BY number {order}"):
                if number in found:
                    break
                try:
                    report = EvidenceItem.FromString(text)
                except (DecodeError, TypeError):
                    garbled.add(number)
                    continue
                found[number] = EvidenceItem(id=report.id, device=report.device) if brief else report
    return sorted(found.items()), len(garbled)


def _named(devices: Sequence[str]) -> str:
    return ", ".join(devices[:NAMED]) + (" and others" if len(devices) > NAMED else "")


class Spool:
    """A queue of unacknowledged reports, oldest first.

    Reports of one episode replace each other when they are of the same level: the later one says all that the earlier
    one said. So the queue is bounded by what really happened; past `capacity` the weakest, oldest reports go first and
    `dropped` counts them. A file that turns out to be damaged, or that somebody else removed or replaced, is put aside
    whenever that is found; what can be read goes on in a new one. While the disk cannot be written reports wait in
    memory. `degraded` says that, and what was lost.
    """

    def __init__(self, path: Path | None, *, capacity: int = CAPACITY) -> None:
        self._path = path
        self._files = SqliteFiles(path) if path else None
        self._capacity = capacity
        self._devices: dict[str, str] = {}  # report id → device, of all that wait
        self._latest = 0  # number
        self._disk: sqlite3.Connection | None = None  # that cannot be written, where it was opened
        self._unwritable = ""  # why reports are kept in memory; '' where they are on the disk
        self._return_due = 0.0  # monotonic seconds
        self._in_use = False  # what waits in it is known
        self._damaged = ""  # what was lost, and why; '' where nothing was
        self.dropped = 0
        try:
            self._db = _connect(path)
            rows, garbled = _salvage(self._db, brief=True)
            self._know(rows)
            if garbled:
                self._begin_anew(GARBLED, garbled=garbled)
        except (OSError, sqlite3.OperationalError) as error:  # whoever cannot keep reports still has to watch
            self._db = _connect(None)
            self._stay_in_memory(error)
        except sqlite3.DatabaseError as error:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._begin_anew(str(error))
        self._note_files()
        self._in_use = True
        self._idle = time.monotonic()  # when it was empty, or reports were acknowledged, last

    def __len__(self) -> int:
        return len(self._devices)

    def _know(self, rows: list[Row]) -> None:
        self._devices = {report.id: report.device for _, report in rows}
        self._latest = max(self._latest, *(number for number, _ in rows), 0)

    @property
    def degraded(self) -> str:
        """What was lost, why reports wait in memory and what to do; '' where nothing is wrong."""
        waits = ""
        if self._unwritable:
            waits = (
                f"evidence spool: {self._path} cannot be written ({self._unwritable}): reports wait in memory, which a "
                "restart loses; make room on that disk, or let it be written"
            )
        return "; ".join(filter(None, (self._damaged, waits)))

    def subjects(self) -> str:
        """The devices that reports wait about, in words."""
        return _named(sorted(set(self._devices.values())))

    def waiting_seconds(self) -> float:
        """While reports wait: how long none has been acknowledged; 0 where none waits."""
        return time.monotonic() - self._idle if self._devices else 0.0

    def put(self, report: EvidenceItem) -> int:
        """Keep `report`; returns its number, by which `after` continues. A full disk keeps no alarm back."""
        if not self._devices:
            self._idle = time.monotonic()
        self._return_to_disk()
        self._guard(lambda: self._insert(report))
        return self._latest

    def _guard(self, step: Callable[[], R]) -> R:
        """The result of `step`, in memory where the disk is full, in a new file where the old one is damaged."""
        if why := self._altered():
            self._begin_anew(why)
        try:
            done = step()
        except sqlite3.Error as error:
            if self._unwritable or not isinstance(error, sqlite3.OperationalError) or not self._leave_disk(error):
                self._begin_anew(str(error))
            done = step()
        self._note_files()
        return done

    def _altered(self) -> str:
        """What somebody else did to the files that reports are written to; '' where nothing is seen."""
        return (
            self._files.replaced_file() or self._files.truncated_file() if self._files and not self._unwritable else ""
        )

    def _note_files(self) -> None:
        if self._files and not self._unwritable:
            self._files.note()

    def _insert(self, report: EvidenceItem) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        gone = self._db.execute(
            "DELETE FROM spool WHERE episode = ? AND level = ? RETURNING id", (report.episode, report.level)
        ).fetchall()
        self._db.execute(
            "INSERT OR REPLACE INTO spool (number, id, episode, level, report) VALUES (?, ?, ?, ?, ?)",
            (self._latest + 1, report.id, report.episode, report.level, report.SerializeToString()),
        )
        surplus: list[tuple[str]] = []
        if len(self._devices) + 1 - len(gone) > self._capacity:
            surplus = self._db.execute(
                "DELETE FROM spool WHERE number = (SELECT number FROM spool ORDER BY level, number LIMIT 1)"
                " RETURNING id"
            ).fetchall()
        self._db.execute("COMMIT")
        self._latest += 1
        for (name,) in gone:  # its own is among them where it is put once more
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
        """Forget the reports of `episode`, which nobody has to be told of."""
        asked = "SELECT id FROM spool WHERE episode = ?"
        self.acknowledge([name for (name,) in self._guard(lambda: self._db.execute(asked, (episode,)).fetchall())])

    def acknowledge(self, ids: list[str]) -> None:
        """Forget the reports with these ids; none is no acknowledgement."""
        if ids:
            self._guard(lambda: self._remove(ids))
            self._idle = time.monotonic()
        self._return_to_disk()

    def _leave_disk(self, error: sqlite3.Error) -> bool:
        """Go on in memory with all that is on the disk; False where that cannot be read."""
        self._roll_back(self._db)
        memory = sqlite3.connect(":memory:", isolation_level=None)
        try:
            self._db.backup(memory)
            self._know(_salvage(memory, brief=True)[0])
        except sqlite3.Error:
            memory.close()
            return False
        self._disk, self._db = self._db, memory
        self._stay_in_memory(error)
        return True

    def _stay_in_memory(self, error: Exception) -> None:
        before, self._unwritable = self._unwritable, str(error)
        self._return_due = time.monotonic() + RETURN_SECONDS
        if self._unwritable != before:
            logger.error("%s", self.degraded)

    def _begin_anew(self, why: str, *, garbled: int = 0, found: Sequence[EvidenceItem] | None = None) -> None:
        """Put the damaged file aside and go on, in a new one, with what can be read of it.

        `garbled` rows of it cannot. `found` is what can of one that was not open; None: the present one is damaged.
        """
        self._roll_back(self._db)
        rows, _ = _salvage(self._db)
        kept = {report.id for _, report in rows}
        loss = self._loss(kept, garbled, known=self._in_use and found is None)
        # They are sent after those that came since.
        rows += enumerate((report for report in found or () if report.id not in kept), self._latest + 1)
        before, self._damaged = self._damaged, f"evidence spool: {self._path} was damaged ({why}): {loss}"
        if self._damaged != before:
            logger.error("%s; %s on in a new file", self._damaged, counted(len(rows), "report goes", "reports go"))
        self._db.close()
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        try:
            if self._files is not None:
                self._files.move_aside()
            self._db = _connect(self._path)
            self._write_all(rows)
            self._unwritable = ""
        except (OSError, sqlite3.Error) as error:
            self._db = _connect(None)
            self._stay_in_memory(error)
            self._write_all(rows)
        self._know(rows)
        self._note_files()

    def _loss(self, kept: Set[str], garbled: int, *, known: bool) -> str:
        """What is lost where these reports are kept. `known`: what waited in the damaged file is."""
        if lost := sorted({device for name, device in self._devices.items() if name not in kept}):
            return f"reports about {_named(lost)} are lost"
        if garbled:
            return f"{counted(garbled, 'report is', 'reports are')} lost"
        return "nothing is lost" if known else "what could not be read of it is lost"

    def _write_all(self, rows: list[Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        _write_rows(self._db, ((n, one.id, one.episode, one.level, one.SerializeToString()) for n, one in rows))
        self._db.execute("COMMIT")

    def _return_to_disk(self) -> None:
        """Go on on the disk, where it is time to look and there is room again."""
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
        """Go on on the disk with all that waits, where that can be written; numbers go on where they are."""
        assert self._files is not None
        disk = self._disk
        try:
            if disk is not None and (why := self._files.replaced_file() or self._files.truncated_file()):
                raise sqlite3.DatabaseError(why)
            disk = disk or _connect(self._path)
            # What could not even be opened may hold reports: they are sent after those that came since.
            found, garbled = ([], 0) if self._disk is not None else _salvage(disk)
            if garbled:
                disk.close()
                self._begin_anew(GARBLED, garbled=garbled, found=[report for _, report in found])
                return
            disk.execute("BEGIN IMMEDIATE")
            disk.execute("DELETE FROM spool")
            _write_rows(disk, self._db.execute("SELECT number, id, episode, level, report FROM spool ORDER BY number"))
            numbered = enumerate((one for _, one in found), self._latest + 1)
            _write_rows(disk, ((n, one.id, one.episode, one.level, one.SerializeToString()) for n, one in numbered))
            disk.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            if disk is not None:
                self._roll_back(disk)
            if disk is not None and disk is not self._disk:
                disk.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self._begin_anew(str(error), found=None if self._disk is not None else self._readable())
            return
        self._db.close()
        self._db, self._disk, self._unwritable = disk, None, ""
        self._know(_salvage(disk, brief=True)[0])
        self._note_files()
        logger.warning("%s can be written again: reports wait on the disk", self._path)

    def _readable(self) -> list[EvidenceItem]:
        """What can be read of the file, which is damaged and not open."""
        with contextlib.closing(sqlite3.connect(self._path or ":memory:")) as damaged:
            return [report for _, report in _salvage(damaged)[0]]

    @staticmethod
    def _roll_back(db: sqlite3.Connection) -> None:
        # A full disk rolls back by itself, and then there is nothing left to roll back.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")

    def _remove(self, ids: list[str]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        # One by one: a statement for each number of ids would stay prepared, of hundreds it takes 100 KB.
        self._db.executemany("DELETE FROM spool WHERE id = ?", [(name,) for name in ids])
        self._db.execute("COMMIT")
        for name in ids:
            self._devices.pop(name, None)

    def outlives(self) -> bool:
        """Whether what waits is there after a restart. It is only asked: `save` has more of it outlive one."""
        return self._path is not None and not self._unwritable and not self._altered()

    def save(self) -> None:
        """Have all that waits outlive a restart, where the disk can be written."""
        if self._unwritable:
            self._write_to_disk()
        elif why := self._altered():
            self._begin_anew(why)

    def close(self) -> None:
        """Close the file, with all that waits where it can be written."""
        self.save()
        self._db.close()
        if self._disk is not None:
            self._disk.close()

"""The hub's database in one file, with SQLite.

If the file cannot be written when it is opened (a full or read-only disk), it is opened for reading. `recover` then
tries to open it for writing. The hub owns the file because it has locked its folder.

A damaged file is set aside, and a new one with its readable rows takes its place: when it is opened, or in `recover` if
the damage is met later. In the second case the hub first writes its state from memory to the new file (`lost_commits`),
and is then reloaded from it.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from embereye.hub.database import DamagedError, ReloadRequiredError, Row, StoreError, storable
from embereye.hub.databases import schema
from embereye.hub.databases.log_file import read_log
from embereye.hub.databases.salvage import replace_damaged
from embereye.process.lifecycle import UserError
from embereye.process.sqlite_files import SqliteFiles

MAX_VERSION = 1_000  # a header with a higher version is damaged
BUSY_SECONDS = 1.0  # how long to wait for another program's lock on the file


class SqliteDatabase:
    """A `Database` in a file. If it cannot be written, it can still be read."""

    def __init__(self, path: Path, *, only_read: bool = False) -> None:
        """With `only_read`, the file is only read, while its hub may be running. UserError if it cannot be used."""
        self.name = str(path)
        self.failing = ""
        self.lost_commits = 0  # 1: the file was replaced by one without its unreadable rows
        self.is_new = False
        self.is_damaged = False
        self._path = path
        self._files = SqliteFiles(path)
        self._was_replaced = False  # True: the hub has to be loaded from a new file
        self._read_cursor = 0  # of the newest event that could be read when it was opened
        if only_read:
            self._db = self._open_beside()
            return
        try:
            self._db = self._open_or_replace()
        except sqlite3.OperationalError as error:
            self.failing = str(error)
            self._db = self._open_readable()
            with contextlib.suppress(StoreError):
                self._read_cursor = self.newest_cursor()

    def _open_or_replace(self, damage: str = "") -> sqlite3.Connection:
        """Open a connection that can write, to a new file if the present one has `damage` or is found damaged.

        sqlite3.OperationalError if that fails now.
        """
        try:
            if damage:
                raise sqlite3.DatabaseError(damage)
            return self._open()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            try:
                replace_damaged(self._path, str(error))
            except (OSError, sqlite3.Error) as failure:
                why = getattr(failure, "strerror", "") or failure
                raise sqlite3.OperationalError(
                    f"{self._path} is damaged ({error}) and cannot be replaced ({why})"
                ) from failure
            return self._open()

    def _open(self) -> sqlite3.Connection:
        """Open a connection that can write.

        sqlite3.OperationalError if that fails now, another sqlite3.DatabaseError if the file is not a hub's database.
        """
        if self._path.exists() and not self._path.is_file():
            raise sqlite3.DatabaseError("it is not a file")
        if _size(self._path) == 0 and _size(self._path.with_name(f"{self._path.name}-wal")):
            raise sqlite3.DatabaseError("the file is gone or empty, but its log remains")  # SQLite would remove the log
        if damage := _damage_of_log(self._path):
            raise sqlite3.DatabaseError(damage)  # SQLite would drop the rest of the log silently
        db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            version = self._check_version(db)
            self.is_new = not version
            if self.is_new and db.execute("SELECT 1 FROM sqlite_schema").fetchone():
                raise sqlite3.DatabaseError("it is another program's database")
            # FULL: an acknowledged report has to survive a power cut.
            db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            _migrate(db, version)
            db.executescript(schema.TABLES)
        except BaseException:
            db.close()
            raise
        self._files.note()
        return db

    def _open_readable(self) -> sqlite3.Connection:
        """Open a connection that reads as much as possible; an empty database if nothing can be read."""
        # Without disk space for the file that readers share, only one connection can read, in exclusive mode.
        # The last mode, immutable, ignores the write-ahead log.
        for options, mode in (("mode=rw", "EXCLUSIVE"), ("mode=ro", "NORMAL"), ("immutable=1", "NORMAL")):
            uri = f"file:{quote(str(self._path))}?{options}"
            with contextlib.suppress(sqlite3.DatabaseError):
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
        db.executescript(schema.TABLES)
        return db

    def _open_beside(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True, isolation_level=None)
            version = self._check_version(db)
        except sqlite3.Error as error:
            raise UserError(f"{self._path} cannot be read as a hub's database: {error}") from error
        if not version:
            db.close()
            raise UserError(f"{self._path} cannot be read as a hub's database: it has none of its tables")
        if version != schema.VERSION:
            db.close()
            raise UserError(
                f"{self._path} was written by an older version of the hub (format {version}, not {schema.VERSION}). "
                "Start this version's hub once, which migrates it."
            )
        return db

    def _check_version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if not 0 <= version <= MAX_VERSION:
            raise sqlite3.DatabaseError(f"its header has the unlikely version {version}")
        if version > schema.VERSION:
            raise UserError(
                f"{self._path} was written by a newer version of the hub (format {version}, not {schema.VERSION}). "
                "Start that version, or move the file away and restore a backup from this version."
            )
        return version

    def recover(self) -> None:
        """Open the file for writing; see `Database.recover`."""
        # Close the reading connection first: it may have the file in exclusive mode.
        self._db.close()
        try:
            self._db = self._open_or_replace(self.failing if self.is_damaged else "")
        except sqlite3.OperationalError as error:
            self._db = self._open_readable()
            raise StoreError(str(error)) from error
        if self.is_damaged:
            self.failing, self.is_damaged, self.lost_commits, self._was_replaced = "", False, 1, True
            return
        newest = self.newest_cursor()
        if newest > self._read_cursor:
            raise ReloadRequiredError(
                f"{self._path}: contains events up to {newest}, but only {self._read_cursor} could be read before"
            )
        self.failing = ""

    def newest_cursor(self) -> int:
        """The cursor of the newest event ever stored; damaged tables are ignored."""
        newest = 0
        for query in ("SELECT seq FROM sqlite_sequence WHERE name = 'events'", "SELECT MAX(cursor) FROM events"):
            with contextlib.suppress(DamagedError):
                newest = max((int(row[0] or 0) for row in self.rows(query)), default=0)
                break
        return newest

    def set_newest_cursor(self, cursor: int) -> None:
        """Set the cursor after which events are numbered; SQLite continues all other numbers itself."""
        self.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (cursor,))

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """Yield the rows of `query`; DamagedError if the file is damaged there."""
        with self._translated():
            yield from self._db.execute(query, storable(arguments))

    def tables(self) -> list[str]:
        """The names of the tables; see `Database.tables`."""
        return [str(row[0]) for row in self.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]

    def columns(self, table: str) -> list[str]:
        """The names of the columns of `table`."""
        with self._translated():
            return [column[0] for column in self._db.execute(f"SELECT * FROM {table} LIMIT 0").description]

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """Execute `statement`; see `Database.execute`."""
        with self._translated():
            return self._db.execute(statement, storable(arguments)).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute `statement` for each of `rows`."""
        with self._translated():
            self._db.executemany(statement, map(storable, rows))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the errors of sqlite3 into StoreError; DamagedError if the file is damaged."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if _is_corrupt(error):
                self.failing, self.is_damaged = str(error), True
            raise (DamagedError if _is_damage(error) else StoreError)(str(error)) from error
        # A value that it cannot convert is a ValueError, of which UnicodeError is one, or an OverflowError.
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise StoreError(str(error)) from error

    def empty(self, table: str) -> None:
        """Remove all rows of `table`."""
        self.execute(f"DELETE FROM {table}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction; see `Database.transaction`."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # On a full disk SQLite has rolled back already, and ROLLBACK fails.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def owned_transaction(self, cursor: int) -> Iterator[bool]:
        """Open a transaction; the folder's lock proves ownership, and a commit's outcome is always known."""
        with self.transaction():
            yield False
        self._check_files()  # a commit to a file that was removed is not stored

    def _check_files(self) -> None:
        if why := self._files.replaced_file():
            raise ReloadRequiredError(
                f"{why} in {self._path.parent} while it was open: the database has to be read again"
            )

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Open a transaction for reading; see `Database.snapshot`."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def check(self) -> None:
        """Raise ReloadRequiredError if the file was removed or replaced."""
        self._check_files()
        if self._was_replaced and not self.lost_commits:
            raise ReloadRequiredError(f"{self._path}: was damaged and replaced: the hub is loaded from the new file")

    def interrupt(self) -> None:
        """Do nothing: a call that waits for the disk cannot be interrupted."""

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _damage_of_log(database: Path) -> str:
    """Return what is wrong with the files next to `database`; '' if nothing is known."""
    for suffix in ("-wal", "-shm"):
        file = database.with_name(database.name + suffix)
        if file.exists() and not file.is_file():
            return f"{file.name} is not a file"
    try:
        return read_log(database.with_name(f"{database.name}-wal")).damage
    except OSError:  # there is none, or SQLite cannot read it, either
        return ""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """True if `error` means a damaged file, not a disk or lock that may work at the next attempt."""
    # Invalid UTF-8 is reported as an OperationalError too, but by Python, without an error code from SQLite.
    return not isinstance(error, sqlite3.OperationalError) or getattr(error, "sqlite_errorcode", None) is None


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    """True if SQLite found that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _migrate(db: sqlite3.Connection, old_version: int) -> None:
    """Migrate all tables from `old_version`, or none; 0 means a new file.

    The version is always written, which also tests that the file can be written.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in schema.migrations(old_version) if old_version else []:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise

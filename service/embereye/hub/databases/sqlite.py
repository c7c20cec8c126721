"""The hub's database in one file, with SQLite.

If the file cannot be written when it is opened (a full or read-only disk), it is opened for reading. `recover` then
tries to open it for writing. The hub owns the file because it has locked its folder.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from embereye.hub.databases import schema
from embereye.hub.databases.interface import DamagedError, ReloadRequiredError, Row, StoreError, storable
from embereye.process.lifecycle import UserError
from embereye.process.sqlite_files import SqliteFiles

BUSY_SECONDS = 1.0  # how long to wait for another program's lock on the file


class SqliteDatabase:
    """A `Database` in a file. If it cannot be written, it can still be read."""

    def __init__(self, path: Path, *, only_read: bool = False) -> None:
        """With `only_read`, the file is only read, while its hub may be running. UserError if it cannot be used."""
        self.name = str(path)
        self.failing = ""
        self.lost_commits = 0  # a file loses none
        self._path = path
        self._files = SqliteFiles(path)
        self._read_cursor = 0  # of the newest event that could be read when it was opened
        if only_read:
            self._db = self._open_beside()
            return
        try:
            self._db = self._open()
        except sqlite3.OperationalError as error:
            self.failing = str(error)
            self._db = self._open_readable()
            with contextlib.suppress(StoreError):
                self._read_cursor = self.newest_cursor()

    def _open(self) -> sqlite3.Connection:
        """Open a connection that can write; sqlite3.OperationalError if that fails now."""
        db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            version = self._check_version(db)
            # FULL: an acknowledged report has to survive a power cut.
            db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            _migrate(db, version)
            db.executescript(schema.TABLES)
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                raise UserError(f"{self._path} cannot be used as the hub's database: {error}") from error
            raise
        self._files.note()
        return db

    def _open_readable(self) -> sqlite3.Connection:
        """Open a connection that reads as much as possible; an empty database if nothing can be read."""
        # Without disk space for the file that readers share, only one connection can read, in exclusive mode.
        # The last mode, immutable, ignores the write-ahead log.
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
            self._db = self._open()
        except sqlite3.OperationalError as error:
            self._db = self._open_readable()
            raise StoreError(str(error)) from error
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
        with _translated():
            yield from self._db.execute(query, storable(arguments))

    def columns(self, table: str) -> list[str]:
        """The names of the columns of `table`."""
        with _translated():
            return [column[0] for column in self._db.execute(f"SELECT * FROM {table} LIMIT 0").description]

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """Execute `statement`; see `Database.execute`."""
        with _translated():
            return self._db.execute(statement, storable(arguments)).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute `statement` for each of `rows`."""
        with _translated():
            self._db.executemany(statement, map(storable, rows))

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

    def interrupt(self) -> None:
        """Do nothing: a call that waits for the disk cannot be interrupted."""

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the errors of sqlite3 into StoreError; DamagedError if the file is damaged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise (DamagedError if _is_damage(error) else StoreError)(str(error)) from error
    # A value that it cannot convert is a ValueError, of which UnicodeError is one, or an OverflowError.
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise StoreError(str(error)) from error


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """True if `error` means a damaged file, not a disk or lock that may work at the next attempt."""
    # Invalid UTF-8 is reported as an OperationalError too, but by Python, without an error code from SQLite.
    return not isinstance(error, sqlite3.OperationalError) or getattr(error, "sqlite_errorcode", None) is None


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

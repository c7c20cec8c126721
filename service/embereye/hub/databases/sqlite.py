"""The hub's database in one file, by SQLite."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from embereye.hub.databases import schema
from embereye.hub.databases.interface import DamagedError, ReloadRequiredError, Row, StoreError
from embereye.process.lifecycle import UserError
from embereye.process.sqlite_files import SqliteFiles

BUSY_SECONDS = 1.0  # to wait for a lock that somebody else's tool holds on the file


class SqliteDatabase:
    """As `Database`. It serves what can be read where it cannot be written."""

    def __init__(self, path: Path, *, only_read: bool = False) -> None:
        """With `only_read` it is left as it is, beside the hub whose it is. UserError where it cannot be used."""
        self.name = str(path)
        self.failing = ""
        self.lost_commits = 0  # a file loses none
        self._path = path
        self._files = SqliteFiles(path)
        self._known = 0  # cursor of the newest event that could be read when it was opened
        if only_read:
            self._db = self._open_beside()
            return
        try:
            self._db = self._open()
        except sqlite3.OperationalError as error:
            self.failing = str(error)
            self._db = self._open_readable()
            with contextlib.suppress(StoreError):
                self._known = self.newest_cursor()

    def _open(self) -> sqlite3.Connection:
        """A connection that can write; sqlite3.OperationalError where there is none to be had now."""
        db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            version = self._check_version(db)
            # FULL: an acknowledgement promises that the report outlives a power cut.
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
                f"{self._path} is of an older version of the hub (format {version}, not {schema.VERSION}): "
                "start this version's hub once, which brings it up to date"
            )
        return db

    def _check_version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > schema.VERSION:
            raise UserError(
                f"{self._path} was written by a newer version of the hub (format {version}, not {schema.VERSION}): "
                "start that one, or move the file away and restore a backup of this version's"
            )
        return version

    def recover(self) -> None:
        """As `Database.recover`."""
        # As it is the only one allowed, the one that reads has to go first.
        self._db.close()
        try:
            self._db = self._open()
        except sqlite3.OperationalError as error:
            self._db = self._open_readable()
            raise StoreError(str(error)) from error
        newest = self.newest_cursor()
        if newest > self._known:
            raise ReloadRequiredError(
                f"{self._path} holds events up to {newest}, of which {self._known} could be read before"
            )
        self.failing = ""

    def newest_cursor(self) -> int:
        """As `Database.newest_cursor`; what is damaged does not count."""
        newest = 0
        for query in ("SELECT seq FROM sqlite_sequence WHERE name = 'events'", "SELECT MAX(cursor) FROM events"):
            with contextlib.suppress(DamagedError):
                newest = max((int(row[0] or 0) for row in self.rows(query)), default=0)
                break
        return newest

    def set_newest_cursor(self, cursor: int) -> None:
        """As `Database.set_newest_cursor`; the other numbers SQLite goes on with by itself."""
        self.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (cursor,))

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """As `Database.rows`; DamagedError where the file hands back garbage."""
        try:
            yield from self._db.execute(query, arguments)
        except sqlite3.DatabaseError as error:
            raise (DamagedError if _is_damage(error) else StoreError)(str(error)) from error

    def columns(self, table: str) -> list[str]:
        """As `Database.columns`."""
        try:
            return [column[0] for column in self._db.execute(f"SELECT * FROM {table} LIMIT 0").description]
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """As `Database.execute`."""
        try:
            return self._db.execute(statement, arguments).rowcount
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """As `Database.execute_many`."""
        try:
            self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error

    def empty(self, table: str) -> None:
        """As `Database.empty`."""
        self.execute(f"DELETE FROM {table}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Database.transaction`."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # A full disk rolls back by itself, and then there is nothing left to roll back.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def owned_transaction(self, cursor: int) -> Iterator[bool]:
        """As `Database.owned_transaction`: whoever has locked the folder owns the file, and a failure is told."""
        with self.transaction():
            yield False
        self._check_files()  # what goes to a file that is gone is not stored

    def _check_files(self) -> None:
        if why := self._files.replaced():
            raise ReloadRequiredError(f"{why} in {self._path.parent} while it was open: begin anew from what is there")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """As `Database.snapshot`."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def check(self) -> None:
        """As `Database.check`. ReloadRequiredError where the file is no longer where it was."""
        self._check_files()

    def interrupt(self) -> None:
        """As `Database.interrupt`: a disk that does not answer is waited for, there is no other."""

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether it is of what the file holds, not of a disk or a lock that may do better when it is asked again."""
    # A text that is none is told as an operational error as well, but not by SQLite.
    return not isinstance(error, sqlite3.OperationalError) or getattr(error, "sqlite_errorcode", None) is None


def _migrate(db: sqlite3.Connection, found: int) -> None:
    """Alter the tables of version `found`, all or none; a file without any gets new ones.

    The version is written in any case: it shows whether the file can be.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in schema.migrations(found) if found else []:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise

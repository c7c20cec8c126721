"""The hub's database in PostgreSQL, by psycopg."""

import contextlib
import functools
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from embereye.hub.databases import schema
from embereye.hub.databases.interface import OwnedError, ReloadRequiredError, Row, StoreError
from embereye.process.lifecycle import UserError
from embereye.process.timing.backoff import Backoff
from embereye.units import counted

logger = logging.getLogger(__name__)
Connection = psycopg.Connection[Row]

FEW = 16  # rows, which in a pipeline need no round trip of their own as `executemany` would
RETRY_CAP_SECONDS = 3.0  # between two attempts to connect
OWNER_SECONDS = 20.0  # to wait for another hub to let go of the database: a lost node's session takes about five
RECLAIM_SECONDS = 0.5  # the same once this process has begun to serve; it asks again
# Of both ends: whoever is gone is noticed within five seconds, not in the two hours that TCP takes by itself.
CLIENT = {
    "connect_timeout": 3, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}  # fmt: skip
SERVER = """
SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 5000;
SET statement_timeout = '15s'; SET lock_timeout = '5s'; SET client_min_messages = warning
"""
# Who owns the database: a session lock says it to those who come, the epoch to one that was cut off and does not know.
LOCK = "hashtext('embereye.hub'), hashtext(current_schema())"
OWNER = """
CREATE TABLE IF NOT EXISTS hub_owner (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL,
    epoch BIGINT NOT NULL, commits BIGINT NOT NULL, cursor BIGINT NOT NULL, place TEXT NOT NULL)
"""
# A stale owner's epoch becomes NULL, which the column refuses: its transaction fails without being asked about.
COMMIT = """
UPDATE hub_owner SET epoch = CASE WHEN epoch = %s THEN epoch END, commits = %s, cursor = GREATEST(cursor, %s)
"""


class InUseError(StoreError):
    """Another hub owns the database."""


class PostgresDatabase:
    """As `Database`. A connection that breaks is dialled again, with back-off, whenever it is needed.

    A writer owns the database while it is connected: UserError where another hub does for OWNER_SECONDS.
    """

    def __init__(self, address: Callable[[], str], *, writer: bool = True, place: str = "", dial: bool = True) -> None:
        """`address` returns a connection string, as it is at that moment: passwords change.

        `place` is what other replicas are told of the owner; '': there are none. Without `dial` it is `failing` until
        `recover` connects.
        """
        self._address = address
        self._place = place
        self._writer = writer
        self._connection: Connection | None = None
        self._opening: Connection | None = None  # which is not ready for use yet
        self._backoff = Backoff(floor=0.1, cap=RETRY_CAP_SECONDS)
        self._retry_at = 0.0  # monotonic seconds
        self._pid = 0  # of the server's process that served us last
        self._epoch = 0  # that we own the database by; 0: never did
        self._commits = 0  # of owned transactions that are known to have taken effect
        self._untold = False  # whether one more may have
        self._landed = False  # whether it had
        self.lost_commits = 0
        self.name = _name(parse_address(address()))
        self.failing = "" if dial else f"{self.name} was not dialled yet"
        if not dial:
            return
        try:
            self._connect(RECLAIM_SECONDS if place else OWNER_SECONDS)
        except InUseError as error:
            raise OwnedError(f"{error}: stop that one, or name another database") from error
        except StoreError as error:
            self.failing = str(error)

    # Connecting

    def _connect(self, patience: float) -> Connection:
        """A connection that is ready for use; StoreError where there is none to be had now."""
        if time.monotonic() < self._retry_at:
            raise StoreError(self.failing)
        try:
            connection = self._dial(patience)
        except (psycopg.Error, OSError, InUseError) as error:
            in_use = isinstance(error, InUseError)
            self.failing = str(error) if in_use else f"{self.name} cannot be reached: {_sentence(error)}"
            self._retry_at = time.monotonic() + self._backoff.next()
            raise (InUseError if in_use else StoreError)(self.failing) from error
        self._backoff.reset()
        self._connection = connection
        self.failing = ""
        return connection

    def _dial(self, patience: float) -> Connection:
        options = {"application_name": "embereye-hub", **CLIENT, **parse_address(self._address())}
        connection: Connection = psycopg.connect(**options, autocommit=True)
        self._opening = connection
        try:
            connection.execute(SERVER)
            if self._writer:
                self._own(connection, patience)
            else:
                connection.execute("SET default_transaction_read_only = on")
        except BaseException:
            connection.close()
            raise
        finally:
            self._opening = None
        self._pid = connection.info.backend_pid
        return connection

    def _own(self, connection: Connection, patience: float) -> None:
        """Become the owner, with tables of our version.

        ReloadRequiredError if another hub has owned the database since this one did.
        """
        # An acknowledgement promises that the report outlives a power cut of the server.
        if _value(connection, "SHOW synchronous_commit") == "off":
            connection.execute("SET synchronous_commit = on")
        self._check_epoch(connection)  # before the lock: whoever came after us holds it
        self._lock(connection, patience)
        with connection.transaction():
            self._prepare_tables(connection)
            self._check_epoch(connection)
            epoch, commits = connection.execute("SELECT epoch, commits FROM hub_owner").fetchone() or (0, 0)
            if self.failing and not self._epoch and commits:
                raise ReloadRequiredError(f"{self.name} holds what could not be read before: begin anew from it")
            if not self._epoch:
                epoch += 1
                connection.execute("UPDATE hub_owner SET epoch = %s, place = %s", (epoch, self._place))
        if lost := max(self._commits - commits, 0):
            logger.error(
                "%s came back without the newest %s that it had acknowledged: what the hub knows is written anew, the "
                "history of that time is incomplete", self.name, counted(lost, "transaction"),
            )  # fmt: skip
            self.lost_commits += lost
        if self._untold:
            self._landed, self._untold = commits > self._commits, False
        self._epoch, self._commits = epoch, commits

    def _lock(self, connection: Connection, patience: float) -> None:
        # The server may not know yet that the connection before this one is gone.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted",
            (self._pid,),
        )
        deadline, told = time.monotonic() + patience, False
        while not _value(connection, f"SELECT pg_try_advisory_lock({LOCK})"):
            if time.monotonic() > deadline:
                raise InUseError(f"{self.name} is in use by another hub")
            if not told and patience > RECLAIM_SECONDS:
                logger.warning("%s is in use by another hub: waiting for it to end", self.name)
                told = True
            time.sleep(0.1)

    def _check_epoch(self, connection: Connection) -> None:
        """ReloadRequiredError where this hub owned the database, and another one has since."""
        if self._epoch and _value(connection, "SELECT epoch FROM hub_owner") != self._epoch:
            raise ReloadRequiredError(f"another hub owned {self.name} meanwhile: begin anew from what it holds")

    def _prepare_tables(self, connection: Connection) -> None:
        connection.execute(OWNER)
        row = connection.execute("SELECT version FROM hub_owner").fetchone()
        if row and row[0] > schema.VERSION:
            raise UserError(
                f"{self.name} was written by a newer version of the hub (format {row[0]}, not {schema.VERSION}): "
                "start that one, or restore a backup of this version's into another database"
            )
        for statement in schema.migrations(row[0]) if row else []:
            connection.execute(_dialect(statement))
        for statement in schema.statements(schema.TABLES):
            connection.execute(_dialect(statement))
        connection.execute(
            """INSERT INTO hub_owner VALUES (1, %s, 0, 0, 0, '')
                ON CONFLICT (one) DO UPDATE SET version = excluded.version""",
            (schema.VERSION,),
        )

    def _connected(self) -> Connection:
        if self._connection:
            return self._connection
        try:
            return self._connect(RECLAIM_SECONDS)
        except UserError as error:  # an address that cannot be read now, for one, may be mended while the hub runs
            self.failing = str(error)
            raise StoreError(self.failing) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Make psycopg's errors StoreError, and a connection that is lost one to be dialled anew."""
        try:
            yield
        except (psycopg.Error, OSError) as error:
            why = _sentence(error)
            if (connection := self._connection) and _lost(connection):
                self._drop()
                why = self.failing = f"the connection to {self.name} broke: {why}"
                self._retry_at = 0.0
            raise StoreError(why) from error

    def _drop(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def recover(self) -> None:
        """As `Database.recover`."""
        self._connected()

    def check(self) -> None:
        """As `Database.check`."""
        self.execute("SELECT 1")

    def interrupt(self) -> None:
        """As `Database.interrupt`. A server that is frozen keeps its connections, and a client would wait for ever."""
        connection = self._connection or self._opening
        if connection is not None and not connection.closed:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
                ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the session, and with it the ownership."""
        self._drop()

    # Reading and writing

    def newest_cursor(self) -> int:
        """As `Database.newest_cursor`; 0 while it cannot be reached."""
        if self.failing:
            return 0
        return next((int(row[0]) for row in self.rows("SELECT cursor FROM hub_owner")), 0)

    def set_newest_cursor(self, cursor: int) -> None:
        """As `Database.set_newest_cursor`."""
        self.execute("UPDATE hub_owner SET cursor = ?, commits = commits + 1", (cursor,))
        self._commits += 1
        for table, column in schema.numbered_tables():
            if table != "events":
                self.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), MAX({column})) FROM {table}"
                )

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """As `Database.rows`. All of them are fetched at once, but within a snapshot."""
        connection = self._connected()
        with self._translated():
            if connection.info.transaction_status == TransactionStatus.IDLE:
                yield from connection.execute(_dialect(query), _storable(arguments)).fetchall()
                return
            with connection.cursor(name="embereye") as cursor:
                yield from cursor.execute(_dialect(query), _storable(arguments))

    def columns(self, table: str) -> list[str]:
        """As `Database.columns`."""
        connection = self._connected()
        with self._translated():
            found = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or []
        return [column.name for column in found]

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """As `Database.execute`."""
        connection = self._connected()
        with self._translated():
            return connection.execute(_dialect(statement), _storable(arguments)).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """As `Database.execute_many`."""
        if len(rows) <= FEW:
            for row in rows:
                self.execute(statement, row)
            return
        connection = self._connected()
        with self._translated(), connection.cursor() as cursor:
            cursor.executemany(_dialect(statement), [_storable(row) for row in rows])

    def empty(self, table: str) -> None:
        """As `Database.empty`. DELETE takes longer than any statement may where there are millions of rows."""
        self.execute(f"TRUNCATE {table}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Database.transaction`."""
        connection = self._connected()
        with self._translated(), connection.transaction():
            yield

    @contextlib.contextmanager
    def owned_transaction(self, cursor: int) -> Iterator[bool]:
        """As `Database.owned_transaction`. Its statements go out together: one round trip, however many there are."""
        connection = self._connected()
        landed = self._landed
        try:
            with self._translated(), connection.pipeline(), connection.transaction():
                connection.execute(COMMIT, (self._epoch, self._commits + 1, cursor))
                self._landed, self._untold = False, True
                yield landed
        except BaseException as error:
            self._untold = self._untold and self._connection is None  # what was rolled back took no effect
            if isinstance(error.__cause__, psycopg.errors.NotNullViolation):
                raise ReloadRequiredError(f"another hub owns {self.name} now: begin anew from what it holds") from error
            raise
        self._untold = False
        self._commits += 1

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """As `Database.snapshot`."""
        connection = self._connected()
        with self._translated(), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield


def parse_address(text: str) -> dict[str, Any]:
    """The parts of a connection string. UserError where it is none; its password is not repeated."""
    try:
        return dict(conninfo.conninfo_to_dict(text))
    except psycopg.Error as error:
        raise UserError(
            "the database's address is not of the form postgresql://USER:PASSWORD@HOST:PORT/NAME, "
            "nor one of key=value pairs as libpq reads them"
        ) from error


def _name(parts: dict[str, Any]) -> str:
    database = parts.get("dbname") or parts.get("user") or "postgres"
    host = parts.get("host") or "localhost"
    return f"PostgreSQL's {database} at {host}" + (f":{parts['port']}" if parts.get("port") else "")


def _value(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _lost(connection: Connection) -> bool:
    return connection.closed or connection.info.transaction_status == TransactionStatus.UNKNOWN


def _sentence(error: Exception) -> str:
    """What PostgreSQL says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@functools.cache
def _dialect(statement: str) -> str:
    """What SQLite reads, for PostgreSQL."""
    for found, ours in (
        (r"INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
        (r"\bINTEGER\b", "BIGINT"),
        (r"\bBLOB\b", "BYTEA"),
        (r"\)\s*WITHOUT ROWID", ")"),
        (r"\?", "%s"),
    ):
        statement = re.sub(found, ours, statement)
    return statement


def _storable(row: Sequence[object]) -> tuple[object, ...]:
    """Without the one character that PostgreSQL's texts cannot have: a device may name itself as it likes."""
    return tuple(one.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(one, str) else one for one in row)

"""The hub's database in PostgreSQL, through psycopg.

One hub at a time owns the database. The owner has a session-level advisory lock, which others wait for. It also has an
epoch in the table `hub_owner`, which each new owner raises. Every owned transaction first checks the epoch and counts
itself in `commits`. The epoch stops an owner that was cut off and does not know that another one has taken over.

After a reconnect, the stored number of commits shows what happened to earlier transactions. If it is one more than
known, the transaction with the unknown outcome took effect. If it is lower than known, as after a failover to a replica
of the server that lagged behind, acknowledged commits were lost (`lost_commits`).

Before a connection changes anything, `_check_suitable` refuses databases that would store texts wrongly, and poolers
that lend one session to several clients: there, neither the lock nor the settings of a session would be ours.
"""

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

from embereye.hub.database import (
    OwnedError,
    ReloadRequiredError,
    Row,
    StoreError,
    UnsuitableError,
    storable,
)
from embereye.hub.databases import schema
from embereye.hub.databases.addresses import KNOWN, dialled
from embereye.process.lifecycle import UserError
from embereye.process.reason import reason_of
from embereye.process.timing.backoff import Backoff
from embereye.units import counted

logger = logging.getLogger(__name__)
Connection = psycopg.Connection[Row]

FEW = 16  # rows up to which single statements in a pipeline are cheaper than `executemany` with its own round trip
RETRY_CAP_SECONDS = 3.0  # longest pause between two attempts to connect
OWNER_SECONDS = 20.0  # how long to wait for another owner to end; the session of a lost node takes about five
POOLER_PROBES = 5  # connections opened in turn behind a pooler: another client may use our session between two of them
RECLAIM_SECONDS = 0.5  # the same for a hub that already serves; it tries again later
# For both ends: notice a lost peer within five seconds instead of TCP's two hours.
CLIENT = {
    "connect_timeout": 3, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}  # fmt: skip
SERVER = """
SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 5000;
SET client_encoding = 'UTF8';
SET statement_timeout = '15s'; SET lock_timeout = '5s'; SET client_min_messages = warning
"""
# The owner's lock: new hubs wait for it. Its epoch stops an owner that was cut off and does not know it.
LOCK = "hashtext('embereye.hub'), hashtext(current_schema())"
OWNER = """
CREATE TABLE IF NOT EXISTS hub_owner (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL,
    epoch BIGINT NOT NULL, commits BIGINT NOT NULL, cursor BIGINT NOT NULL, place TEXT NOT NULL)
"""
# For a stale owner, the epoch becomes NULL, which the column refuses: its transaction fails without an extra query.
COMMIT = """
UPDATE hub_owner SET epoch = CASE WHEN epoch = %s THEN epoch END, commits = %s, cursor = GREATEST(cursor, %s)
"""


class InUseError(StoreError):
    """Another hub owns the database."""


class PostgresDatabase:
    """A `Database` in PostgreSQL. It reconnects, with back-off, whenever it is used after its connection broke.

    A writer owns the database while it is connected. UserError if another hub owns it for OWNER_SECONDS, or if it is
    unsuitable.
    """

    def __init__(
        self, address: Callable[[], str], *, writer: bool = True, advertisement: str = "", dial: bool = True
    ) -> None:
        """`address` returns the current connection string: passwords change.

        `advertisement` is the owner's address for other replicas; '': there are none. Without `dial` the database is
        `failing` until `recover` connects.
        """
        self._address = address
        self._advertisement = advertisement
        self._writer = writer
        self._connection: Connection | None = None
        self._opening: Connection | None = None  # a connection that is not ready for use yet
        self._backoff = Backoff(floor=0.1, cap=RETRY_CAP_SECONDS)
        self._retry_at = 0.0  # monotonic seconds
        self._pid = 0  # of the server process of the latest connection
        self._epoch = 0  # of this hub's ownership; 0: it has not owned the database yet
        self._commits = 0  # owned transactions that are known to have taken effect
        self._unknown_outcome = False  # True if one more transaction may have taken effect
        self._took_effect = False  # True if that transaction did
        self.lost_commits = 0
        self.is_new = False
        self.is_damaged = False  # damage is the server's to repair
        self.name = _name(parse_address(address()))
        self.failing = "" if dial else f"{self.name}: not connected yet"
        if not dial:
            return
        try:
            self._connect(RECLAIM_SECONDS if advertisement else OWNER_SECONDS)
        except InUseError as error:
            remedy = "" if advertisement else ". Stop it, or name another database."
            raise OwnedError(f"{error}{remedy}") from error
        except StoreError as error:
            self.failing = str(error)

    # Connecting

    def _connect(self, patience: float) -> Connection:
        """Open a connection that is ready for use; StoreError if that fails."""
        if time.monotonic() < self._retry_at:
            raise StoreError(self.failing)
        try:
            connection = self._dial(patience)
        except (psycopg.Error, OSError, ValueError, InUseError) as error:
            in_use = isinstance(error, InUseError)
            self.failing = str(error) if in_use else f"{self.name} cannot be reached: {reason_of(error)}"
            self._retry_at = time.monotonic() + self._backoff.next()
            raise (InUseError if in_use else StoreError)(self.failing) from error
        self._backoff.reset()
        self._connection = connection
        self.failing = ""
        return connection

    def _dial(self, patience: float) -> Connection:
        address = parse_address(self._address())
        options = {"application_name": "embereye-hub", **CLIENT, **address, "client_encoding": "UTF8"}
        connection, options = _connect_to_first(options)
        self._opening = connection
        try:
            _check_suitable(connection, options, self.name)
            connection.execute(SERVER)
            if self._writer:
                self._become_owner(connection, patience)
            else:
                connection.execute("SET default_transaction_read_only = on")
        except BaseException:
            connection.close()
            raise
        finally:
            self._opening = None
        self._pid = connection.info.backend_pid
        return connection

    def _become_owner(self, connection: Connection, patience: float) -> None:
        """Become the owner, with tables of our version.

        ReloadRequiredError if another hub has owned the database since this one did.
        """
        # An acknowledged report has to survive a power cut of the server.
        if _value(connection, "SHOW synchronous_commit") == "off":
            connection.execute("SET synchronous_commit = on")
        self._check_epoch(connection)  # before the lock, which a newer owner has
        self._lock(connection, patience)
        with connection.transaction():
            self._prepare_tables(connection)
            self._check_epoch(connection)
            epoch, commits = connection.execute("SELECT epoch, commits FROM hub_owner").fetchone() or (0, 0)
            if self.failing and not self._epoch and commits:
                raise ReloadRequiredError(f"{self.name}: can be read again, which was not possible at the start")
            if not self._epoch:
                self.is_new = not epoch
                epoch += 1
                connection.execute("UPDATE hub_owner SET epoch = %s, place = %s", (epoch, self._advertisement))
        if lost := max(self._commits - commits, 0):
            logger.error(
                "%s: lost its newest %s, which it had acknowledged. The hub writes its state again; the history of "
                "that time is incomplete.", self.name, counted(lost, "transaction"),
            )  # fmt: skip
            self.lost_commits += lost
        if self._unknown_outcome:
            self._took_effect, self._unknown_outcome = commits > self._commits, False
        self._epoch, self._commits = epoch, commits

    def _lock(self, connection: Connection, patience: float) -> None:
        # End our previous session: the server may not know yet that its connection is gone.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted",
            (self._pid,),
        )
        deadline, warned = time.monotonic() + patience, False
        while not _value(connection, f"SELECT pg_try_advisory_lock({LOCK})"):
            if time.monotonic() > deadline:
                raise InUseError(f"{self.name} is in use by another hub")
            if not warned and patience > RECLAIM_SECONDS:
                logger.warning("%s is in use by another hub: waiting for it to end", self.name)
                warned = True
            time.sleep(0.1)

    def _check_epoch(self, connection: Connection) -> None:
        """Raise ReloadRequiredError if another hub has owned the database since this one did."""
        if self._epoch and _value(connection, "SELECT epoch FROM hub_owner") != self._epoch:
            raise ReloadRequiredError(f"another hub owned {self.name} meanwhile: its state has to be read again")

    def _prepare_tables(self, connection: Connection) -> None:
        connection.execute(OWNER)
        row = connection.execute("SELECT version FROM hub_owner").fetchone()
        if row and row[0] > schema.VERSION:
            raise UserError(
                f"{self.name} was written by a newer version of the hub (format {row[0]}, not {schema.VERSION}). "
                "Start that version, or restore a backup from this version into another database."
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
        except UserError as error:  # for example an unreadable address file, which may be repaired while the hub runs
            self.failing = str(error)
            raise StoreError(self.failing) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn psycopg's errors into StoreError, and drop a lost connection so that the next call reconnects."""
        try:
            yield
        # A value that it cannot convert is a ValueError, of which UnicodeError is one, or an OverflowError.
        except (psycopg.Error, OSError, ValueError, OverflowError) as error:
            why = reason_of(error)
            if (connection := self._connection) and _is_lost(connection):
                self.close()
                why = self.failing = f"the connection to {self.name} broke: {why}"
                self._retry_at = 0.0
            raise StoreError(why) from error

    def close(self) -> None:
        """End the session and thereby the ownership."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def recover(self) -> None:
        """Connect again if necessary; see `Database.recover`."""
        self._connected()

    def check(self) -> None:
        """Ask the server for a constant; see `Database.check`."""
        self.execute("SELECT 1")

    def interrupt(self) -> None:
        """Shut the socket down; see `Database.interrupt`. A client of a frozen server would otherwise wait forever."""
        connection = self._connection or self._opening
        if connection is not None and not connection.closed:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
                ours.shutdown(socket.SHUT_RDWR)

    # Reading and writing

    def newest_cursor(self) -> int:
        """The cursor of the newest event ever stored; 0 while the server cannot be reached."""
        if self.failing:
            return 0
        return next((int(row[0]) for row in self.rows("SELECT cursor FROM hub_owner")), 0)

    def set_newest_cursor(self, cursor: int) -> None:
        """Set the cursor after which events are numbered; see `Database.set_newest_cursor`."""
        self.execute("UPDATE hub_owner SET cursor = ?, commits = commits + 1", (cursor,))
        self._commits += 1
        for table, column in schema.numbered_tables():
            if table != "events":
                self.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), MAX({column})) FROM {table}"
                )

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """Yield the rows of `query`, fetched at once or, within a transaction, in parts; see `Database.rows`."""
        connection = self._connected()
        with self._translated():
            if connection.info.transaction_status == TransactionStatus.IDLE:
                yield from connection.execute(_dialect(query), storable(arguments)).fetchall()
                return
            with connection.cursor(name="embereye") as cursor:
                yield from cursor.execute(_dialect(query), storable(arguments))

    def tables(self) -> list[str]:
        """The names of the tables; see `Database.tables`."""
        return [str(row[0]) for row in self.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]

    def columns(self, table: str) -> list[str]:
        """The names of the columns of `table`."""
        connection = self._connected()
        with self._translated():
            columns = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or []
        return [column.name for column in columns]

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """Execute `statement`; see `Database.execute`."""
        connection = self._connected()
        with self._translated():
            return connection.execute(_dialect(statement), storable(arguments)).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute `statement` for each of `rows`."""
        if len(rows) <= FEW:
            for row in rows:
                self.execute(statement, row)
            return
        connection = self._connected()
        with self._translated(), connection.cursor() as cursor:
            cursor.executemany(_dialect(statement), [storable(row) for row in rows])

    def empty(self, table: str) -> None:
        """Truncate `table`: deleting millions of rows would take longer than the statement timeout."""
        self.execute(f"TRUNCATE {table}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction; see `Database.transaction`."""
        connection = self._connected()
        with self._translated(), connection.transaction():
            yield

    @contextlib.contextmanager
    def owned_transaction(self, cursor: int) -> Iterator[bool]:
        """Open a transaction as the owner, in one round trip; see `Database.owned_transaction`."""
        connection = self._connected()
        took_effect = self._took_effect
        try:
            with self._translated(), connection.pipeline(), connection.transaction():
                connection.execute(COMMIT, (self._epoch, self._commits + 1, cursor))
                self._took_effect, self._unknown_outcome = False, True
                yield took_effect
        except BaseException as error:
            # If the connection is intact, the transaction was rolled back: its outcome is known.
            self._unknown_outcome = self._unknown_outcome and self._connection is None
            if isinstance(error.__cause__, psycopg.errors.NotNullViolation):
                raise ReloadRequiredError(
                    f"another hub owns {self.name} now: its state has to be read again"
                ) from error
            raise
        self._unknown_outcome = False
        self._commits += 1

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Open a read-only transaction that sees one moment; see `Database.snapshot`."""
        connection = self._connected()
        with self._translated(), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield


def _connect_to_first(options: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
    """Connect to the first address of the host that answers; return its options, too. Raises the last one's error."""
    *attempts, last = dialled(options, KNOWN)
    for attempt in attempts:
        with contextlib.suppress(psycopg.OperationalError):
            return psycopg.connect(**attempt, autocommit=True), attempt
    return psycopg.connect(**last, autocommit=True), last


def parse_address(text: str) -> dict[str, Any]:
    """The parts of a connection string. UserError if it is invalid, without its text, which has the password."""
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


def _check_suitable(connection: Connection, options: dict[str, Any], name: str) -> None:
    """Raise UnsuitableError if the database does not store UTF-8, or a pooler shares its sessions between clients."""
    session, encoding = connection.execute("SELECT pg_backend_pid(), current_setting('server_encoding')").fetchall()[0]
    if _text(encoding) != "UTF8":
        raise UnsuitableError(
            f"{name}: encoding {_text(encoding)}: names of zones and devices may have any letter. "
            "Use a database with encoding UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    if connection.info.backend_pid == session:
        return  # connected to the server itself: a pooler cannot know its sessions' numbers before it lends one
    for _ in range(POOLER_PROBES):
        with psycopg.connect(**options, autocommit=True) as other:
            if _value(other, "SELECT pg_backend_pid()") == _value(connection, "SELECT pg_backend_pid()"):
                raise UnsuitableError(
                    f"{name}: a pooler lends one session to several clients, so that no hub can own the database. "
                    "Let it give each client a dedicated session (PgBouncer: pool_mode=session), or connect to the "
                    "server directly."
                )


def _text(value: str | bytes) -> str:
    """`value` as text: psycopg returns texts of a server in SQL_ASCII as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _value(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _is_lost(connection: Connection) -> bool:
    return connection.closed or connection.info.transaction_status == TransactionStatus.UNKNOWN


@functools.cache
def _dialect(statement: str) -> str:
    """Translate `statement` from SQLite's dialect to PostgreSQL's."""
    for pattern, replacement in (
        (r"INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
        (r"\bINTEGER\b", "BIGINT"),
        (r"\bBLOB\b", "BYTEA"),
        (r"\)\s*WITHOUT ROWID", ")"),
        (r"\?", "%s"),
    ):
        statement = re.sub(pattern, replacement, statement)
    return statement

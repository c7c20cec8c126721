"""Tables: what the hub stores, one object for each kind of row.

A table has the SQL that creates it, and derives its other statements from that. A transaction's changes of a table are
in a dedicated container: a mapping from key to value, in which None removes the row, or a list of new rows. `schema`
lists the tables; opening the hub, committing, rewriting and pruning are loops over that list.

| class | rows | in memory |
| --- | --- | --- |
| `StateTable` | a mapping, such as tokens | all: loaded at the start; most rewritten after lost commits |
| `KeyedTable` | a mapping, such as pictures | none, or the newest |
| `Log` | a list that only grows, such as events | none, or the newest |
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from google.protobuf.message import DecodeError

from embereye.hub.database import DamagedError, Database, Row

logger = logging.getLogger(__name__)
C = TypeVar("C")  # a transaction's changes
S_co = TypeVar("S_co", covariant=True)  # what is loaded at the start
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E")
R = TypeVar("R")

MAX_ROW_ERRORS = 100  # unreadable rows that are logged at most


class RowReader:
    """Reads rows of `db`; those that cannot be read are skipped, counted and logged once."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.unreadable = 0  # rows skipped because they cannot be read, counted at each reading
        self._logged_errors = set[tuple[str, str]]()  # query and error

    def rows(self, query: str, read: Callable[[Any], R], arguments: Sequence[object] = ()) -> Iterator[R]:
        """Yield `read(row)` for each row of `query`; skips rows that `read` fails on."""
        rows = self.db.rows(query, arguments)
        while True:
            try:
                row = next(rows, None)
                if row is None:
                    return
                yield read(row)
            except DamagedError as error:  # the database cannot read past this row
                self._skip_row(query, error)
                return
            except (DecodeError, ValueError, TypeError) as error:
                self._skip_row(query, error)

    def _skip_row(self, query: str, error: Exception) -> None:
        self.unreadable += 1
        if (query, str(error)) in self._logged_errors or len(self._logged_errors) >= MAX_ROW_ERRORS:
            return  # a client that repeats its request would fill the log
        self._logged_errors.add((query, str(error)))
        logger.error("%s: a row cannot be read and is skipped: %s (%s)", self.db.name, error, query)


class Table(Generic[C, S_co]):
    """One kind of stored rows. Every method may raise StoreError; those that write run in an open transaction."""

    is_rewritten = False  # True: the hub has it in memory, and writes it again after the database lost commits

    def __init__(self, create: str, *, expires: str = "", newest_time: str = "") -> None:
        """`create` is the SQL that creates the table and its indexes.

        `expires` is the column with the time, on the hub's timeline, from which retention counts; '': rows stay.
        `newest_time` is the query for the newest time of a row on the hub's timeline; '': it has none.
        """
        self.create = create
        self.newest_time = newest_time
        head = create.partition(";")[0]
        self.name = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", head)[0]
        self.columns = re.findall(r"(\w+) (?:TEXT|INTEGER|BLOB)\b", head)
        self._expires = expires

    def new_changes(self) -> C:
        """A container for a transaction's changes, without any."""
        raise NotImplementedError

    def nothing(self) -> S_co:
        """The loaded state of an empty table; by default None: rows are read when they are needed."""
        return cast("S_co", None)

    def load(self, reader: RowReader) -> S_co:
        """Read the state from which the hub starts."""
        del reader
        return self.nothing()

    def write(self, db: Database, changes: C, now_ns: int = 0) -> None:
        """Write `changes`, made at `now_ns` on the hub's timeline; 0: unknown."""
        raise NotImplementedError

    def rewrite(self, db: Database, state: C) -> None:
        """Write `state`, which the hub has in memory, after the database lost commits."""
        self.write(db, state)

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        """Remove some rows that are older than `retention_ns` at `now_ns`; returns their number, 0 if none are left."""
        if not self._expires:
            return 0
        return db.execute(f"DELETE FROM {self.name} WHERE {self._expires} < ?", (max(0, now_ns - retention_ns),))


class KeyedTable(Table[dict[K, V | None], S_co]):
    """Rows with a primary key; a change sets a key's value, or removes the row (None)."""

    def __init__(
        self, create: str, dump: Callable[[V], Row], *, expires: str = "", newest_time: str = "", updates: bool = True
    ) -> None:
        """`dump` returns the columns after the key. Without `updates`, an existing row stays as it is."""
        super().__init__(create, expires=expires, newest_time=newest_time)
        self._dump = dump
        single = re.findall(r"(\w+) \w+ PRIMARY KEY", create)
        keys = single or re.findall(r"PRIMARY KEY \(([^)]*)\)", create)[0].split(", ")
        updated = ", ".join(f"{column} = excluded.{column}" for column in self.columns[len(keys) :] if updates)
        self._upsert = (
            f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))}) "
            f"ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {updated}' if updated else 'NOTHING'}"
        )
        self._delete = f"DELETE FROM {self.name} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"

    def new_changes(self) -> dict[K, V | None]:
        """An empty mapping."""
        return {}

    def write(self, db: Database, changes: Mapping[K, V | None], now_ns: int = 0) -> None:
        """Write `changes`, in the open transaction."""
        del now_ns
        if removed := [_columns(key) for key, value in changes.items() if value is None]:
            db.execute_many(self._delete, removed)
        if rows := [(*_columns(key), *self._dump(value)) for key, value in changes.items() if value is not None]:
            db.execute_many(self._upsert, rows)


class StateTable(KeyedTable[K, V, dict[K, V]]):
    """Rows that are all in the hub's memory."""

    def __init__(
        self, create: str, dump: Callable[[V], Row], read: Callable[[Any], tuple[K, V]], *, newest_time: str = "",
        is_rewritten: bool = True,
    ) -> None:  # fmt: skip
        """`read` returns the key and the value in a row; ValueError, TypeError or DecodeError if it is unreadable.

        `dump` and `newest_time` are as in `KeyedTable`.
        """
        super().__init__(create, dump, newest_time=newest_time)
        self._read = read
        self.is_rewritten = is_rewritten

    def nothing(self) -> dict[K, V]:
        """An empty mapping."""
        return {}

    def load(self, reader: RowReader) -> dict[K, V]:
        """Read all rows."""
        return dict(reader.rows(f"SELECT {', '.join(self.columns)} FROM {self.name}", self._read))

    def rewrite(self, db: Database, state: Mapping[K, V | None]) -> None:
        """Replace all rows by `state`: rows that were removed may have come back."""
        db.execute(f"DELETE FROM {self.name}")
        self.write(db, state)


class Log(Table[list[E], None]):
    """Rows that are only added, and must not be written twice; the database numbers them."""

    def new_changes(self) -> list[E]:
        """An empty list."""
        return []


def _columns(key: object) -> Row:
    return key if isinstance(key, tuple) else (key,)


def documents(name: str, owner: str = "kind") -> StateTable[tuple[str, str], str]:
    """The table `name` of JSON documents, each with a kind, or an `owner`, and a name."""
    return StateTable(
        f"""
CREATE TABLE IF NOT EXISTS {name} ({owner} TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY ({owner}, name)) WITHOUT ROWID;
""",
        dump=lambda document: (document,),
        read=lambda row: ((str(row[0]), str(row[1])), str(row[2])),
    )

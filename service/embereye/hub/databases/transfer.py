"""Copy of a hub's whole history and state from one database into another, verified by comparing both.

The commands backup, restore and migrate use it. The source is read in one snapshot, and the target is written in one
transaction, table by table. Before that transaction ends, the rows of both are counted and digested. A difference
raises an error, which leaves the target unchanged.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from embereye.hub.database import Database, Row
from embereye.hub.databases import schema
from embereye.process.lifecycle import UserError

ROWS = 500  # written at once
AHEAD = 1_000_000_000  # cursors, more than a hub uses between a backup and the day it is restored
MODULUS = 2**256


@dataclass(frozen=True)
class CopiedTable:
    """A table that was copied, with its number of rows."""

    name: str
    rows: int


def copy_history(source: Database, target: Database, *, replace: bool = False, ahead: int = 0) -> list[CopiedTable]:
    """Make `target` an exact copy of `source` at this moment, or leave it unchanged.

    New events in `target` get cursors from `ahead` later on. Clients that read events after the backup was made
    remember cursors past its end; with the gap, they still receive every new event.

    Tables that `source` lacks, because an older hub wrote it, are empty in `target`.

    UserError if `target` contains rows already and `replace` is not set; StoreError; RuntimeError if the copy differs
    from `source`.
    """
    names = schema.table_names()
    with source.snapshot(), target.transaction():
        stored = set(source.tables())
        for name in names:
            if replace:
                target.empty(name)
            elif list(target.rows(f"SELECT 1 FROM {name} LIMIT 1")):
                raise UserError(
                    f"{target.name}: contains a history already. Name another one, or add --replace to overwrite it."
                )
        copied = [CopiedTable(name, _copy(source, target, name) if name in stored else 0) for name in names]
        target.set_newest_cursor(source.newest_cursor() + ahead)
        for name in names:
            if name in stored and _fingerprint(source, name) != _fingerprint(target, name):
                raise RuntimeError(f"{target.name}: the copy of table {name} differs from the one in {source.name}")
    return copied


def _copy(source: Database, target: Database, table: str) -> int:
    columns = sorted(source.columns(table))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    rows, count = source.rows(_query(source, table)), 0
    while part := list(islice(rows, ROWS)):
        target.execute_many(statement, part)
        count += len(part)
    return count


def _query(database: Database, table: str) -> str:
    return f"SELECT {', '.join(sorted(database.columns(table)))} FROM {table}"


def _fingerprint(database: Database, table: str) -> tuple[int, int]:
    """The number of rows and the sum of their digests, which does not depend on the database's sort order."""
    count = total = 0
    for row in database.rows(_query(database, table)):
        count += 1
        total += _digest(row)
    return count, total % MODULUS


def _digest(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(b"".join(_parts(row))).digest())


def _parts(row: Row) -> Iterator[bytes]:
    for value in row:
        data = value if isinstance(value, bytes) else str(value).replace("\0", "\N{REPLACEMENT CHARACTER}").encode()
        yield b"%s %d:" % (type(value).__name__.encode(), len(data))
        yield data

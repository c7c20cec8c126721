"""A hub's whole history and state, copied from one database into another and compared."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from embereye.hub.databases import schema
from embereye.hub.databases.interface import Database, Row
from embereye.process.lifecycle import UserError

ROWS = 500  # written at once
AHEAD = 1_000_000_000  # cursors, more than are given between a backup and the day on which it is needed
MODULUS = 2**256


@dataclass(frozen=True)
class CopiedTable:
    """What was copied of one table."""

    name: str
    rows: int


def copy_history(source: Database, target: Database, *, replace: bool = False, ahead: int = 0) -> list[CopiedTable]:
    """Make `target` hold exactly what `source` holds at this moment, or leave it as it is.

    Its events are numbered on from `ahead` cursors later: what has been told since a backup has cursors of its own, and
    who remembers one of those is told all that comes after.

    UserError where it holds something already and `replace` does not say that this may go; StoreError; RuntimeError
    where the copy turned out to differ.
    """
    names = schema.table_names()
    with source.snapshot(), target.transaction():
        for name in names:
            if replace:
                target.empty(name)
            elif list(target.rows(f"SELECT 1 FROM {name} LIMIT 1")):
                raise UserError(f"{target.name} holds a history already: name another, or say --replace to lose it")
        copied = [CopiedTable(name, _copy(source, target, name)) for name in names]
        target.set_newest_cursor(source.newest_cursor() + ahead)
        for name in names:
            if _fingerprint(source, name) != _fingerprint(target, name):
                raise RuntimeError(f"the copy of {name} in {target.name} is not what {source.name} holds")
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
    """How many rows, and the sum of their digests: databases sort texts by rules of their own."""
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

"""The database table of the hub's position in its stream of evidence."""

from dataclasses import dataclass
from typing import Any

from embereye.hub.database import Database

TABLES = """
CREATE TABLE IF NOT EXISTS consumed (stream TEXT PRIMARY KEY, sequence INTEGER NOT NULL, message TEXT NOT NULL)
    WITHOUT ROWID;
"""
QUERY = "SELECT stream, sequence, message FROM consumed"


@dataclass(frozen=True)
class Position:
    """The last message whose report the database contains, or contained before it was pruned."""

    stream: str
    sequence: int
    message: str  # its id: a server that lost the end of its stream assigns a sequence again


def read(row: Any) -> Position:
    """Read a position from a row of QUERY."""
    return Position(str(row[0]), int(row[1]), str(row[2]))


def write(database: Database, position: Position | None) -> None:
    """Write `position` in the open transaction; None leaves it unchanged."""
    if position is None:
        return
    upsert = """INSERT INTO consumed VALUES (?, ?, ?) ON CONFLICT (stream)
        DO UPDATE SET sequence = excluded.sequence, message = excluded.message"""
    database.execute(upsert, (position.stream, position.sequence, position.message))

"""How far the hub has come in its stream, as it is kept in the database."""

from dataclasses import dataclass
from typing import Any

from embereye.hub.databases.interface import Database

TABLES = """
CREATE TABLE IF NOT EXISTS consumed (stream TEXT PRIMARY KEY, sequence INTEGER NOT NULL, message TEXT NOT NULL)
    WITHOUT ROWID;
"""
QUERY = "SELECT stream, sequence, message FROM consumed"


@dataclass(frozen=True)
class Position:
    """The last message whose report is part of what the database holds, or was part of it before."""

    stream: str
    sequence: int
    message: str  # its id: a server that lost the end of its stream gives a sequence to another message


def read(row: Any) -> Position:
    """What QUERY finds."""
    return Position(str(row[0]), int(row[1]), str(row[2]))


def write(database: Database, position: Position | None) -> None:
    """Go on from `position` next time; None: from where it was."""
    if position is None:
        return
    upsert = """INSERT INTO consumed VALUES (?, ?, ?) ON CONFLICT (stream)
        DO UPDATE SET sequence = excluded.sequence, message = excluded.message"""
    database.execute(upsert, (position.stream, position.sequence, position.message))

"""Stored subscriptions in the hub's database."""

from collections.abc import Mapping
from dataclasses import dataclass

from embereye.hub.database import Database
from embereye.hub.tables.selection import Selection, parse_selection
from embereye.v1 import alarms_pb2 as messages

TABLES = """
CREATE TABLE IF NOT EXISTS subscriptions (name TEXT PRIMARY KEY, selection BLOB NOT NULL, made_ns INTEGER NOT NULL,
    made_by TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class StoredSubscription:
    """A selection that a person or program stored under a name."""

    name: str
    selection: Selection
    made_ns: int  # by the wall clock, nanoseconds since the Unix epoch
    made_by: str


def read(row: tuple[str, bytes, int, str]) -> StoredSubscription:
    """Read a row of QUERY; ValueError or DecodeError if it is damaged."""
    name, selection, made_ns, made_by = row
    return StoredSubscription(name, parse_selection(messages.Selection.FromString(selection)), made_ns, made_by)


QUERY = "SELECT name, selection, made_ns, made_by FROM subscriptions"


def write(db: Database, changes: Mapping[str, StoredSubscription | None]) -> None:
    """Write `changes`, None for a removal, in the open transaction."""
    for name, stored in changes.items():
        if stored is None:
            db.execute("DELETE FROM subscriptions WHERE name = ?", (name,))
        else:
            row = (name, stored.selection.message.SerializeToString(), stored.made_ns, stored.made_by)
            db.execute(
                """INSERT INTO subscriptions VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE
                    SET selection = excluded.selection, made_ns = excluded.made_ns, made_by = excluded.made_by""",
                row,
            )

"""Stored subscriptions in the hub's database."""

from dataclasses import dataclass
from typing import Any

from embereye.hub.tables.selection import Selection, parse_selection
from embereye.hub.tables.table import StateTable
from embereye.v1 import alarms_pb2 as messages


@dataclass(frozen=True)
class StoredSubscription:
    """A selection that a person or program stored under a name."""

    name: str
    selection: Selection
    made_ns: int  # by the wall clock, nanoseconds since the Unix epoch
    made_by: str


def _read(row: Any) -> tuple[str, StoredSubscription]:
    name, selection, made_ns, made_by = row
    return name, StoredSubscription(name, parse_selection(messages.Selection.FromString(selection)), made_ns, made_by)


SUBSCRIPTIONS = StateTable[str, StoredSubscription](  # by name
    """
CREATE TABLE IF NOT EXISTS subscriptions (name TEXT PRIMARY KEY, selection BLOB NOT NULL, made_ns INTEGER NOT NULL,
    made_by TEXT NOT NULL) WITHOUT ROWID;
""",
    dump=lambda stored: (stored.selection.message.SerializeToString(), stored.made_ns, stored.made_by),
    read=_read,
)

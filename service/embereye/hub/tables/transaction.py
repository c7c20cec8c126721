"""A transaction's changes of the hub's tables, and the state that the hub loads from them.

Parts of the hub add their changes to the open `Transaction` by table; the committer has `Store` write it. At the start,
each part restores itself from the `StoredState`. Both are typed by the table that indexes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from embereye.hub.tables.table import StateTable, Table

C = TypeVar("C")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


@dataclass
class Transaction:
    """Changes that take effect together or not at all: `transaction[TABLE]` is a table's container for them."""

    changes: dict[Table[Any, Any], Any] = field(default_factory=dict)
    newest: int = 0  # cursor of the newest event ever, in a full state
    full_state: "Transaction | None" = None  # the hub's complete state, rewritten after the database lost commits
    recorded_ns: int = 0  # on the hub's timeline, for retention; an event's own time is for people

    def __getitem__(self, table: Table[C, Any]) -> C:
        if table not in self.changes:
            self.changes[table] = table.new_changes()
        changes: C = self.changes[table]
        return changes

    def __bool__(self) -> bool:
        return self.full_state is not None or any(self.changes.values())

    def items(self) -> Iterator[tuple[Table[Any, Any], Any]]:
        """Yield each changed table with its changes."""
        return ((table, changes) for table, changes in self.changes.items() if changes)


@dataclass(frozen=True)
class StoredState:
    """The state that the hub had stored when it last ended: `stored[TABLE]` is what was loaded from a table."""

    loaded: Mapping[Table[Any, Any], Any] = field(default_factory=dict)
    cursor: int = 0  # of the newest event ever
    latest_ns: int = 0  # the newest stored time on the hub's timeline; 0: nothing is stored yet

    def __getitem__(self, table: Table[Any, S]) -> S:
        state: S = self.loaded[table] if table in self.loaded else table.nothing()
        return state


class Rows(dict[K, V]):
    """All rows of a table in memory, as a part of the hub."""

    def __init__(self, table: StateTable[K, V]) -> None:
        super().__init__()
        self._table = table

    def restore(self, stored: StoredState) -> None:
        """Restore all rows."""
        self.update(stored[self._table])

    def add_state(self, state: Transaction) -> None:
        """Add all rows to `state`."""
        state[self._table].update(self)

    def put(self, transaction: Transaction, key: K, value: V | None) -> None:
        """Set a row, or remove it with None."""
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value
        transaction[self._table][key] = value

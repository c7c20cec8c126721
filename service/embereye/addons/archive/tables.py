"""The database table of the archive's progress."""

from typing import TYPE_CHECKING

from embereye.hub.tables.table import StateTable
from embereye.hub.tables.transaction import StoredState, Transaction

if TYPE_CHECKING:  # the hub imports this module before the committer
    from embereye.hub.committer import Draft

ARCHIVED = StateTable[str, int](  # by name
    """
CREATE TABLE IF NOT EXISTS archived (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
""",
    dump=lambda value: (value,),
    read=lambda row: (str(row[0]), int(row[1])),
)
TABLES = (ARCHIVED,)


class Progress:
    """The positions up to which everything is in the bucket, as a part of the hub."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def restore(self, stored: StoredState) -> None:
        """Restore the positions."""
        self.values = dict(stored[ARCHIVED])

    def add_state(self, state: Transaction) -> None:
        """Add the positions to `state`."""
        state[ARCHIVED].update(self.values)

    def put(self, draft: "Draft", name: str, value: int) -> None:
        """Set a position in the transaction of `draft`."""
        draft.transaction[ARCHIVED][name] = value

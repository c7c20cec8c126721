"""The database table of DC-09: stations' positions and unacknowledged messages, and signs of panels.

All rows are in memory, as JSON documents by owner (a station, or the port for panels) and name. Changes are part of a
transaction of the hub, so a message and the position behind its event become durable together.
"""

import json
from typing import TYPE_CHECKING, Any

from embereye.hub.tables.table import StateTable
from embereye.hub.tables.transaction import StoredState, Transaction

if TYPE_CHECKING:  # the hub imports this module before the committer
    from embereye.hub.committer import Draft

DC09 = StateTable[tuple[str, str], str](  # by owner and name
    """
CREATE TABLE IF NOT EXISTS dc09 (owner TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (owner, name)) WITHOUT ROWID;
""",
    dump=lambda document: (document,),
    read=lambda row: ((str(row[0]), str(row[1])), str(row[2])),
)
TABLES = (DC09,)


class Rows:
    """The rows, as a part of the hub."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], str] = {}

    def restore(self, stored: StoredState) -> None:
        """Restore all rows."""
        self._rows = dict(stored[DC09])

    def add_state(self, state: Transaction) -> None:
        """Add all rows to `state`."""
        state[DC09].update(self._rows)

    def of_owner(self, owner: str) -> dict[str, Any]:
        """The documents of `owner` by name; those that cannot be read are left out."""
        documents = {}
        for (its_owner, name), document in self._rows.items():
            if its_owner == owner:
                try:
                    documents[name] = json.loads(document)
                except ValueError:
                    continue
        return documents

    def put(self, draft: "Draft", owner: str, name: str, document: object) -> None:
        """Set a row in the transaction of `draft`; None removes it."""
        if document is None:
            self._rows.pop((owner, name), None)
            draft.transaction[DC09][owner, name] = None
            return
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        self._rows[owner, name] = draft.transaction[DC09][owner, name] = text

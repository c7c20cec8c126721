"""The database table of DC-09: stations' positions and unacknowledged messages, and signs of panels.

All rows are in memory, as JSON documents by owner (a station, or the port for panels) and name. Changes are part of a
transaction of the hub, so a message and the position behind its event become durable together.
"""

import contextlib
import json
from typing import TYPE_CHECKING, Any

from embereye.hub.tables.table import documents
from embereye.hub.tables.transaction import Rows

if TYPE_CHECKING:  # the hub imports this module before the committer
    from embereye.hub.committer import Draft

DC09 = documents("dc09", "owner")  # by owner and name
TABLES = (DC09,)


class Documents(Rows[tuple[str, str], str]):
    """The rows, as a part of the hub."""

    def of_owner(self, owner: str) -> dict[str, Any]:
        """The documents of `owner` by name; those that cannot be read are left out."""
        documents = {}
        for (its_owner, name), document in self.items():
            if its_owner == owner:
                with contextlib.suppress(ValueError):
                    documents[name] = json.loads(document)
        return documents

    def put_document(self, draft: "Draft", owner: str, name: str, document: object) -> None:
        """Set a row in the transaction of `draft`; None removes it."""
        text = None if document is None else json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        self.put(draft.transaction, (owner, name), text)

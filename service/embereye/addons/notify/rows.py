"""The rows of notifications in memory, and their changes on the way to the database."""

import json
from collections.abc import Iterator
from typing import Any

from embereye.addons.notify.tables import NOTIFICATIONS, RowKey
from embereye.hub.committer import Committer, Draft, Step
from embereye.hub.tables.transaction import StoredState, Transaction


class Rows:
    """The rows in memory. Changes since the last `commit` become durable together."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._rows: dict[RowKey, str] = {}
        self._changed: dict[RowKey, str | None] = {}

    def restore(self, stored: StoredState) -> None:
        """Restore all rows."""
        self._rows = dict(stored[NOTIFICATIONS])

    def add_state(self, state: Transaction) -> None:
        """Add all rows to `state`."""
        state[NOTIFICATIONS].update(self._rows)

    def all(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Yield the keys and documents of one kind."""
        for (row_kind, key), document in list(self._rows.items()):
            if row_kind == kind:
                yield key, json.loads(document)

    def get(self, kind: str, key: str) -> Any:
        """The document of a row; None if there is none."""
        document = self._rows.get((kind, key))
        return None if document is None else json.loads(document)

    def put(self, kind: str, key: str, document: object) -> None:
        """Set a row, or remove it with None. It is durable some time after `commit`."""
        row = kind, key
        if document is None:
            if self._rows.pop(row, None) is not None:
                self._changed[row] = None
            return
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        if self._rows.get(row) != text:
            self._rows[row] = self._changed[row] = text

    def commit(self) -> None:
        """Let the changes become durable in one transaction, without waiting for it."""
        if not self._changed:
            return
        changes, self._changed = self._changed, {}

        def step(draft: Draft) -> None:
            draft.transaction[NOTIFICATIONS].update(changes)

        self._committer.enqueue(Step(step))

"""Selections of the feed that are stored under a name.

Clients name one instead of sending their selection. All are in memory, and a change is a step of the committer, durable
before it is answered. A subscriber copies the selection when it subscribes, so a later change of the stored one does
not affect it.
"""

import re

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Committer, Draft
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.selection import Selection
from embereye.hub.tables.subscriptions import SUBSCRIPTIONS, StoredSubscription
from embereye.hub.tables.transaction import Rows

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MAX_SUBSCRIPTIONS = 1_000


class Subscriptions(Rows[str, StoredSubscription]):
    """All stored subscriptions, in memory and in the database."""

    def __init__(self, committer: Committer) -> None:
        super().__init__(SUBSCRIPTIONS)
        self._committer = committer

    def all(self) -> list[StoredSubscription]:
        """All subscriptions by name."""
        return [self[name] for name in sorted(self)]

    def find(self, name: str) -> StoredSubscription:
        """Return the subscription called `name`; UnknownNameError."""
        if name not in self:
            raise UnknownNameError(f'no subscription "{name[:80]}" is stored')
        return self[name]

    async def store(self, by: Principal, name: str, selection: Selection) -> StoredSubscription:
        """Store `selection` under `name` and replace an older one; InvalidError, StoreFailingError.

        Clients that follow the older one continue with it until they subscribe again.
        """
        if not NAME.fullmatch(name):
            raise InvalidError(f'"{name[:80]}" is not a name: use 1 to 63 letters, digits and . _ -')
        if name not in self and len(self) >= MAX_SUBSCRIPTIONS:
            raise InvalidError(
                f"{MAX_SUBSCRIPTIONS} subscriptions are stored, which is the maximum. Remove some first."
            )
        made: list[StoredSubscription] = []

        def step(draft: Draft) -> None:
            made.append(StoredSubscription(name, selection, draft.now_ns + draft.stepped_ns, by.name))
            self.put(draft.transaction, name, made[0])
            add_entry(draft, by, "store subscription", name)

        await self._committer.commit(step)
        return made[0]

    async def remove(self, by: Principal, name: str) -> None:
        """Remove the subscription; UnknownNameError, StoreFailingError."""
        self.find(name)

        def step(draft: Draft) -> None:
            self.put(draft.transaction, name, None)
            add_entry(draft, by, "remove subscription", name)

        await self._committer.commit(step)

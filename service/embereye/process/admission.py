"""Admission of connections: a limit in all, a limit for each client, and room made by ending what is needed least.

Anyone who reaches a port can open connections without authentication. They must not use up the descriptors that the
rest of the process needs.
"""

import resource
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from embereye.process.addresses import place_of

C = TypeVar("C", bound=Hashable)


def descriptors() -> int:
    """The number of descriptors that this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Admission(Generic[C]):
    """The open connections of a port, and their limits."""

    def __init__(self, most: int, *, make_room: Callable[[str], bool] = lambda _: False) -> None:
        """Admit at most `most` connections, and at most half of them from one client.

        `make_room` is called if a limit is reached, with the client that has too many, or '' if all have. It ends a
        connection and forgets it, or returns False.
        """
        self.most = most
        self.refused = 0  # connections
        self.clients: Counter[str] = Counter()  # open connections by client
        self._make_room = make_room
        self._open: dict[C, str] = {}  # with the client, by address

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: C) -> bool:
        return connection in self._open

    def __iter__(self) -> Iterator[C]:
        """Iterate over the open connections, the oldest first."""
        return iter(list(self._open))

    def admit(self, connection: C, address: str = "") -> bool:
        """Add a connection from `address`; False if there is no room. Without an address, no client has a limit."""
        client = place_of(address)
        crowded = bool(client) and self.clients[client] * 2 >= self.most
        if (crowded or len(self._open) >= self.most) and not self._make_room(client if crowded else ""):
            self.refused += 1
            return False
        self._open[connection] = client
        self.clients[client] += 1
        return True

    def forget(self, connection: C) -> None:
        """Remove a connection that has ended."""
        client = self._open.pop(connection, None)
        if client is not None:
            self.clients[client] -= 1
            if not self.clients[client]:
                del self.clients[client]

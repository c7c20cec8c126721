"""Keys that need work: each at most once in the queue, and never with two workers at the same time."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EVENTS_PER_ROUTINE = 4  # taken in a row while routine work waits: it comes late under a storm, but it comes


class WorkQueue(Generic[K]):
    """`add` marks a key dirty; `take` hands it to a worker; a key added meanwhile comes again after `done`.

    Keys of which something was heard come before those that are due for a routine look: with many fleets a round of
    looks takes seconds.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[K, None] = OrderedDict()
        self._routine: OrderedDict[K, None] = OrderedDict()  # none of them in _events
        self._running: set[K] = set()
        self._again: dict[K, bool] = {}  # of those that run: whether for a routine look
        self._in_a_row = 0  # events taken since the latest routine look
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events) + len(self._routine) + len(self._again)

    def add(self, key: K, *, routine: bool = False) -> None:
        """Mark `key` dirty: something was heard of it, or it is due for a `routine` look."""
        if key in self._running:
            self._again[key] = routine and self._again.get(key, True)
            return
        if not routine:
            self._routine.pop(key, None)
            self._events[key] = None
        elif key not in self._events:
            self._routine[key] = None
        self._wake.set()

    async def next_key(self) -> K:
        """Wait for a key that no worker has; call `done` with it afterwards, whatever happened."""
        while not (self._events or self._routine):
            self._wake.clear()
            await self._wake.wait()
        if self._events and not (self._routine and self._in_a_row >= EVENTS_PER_ROUTINE):
            lane, self._in_a_row = self._events, self._in_a_row + 1
        else:
            lane, self._in_a_row = self._routine, 0
        key, _ = lane.popitem(last=False)
        self._running.add(key)
        return key

    def done(self, key: K) -> None:
        """Give `key` back."""
        self._running.discard(key)
        if (routine := self._again.pop(key, None)) is not None:
            self.add(key, routine=routine)

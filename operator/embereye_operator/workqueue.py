"""A queue of dirty keys: each is queued at most once, and no two workers have the same key.

The controller adds keys of fleets; its workers take them with `next_key` and return them with `done`. A key that is
added while a worker has it is queued again by `done`, so no event is lost, and events in a burst cost one pass. Keys
with events go first, but after EVENTS_PER_ROUTINE of them a routine key gets its turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EVENTS_PER_ROUTINE = (
    4  # events in a row before one routine key, so that a storm of events delays but never starves routine work
)


class WorkQueue(Generic[K]):
    """`add` marks a key dirty; `next_key` gives it to a worker; a key added meanwhile returns after `done`.

    Keys with events precede keys with routine passes: with many fleets a routine round takes seconds.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[K, None] = OrderedDict()
        self._routine: OrderedDict[K, None] = OrderedDict()  # none of them in _events
        self._running: set[K] = set()
        self._again: dict[K, bool] = {}  # running key → True if only a routine pass is due
        self._in_a_row = 0  # events taken since the latest routine key
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events) + len(self._routine) + len(self._again)

    def add(self, key: K, *, routine: bool = False) -> None:
        """Mark `key` dirty after an event, or for a `routine` pass."""
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
        """Wait for a key that no worker has; the caller must pass it to `done`, even after an error."""
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
        """Return `key` to the queue's control; it is queued again if it was added meanwhile."""
        self._running.discard(key)
        if (routine := self._again.pop(key, None)) is not None:
            self.add(key, routine=routine)

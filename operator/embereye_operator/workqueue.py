"""Keys that need work: each at most once in the queue, and never with two workers at the same time."""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """`add` marks a key dirty; `take` hands it to a worker; a key added meanwhile comes again after `done`."""

    def __init__(self) -> None:
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._running: set[K] = set()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Mark `key` dirty."""
        if key not in self._dirty:
            self._dirty.add(key)
            if key not in self._running:
                self._waiting.append(key)
                self._wake.set()

    async def take(self) -> K:
        """Wait for a key that no worker has; call `done` with it afterwards, whatever happened."""
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._running.add(key)
        return key

    def done(self, key: K) -> None:
        """Give `key` back."""
        self._running.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._wake.set()

"""A fair queue for turns in a pool: every camera gets its share of the pool's time, by measured seconds."""

import heapq
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")  # a camera, hashable

# Seconds without an empty queue after which it counts as long. Below that, fairness has nothing to decide.
LONG_SECONDS = 0.2
MOST_STALE = 64  # entries of turns long past that are kept in a heap, beyond as many as cameras wait
MOST_SECONDS = 1.0  # that a camera pays for one turn: no honest one takes as long, unless the machine stands still


@dataclass(slots=True)
class _Entry:
    tag: float = 0.0  # virtual seconds: pool time that this camera has used, or forgone
    began: float = float("-inf")  # when its last turn began, seconds
    entered: float = 0.0  # when it entered the queue, seconds
    stamp: int = 0  # identifies its entries in the heaps; 0: it is not queued


class FairQueue(Generic[Key]):
    """Start-time fair queueing (Goyal et al., 1996) over measured seconds, with a longest pause for everybody.

    A camera's mailbox holds one frame, so a camera leaves the queue at every turn: a deficit round-robin, which keeps
    accounts only of those in the queue, would forget what an expensive camera owes. Here each camera's tag grows by the
    time spent on it, the smallest tag is next, and a camera that was away starts at the present. Cameras whose longest
    pause is over come before all others, the most overdue first; then come the urgent ones.

    While the queue has not been long for LONG_SECONDS it is first come, first served, so that no frame waits until the
    one behind it takes its place.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._fair: list[tuple[bool, float, int, Key]] = []
        self._due: list[tuple[float, int, Key]] = []
        self._arrived: deque[tuple[int, Key]] = deque()
        self._since = 0.0  # when a camera entered the empty queue
        self._stamps = itertools.count(1)
        self._present = 0.0  # virtual seconds: the tag of the camera picked last
        self._owed = 0.0  # the largest tag of those served first come, first served: forgiven once the queue is empty
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def standing(self, now: float) -> float:
        """Seconds for which cameras have waited at every moment; 0: none waits."""
        return now - self._since if self._waiting else 0.0

    def enter(self, key: Key, now: float, *, pause: float, urgent: bool) -> bool:
        """Queue `key` at `now` (seconds); False where it is queued already.

        `pause` is how many seconds may pass between two of its turns before it goes ahead of all others.
        """
        entry = self._entries.setdefault(key, _Entry())
        if entry.stamp:
            return False
        entry.entered, entry.stamp = now, next(self._stamps)
        entry.tag = max(entry.tag, self._present)
        if not self._waiting:
            self._since = now
        self._waiting += 1
        self._arrived.append((entry.stamp, key))
        heapq.heappush(self._fair, (not urgent, entry.tag, entry.stamp, key))
        heapq.heappush(self._due, (entry.began + pause, entry.stamp, key))
        self._tidy()
        return True

    def pick(self, now: float) -> tuple[Key, float] | None:
        """Remove the next camera from the queue: it, and how many seconds it waited; None where the queue is empty."""
        while self._due and self._due[0][0] <= now:
            _, stamp, key = heapq.heappop(self._due)
            if self._is_current(key, stamp):
                return self._remove(key, now)
        while self._fair and not self._is_current(self._fair[0][3], self._fair[0][2]):
            heapq.heappop(self._fair)
        if not self._fair:
            return None
        while not self._is_current(self._arrived[0][1], self._arrived[0][0]):
            self._arrived.popleft()
        not_urgent, tag, _, key = self._fair[0]
        if not_urgent and now - self._since < LONG_SECONDS:
            key = self._arrived[0][1]
            self._owed = max(self._owed, self._entries[key].tag)
        else:
            self._present = max(self._present, tag)
        return self._remove(key, now)

    def _is_current(self, key: Key, stamp: int) -> bool:
        """Whether a heap's entry still counts: a camera that left and came back has a newer one."""
        entry = self._entries.get(key)
        return entry is not None and entry.stamp == stamp

    def _tidy(self) -> None:
        """Let go of turns long past: picked out of one heap, they stay in the others until they come to the front."""
        most = 2 * self._waiting + MOST_STALE
        if len(self._fair) > most:
            self._fair = [one for one in self._fair if self._is_current(one[3], one[2])]
            heapq.heapify(self._fair)
        if len(self._due) > most:
            self._due = [one for one in self._due if self._is_current(one[2], one[1])]
            heapq.heapify(self._due)
        if len(self._arrived) > most:
            self._arrived = deque(one for one in self._arrived if self._is_current(one[1], one[0]))

    def _remove(self, key: Key, now: float) -> tuple[Key, float]:
        entry = self._entries[key]
        entry.stamp, entry.began = 0, now
        self._waiting -= 1
        if not self._waiting:
            self._present = max(self._present, self._owed)
            self._fair.clear()
            self._due.clear()
            self._arrived.clear()
        return key, now - entry.entered

    def charge(self, key: Key, seconds: float) -> None:
        """Count `seconds` of the pool's time as used by `key`, up to MOST_SECONDS."""
        if entry := self._entries.get(key):
            entry.tag += min(seconds, MOST_SECONDS)

    def forget(self, key: Key) -> None:
        """Remove `key` from the queue with everything that is known of it."""
        entry = self._entries.pop(key, None)
        self._waiting -= bool(entry and entry.stamp)

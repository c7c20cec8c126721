"""A fair queue for turns in a pool: every camera gets its share of the pool's measured time.

A pool enters a camera when its frame arrives, picks the next camera, and charges it for the time of its turn. The
camera with the least charged time is next. Cameras whose longest pause is over come before all others, then urgent
ones. Two heaps and a queue order the same cameras. An entry that was picked from one of them stays in the others, where
its stamp shows that it is outdated.
"""

import heapq
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")  # a camera, hashable

# seconds for which the queue has to be non-empty before fairness decides; in a short queue order hardly matters
LONG_SECONDS = 0.2
MAX_STALE = 64  # outdated entries retained in a heap, in addition to twice the waiting cameras
MAX_SECONDS = 1.0  # longest time charged for one turn; a longer one means that the machine was suspended


@dataclass(slots=True)
class _Entry:
    tag: float = 0.0  # virtual seconds: pool time that this camera has used or forgone
    began: float = float("-inf")  # when its latest turn began, seconds
    entered: float = 0.0  # when it entered the queue, seconds
    stamp: int = 0  # identifies its valid entries in the heaps; 0: not queued


class FairQueue(Generic[Key]):
    """Start-time fair queueing (Goyal et al., 1996) over measured seconds, with a longest pause per camera.

    Each camera's tag grows by the time spent on it, and the smallest tag is next. A camera that was away starts at the
    present tag. Cameras whose longest pause is over come before all others, the most overdue first; then come urgent
    ones.

    Deficit round-robin would not do: it remembers only queued cameras, but a mailbox holds one frame, so a camera
    leaves the queue at every turn and its debt would be lost.

    Until the queue has been non-empty for LONG_SECONDS it is first come, first served. Then no frame waits until the
    next one supersedes it.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._fair: list[tuple[bool, float, int, Key]] = []
        self._due: list[tuple[float, int, Key]] = []
        self._arrived: deque[tuple[int, Key]] = deque()
        self._since = 0.0  # seconds: when a camera entered the empty queue
        self._stamps = itertools.count(1)
        self._present = 0.0  # virtual seconds: tag of the camera picked last
        self._owed = 0.0  # largest tag of cameras served first come, first served; forgiven once the queue is empty
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def backlog_age_seconds(self, now: float) -> float:
        """Seconds since when at least one camera has always been waiting; 0 if none waits."""
        return now - self._since if self._waiting else 0.0

    def enter(self, key: Key, now: float, *, pause: float, urgent: bool) -> bool:
        """Queue `key` at `now` (seconds); return False if it is queued already.

        `pause`: seconds between two of its turns after which it overtakes all others.
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
        """Remove the next camera and return it with the seconds it waited; None if the queue is empty."""
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
        """True if a heap's entry is valid: a camera that left and came back has a newer one."""
        entry = self._entries.get(key)
        return entry is not None and entry.stamp == stamp

    def _tidy(self) -> None:
        """Drop outdated entries. A turn picked from one heap stays in the others until it reaches their front."""
        most = 2 * self._waiting + MAX_STALE
        if len(self._fair) > most:
            self._fair = [turn for turn in self._fair if self._is_current(turn[3], turn[2])]
            heapq.heapify(self._fair)
        if len(self._due) > most:
            self._due = [turn for turn in self._due if self._is_current(turn[2], turn[1])]
            heapq.heapify(self._due)
        if len(self._arrived) > most:
            self._arrived = deque(turn for turn in self._arrived if self._is_current(turn[1], turn[0]))

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
        """Charge `seconds` of the pool's time to `key`, up to MAX_SECONDS."""
        if entry := self._entries.get(key):
            entry.tag += min(seconds, MAX_SECONDS)

    def forget(self, key: Key) -> None:
        """Remove `key` from the queue and forget its tag."""
        entry = self._entries.pop(key, None)
        self._waiting -= bool(entry and entry.stamp)

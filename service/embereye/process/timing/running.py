"""Detect stalls of this process: while it was stopped, it could neither hear nor serve anyone."""

import time
from collections.abc import Callable

from embereye.units import SECOND


class Running:
    """Detects that the process or its machine was stopped, by calls of `since` at least every second on one thread.

    CPU time spent by this thread is not a stall: overload is no excuse.
    """

    LONGEST_NS = 3 * SECOND // 2  # longest time without CPU use between two calls of a process that runs

    def __init__(self, work: Callable[[], int] = time.thread_time_ns) -> None:
        """`work` returns the CPU time of the thread in nanoseconds."""
        self.stalled_ns = 0  # sum of all stalls
        self._work = work
        self._worked_ns = 0
        self._called_ns = 0
        self._since_ns = 0

    def since(self, now_ns: int) -> int:
        """The end of the latest stall, as of `now_ns`, on a clock that is never set."""
        worked_ns = self._work()
        idle_ns = now_ns - self._called_ns - (worked_ns - self._worked_ns)
        if idle_ns > self.LONGEST_NS:
            self.stalled_ns += idle_ns if self._called_ns else 0
            self._since_ns = now_ns
        self._called_ns, self._worked_ns = now_ns, worked_ns
        return self._since_ns

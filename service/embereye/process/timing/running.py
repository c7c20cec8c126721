"""Since when a process has been running: before that it could hear nobody, and serve nobody."""

import time
from collections.abc import Callable

from embereye.units import SECOND


class Running:
    """Finds out that the process stood still, or its machine, by looks that are to be taken at least every second.

    All on one thread. What that works meanwhile is no standing still: too much to do excuses nothing.
    """

    LONGEST_NS = 3 * SECOND // 2  # between two looks of a process that runs

    def __init__(self, work: Callable[[], int] = time.thread_time_ns) -> None:
        """`work` is what the thread has worked, in nanoseconds."""
        self.stood_ns = 0  # for how long it has stood still in all, as far as it was looked
        self._work = work
        self._worked_ns = 0
        self._looked_ns = 0
        self._since_ns = 0

    def since(self, now_ns: int) -> int:
        """Look, at `now_ns` on a clock that nobody sets; since when the process has run without standing still."""
        worked_ns = self._work()
        idle_ns = now_ns - self._looked_ns - (worked_ns - self._worked_ns)
        if idle_ns > self.LONGEST_NS:
            self.stood_ns += idle_ns if self._looked_ns else 0
            self._since_ns = now_ns
        self._looked_ns, self._worked_ns = now_ns, worked_ns
        return self._since_ns

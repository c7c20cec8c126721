"""Clocks: durations are measured on a process's timeline, which no time server sets.

The wall clock is only for labels that people read. A duration measured on it would be wrong when the clock is set.
"""

import time
from collections.abc import Callable

from embereye.units import SECOND

# Difference of the wall clock and the monotonic clock at the process's start. The hottest paths write
# `monotonic_ns() + EPOCH_OFFSET_NS` instead of `now_ns()`, because a call doubles the cost.
EPOCH_OFFSET_NS = time.time_ns() - time.monotonic_ns()
LABEL_NS = 10_000_000  # resolution of labels for people


def now_ns() -> int:
    """Nanoseconds since the Unix epoch on this process's timeline: the wall clock as of the start, never set since."""
    return time.monotonic_ns() + EPOCH_OFFSET_NS


def stepped_ns() -> int:
    """The nanoseconds by which the wall clock was set since the start. Add them to a time that becomes a label."""
    return _whole(time.time_ns() - now_ns())


def _whole(stepped_ns: int) -> int:
    """Round to LABEL_NS, so that a label does not change by the time between two readings of clocks."""
    return round(stepped_ns / LABEL_NS) * LABEL_NS


def lease_ns() -> int:
    """The clock for leases, in nanoseconds, which continues while the machine is suspended, if the system has one.

    CLOCK_MONOTONIC pauses meanwhile, so a process that wakes up would still believe in an expired lease.
    """
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if kind is None else time.clock_gettime_ns(kind)


def lease_seconds() -> float:
    """`lease_ns` in seconds."""
    return lease_ns() / SECOND


class Timeline:
    """The timeline of a process with stored times: it never runs backwards, not even over a restart."""

    # Longest believed downtime. A wall clock further ahead of the newest stored time is taken for wrong, for example
    # after a typing error or on a machine without a battery-backed clock.
    ABSENCE_NS = 86_400_000_000_000

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns) -> None:
        self._wall = wall
        self._steady = steady
        self._began_ns = wall() - steady()

    def now_ns(self) -> int:
        """The present time in nanoseconds since the Unix epoch."""
        return self._steady() + self._began_ns

    def stepped_ns(self) -> int:
        """The nanoseconds by which the wall clock is ahead of it. Add them to a time that becomes a label."""
        return _whole(self._wall() - self.now_ns())

    def wall_ns(self) -> int:
        """The present time as a label."""
        return self.now_ns() + self.stepped_ns()

    def resume(self, latest_ns: int) -> int:
        """Continue from `latest_ns`, the newest stored time; return the step of the wall clock that is ignored.

        Downtime up to ABSENCE_NS counts. If the wall clock is behind, or further ahead, its difference is ignored.
        """
        away = self.now_ns() - latest_ns
        if not latest_ns or 0 <= away <= self.ABSENCE_NS:
            return 0
        self._began_ns -= away
        return away

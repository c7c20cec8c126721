"""Time that only passes: what is measured and compared is on a process's own timeline, which no time server sets.

A wall clock is for labels, which people read. A duration taken from it ends early, or never, once somebody sets it.
"""

import time
from collections.abc import Callable

from embereye.units import SECOND

# Difference of the wall clock and the monotonic clock at the process's start. The hottest paths write
# `monotonic_ns() + EPOCH_OFFSET_NS` instead of `now_ns()`, because a call doubles the cost.
EPOCH_OFFSET_NS = time.time_ns() - time.monotonic_ns()
LABEL_NS = 10_000_000  # people see no less


def now_ns() -> int:
    """Now: nanoseconds since the Unix epoch, had the wall clock not been set since the process started."""
    return time.monotonic_ns() + EPOCH_OFFSET_NS


def stepped_ns() -> int:
    """How far the wall clock was set since then; to be added to a time that becomes a label for people."""
    return _whole(time.time_ns() - now_ns())


def _whole(stepped_ns: int) -> int:
    """Without what lies between two readings of clocks: a label does not change from one look to the next."""
    return round(stepped_ns / LABEL_NS) * LABEL_NS


def lease_ns() -> int:
    """What leases are timed by, in nanoseconds: it goes on while the machine is suspended, where there is such a clock.

    CLOCK_MONOTONIC stands still meanwhile: whoever wakes up would hold on to what another one took long ago.
    """
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if kind is None else time.clock_gettime_ns(kind)


def lease_seconds() -> float:
    """The same in seconds."""
    return lease_ns() / SECOND


class Timeline:
    """The same for a process that goes on from what it stored: its time never runs backwards, restarts included."""

    # A clock further ahead than this of what was stored last is believed to be wrong rather than the process to have
    # been away: a first start without a battery-backed clock, a typing error.
    ABSENCE_NS = 86_400_000_000_000

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns) -> None:
        self._wall = wall
        self._steady = steady
        self._began_ns = wall() - steady()

    def now_ns(self) -> int:
        """Now, in nanoseconds since the Unix epoch."""
        return self._steady() + self._began_ns

    def stepped_ns(self) -> int:
        """How far ahead of it the wall clock is; to be added to a time that becomes a label for people."""
        return _whole(self._wall() - self.now_ns())

    def resume(self, latest_ns: int) -> int:
        """Go on from `latest_ns`, the newest time that was stored; returns by how much the wall clock was not believed.

        Time in which the process was away counts, up to ABSENCE_NS; more than that, or less than none, was a step.
        """
        away = self.now_ns() - latest_ns
        if not latest_ns or 0 <= away <= self.ABSENCE_NS:
            return 0
        self._began_ns -= away
        return away

"""Clocks that a test sets."""

from dataclasses import dataclass

START_NS = 1_700_000_000 * 10**9  # Tuesday 14 November 2023, 22:13:20 UTC


@dataclass
class Clock:
    """The time of all clocks of a hub."""

    ns: int = 0  # since the start

    def wall(self) -> int:
        return START_NS + self.ns

    def steady(self) -> int:
        return self.ns

"""What a shard measures of itself over the last seconds: arrivals, cost, utilization."""

from collections import deque
from dataclasses import dataclass

WINDOW = 5.0  # seconds


@dataclass(frozen=True)
class _Sample:
    at: float  # monotonic seconds
    offered: int
    analysed: int
    cpu: float  # CPU seconds of the process


class LoadMeter:
    """Differences of running totals over WINDOW."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self.arrival_rate = 0.0  # frames/s
        self.cost_seconds = 0.0  # CPU seconds per frame analysed; the last known one while nothing is analysed
        self.utilization = 0.0  # of one core; above 1 where threads use several

    def sample(self, at: float, *, offered: int, analysed: int, cpu: float) -> None:
        """Note the running totals at `at` (monotonic seconds)."""
        self._samples.append(_Sample(at, offered, analysed, cpu))
        while len(self._samples) > 2 and at - self._samples[1].at >= WINDOW:
            self._samples.popleft()
        first = self._samples[0]
        elapsed = at - first.at
        if elapsed <= 0:
            return
        self.arrival_rate = max(0, offered - first.offered) / elapsed
        self.utilization = max(0.0, cpu - first.cpu) / elapsed
        # All that the process spends belongs to what it analyses: receiving, shedding and deciding are not free.
        if analysed > first.analysed:
            self.cost_seconds = max(0.0, cpu - first.cpu) / (analysed - first.analysed)

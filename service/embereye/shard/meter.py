"""What a shard measures of itself over the last seconds: arrivals, cost, utilization."""

from collections import deque
from dataclasses import dataclass

from embereye.v1.shard_pb2 import Load

WINDOW = 5.0  # seconds
STILL = 3.0  # seconds between two samples, most of which the process did not work: it, or its machine, stood still


@dataclass(frozen=True)
class _Sample:
    at: float  # monotonic seconds
    offered: int
    analysed: int
    cpu: float  # CPU seconds of the process


class Meter:
    """Differences of running totals over WINDOW. An item is a frame, a packet or a reading."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._settled = float("-inf")  # when what came while the process stood still is over, monotonic seconds
        self.arrival_rate = 0.0  # items/s
        self.cost_seconds = 0.0  # CPU seconds per item analysed; the last known one while none is: a backlog costs
        self.utilization = 0.0  # of one core; above 1 where threads use several

    def sample(self, at: float, *, offered: int, analysed: int, cpu: float) -> None:
        """Note the running totals at `at` (monotonic seconds).

        After the process stood still the measurements from before hold for WINDOW: what comes all at once is no rate.
        Then it is measured for as long again at least, or where that happens all the time nothing would be.
        """
        if self._samples and at >= self._settled + WINDOW:
            before = self._samples[-1]
            if at - before.at > STILL and cpu - before.cpu < (at - before.at) / 2:
                self._settled = at + WINDOW
        if at < self._settled:
            self._samples.clear()
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

    def load(self, *, queue_depth: int, oldest_age_ns: int) -> Load:
        """What was measured, beside what waits now."""
        return Load(
            arrival_rate=self.arrival_rate,
            cost_seconds=self.cost_seconds,
            utilization=self.utilization,
            queue_depth=queue_depth,
            oldest_age_ns=oldest_age_ns,
        )

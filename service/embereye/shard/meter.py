"""Measure a shard's arrivals, cost and utilization over the last seconds."""

from collections import deque
from dataclasses import dataclass

from embereye.v1.shard_pb2 import Load

WINDOW = 5.0  # seconds
STALL_SECONDS = 3.0  # between two samples; if the process hardly worked meanwhile, it was stalled


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
        self._valid_from = float("-inf")  # end of the backlog after the latest stall, monotonic seconds
        self.arrival_rate = 0.0  # items/s
        self.cost_seconds = 0.0  # CPU seconds per analysed item; unchanged while none is analysed
        self.utilization = 0.0  # of one core; above 1 if threads use several

    def sample(self, at: float, *, offered: int, analysed: int, cpu: float) -> None:
        """Note the running totals at `at` (monotonic seconds).

        After a stall, a backlog arrives at once, so the earlier measurements stay valid for WINDOW. Then it measures
        for at least WINDOW before it accepts another stall, or frequent stalls would prevent all measurements.
        """
        if self._samples and at >= self._valid_from + WINDOW:
            before = self._samples[-1]
            if at - before.at > STALL_SECONDS and cpu - before.cpu < (at - before.at) / 2:
                self._valid_from = at + WINDOW
        if at < self._valid_from:
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
        # All CPU time counts as the cost of analysed items, also that of receiving and shedding.
        if analysed > first.analysed:
            self.cost_seconds = max(0.0, cpu - first.cpu) / (analysed - first.analysed)

    def load(self, *, queue_depth: int, oldest_age_ns: int) -> Load:
        """The measurements, with the present queue."""
        return Load(
            arrival_rate=self.arrival_rate,
            cost_seconds=self.cost_seconds,
            utilization=self.utilization,
            queue_depth=queue_depth,
            oldest_age_ns=oldest_age_ns,
        )

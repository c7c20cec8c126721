"""What a shard measures of itself: arrivals, cost and utilization over the last seconds."""

import time
from collections import deque

from embereye.v1.shard_pb2 import Load

WINDOW = 10.0  # seconds


class Meter:
    """Samples counters once a second and answers with rates over the last ten seconds."""

    def __init__(self) -> None:
        self.arrivals = 0  # items since the start
        self.analysed = 0  # items since the start
        self._samples: deque[tuple[float, int, int, float]] = deque(maxlen=int(WINDOW) + 1)
        self.sample()

    def sample(self) -> None:
        """Take a sample: call once a second."""
        self._samples.append((time.monotonic(), self.arrivals, self.analysed, time.process_time()))

    def load(self, *, queue_depth: int, oldest_age_ns: int) -> Load:
        """The load between the oldest kept sample and now."""
        then, arrivals, analysed, cpu = self._samples[0]
        seconds = max(time.monotonic() - then, 1e-3)
        spent = time.process_time() - cpu
        items = self.analysed - analysed
        return Load(
            arrival_rate=(self.arrivals - arrivals) / seconds,
            cost_seconds=spent / items if items else 0.0,
            utilization=spent / seconds,
            queue_depth=queue_depth,
            oldest_age_ns=oldest_age_ns,
        )

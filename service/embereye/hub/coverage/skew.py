"""Measurement of the difference between a shard's clock and the hub's."""

import logging
from collections import deque

from embereye.v1.evidence_pb2 import Coverage

logger = logging.getLogger(__name__)
SKEW_NS = 2_000_000_000  # smaller differences are network delay, or harmless
SKEW_SAMPLES = 10  # coverage reports; the least delayed one shows the true difference


class Skew:
    """The difference between a shard's wall clock and the hub's, only for a warning: the hub compares ages."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=SKEW_SAMPLES)
        self.wrong = False

    def observe(self, coverage: Coverage, now_ns: int) -> None:
        """Add a sample: a report that arrived at `now_ns` on the hub's wall clock."""
        if not coverage.clock_ns:
            return
        # Delay only adds to the difference, so the smallest sample is the most accurate. Few samples may all be late.
        self._samples.append(now_ns - coverage.clock_ns)
        behind = min(self._samples)
        wrong = behind < -SKEW_NS or (behind > SKEW_NS and (self.wrong or len(self._samples) == SKEW_SAMPLES))
        if wrong and not self.wrong:
            logger.warning(
                "the clock of shard %s is %.1f s %s the hub's: alarms are not affected. Synchronise the clocks.",
                coverage.shard, abs(behind) / 1e9, "behind" if behind > 0 else "ahead of",
            )  # fmt: skip
        self.wrong = wrong

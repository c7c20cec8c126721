"""How far shards' clocks are from the hub's."""

import logging
from collections import deque

from embereye.v1.evidence_pb2 import Coverage

logger = logging.getLogger(__name__)
SKEW_NS = 2_000_000_000  # less is delay or does no harm
SKEW_SAMPLES = 10  # coverage reports, the quickest of which tells the difference between two clocks


class Skew:
    """How far a shard's wall clock is from the hub's. It is only told: what is compared is the age of what was seen."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=SKEW_SAMPLES)
        self.wrong = False

    def observe(self, coverage: Coverage, now_ns: int) -> None:
        """Learn from a report that was made just now, at `now_ns` of the hub's wall clock."""
        if not coverage.clock_ns:
            return
        # Delay only ever adds: the smallest difference is the nearest to the truth, and few may all be late.
        self._samples.append(now_ns - coverage.clock_ns)
        behind = min(self._samples)
        wrong = behind < -SKEW_NS or (behind > SKEW_NS and (self.wrong or len(self._samples) == SKEW_SAMPLES))
        if wrong and not self.wrong:
            logger.warning(
                "the clock of shard %s is %.1f s %s the hub's: alarms are not affected; keep clocks synchronised",
                coverage.shard, abs(behind) / 1e9, "behind" if behind > 0 else "ahead of",
            )  # fmt: skip
        self.wrong = wrong

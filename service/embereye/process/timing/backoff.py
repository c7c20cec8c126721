"""Waiting times between attempts at something that keeps failing."""

from dataclasses import dataclass, field
from random import Random


@dataclass
class Backoff:
    """Exponential back-off with full jitter: seconds to wait before the next attempt.

    Jitter spreads the reconnects of many clients that lost the same server at the same moment (AWS Architecture
    Blog, "Exponential Backoff And Jitter"). `floor` is the shortest wait.
    """

    floor: float = 0.1  # seconds
    cap: float = 10.0  # seconds
    factor: float = 2.0
    jitter: Random = field(default_factory=Random)
    failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Count a failure and return how many seconds to wait."""
        ceiling = min(self.cap, self.floor * self.factor**self.failures)
        self.failures = min(self.failures + 1, 64)
        return self.jitter.uniform(self.floor, max(self.floor, ceiling))

    def reset(self) -> None:
        """Start over after a success."""
        self.failures = 0

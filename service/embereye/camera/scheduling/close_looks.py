"""How many close looks, with more pixels than detection has, a shard takes: decoding for one costs up to 5 ms."""

from embereye.units import SECOND

RATE = 12.0  # a second, of all cameras together: at 5 ms each 6 % of a core
BURST = 24.0  # at once, after a calm


class CloseLooks:
    """What is left of a shard's close looks; a camera that gets none looks at its whole picture alone."""

    def __init__(self) -> None:
        self._left = BURST
        self._time_ns = 0

    def allow(self, now_ns: int) -> bool:
        """Whether there may be one at `now_ns`; if so, it is spent. A clock that steps back adds nothing."""
        if self._time_ns:
            self._left = min(BURST, self._left + RATE * max(0, now_ns - self._time_ns) / SECOND)
        self._time_ns = now_ns
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

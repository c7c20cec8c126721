"""When live pictures pause because their shard is overloaded: at once, until some time without an overload has passed.

If live pictures themselves are too much, the overload returns with them. The next pause is then twice as long.
"""

import math

SHORTEST_SECONDS = 10.0  # without an overload, before live pictures are shown again
LONGEST_SECONDS = 160.0
RELAPSE_SECONDS = 60.0  # after a pause; an overload within this time doubles the next one


class LivePause:
    """The pause of one shard's live pictures."""

    def __init__(self) -> None:
        self.is_on = False
        self._seconds = SHORTEST_SECONDS
        self._overloaded_at = -math.inf  # seconds
        self._ended_at = -math.inf  # seconds

    def follow(self, *, overloaded: bool, now: float) -> None:
        """Begin or end the pause by the shard's state at `now` (seconds of a clock that is never set back)."""
        if overloaded:
            if not self.is_on:
                relapsed = now - self._ended_at < RELAPSE_SECONDS
                self._seconds = min(LONGEST_SECONDS, 2 * self._seconds) if relapsed else SHORTEST_SECONDS
            self.is_on, self._overloaded_at = True, now
        elif self.is_on and now - self._overloaded_at >= self._seconds:
            self.is_on, self._ended_at = False, now

"""How many looks with more pixels than detection has a shard takes: decoding for one costs up to 5 ms."""

from collections.abc import Hashable

from embereye.units import SECOND

RATE = 12.0  # close-ups a second, of all cameras together: at 5 ms each 6 % of a core
BURST = 24.0  # at once, after a calm
# Details are wanted of most frames for seconds: so many cameras have them at a time, at 15 a second 20 % of a core.
DETAILS = 3
TERM_NS = 10 * SECOND  # after which a camera has to stand back where others wait
FRESH_NS = 2 * SECOND  # without asking, after which a camera wants none any more


class CloseLooks:
    """What is left of a shard's close-ups; a camera that gets none looks at its whole picture alone."""

    def __init__(self) -> None:
        self.details = Details()
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


class Details:
    """Which of a shard's cameras have a part of their pictures decoded with more pixels, frame after frame."""

    def __init__(self) -> None:
        self._since: dict[Hashable, int] = {}  # when each that has them got them
        self._asked: dict[Hashable, int] = {}  # when each that has them, or waits for them, asked last

    def allow(self, camera: Hashable, now_ns: int) -> bool:
        """Whether `camera` may have the detail of a frame that it asks for at `now_ns`."""
        self._asked = {one: asked for one, asked in self._asked.items() if abs(now_ns - asked) < FRESH_NS}
        self._since = {one: since for one, since in self._since.items() if one in self._asked}
        since = self._since.get(camera)
        others_wait = any(one not in self._since for one in self._asked if one != camera)
        if since is not None and others_wait and not 0 <= now_ns - since < TERM_NS:
            del self._since[camera], self._asked[camera]  # behind those that wait
            return False
        self._asked[camera] = now_ns
        if since is None and len(self._since) < DETAILS:
            self._since[camera] = now_ns
        return camera in self._since

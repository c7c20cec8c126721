"""The limit on a shard's close-ups, parts decoded with more pixels than detection has; each costs up to 5 ms.

`PictureAnalyst` asks before a frame is decoded. Close-ups are a budget that refills over time. A detail, which a camera
needs for most frames, is granted to a few cameras at a time; after a term they yield to cameras that wait.
"""

from collections.abc import Hashable

from embereye.units import SECOND

RATE = 12.0  # close-ups/s of all cameras together; at 5 ms each they take 6 % of a core
BURST = 24.0  # close-ups at once after a quiet time
# Cameras with details at a time. Each needs them for most frames for seconds: at 15/s they take 20 % of a core.
DETAILS = 3
TERM_NS = 10 * SECOND  # after which a camera yields its detail to others that wait
FRESH_NS = 2 * SECOND  # after which a camera that no longer requests details is forgotten


class CloseUpBudget:
    """The close-ups a shard may still make. A camera that gets none uses its whole picture only."""

    def __init__(self) -> None:
        self.details = DetailBudget()
        self._left = BURST
        self._time_ns = 0

    def allow(self, now_ns: int) -> bool:
        """Spend one close-up at `now_ns` and return True if one is left. A clock that steps back adds none."""
        if self._time_ns:
            self._left = min(BURST, self._left + RATE * max(0, now_ns - self._time_ns) / SECOND)
        self._time_ns = now_ns
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class DetailBudget:
    """Chooses the cameras that have a part of every picture decoded with more pixels."""

    def __init__(self) -> None:
        self._since: dict[Hashable, int] = {}  # when each camera with details got them
        self._asked: dict[Hashable, int] = {}  # when each camera with details, or waiting for them, asked last

    def allow(self, camera: Hashable, now_ns: int) -> bool:
        """True if `camera` may have the detail of a frame that it requests at `now_ns`."""
        self._asked = {other: asked for other, asked in self._asked.items() if abs(now_ns - asked) < FRESH_NS}
        self._since = {other: since for other, since in self._since.items() if other in self._asked}
        since = self._since.get(camera)
        others_wait = any(other not in self._since for other in self._asked if other != camera)
        if since is not None and others_wait and not 0 <= now_ns - since < TERM_NS:
            del self._since[camera], self._asked[camera]  # it queues behind those that wait
            return False
        self._asked[camera] = now_ns
        if since is None and len(self._since) < DETAILS:
            self._since[camera] = now_ns
        return camera in self._since

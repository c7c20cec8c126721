"""Detection with more pixels in a part of the picture where something too small to measure flickers.

`Detector` asks `wanted` before a frame is decoded. If the whole picture's detector has found something flame-like but
small, a square part around it is watched for some seconds by a separate `FlameDetector`. `observe` gets the part with
each frame. Without a suspicion the part rests afterwards, so that other places are watched too. A result is valid for a
second.
"""

from embereye.detect.vision.flame.flame import Flame, FlameDetector
from embereye.detect.vision.networks.appearance import Interest, square_around
from embereye.detect.vision.pixels import Mask, Picture, Planes
from embereye.units import SECOND, Box

SIDE = 0.25  # of the picture's longer side that a detail covers
EVERY_NS = 55_000_000  # between two details: enough for flicker, and all frames at 15/s
WATCHED_NS = 8 * SECOND  # a part without a flame is watched for this long …
RESTED_NS = 20 * SECOND  # … and again only after this long since its start
STALE_NS = SECOND  # after which the last result is invalid, because no detail arrived


class DetailDetector:
    """A second flame detector for the part of a camera's pictures where `whole` needs more pixels.

    It watches one part at a time, the most flame-like one, and stays on it because flicker is measured over seconds.
    Rare pictures are not watched: with few pixels in few pictures, chance looks like flames.
    """

    def __init__(self, whole: FlameDetector) -> None:
        self._whole = whole
        self.flame: FlameDetector | None = None  # None: nothing is watched
        self.place: Box | None = None  # the part that is or was watched
        self._since_ns = 0
        self._asked_ns = 0
        self._seen = Flame()
        self._seen_ns = 0  # when its latest picture arrived; 0: none yet

    def wanted(self, time_ns: int) -> Box | None:
        """Return the part of the picture of `time_ns` to decode with more pixels, or None."""
        if 0 <= time_ns - self._asked_ns < EVERY_NS or not self._is_watching(time_ns):
            return None
        self._asked_ns = time_ns
        return self.place

    def _is_watching(self, time_ns: int) -> bool:
        if not self._seen_ns:
            self.flame = self.place = None  # no detail arrived, and the flicker may be elsewhere by now
        age = time_ns - self._since_ns if self.place else RESTED_NS
        if self.flame and (0 <= age < WATCHED_NS or self.flame.interest == Interest.SUSPECTED):
            return True
        whole = self._whole
        self.flame, distant = None, whole.distant if whole.period_ns <= whole.limits.detail_period_ns else None
        if distant is None or (self.place and 0 <= age < RESTED_NS and _is_inside(self.place, distant)):
            return False
        size = whole.full_size
        self.place, self._since_ns = square_around(distant, SIDE * max(size), *size), time_ns
        self._seen, self._seen_ns = Flame(), 0
        self.flame = FlameDetector(whole.limits, whole.inspections, whole.usual_levels, self.place, whole)
        return True

    def follow(self, other: "DetailDetector") -> None:
        """Watch the part that `other` watches, instead of choosing one: only its pictures are decoded."""
        if other.flame is None or other.place is None:
            self.flame = self.place = None
        elif self.flame is None or self.place != other.place:
            self.place, self._seen, self._seen_ns = other.place, Flame(), 0
            whole = self._whole
            self.flame = FlameDetector(whole.limits, whole.inspections, whole.usual_levels, self.place, whole)

    def observe(self, picture: Picture, time_ns: int, ignored: Mask | None = None) -> None:
        """Analyse `picture` (BGR), the wanted part of the picture of `time_ns`."""
        if self.flame:
            self._seen, self._seen_ns = self.flame.observe(Planes.of(picture), time_ns, ignored), time_ns

    def seen(self, time_ns: int) -> tuple[Flame, Box | None] | None:
        """Return the recent result and its box in the whole picture; None if nothing is watched."""
        if self.flame is None or not 0 <= time_ns - self._seen_ns < STALE_NS:
            return None
        return self._seen, self.flame.share(self._seen.box) if self._seen.box else None


def _is_inside(place: Box, box: Box) -> bool:
    """True if the middle of `box` is inside `place`."""
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    return place[0] <= x <= place[0] + place[2] and place[1] <= y <= place[1] + place[3]

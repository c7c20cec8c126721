"""Looks at a part of the picture with more pixels, where something flickers that is too small to be measured well."""

from embereye.detect.vision.flame.flame import Flame, FlameDetector
from embereye.detect.vision.networks.appearance import Interest
from embereye.detect.vision.pixels import Mask, Picture, Planes
from embereye.units import SECOND, Box

SIDE = 0.25  # of the picture's longer side that a detail shows
EVERY_NS = 55_000_000  # between two of them: flicker needs no more, of 15 frames/s all
WATCHED_NS = 8 * SECOND  # what was no flame for so long is left alone …
RESTED_NS = 20 * SECOND  # … until this time after it was begun with
STALE_NS = SECOND  # after which what was seen says nothing any more: nobody sent the pixels


class DetailDetector:
    """The flame detector once more, of the part of a camera's pictures that `whole` should see more of.

    One part at a time, what resembles a flame most; it stays the same while it is watched, as flicker is measured over
    seconds. Where pictures come seldom nothing is watched: of few pixels in few pictures, chance makes flames.
    """

    def __init__(self, whole: FlameDetector) -> None:
        self._whole = whole
        self.flame: FlameDetector | None = None  # None: nothing is watched
        self.place: Box | None = None  # what is watched, or was last
        self._since_ns = 0
        self._asked_ns = 0
        self._seen = Flame()
        self._seen_ns = 0  # when a picture of it came last; 0: none has

    def wanted(self, time_ns: int) -> Box | None:
        """Of which part of the picture of `time_ns` more pixels are wanted; None: they are not."""
        if 0 <= time_ns - self._asked_ns < EVERY_NS or not self._watches(time_ns):
            return None
        self._asked_ns = time_ns
        return self.place

    def _watches(self, time_ns: int) -> bool:
        if not self._seen_ns:
            self.flame = self.place = None  # nobody sent the pixels of what was wanted: it may be elsewhere by now
        age = time_ns - self._since_ns if self.place else RESTED_NS
        if self.flame and (0 <= age < WATCHED_NS or self.flame.interest == Interest.SUSPECTED):
            return True
        whole = self._whole
        self.flame, distant = None, whole.distant if whole.period_ns <= whole.limits.detail_period_ns else None
        if distant is None or (self.place and 0 <= age < RESTED_NS and _shows(self.place, distant)):
            return False
        self.place, self._since_ns = place_around(distant, *whole.full_size), time_ns
        self._seen, self._seen_ns = Flame(), 0
        self.flame = FlameDetector(whole.limits, whole.looks, whole.familiar, self.place, whole)
        return True

    def observe(self, picture: Picture, time_ns: int, ignored: Mask | None = None) -> None:
        """Take in the part that was wanted of the picture of `time_ns`, `picture` (BGR)."""
        if self.flame:
            self._seen, self._seen_ns = self.flame.observe(Planes.of(picture), time_ns, ignored), time_ns

    def seen(self, time_ns: int) -> tuple[Flame, Box | None] | None:
        """What is seen there at `time_ns`, and where in the whole picture; None: nothing is watched."""
        if self.flame is None or not 0 <= time_ns - self._seen_ns < STALE_NS:
            return None
        return self._seen, self.flame.share(self._seen.box) if self._seen.box else None


def place_around(box: Box, width: float, height: float) -> Box:
    """The part of a picture of `width` x `height` pixels, as wide as it is high, in whose middle `box` is."""
    side = SIDE * max(width, height)
    wide, high = min(1.0, side / width), min(1.0, side / height)
    x, y, its_width, its_height = box
    left = min(max(0.0, x + its_width / 2 - wide / 2), 1.0 - wide)
    top = min(max(0.0, y + its_height / 2 - high / 2), 1.0 - high)
    return left, top, wide, high


def _shows(place: Box, box: Box) -> bool:
    """Whether the middle of `box` lies in `place`."""
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    return place[0] <= x <= place[0] + place[2] and place[1] <= y <= place[1] + place[3]

"""What a picture looks like to a network of our own: the log odds that it shows a flame. Pure.

Movement tells a flame from a lamp, the network tells it from cloth and headlights: they err in different places.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np

from embereye.detect.vision.pixels import Picture
from embereye.units import SECOND, Box

SIDE = 96  # pixels: whatever its shape, a picture is squeezed to a square of it


class Interest(IntEnum):
    """How much the network's opinion of a picture matters."""

    STILL = 0  # nothing moves
    MOVES = 1
    FLICKERS = 2  # it could make a flame of something
    SUSPECTED = 3  # to be one


EVERY_NS = 10 * SECOND, 3 * SECOND, 3 * SECOND // 2, SECOND  # between two looks, by interest
HURRIED = 4  # looks at what is suspected, after which it has been said what it looks like: …
UNHURRIED_NS = 2 * SECOND  # … from then on between two
LOOKS = 2  # whose mean counts: one look may err
KEPT_NS = 4 * SECOND  # after which a look says nothing any more
SITES = 0, 0, 1, 1  # likewise, by interest: of which close-ups are looked at, at most
CLOSE_UP = 2.2  # of a site's longer side that a close-up of it shows
CLOSE_UP_LEAST = 0.15  # of the longer side of the picture: a smaller one has too few pixels, even with more of them
SAME_SITE = 0.3  # of two close-ups that has to be common to both


class AppearanceNetwork:
    """The network, loaded. Not safe for two threads at once."""

    def __init__(self, data: bytes) -> None:
        """`data` is an ONNX file: its input (1 or more, 3, SIDE, SIDE), BGR, -1..1, its output the log odds of each."""
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
        self.logits(np.zeros((SIDE, SIDE, 3), np.uint8), ())  # the first run allocates

    def logits(self, picture: Picture, close_ups: Sequence[Box], closer: Picture | None = None) -> tuple[float, ...]:
        """Natural log odds that `picture` (BGR) shows a flame: of all of it, then of each of `close_ups`.

        `closer` is the same with more pixels, if there is one: of that the close-ups are cut.
        """
        parts = []
        for number, (x, y, w, h) in enumerate(((0.0, 0.0, 1.0, 1.0), *close_ups)):
            if number == 1 and closer is not None:
                picture = closer
            height, width = picture.shape[:2]
            left, top = min(int(x * width), width - 1), min(int(y * height), height - 1)
            part = picture[top : max(top + 1, round((y + h) * height)), left : max(left + 1, round((x + w) * width))]
            way = cv2.INTER_AREA if min(part.shape[:2]) >= SIDE else cv2.INTER_LINEAR
            parts.append(cv2.resize(part, (SIDE, SIDE), interpolation=way))
        self._net.setInput(cv2.dnn.blobFromImages(parts, 1 / 127.5, mean=(127.5, 127.5, 127.5)))
        return tuple(map(float, self._net.forward().ravel()))


@dataclass(frozen=True)
class Inspection:
    """What the network said of one picture."""

    time_ns: int
    whole: float  # log odds
    close_ups: tuple[tuple[Box, float], ...] = ()

    @classmethod
    def of(cls, time_ns: int, close_ups: Sequence[Box], logits: Sequence[float]) -> "Inspection":
        """The look of which the network said `logits`, at a picture and `close_ups` of it."""
        whole, *others = logits
        return cls(time_ns, whole, tuple(zip(close_ups, others, strict=True)))


class Inspections:
    """The latest looks at one camera's pictures, and when the next one is due.

    `phase` (0..1) shifts them within their period: cameras that a shard started together would otherwise have them
    together for good, and every other frame would wait until then.
    """

    def __init__(self, phase: float = 0.0) -> None:
        self._looks: deque[Inspection] = deque(maxlen=LOOKS)
        self._phase = phase
        self._asked_ns = 0
        self._hurried = 0  # looks at what is suspected, one after another

    def due(self, time_ns: int, interest: Interest) -> bool:
        """Whether the picture of `time_ns` is to be looked at, at that `interest`; if so, it is asked for."""
        if self._phase and not self._asked_ns:
            self._asked_ns = time_ns - int((1.0 - self._phase) * EVERY_NS[Interest.STILL])
        every_ns = UNHURRIED_NS if self._hurried >= HURRIED and interest > Interest.MOVES else EVERY_NS[interest]
        if 0 <= time_ns - self._asked_ns < every_ns:
            return False
        self._asked_ns = time_ns
        self._hurried = min(self._hurried + 1, HURRIED) if interest == Interest.SUSPECTED else max(self._hurried - 1, 0)
        return True

    def note(self, look: Inspection) -> None:
        """Remember `look`; one that steps back in time starts anew."""
        if self._looks and look.time_ns < self._looks[-1].time_ns:
            self._looks.clear()
        self._looks.append(look)

    def whole(self, time_ns: int) -> float | None:
        """The mean log odds of whole pictures lately; None where there was no look."""
        return _mean([look.whole for look in self._looks if time_ns - look.time_ns <= KEPT_NS])

    def close_up(self, box: Box, time_ns: int) -> float | None:
        """The mean log odds of what was looked at where `box`, a close-up, is."""
        lately = [look for look in self._looks if time_ns - look.time_ns <= KEPT_NS]
        return _mean([value for look in lately for its, value in look.close_ups if _common(box, its) >= SAME_SITE])


def close_up_of(box: Box, width: float, height: float) -> Box:
    """What to look at to see the site `box` of a picture of `width` x `height` pixels closely: a square around it."""
    x, y, w, h = box
    longest = max(width, height)
    side = max(CLOSE_UP * max(w * width, h * height), CLOSE_UP_LEAST * longest)
    wide, high = min(1.0, side / width), min(1.0, side / height)
    left = min(max(0.0, x + w / 2 - wide / 2), 1.0 - wide)
    top = min(max(0.0, y + h / 2 - high / 2), 1.0 - high)
    return left, top, wide, high


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _common(one: Box, other: Box) -> float:
    """0..1: the area that both have, of the area that either has."""
    wide = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    high = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return 0.0
    return wide * high / (one[2] * one[3] + other[2] * other[3] - wide * high)

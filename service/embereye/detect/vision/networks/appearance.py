"""The appearance network: the log odds that a picture shows a flame, and smoke in each of its places. Pure.

Movement distinguishes a flame from a lamp; the network distinguishes it from cloth and headlights. They err in
different places, so they are combined.

`Detector` asks `Inspections` before a frame is decoded whether the network should judge it; the intervals are shorter
the more it matters. `AppearanceNetwork` runs in the decoder process, on the whole picture and on close-ups of sites,
and returns plain numbers. The shard makes an `Inspection` of them. A decision uses the mean of the latest inspections,
because one may err.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import Picture
from embereye.detect.vision.working import window
from embereye.units import SECOND, Box, Polygon

SIDE = 96  # pixels; every picture is squeezed to a square of this side, for flame
SMOKE_SIDE = 128  # pixels; the same for smoke, which is faint
PLACES = SMOKE_SIDE // 16  # rows and columns of the places for which the network knows smoke
# Empty boxes among the close-ups: judge the whole picture for smoke, too; or for smoke only.
FOR_SMOKE: Box = (0.0, 0.0, 0.0, 0.0)
ONLY_SMOKE: Box = (0.0, 0.0, 0.0, 1.0)
MARKS = FOR_SMOKE, ONLY_SMOKE

Odds = npt.NDArray[np.float32]


class Interest(IntEnum):
    """The importance of the network's opinion of a picture."""

    STILL = 0  # nothing moves
    MOVES = 1
    FLICKERS = 2  # it could decide that something is a flame
    SUSPECTED = 3  # a flame is suspected


EVERY_NS = 10 * SECOND, 3 * SECOND, 3 * SECOND // 2, SECOND  # between two inspections, by interest
HURRIED = 4  # inspections in a row of a suspected flame, after which they slow down …
UNHURRIED_NS = 2 * SECOND  # … to this interval
INSPECTIONS = 2  # the mean of so many counts, because one inspection may err
VALID_NS = 4 * SECOND  # after which an inspection is invalid
SITES = 0, 0, 1, 1  # close-ups per inspection, at most, by interest
CLOSE_UP = 2.2  # longer side of a close-up, relative to its site's
# longer side, relative to the picture's: a smaller close-up has too few pixels, even with a detail
CLOSE_UP_MIN = 0.15
SAME_SITE = 0.3  # overlap of two close-ups of the same site


class AppearanceNetwork:
    """The loaded network. Not thread-safe."""

    def __init__(self, data: bytes) -> None:
        """Load an ONNX file: input "pixels" (1 or more, 3, side, side), BGR, -1..1; outputs as in `training`.

        The output "odds" is that of flames, at SIDE. A file without the outputs "smoke" and "places", at SMOKE_SIDE,
        sees no smoke.
        """
        self._net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8))
        self._names = self._net.getUnconnectedOutLayersNames()  # OpenCV computes all outputs or none
        self._sees_smoke = {"smoke", "places"} <= set(self._names)
        self.logits(np.zeros((SIDE, SIDE, 3), np.uint8), (FOR_SMOKE,))  # the first run allocates

    def logits(
        self,
        picture: Picture,
        close_ups: Sequence[Box],
        closer: Picture | None = None,
        masked: Sequence[Polygon] = (),
    ) -> tuple[float, ...]:
        """Return natural log odds of a flame: in all of `picture` (BGR), then in each of `close_ups`.

        If one of MARKS is among `close_ups`, those of smoke follow: in all of `picture`, then in its PLACES x PLACES
        places, row by row. With ONLY_SMOKE, that of a flame is 0, because nothing judged it. `closer` is the same
        picture with more pixels, if available; close-ups are cut from it. The parts `masked` are painted over before
        the whole picture is judged for a flame.
        """
        parts = [_squeezed(_painted(picture, masked) if masked else picture, SIDE)]
        source = picture if closer is None else closer
        parts += [_squeezed(window(source, box), SIDE) for box in close_ups if box not in MARKS]
        logits: tuple[float, ...] = (0.0,)
        if ONLY_SMOKE not in close_ups:
            outputs = self._outputs(parts)
            logits = tuple(map(float, outputs.get("odds", next(iter(outputs.values()))).ravel()))
        if self._sees_smoke and any(mark in close_ups for mark in MARKS):
            outputs = self._outputs([_squeezed(picture, SMOKE_SIDE)])
            logits += (float(outputs["smoke"].ravel()[0]), *map(float, outputs["places"].ravel()))
        return logits

    def _outputs(self, parts: Sequence[Picture]) -> dict[str, Odds]:
        self._net.setInput(cv2.dnn.blobFromImages(parts, 1 / 127.5, mean=(127.5, 127.5, 127.5)))
        return dict(zip(self._names, self._net.forward(self._names), strict=True))  # type: ignore[arg-type]


def _painted(picture: Picture, masked: Sequence[Polygon]) -> Picture:
    """Return `picture` with the mean colour of all other parts in the parts `masked`, which thus resemble nothing."""
    height, width = picture.shape[:2]
    shown = np.full((height, width), 255, np.uint8)
    for polygon in masked:
        corners = np.array([(x * width, y * height) for x, y in polygon]).round().astype(np.int32)
        cv2.fillPoly(shown, [corners], 0)
    painted = picture.copy()
    painted[shown == 0] = np.round(cv2.mean(picture, shown)[:3])
    return painted


def _squeezed(picture: Picture, side: int) -> Picture:
    interpolation = cv2.INTER_AREA if min(picture.shape[:2]) >= side else cv2.INTER_LINEAR
    return cv2.resize(picture, (side, side), interpolation=interpolation)  # type: ignore[return-value]


def has_close_up(close_ups: Sequence[Box] | None) -> bool:
    """True if any of `close_ups` is cut from the picture with more pixels."""
    return any(box not in MARKS for box in close_ups or ())


@dataclass(frozen=True)
class SmokeOdds:
    """The network's natural log odds of smoke in one picture."""

    whole: float
    places: Odds  # (PLACES, PLACES)


@dataclass(frozen=True)
class Inspection:
    """The network's result for one picture."""

    time_ns: int
    whole: float  # log odds
    close_ups: tuple[tuple[Box, float], ...] = ()
    smoke: SmokeOdds | None = None  # None: not judged
    for_flame: bool = True  # False: only smoke was judged, and `whole` says nothing

    @classmethod
    def of(cls, time_ns: int, close_ups: Sequence[Box], logits: Sequence[float]) -> "Inspection":
        """Create an inspection from the network's `logits` for a picture and its `close_ups`."""
        boxes = [box for box in close_ups if box not in MARKS]
        whole, *others = logits
        smoke = others[len(boxes) :]
        return cls(
            time_ns,
            whole,
            tuple(zip(boxes, others, strict=not smoke)),
            SmokeOdds(smoke[0], np.array(smoke[1:], np.float32).reshape(PLACES, PLACES)) if smoke else None,
            ONLY_SMOKE not in close_ups,
        )


class Inspections:
    """The latest inspections of one camera's pictures, and the time of the next one.

    `phase` (0..1) shifts them within their period. Without it, cameras that a shard starts together would always
    inspect together, and other frames would wait.
    """

    def __init__(self, phase: float = 0.0) -> None:
        self._inspections: deque[Inspection] = deque(maxlen=INSPECTIONS)
        self._phase = phase
        self._asked_ns = 0
        self._hurried = 0  # inspections of a suspected flame in a row

    def start_if_due(self, time_ns: int, interest: Interest) -> bool:
        """True if the picture of `time_ns` should be inspected at that `interest`; that starts the next interval."""
        if self._phase and not self._asked_ns:
            self._asked_ns = time_ns - int((1.0 - self._phase) * EVERY_NS[Interest.STILL])
        every_ns = UNHURRIED_NS if self._hurried >= HURRIED and interest > Interest.MOVES else EVERY_NS[interest]
        if 0 <= time_ns - self._asked_ns < every_ns:
            return False
        self._asked_ns = time_ns
        self._hurried = min(self._hurried + 1, HURRIED) if interest == Interest.SUSPECTED else max(self._hurried - 1, 0)
        return True

    def note(self, inspection: Inspection) -> None:
        """Store `inspection`; one that steps back in time clears earlier ones."""
        if self._inspections and inspection.time_ns < self._inspections[-1].time_ns:
            self._inspections.clear()
        self._inspections.append(inspection)

    def whole(self, time_ns: int) -> float | None:
        """Return the mean log odds of recent whole pictures; None without a recent inspection."""
        return _mean([inspection.whole for inspection in self._inspections if time_ns - inspection.time_ns <= VALID_NS])

    def close_up(self, box: Box, time_ns: int) -> float | None:
        """Return the mean log odds of recent close-ups at the place of `box`, a close-up."""
        lately = [inspection for inspection in self._inspections if time_ns - inspection.time_ns <= VALID_NS]
        return _mean(
            [
                value
                for inspection in lately
                for place, value in inspection.close_ups
                if overlap_of(box, place) >= SAME_SITE
            ]
        )


def close_up_of(box: Box, width: float, height: float) -> Box:
    """Return the square close-up of the site `box` in a picture of `width` x `height` pixels."""
    side = max(CLOSE_UP * max(box[2] * width, box[3] * height), CLOSE_UP_MIN * max(width, height))
    return square_around(box, side, width, height)


def square_around(box: Box, side: float, width: float, height: float) -> Box:
    """Return a square of `side` pixels around the middle of `box`, inside a picture of `width` x `height` pixels."""
    x, y, w, h = box
    wide, high = min(1.0, side / width), min(1.0, side / height)
    left = min(max(0.0, x + w / 2 - wide / 2), 1.0 - wide)
    top = min(max(0.0, y + h / 2 - high / 2), 1.0 - high)
    return left, top, wide, high


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def overlap_of(first: Box | Odds, second: Box | Odds) -> float:
    """Return the intersection of two boxes over their union, 0..1."""
    wide = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    high = min(first[1] + first[3], second[1] + second[3]) - max(first[1], second[1])
    if wide <= 0 or high <= 0:
        return 0.0
    shared = float(wide * high)
    return shared / (float(first[2] * first[3] + second[2] * second[3]) - shared)

"""Heat in the pictures of a radiometric camera, at full resolution: words to °C, °C to findings.

A camera's `RadiometricWatch` gets each frame. It converts the words to °C, mends lone hot pixels, and lets a
`HeatWatch` assess the hottest pixel; the connected hot pixels around it form the box. A frame that repeats the previous
one exactly repeats its result too, because a shutter may have closed. Faults are a repetition that lasts, a picture of
a single temperature that lasts, and words with swapped bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.areas import AreaWatch
from embereye.detect.thermal.heat import CLEAR, Extreme, HeatAssessment, HeatWatch
from embereye.units import SECOND, Box
from embereye.v1.shard_pb2 import HeatThresholds
from embereye.v1.types_pb2 import Area, Radiometry

CENTIKELVIN = Radiometry(scale=0.01, offset=-273.15)  # the format of most cameras
NOT_MEASURED = (0, 65_535)  # words that mean no temperature
FROZEN_NS = 5 * SECOND  # a shutter closes for less than a second; noise changes some word in every frame
UNIFORM_K = 0.05  # standard deviation below which a lens cap or shutter is closed; even a uniform wall has more
UNIFORM_NS = 5 * SECOND  # longer than any shutter stays closed
SWAPPED = "the bytes of its 16-bit words are swapped. Send raw words as little-endian, or TIFF, which states its order"
SWAPPED_RATIO = 8  # a picture with the right byte order is smoother by this factor; measured: 480
_ORDER_ROWS = 16  # rows of a picture that are compared for that
_NEIGHBOURS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], np.uint8)
_NO_NEIGHBOUR = np.finfo(np.float32).min  # °C; OpenCV uses it beyond the border

Celsius = NDArray[np.float32]


@dataclass(frozen=True)
class Heat:
    """The result of one frame. `fault` says why the camera cannot see; empty if it can."""

    assessment: HeatAssessment
    celsius: Celsius  # (height, width), NaN where nothing was measured
    box: Box | None  # of the hot spot; None: nothing is hot
    fault: str


def to_celsius(words: NDArray[np.uint16], radiometry: Radiometry) -> Celsius:
    """Convert (height, width) words to °C: NaN for a meaningless word, the hottest neighbour's for a lone hot pixel.

    A pixel far hotter than all its neighbours is defective: a lens spreads even a point over several pixels.
    """
    celsius = words.astype(np.float32) * np.float32(radiometry.scale) + np.float32(radiometry.offset)
    unknown = (words == NOT_MEASURED[0]) | (words == NOT_MEASURED[1])
    celsius[unknown] = _NO_NEIGHBOUR
    around = cv2.dilate(celsius, _NEIGHBOURS)
    mended: Celsius = np.minimum(celsius, around, out=celsius, where=around > _NO_NEIGHBOUR)
    mended[unknown] = np.nan
    return mended


def is_swapped(words: NDArray[np.uint16]) -> bool:
    """True if (height, width) words form a picture only after swapping the two bytes of each.

    Neighbouring pixels have almost the same temperature. In the wrong order, their low bytes make them jump.
    """
    rows = words[:: max(1, len(words) // _ORDER_ROWS)]
    if not np.ptp(rows >> 8) or not np.ptp(rows & 0xFF):
        return False  # one constant byte proves nothing: a camera may use 8 of 16 bits

    def roughness(rows: NDArray[np.uint16]) -> float:
        return float(np.abs(np.diff(rows.astype(np.int32), axis=1)).mean())

    return words.shape[1] > 1 and roughness(rows) > SWAPPED_RATIO * roughness(rows.byteswap())


class RadiometricWatch:
    """Monitors one camera. Times are nanoseconds since the Unix epoch."""

    def __init__(
        self, thresholds: HeatThresholds, radiometry: Radiometry | None = None, areas: Sequence[Area] = ()
    ) -> None:
        self._areas = areas
        self._area_watch: AreaWatch
        self._thresholds = thresholds
        self._radiometry = radiometry if radiometry and radiometry.scale else CENTIKELVIN
        self._shape: tuple[int, ...] = ()
        self._before: NDArray[np.uint16] | None = None
        self._heat: HeatWatch
        self._last: Heat
        self._changed_ns = 0
        self._uniform_since_ns = 0  # 0: it is not uniform

    def observe(self, words: NDArray[np.uint16], now_ns: int, ignored: NDArray[np.bool_] | None = None) -> Heat:
        """Assess one frame of (height, width) `words`. The `ignored` words are overwritten.

        The ignored words have to be the same in all frames of one size.
        """
        if ignored is not None:
            words[ignored] = NOT_MEASURED[0]
        if words.shape != self._shape:
            self._shape = words.shape
            self._area_watch = AreaWatch(self._areas, *words.shape)
            judged = np.ones(words.shape, np.bool_) if ignored is None else ~ignored
            if self._area_watch.separate_pixels is not None:
                judged = judged & ~self._area_watch.separate_pixels
            pixels = int(np.count_nonzero(judged))
            self._heat = HeatWatch(self._thresholds, pixels=pixels, columns=words.shape[1])
            self._before, self._uniform_since_ns = None, 0
        if self._before is not None and np.array_equal(self._before, words):
            # A frame that is repeated during a shutter's correction confirms nothing.
            last = self._last
            self._last = Heat(last.assessment, last.celsius, last.box, self._frozen(now_ns) or last.fault)
            return self._last
        self._before, self._changed_ns = words, now_ns
        swapped = SWAPPED if is_swapped(words) else ""
        # In the wrong order, a scene at room temperature would be full of fire and ice.
        celsius = to_celsius(np.zeros_like(words) if swapped else words, self._radiometry)
        others = self._area_watch.without_separate_pixels(celsius)
        whole = self._heat.observe_extreme(others, _extreme(others), now_ns)
        assessment = self._area_watch.combined(whole, celsius, now_ns)
        box = None
        if assessment.level > CLEAR and assessment.hottest:
            box, terms = _spot(self._area_watch.around(celsius, assessment.hottest), assessment.hottest)
            assessment = assessment._replace(measured=(*assessment.measured, *terms))
        self._last = Heat(assessment, celsius, box, swapped or assessment.blind or self._uniform(celsius, now_ns))
        return self._last

    def celsius_of(self, words: NDArray[np.uint16]) -> Celsius:
        """Convert (height, width) words of this camera to °C; see `to_celsius`."""
        return to_celsius(words, self._radiometry)

    def _frozen(self, now_ns: int) -> str:
        still = now_ns - self._changed_ns
        return f"picture frozen: exactly the same for {still / SECOND:.0f} s" if still > FROZEN_NS else ""

    def _uniform(self, celsius: Celsius, now_ns: int) -> str:
        if float(np.nanstd(celsius)) >= UNIFORM_K:
            self._uniform_since_ns = 0
            return ""
        self._uniform_since_ns = self._uniform_since_ns or now_ns
        if now_ns - self._uniform_since_ns > UNIFORM_NS:
            return "lens covered: every pixel has the same temperature"
        return ""


def _extreme(celsius: Celsius) -> Extreme:
    known = ~np.isnan(celsius)
    visible = int(np.count_nonzero(known))
    if not visible:
        return Extreme(-1, float("nan"), 0)
    pixel = int(np.nanargmax(celsius))
    return Extreme(pixel, float(celsius.flat[pixel]), visible)


def _spot(celsius: Celsius, hottest: tuple[int, int]) -> tuple[Box, tuple[tuple[str, float, float, str], ...]]:
    """Return the box around the hottest pixel's connected pixels that are nearer to it than to the median.

    If the rising place is still colder than the median: those that are at least as hot.
    """
    height, width = celsius.shape
    value = float(celsius[hottest])
    limit = min((float(np.nanmedian(celsius)) + value) / 2, value)
    _, labels, stats, centres = cv2.connectedComponentsWithStats((celsius >= limit).astype(np.uint8), connectivity=8)
    label = int(labels[hottest])
    x, y, w, h, pixels = (int(value) for value in stats[label])
    column, row = (float(value) for value in centres[label])
    terms = (("spot.row", row, 0.0, "1"), ("spot.column", column, 0.0, "1"), ("spot.pixels", float(pixels), 0.0, "1"))
    return (x / width, y / height, w / width, h / height), terms

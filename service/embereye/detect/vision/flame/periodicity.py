"""Detection of repetition: a flame never returns to an earlier picture; beacons, fans and needles do.

`FlameDetector` asks for each site that it weighs. The site's pixels in the recent pictures are correlated with
themselves at every lag. The curve first falls, as pictures change; if it rises again at a longer lag, the site has
returned to an earlier picture. Results are remembered for a moment, by place.
"""

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from embereye.detect.vision.flame.recent import Film, Recent, series_of
from embereye.detect.vision.thresholds import FlameThresholds
from embereye.units import PixelBox

Grey = npt.NDArray[np.uint8]

EVERY_NS = 300_000_000  # between two measurements of a region
KNOWN_NS = 3_400_000_000
CELL = 8  # pixels; regions with their middles in one cell count as one region
DIP_FAST = 0.3  # below this correlation a lag is more than similarity of successive pictures
DIP_SLOW = 0.1
MAX_PIXELS = 200  # of a region, at most, are analysed
MIN_PICTURES = 8  # pictures or swings that suffice for a result
MIN_PAIRS = 4  # of swings at a lag's distance that suffice for a result


class Periodicity:
    """Detects repetition in any region of a camera's `recent` pictures.

    Fast repetition (0.25 to 1.6 s) shows in the pictures themselves. Slow repetition (0.4 to 2.6 s) is hidden there by
    slow change, but shows in where the picture swings during each fifth of a second.
    """

    def __init__(self, limits: FlameThresholds, recent: Recent) -> None:
        self._limits = limits
        self._recent = recent
        self._known: dict[tuple[int, int], tuple[int, float]] = {}  # by cell, for the last EVERY_NS only

    def is_known(self, time_ns: int) -> bool:
        """True if the memory is long enough to show slow repetition."""
        return self._recent.known_ns(time_ns) >= KNOWN_NS

    def of(self, box: PixelBox, time_ns: int) -> float:
        """Return how well the region repeats, at most 1; 0 if too little is known."""
        key = ((box[0] + box[2] // 2) // CELL, (box[1] + box[3] // 2) // CELL)
        known = self._known.get(key)
        if known and 0 <= time_ns - known[0] < EVERY_NS:
            return known[1]
        top, left = (edge.start // 2 for edge in self._recent.window)
        half = (box[0] // 2 - left, box[1] // 2 - top, box[2] // 2 + 1, box[3] // 2 + 1)
        value = max(self._fast(half), self._slow(half))
        self._known = {cell: known for cell, known in self._known.items() if 0 <= time_ns - known[0] < EVERY_NS}
        self._known[key] = (time_ns, value)
        return value

    def _fast(self, box: PixelBox) -> float:
        film = self._recent.pictures
        count = len(film.times)
        if count < MIN_PICTURES or (period := film.slot_ns) <= 0:
            return 0.0
        limits = self._limits
        longest = min(count // 2, int(limits.repeat_longest_ns / period))
        shortest = int(limits.repeat_shortest_ns / period)
        return best_return(film, box, shortest, longest, DIP_FAST, count // 4)

    def _slow(self, box: PixelBox) -> float:
        swings = self._recent.swings
        count = len(swings.times)
        if count < MIN_PICTURES:
            return 0.0
        return best_return(swings, box, 1, count - MIN_PAIRS, DIP_SLOW, MIN_PAIRS)


def best_return(film: Film, box: PixelBox, shortest: int, longest: int, dip: float, pairs: int = 1) -> float:
    """Return the best correlation, -1..1, of a region with itself `shortest` to `longest` slots of `film` earlier.

    Only lags after the first one with a correlation below `dip` count, because successive pictures always resemble each
    other. The region's mean over time is subtracted, so that still parts do not count. If the film has gaps, lags with
    fewer than `pairs` pairs of pictures are ignored.
    """
    pictures = film.pictures
    x, y, width, height = box
    count, rows, columns = pictures.shape
    wide, high = min(width, columns - x), min(height, rows - y)
    # Copy only the analysed pixels from the pictures: a region may be most of them.
    chosen = np.arange(0, wide * high, 1 + wide * high // MAX_PIXELS)
    indices = (chosen // wide + y) * columns + chosen % wide + x
    series = series_of(pictures, indices)
    series -= series.mean(axis=0)
    sufficient = None
    if film.missing:
        slots = np.array(film.slots) - film.slots[0]
        count = int(slots[-1]) + 1
        filled, present = np.zeros((count, series.shape[1]), np.float32), np.zeros(count)
        filled[slots], present[slots] = series, 1.0
        series, sufficient = filled, np.correlate(present, present, "full")[count : count + longest] >= pairs
    products = series @ series.T
    norms = np.sqrt(np.diagonal(products)) + 1e-6
    # For each lag, sum the products of all pairs of pictures with that distance. They form a diagonal, which becomes a
    # column if each row begins one further on. After the last picture there are zeros.
    both = np.zeros((2, count, count + longest + 1))
    both[0, :, :count], both[1, :, :count] = products, np.multiply.outer(norms, norms)
    plane, row, column = both.strides
    sums = as_strided(both, (2, count, longest + 1), (plane, row + column, column)).sum(axis=1)
    curve = sums[0, 1:] / sums[1, 1:]
    if sufficient is not None:
        curve[~sufficient] = dip  # neither below the dip nor a return
    curve = curve.tolist()
    dipped = next((index for index, value in enumerate(curve) if value < dip), len(curve))
    return max(curve[max(dipped, shortest) :], default=0.0)

"""The hot spot in a thermal frame: its place, its size, and how quickly it grows.

`FrameAnalysis` calls it only while something is hot. `hot_spot` grows from the hottest pixel through neighbours that
are nearer to its temperature than to the median. `SpotWatch` remembers the sizes of the last seconds, and growth is the
change since the oldest of them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.units import SECOND

GROWTH_NS = 5 * SECOND  # over which growth is measured
MAX_SIZES = 64  # remembered sizes


class Spot(NamedTuple):
    """The pixels around the hottest one that are closer to its temperature than to the rest of the picture."""

    row: float  # of its centre, weighted by how far each pixel is above the rest
    column: float
    pixels: int


def hot_spot(celsius: NDArray[np.floating[Any]], hottest: tuple[int, int]) -> Spot | None:
    """Find the spot around `hottest` (row, column) in a frame of (24, 32) °C, NaN where nothing was measured.

    Returns None if it is not warmer than the rest of the frame.
    """
    usual, most = float(np.nanmedian(celsius)), float(celsius[hottest])
    if not most > usual:
        return None
    hot = celsius >= (usual + most) / 2
    reached = np.zeros(np.add(hot.shape, 2), np.bool_)
    inner = reached[1:-1, 1:-1]
    inner[hottest] = True
    size = 1
    while True:  # each round extends the spot by one pixel, so it takes at most its length in rounds
        wider = reached[1:-1, 1:-1].copy()
        for rows in (slice(None, -2), slice(1, -1), slice(2, None)):
            for columns in (slice(None, -2), slice(1, -1), slice(2, None)):
                wider |= reached[rows, columns]
        inner[:] = wider & hot
        grown = int(inner.sum())
        if grown == size:
            break
        size = grown
    rows_of, columns_of = np.nonzero(inner)
    weights = celsius[inner] - usual
    return Spot(float(np.average(rows_of, weights=weights)), float(np.average(columns_of, weights=weights)), size)


class SpotWatch:
    """Monitors the size of one device's hot spot."""

    def __init__(self) -> None:
        self._sizes: list[tuple[int, int]] = []  # time, pixels

    def forget(self) -> None:
        """Forget the spot, which has disappeared."""
        self._sizes.clear()

    def growth(self, spot: Spot, now_ns: int) -> float:
        """Return its growth in pixels per minute over the last seconds; 0 in a spot's first second."""
        self._sizes = [entry for entry in self._sizes if now_ns - entry[0] <= GROWTH_NS][-MAX_SIZES + 1 :]
        self._sizes.append((now_ns, spot.pixels))
        since, pixels = self._sizes[0]
        elapsed = now_ns - since
        return (spot.pixels - pixels) / elapsed * 60 * SECOND if elapsed >= SECOND else 0.0

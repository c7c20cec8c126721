"""What stands for readings that are given up: per channel the lowest, the highest, the last, the slope, and how many.

Pure. Nothing that a threshold would have noticed is lost with them: their extremes are analysed in their place.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Summary(NamedTuple):
    """Each array has a value for smoke, flame, gas (ADC counts) and digital flame (0 or 1); NaN: never said."""

    readings: int
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    last: NDArray[np.float64]
    slope: NDArray[np.float64]  # a reading, of the straight line that fits best

    def rows(self, *, active_low: bool) -> NDArray[np.float64]:
        """(3, 4): what is analysed in place of the readings, the highest after the lowest, the last at the end.

        With the highest flame goes the digital value that says flame: 0 where the output is `active_low`.
        """
        rows = np.stack([self.lowest, self.highest, self.last])
        if active_low:
            rows[:2, 3] = rows[1::-1, 3].copy()
        return rows


def summarize(rows: NDArray[np.float64], full_scale: float) -> Summary:
    """The summary of readings (n, 4), at least one, in order, of a converter that gives 0 to `full_scale` counts.

    Values that no converter gives count for the last alone: as the highest they would hide the highest that is real.
    """
    usable = np.where((rows >= 0) & (rows <= full_scale), rows, np.nan)
    said = ~np.isnan(usable)
    numbers = said.sum(axis=0)
    values = np.where(said, usable, 0.0)
    places = np.where(said, np.arange(len(rows))[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = numbers * (places**2).sum(axis=0) - places.sum(axis=0) ** 2
        together = numbers * (places * values).sum(axis=0) - places.sum(axis=0) * values.sum(axis=0)
        slope = np.where(spread > 0, together / spread, np.where(numbers > 0, 0.0, np.nan))
    return Summary(len(rows), np.fmin.reduce(usable), np.fmax.reduce(usable), _last(rows), slope)


def _last(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last value that each channel gave."""
    known = ~np.isnan(rows)
    place = len(rows) - 1 - known[::-1].argmax(axis=0)
    last: NDArray[np.float64] = np.take_along_axis(rows, place[None], axis=0)[0]
    return last

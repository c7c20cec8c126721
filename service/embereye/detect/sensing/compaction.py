"""Compaction of readings under overload: per channel the lowest, highest and last value, the slope, and their number.

Pure. The extremes are analysed instead of the readings, so no crossed threshold is missed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Summary(NamedTuple):
    """Per array a value for smoke, flame, gas (ADC counts) and digital flame (0 or 1); NaN: never reported."""

    readings: int
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    last: NDArray[np.float64]
    slope: NDArray[np.float64]  # per reading, of the best-fitting straight line

    def rows(self, *, active_low: bool) -> NDArray[np.float64]:
        """Return the (3, 4) rows to analyse instead of the readings: lowest, highest, last.

        The digital value in the row of the highest is the one that means flame: 0 if the output is `active_low`.
        """
        rows = np.stack([self.lowest, self.highest, self.last])
        if active_low:
            rows[:2, 3] = rows[1::-1, 3].copy()
        return rows


def summarize(rows: NDArray[np.float64], full_scale: float) -> Summary:
    """Summarize readings (n, 4), at least one, in order, of a converter with 0 to `full_scale` counts.

    Impossible values count only as the last value: as the highest they would hide the real highest value.
    """
    usable = np.where((rows >= 0) & (rows <= full_scale), rows, np.nan)
    reported = ~np.isnan(usable)
    numbers = reported.sum(axis=0)
    values = np.where(reported, usable, 0.0)
    places = np.where(reported, np.arange(len(rows))[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = numbers * (places**2).sum(axis=0) - places.sum(axis=0) ** 2
        covariance = numbers * (places * values).sum(axis=0) - places.sum(axis=0) * values.sum(axis=0)
        slope = np.where(spread > 0, covariance / spread, np.where(numbers > 0, 0.0, np.nan))
    return Summary(len(rows), np.fmin.reduce(usable), np.fmax.reduce(usable), _last(rows), slope)


def _last(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last value of each channel."""
    known = ~np.isnan(rows)
    position = len(rows) - 1 - known[::-1].argmax(axis=0)
    last: NDArray[np.float64] = np.take_along_axis(rows, position[None], axis=0)[0]
    return last

"""Whether something grows: a slope and its confidence interval, from samples of processes that come and go."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

DOUBT = 0.05  # that an interval, or any of those that are judged together, does not hold the true slope
LEAST = 8  # samples of one process, below which they say nothing


@dataclass(frozen=True)
class Slope:
    """Units per hour: the estimate, and its confidence interval."""

    value: float
    low: float
    high: float
    samples: int

    @property
    def grows(self) -> bool:
        """Whether it is above zero beyond chance."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]/h"


def slope(segments: Iterable[tuple[Sequence[float], Sequence[float]]], together: int = 1) -> Slope | None:
    """Theil and Sen's estimate over all pairs of samples of one segment, with Sen's interval (JASA 63, 1968, p. 1379).

    Each segment is one process: times in seconds and values; processes that began anew are not compared with those
    before. None where no segment has enough samples. Samples are taken to be independent of one another: those of a
    process that has only just been started are not, and do not belong in here. Of `together` slopes that are judged
    together, all intervals hold with the confidence that one has alone (Bonferroni's correction).
    """
    slopes: list[np.ndarray] = []
    variance, count = 0.0, 0
    for times, values in segments:
        n = len(times)
        if n < LEAST:
            continue
        at, value = np.asarray(times, float) / 3600, np.asarray(values, float)
        first, second = np.triu_indices(n, 1)
        apart = at[second] - at[first]
        slopes.append((value[second] - value[first])[apart > 0] / apart[apart > 0])
        # Of Kendall's S; segments are independent, so variances add up. Ties make it smaller, which is left out: the
        # interval is wider than need be.
        variance += n * (n - 1) * (2 * n + 5) / 18
        count += n
    if not slopes:
        return None
    found = np.sort(np.concatenate(slopes))
    half = NormalDist().inv_cdf(1 - DOUBT / 2 / together) * math.sqrt(variance)
    low = max(0, math.floor((len(found) - half) / 2))
    high = min(len(found) - 1, math.ceil((len(found) + half) / 2))
    return Slope(float(np.median(found)), float(found[low]), float(found[high]), count)

"""Growth of a measure: a slope and its confidence interval, from samples of processes that come and go.

The slope is the median of those between all pairs of samples of one process (Theil and Sen), so that single outliers
do not count. Its interval is widened for correlated samples, and for the number of slopes that are judged together.
Growth in a single step has no slope; it is found by comparing the first third of the samples with the last.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

DOUBT = 0.05  # probability that an interval, or any of a group, does not contain the true slope
STEP = 0.03  # relative growth in one step that is allowed; a step is no slope, but may be a leak
LEAST = 8  # minimum number of samples of one process


@dataclass(frozen=True)
class Slope:
    """A growth rate in units per hour, with its confidence interval."""

    value: float
    low: float
    high: float
    samples: int
    step: float = 0.0  # the largest relative growth of a process in one step

    @property
    def is_growth(self) -> bool:
        """True if the slope is above zero beyond chance, or one step is larger than `STEP`."""
        return self.low > 0 or self.step > STEP

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]/h"


def slope(
    segments: Iterable[tuple[Sequence[float], Sequence[float]]], together: int = 1, *, steps: bool = False
) -> Slope | None:
    """Estimate the slope by Theil and Sen, with Sen's interval (JASA 63, 1968, p. 1379).

    Each segment is one process: times in seconds and values. Only samples of the same process are compared. Returns
    None if no segment has enough samples. Samples are correlated if a level drifts or steps; the interval is widened
    after Hamed and Rao (Journal of Hydrology 204, 1998, p. 182). `together` is the number of slopes judged as a group:
    all intervals hold jointly (Bonferroni's correction). With `steps`, permanent growth in one step is computed too.
    """
    judged = [
        (np.asarray(times, float) / 3600, np.asarray(values, float))
        for times, values in segments
        if len(times) >= LEAST
    ]
    if not judged:
        return None
    slopes = np.sort(np.concatenate([_slopes(at, value) for at, value in judged]))
    middle = float(np.median(slopes))
    # The variance of Kendall's S. Segments are independent, so variances add up. Ties would make it smaller; without
    # that correction the interval is slightly too wide.
    variance = sum(
        n * (n - 1) * (2 * n + 5) / 18 * _dependence(value - middle * at) for at, value in judged for n in (len(at),)
    )
    half = NormalDist().inv_cdf(1 - DOUBT / 2 / together) * math.sqrt(variance)
    low = max(0, math.floor((len(slopes) - half) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + half) / 2))
    step = max(_step(value) for _, value in judged) if steps else 0.0
    return Slope(middle, float(slopes[low]), float(slopes[high]), sum(len(at) for at, _ in judged), step)


def _slopes(at: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The slopes between all pairs of samples with different times."""
    first, second = np.triu_indices(len(at), 1)
    apart = at[second] - at[first]
    slopes: np.ndarray = (value[second] - value[first])[apart > 0] / apart[apart > 0]
    return slopes


def _step(value: np.ndarray) -> float:
    """The relative step between the first and the last third; 0 if either third varies as much."""
    third = len(value) // 3
    if third < LEAST:
        return 0.0
    first, last = value[:third], value[-third:]
    step = float(last.min() - first.max())
    return step / float(first.max()) if step > max(np.ptp(first), np.ptp(last)) else 0.0


def _dependence(rest: np.ndarray) -> float:
    """The factor on the variance of Kendall's S for correlated samples; `rest` has the trend removed.

    Rank correlations count up to the first that is within chance; later ones would only add noise.
    """
    n = len(rest)
    ranks = np.argsort(np.argsort(rest, kind="stable"), kind="stable") - (n - 1) / 2
    total = 0.0
    for lag in range(1, n - 3):
        correlation = float(ranks[lag:] @ ranks[:-lag] / (ranks @ ranks))
        if correlation < NormalDist().inv_cdf(1 - DOUBT / 2) / math.sqrt(n):
            break
        total += (n - lag) * (n - lag - 1) * (n - lag - 2) * correlation
    return 1 + 2 * total / (n * (n - 1) * (n - 2))

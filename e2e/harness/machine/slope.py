"""Whether something grows: a slope and its confidence interval, from samples of processes that come and go."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

DOUBT = 0.05  # that an interval, or any of those that are judged together, does not hold the true slope
STEP = 0.03  # share of itself by which a process may grow once: one step is no slope, and may be a leak all the same
LEAST = 8  # samples of one process, below which they say nothing


@dataclass(frozen=True)
class Slope:
    """Units per hour: the estimate, and its confidence interval."""

    value: float
    low: float
    high: float
    samples: int
    step: float = 0.0  # share of itself by which a process has grown once, of several the largest

    @property
    def grows(self) -> bool:
        """Whether it is above zero beyond chance, or it has grown once by more than anything explains."""
        return self.low > 0 or self.step > STEP

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]/h"


def slope(
    segments: Iterable[tuple[Sequence[float], Sequence[float]]], together: int = 1, *, steps: bool = False
) -> Slope | None:
    """Theil and Sen's estimate over all pairs of samples of one segment, with Sen's interval (JASA 63, 1968, p. 1379).

    Each segment is one process: times in seconds and values; processes that began anew are not compared with those
    before. None where no segment has enough samples. Samples depend on one another where a level wanders or takes a
    step: the interval is as much wider as Hamed and Rao say (Journal of Hydrology 204, 1998, p. 182). Of `together`
    slopes that are judged together, all intervals hold with the confidence that one has alone (Bonferroni's
    correction). With `steps` a process that has grown once, for good, is told as well.
    """
    judged = [
        (np.asarray(times, float) / 3600, np.asarray(values, float))
        for times, values in segments
        if len(times) >= LEAST
    ]
    if not judged:
        return None
    found = np.sort(np.concatenate([_slopes(at, value) for at, value in judged]))
    middle = float(np.median(found))
    # Of Kendall's S; segments are independent, so variances add up. Ties make it smaller, which is left out: the
    # interval is wider than need be.
    variance = sum(
        n * (n - 1) * (2 * n + 5) / 18 * _dependence(value - middle * at) for at, value in judged for n in (len(at),)
    )
    half = NormalDist().inv_cdf(1 - DOUBT / 2 / together) * math.sqrt(variance)
    low = max(0, math.floor((len(found) - half) / 2))
    high = min(len(found) - 1, math.ceil((len(found) + half) / 2))
    step = max(_step(value) for _, value in judged) if steps else 0.0
    return Slope(middle, float(found[low]), float(found[high]), sum(len(at) for at, _ in judged), step)


def _slopes(at: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Between each two samples that are not of the same time."""
    first, second = np.triu_indices(len(at), 1)
    apart = at[second] - at[first]
    found: np.ndarray = (value[second] - value[first])[apart > 0] / apart[apart > 0]
    return found


def _step(value: np.ndarray) -> float:
    """By which share of itself all of the last third is above all of the first; 0 where either wanders as far."""
    third = len(value) // 3
    if third < LEAST:
        return 0.0
    first, last = value[:third], value[-third:]
    step = float(last.min() - first.max())
    return step / float(first.max()) if step > max(np.ptp(first), np.ptp(last)) else 0.0


def _dependence(rest: np.ndarray) -> float:
    """How many times as far Kendall's S varies as that of independent samples; `rest` is without the trend.

    Correlations of ranks count up to the first that is within chance: those beyond would only add noise.
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

"""Judge a change by pairs of samples: each round measures both commits, so a slow minute affects both.

A verdict needs only the signs of the differences (sign test), so it holds for any distribution of noise.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_ROUNDS = 6  # all of six rounds agree by chance in one of 32 cases
CHANCE = 0.05  # two-sided probability that an interval misses the true ratio
MARGIN = 0.02  # share by which the median must differ, besides all of its interval
TOO_WIDE = 0.15  # half of an interval, as a share, above which a row proves nothing


@dataclass(frozen=True)
class PairedSample:
    """The value of one row in one round, by one commit."""

    name: str
    round: int
    value: float
    unit: str
    higher_is_better: bool


@dataclass(frozen=True)
class PairedRow:
    """The samples of one row by both commits, round by round."""

    name: str
    unit: str
    higher_is_better: bool
    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def gains(self) -> tuple[float, ...]:
        """The logarithm of each round's improvement, in order; negative: worse.

        Counts of failures have no logarithm where they are 0. There, fewer is 1 and more is -1.
        """
        sign = 1 if self.higher_is_better else -1
        return tuple(
            sign * (math.log(new / old) if min(old, new) > 0 else float((new > old) - (new < old)))
            for old, new in zip(self.old, self.new, strict=True)
        )

    @property
    def change(self) -> float:
        """The median improvement, as a share; negative: worse."""
        return math.expm1(statistics.median(self.gains))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the improvement, as shares, which misses the true median with a probability below 5 %."""
        gains, skipped = sorted(self.gains), order_statistic(len(self.gains))
        return math.expm1(gains[skipped]), math.expm1(gains[-1 - skipped])

    @property
    def rounds_better(self) -> int:
        """The number of rounds in which the new commit was better."""
        return sum(gain > 0 for gain in self.gains)

    @property
    def verdict(self) -> str:
        """worse, better, same, or noisy if nothing can be concluded."""
        low, high = self.interval
        if high < 0 and self.change < -MARGIN:
            return "worse"
        if low > 0 and self.change > MARGIN:
            return "better"
        return "noisy" if high - low > 2 * TOO_WIDE else "same"


def order_statistic(rounds: int) -> int:
    """The number of samples to leave out at each end of `rounds` for an interval of the median by the sign test.

    ValueError for fewer than six rounds, of which no interval is certain enough.
    """
    if rounds < FEWEST_ROUNDS:
        raise ValueError(f"{rounds} rounds are too few for an interval: {FEWEST_ROUNDS} are needed")
    skipped, tail = -1, 0.0
    while tail + math.comb(rounds, skipped + 1) / 2**rounds <= CHANCE / 2:
        skipped += 1
        tail += math.comb(rounds, skipped) / 2**rounds
    return skipped


def pair_rows(old: Sequence[PairedSample], new: Sequence[PairedSample]) -> list[PairedRow]:
    """Join the samples of both commits by row and round; rows that a commit lacks in any round are left out."""
    rounds = 1 + max((sample.round for sample in (*old, *new)), default=-1)
    before = {(sample.name, sample.round): sample for sample in old}
    after = {(sample.name, sample.round): sample for sample in new}
    rows = []
    for name in dict.fromkeys(sample.name for sample in new):
        keys = [(name, number) for number in range(rounds)]
        if all(key in before and key in after for key in keys):
            last = after[keys[-1]]
            rows.append(PairedRow(name, last.unit, last.higher_is_better,
                                  tuple(before[key].value for key in keys),
                                  tuple(after[key].value for key in keys)))  # fmt: skip
    return rows

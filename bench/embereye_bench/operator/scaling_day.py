"""Simulate a day of load on a fleet: the embedded scaler against an HPA on queue depth and KEDA's defaults.

Nothing runs and no time passes: `simulate` counts second by second. Arriving items join one queue, the ready shards
work on it, and a policy sees the measurements of its period and decides the number of shards. A new shard is ready
after `LEAD`. `Embedded` is the operator's own code; `Hpa` is written after Kubernetes' algorithm. All policies get the
same load, from a fixed seed.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from embereye.units import SECOND
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.scaling.law import Measured, Observed, Scaler

START = 1_800_000_000 * SECOND
DAY = 86_400  # seconds
COST = 0.002  # CPU seconds per item: a camera's frame
LEAD = 10  # seconds until a new shard is ready
WINDOW = 10  # seconds over which shards measure
DEADLINE = 2.0  # seconds; a camera fleet's
Trace = Sequence[float]  # items/s, per second


@dataclass(frozen=True)
class Case:
    """A load, and the times at which its measurements are lost."""

    name: str
    arrivals: Trace
    lost: frozenset[int] = frozenset()  # seconds


@dataclass
class Result:
    """The results of a policy."""

    delays: list[tuple[float, float]] = field(default_factory=list)  # seconds, items
    pod_seconds: int = 0
    changes: int = 0
    peak: int = 0

    def quantile(self, share: float) -> float:
        """The delay in seconds that `share` of all items did not exceed."""
        total = sum(weight for _, weight in self.delays) * share
        for delay, weight in sorted(self.delays):
            total -= weight
            if total <= 0:
                return delay
        return 0.0


@dataclass(frozen=True)
class Sight:
    """The information that a policy has at one moment."""

    second: int
    shards: int
    arrival_rate: float  # items/s, mean over the last WINDOW seconds
    backlog: float  # items
    oldest: float  # seconds
    utilization: float
    known: bool  # False if measurements are lost


class Policy(Protocol):
    """Decides the number of shards."""

    period: int  # seconds between decisions

    def decide(self, sight: Sight) -> int:
        """The number of shards to run."""


class Embedded:
    """Our scaler: the same code as in the operator."""

    period = 2

    def __init__(self, limits: Autoscaling) -> None:
        self._limits = limits
        self._scaler = Scaler()

    def decide(self, sight: Sight) -> int:
        """Decide as `Policy` says."""
        measured = Measured(sight.arrival_rate, COST, int(sight.backlog), sight.oldest, sight.utilization)
        observed = Observed(START + sight.second * SECOND, sight.shards, measured if sight.known else None, lead=LEAD)
        return self._scaler.decide(self._limits, observed, DEADLINE).shards


class Hpa:
    """The HorizontalPodAutoscaler's algorithm with its default behavior, on queue depth per pod (AverageValue)."""

    period = 15

    def __init__(self, limits: Autoscaling, target: float, *, lost_is_zero: bool = False) -> None:
        """Aim at `target` items per pod. `lost_is_zero`: read a lost answer as 0, like KEDA's scaler."""
        self._limits = limits
        self._target = target
        self._lost_is_zero = lost_is_zero
        self._recommended: deque[tuple[int, int]] = deque()

    def decide(self, sight: Sight) -> int:
        """Decide as `Policy` says."""
        if not sight.known and not self._lost_is_zero:
            return sight.shards
        depth = sight.backlog if sight.known else 0.0
        ratio = depth / (self._target * sight.shards)
        wanted = sight.shards if abs(ratio - 1) <= 0.1 else math.ceil(depth / self._target)
        wanted = min(max(wanted, self._limits.min_shards), self._limits.max_shards)
        self._recommended.append((sight.second, wanted))
        while self._recommended[0][0] <= sight.second - 300:
            self._recommended.popleft()
        if wanted < sight.shards:
            wanted = min(sight.shards, max(count for _, count in self._recommended))
        return min(wanted, max(2 * sight.shards, sight.shards + 4))


def simulate(case: Case, policy: Policy, limits: Autoscaling) -> Result:
    """Run `policy` through `case`, second by second. Work is divided evenly; a new shard works after LEAD."""
    result = Result()
    shards, queue, seen = limits.min_shards, 0.0, deque[float](maxlen=WINDOW)
    coming: deque[int] = deque()  # seconds at which shards become ready
    rate = 1 / COST  # items/s of one shard
    busy = 0.0
    for second, arriving in enumerate(case.arrivals):
        while coming and coming[0] <= second:
            coming.popleft()
        ready = max(1, shards - len(coming))
        seen.append(arriving)
        done = min(queue + arriving, ready * rate)
        busy = done / (ready * rate)
        # Items that arrive now wait for all earlier ones.
        delay = COST + (queue + max(0.0, arriving - ready * rate) / 2) / (ready * rate)
        queue += arriving - done
        result.delays.append((delay, arriving))
        result.pod_seconds += shards
        result.peak = max(result.peak, shards)
        if second % policy.period == 0:
            known = second not in case.lost
            sight = Sight(second, shards, sum(seen) / len(seen), queue, queue / (ready * rate), busy, known)
            wanted = policy.decide(sight)
            if wanted != shards:
                result.changes += 1
            for _ in range(wanted - shards):
                coming.append(second + LEAD)
            while len(coming) > 0 and wanted < shards and len(coming) > wanted - 1:
                coming.pop()
            shards = wanted
    return result


HOURS = 4 * 3600  # duration of every case except the day, in seconds


def _draw(seconds: range, load: Callable[[int], float]) -> Trace:
    generator = random.Random(7)
    return [max(0.0, load(second) * generator.gauss(1, 0.05)) for second in seconds]


def _tide(at: int) -> float:
    return 600 + 500 * math.sin(2 * math.pi * (at / DAY - 0.25))


def _steps(at: int) -> float:
    return 1200 if (at // 3600) % 6 in {2, 3} else 0


def _bursts(at: int) -> float:
    return 2000 if at % 5400 < 90 else 0


def _flapping(at: int) -> float:
    return 900 if (at // 120) % 2 else 0


def _whole(at: int) -> float:
    return _tide(at) + _steps(at) + _bursts(at) + (_flapping(at) if 57_600 < at < 64_800 else 0)


def day(*, quick: bool = False) -> Case:
    """A day with a tide, steps, bursts and flapping. Measurements are lost twice. `quick`: three hours."""
    seconds = range(25_200, 36_000) if quick else range(DAY)
    lost = {at - seconds.start for at in (*range(31_000, 33_400), *range(70_000, 71_200)) if at in seconds}
    return Case("day", _draw(seconds, _whole), frozenset(lost))


def parts() -> list[Case]:
    """The parts of a day, one by one; the last ones suit queue depth better. In items/s; one shard does 500."""
    hours = range(HOURS)
    return [
        Case("steps", _draw(hours, lambda at: 300 + _steps(at))),
        Case("flapping", _draw(hours, lambda at: 300 + _flapping(at))),
        Case("lost-metrics", _draw(hours, lambda _: 1700), frozenset(range(6000, 8400))),
        Case("bursts", _draw(hours, lambda at: 300 + _bursts(at))),
        # Short peaks, a little more than one shard can do: a queue within its limit absorbs them.
        Case("short-peaks", _draw(hours, lambda at: 300 + (600 if at % 600 < 20 else 0))),
        Case("steady", _draw(hours, lambda _: 300)),
    ]


LIMITS = Autoscaling(min_shards=1, max_shards=16)
TARGETS = (100.0, 1000.0)  # items per pod that an HPA on queue depth may aim at


def policies() -> dict[str, Policy]:
    """Every policy in its initial state, by name."""
    policies_by_name: dict[str, Policy] = {"embedded": Embedded(LIMITS)}
    for target in TARGETS:
        policies_by_name[f"hpa-{target:g}"] = Hpa(LIMITS, target)
    # KEDA's activation and cooldown matter only at 0 shards; otherwise it is an HPA fed by KEDA's scaler.
    policies_by_name["keda"] = Hpa(LIMITS, TARGETS[0], lost_is_zero=True)
    return policies_by_name

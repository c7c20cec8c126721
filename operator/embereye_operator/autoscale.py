"""How many shards a fleet needs, from what its shards measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embereye.v1.shard_pb2 import Load
from embereye_operator.model import Autoscaling

CAPACITY = 1.0  # cores that one shard can use: it is one event loop
SECOND = 1_000_000_000  # nanoseconds
DEFAULT_LEAD = 10.0  # seconds until a new shard is ready, where none was measured


@dataclass(frozen=True)
class Measured:
    """What the law works on, of the whole fleet."""

    arrival_rate: float  # items/s
    cost: float  # CPU seconds per item
    backlog: int  # items
    oldest_age: float  # seconds
    utilization: float  # of one core, mean over the shards

    def inputs(self, lead: float) -> dict[str, float]:
        """For the status: what a decision was made on, rounded."""
        values = {
            "arrivalRate": self.arrival_rate,
            "cost": self.cost,
            "backlog": self.backlog,
            "oldestAge": self.oldest_age,
            "lead": lead,
        }
        return {name: float(f"{value:.3g}") for name, value in values.items()}


@dataclass(frozen=True)
class Decision:
    """How many shards there are to be, and why."""

    shards: int
    required: int  # what the law asks for, whoever decides
    reason: str


def measure(loads: Sequence[Load]) -> Measured | None:
    """The loads of all shards as one; None where there are none, and 'not known' is not 'nothing to do'."""
    if not loads:
        return None
    rate = sum(load.arrival_rate for load in loads)
    spent = sum(load.arrival_rate * load.cost_seconds for load in loads)
    mean = sum(load.cost_seconds for load in loads) / len(loads)
    return Measured(
        arrival_rate=rate,
        cost=spent / rate if rate else mean,
        backlog=sum(load.queue_depth for load in loads),
        oldest_age=max(load.oldest_age_ns for load in loads) / SECOND,
        utilization=sum(load.utilization for load in loads) / len(loads),
    )


def required_shards(
    measured: Measured, limits: Autoscaling, *, current: int, deadline: float, lead: float = DEFAULT_LEAD
) -> int:
    """`ceil((λ·c/u + backlog·c/catchUp + λ·c·lead/catchUp) / capacity)`, raised by hard limits, within min and max.

    λ items/s arrive at a cost of c CPU seconds each; u is the utilization to run at, so the first term keeps up. The
    second works the backlog off within catchUp, the third what will pile up during the `lead` seconds that a new
    shard takes. A queue above its depth, or an item older than half of `deadline` seconds, asks for one more than
    there are: cost may be measured wrongly, a growing queue is not.
    """
    catch_up = limits.catch_up / SECOND
    work = measured.arrival_rate * measured.cost
    cores = work / limits.target_utilization + measured.backlog * measured.cost / catch_up + work * lead / catch_up
    required = math.ceil(round(cores / CAPACITY, 6))
    if measured.backlog > limits.queue_depth * current or measured.oldest_age > deadline / 2:
        required = max(required, current + 1)
    return min(max(required, limits.min_shards), limits.max_shards)


def decide(
    limits: Autoscaling, spec_shards: int, loads: Mapping[str, Load], *, expected: Sequence[str], deadline: float
) -> Decision:
    """How many shards to run. For now that is spec.shards; `required` is the law's number where it is known.

    `expected` are the shards that should have measured: with one missing the law would see less load than there is,
    so it holds.
    """
    missing = [shard for shard in expected if shard not in loads]
    measured = None if missing else measure(list(loads.values()))
    if measured is None:
        reason = f"load is not known ({', '.join(missing) or 'no shards'}): holding at spec.shards = {spec_shards}"
        return Decision(spec_shards, spec_shards, reason)
    required = required_shards(measured, limits, current=max(1, len(expected)), deadline=deadline)
    return Decision(spec_shards, required, f"spec.shards = {spec_shards}")

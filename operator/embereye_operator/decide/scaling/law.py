"""The scaling law: the number of shards a fleet needs, from its shards' measurements.

In each pass, the loads of all shards become one `Measured`, whose arrivals, cost and backlog give the required shards
(`terms`). Then `Scaler` decides if the fleet follows: up after CONFIRM seconds, or at once in a burst; down only to the
highest result of a full stabilization window. A result only falls once the load is MARGIN below the boundary, so a load
that varies around it does not flip the result. Measurements of only some shards can add shards, but never remove any.
The `Scaler` is part of the fleet's memory; losing it only delays steps. Time is an argument, so that a trace replays
exactly.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from embereye.units import SECOND, counted
from embereye.v1.shard_pb2 import Load
from embereye_operator.api.shared import Autoscaling

CAPACITY = 1.0  # cores that one shard can use: a shard is one event loop
DEFAULT_LEAD = 10.0  # seconds until a new shard is ready; replaced by a measurement
CONFIRM = 4 * SECOND  # how long more shards must be required before an ordinary step up; a burst does not wait
PANIC_FACTOR = 1.5  # times the present shards; a requirement of so many is a burst
GAP = 20 * SECOND  # gap between measurements after which the stabilization window starts again
PANIC = 60 * SECOND  # time after a burst in which no shard is removed
MARGIN = 0.1  # shards; by how much the load must be below the boundary until fewer shards are required


@dataclass(frozen=True)
class Measured:
    """The law's measurements over the whole fleet."""

    arrival_rate: float  # items/s
    cost: float  # CPU seconds per item
    backlog: int  # items
    oldest_age: float  # seconds
    utilization: float  # of one core, mean over the shards

    def inputs(self, lead: float) -> dict[str, float]:
        """Return the rounded inputs of a decision, for the status."""
        values = {
            "arrivalRate": self.arrival_rate,
            "cost": self.cost,
            "backlog": self.backlog,
            "oldestAge": self.oldest_age,
            "lead": lead,
        }
        return {name: float(f"{value:.3g}") for name, value in values.items()}


@dataclass(frozen=True)
class Observed:
    """All inputs of one evaluation; a trace is a list of these."""

    time: int  # nanoseconds since the Unix epoch
    shards: int  # shards that should exist now
    measured: Measured | None  # None: no shard reported
    missing: tuple[str, ...] = ()  # shards that own devices and did not report
    lead: float = DEFAULT_LEAD  # seconds until a new shard is ready
    capacity: float = CAPACITY  # cores per shard


@dataclass(frozen=True)
class Decision:
    """The number of shards that should exist, and the reason."""

    shards: int
    required: int  # the law's result, even if another autoscaler decides
    reason: str
    known: bool = True  # False if there were too few measurements
    inputs: Mapping[str, float] = field(default_factory=dict)


def measure(loads: Sequence[Load]) -> Measured | None:
    """Combine the loads of all shards; None without any, because "unknown" is not "idle"."""
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


@dataclass(frozen=True)
class Terms:
    """The law's three terms, in cores."""

    keep_up: float
    backlog: float
    lead: float
    capacity: float  # cores per shard

    @property
    def load(self) -> float:
        """Return the load that the terms add up to, in shards."""
        return round((self.keep_up + self.backlog + self.lead) / self.capacity, 6)

    @property
    def shards(self) -> int:
        """Return the number of shards for the load."""
        return math.ceil(self.load)

    def __str__(self) -> str:
        return (
            f"ceil(({self.keep_up:.3g} to keep up + {self.backlog:.3g} for the backlog + {self.lead:.3g} for the time "
            f"a new shard takes) / {counted(self.capacity, 'core')}) = {self.shards}"
        )


def terms(measured: Measured, limits: Autoscaling, *, lead: float, capacity: float = CAPACITY) -> Terms:
    """Return the terms λ·c/u, backlog·c/catchUp and λ·c·lead/catchUp.

    λ items/s arrive at a cost of c CPU seconds each; u is the target utilization. The first term handles arrivals. The
    second works off the backlog within catchUp, the third the items that arrive during the `lead` seconds that a new
    shard takes.
    """
    catch_up = limits.catch_up / SECOND
    work = measured.arrival_rate * measured.cost
    return Terms(
        keep_up=work / limits.target_utilization,
        backlog=measured.backlog * measured.cost / catch_up,
        lead=work * lead / catch_up,
        capacity=capacity,
    )


def bounded(shards: int, limits: Autoscaling) -> int:
    """Return `shards` limited to minShards and maxShards."""
    return min(max(shards, limits.min_shards), limits.max_shards)


def why_bounded(shards: int, limits: Autoscaling) -> str:
    """Return the bound that changes `shards`, and its value; '' if none does."""
    within = bounded(shards, limits)
    if within == shards:
        return ""
    return f"{'minShards' if within > shards else 'maxShards'} makes it {within}"


def overrun(measured: Measured, limits: Autoscaling, *, current: int, deadline: float) -> str:
    """Return why more than `current` shards are needed regardless of the measured cost; '' if they are not.

    Costs may be measured wrongly, but not a queue above queueDepth, or an item older than half of `deadline` seconds.
    """
    if measured.backlog > limits.queue_depth * current:
        waiting = counted(measured.backlog, "item waits", "items wait")
        return f"{waiting}, more than queueDepth {limits.queue_depth} for each of {counted(current, 'shard')}"
    if measured.oldest_age > deadline / 2:
        return f"an item has waited {measured.oldest_age:.1f} s, more than half of the deadline of {deadline:g} s"
    return ""


def required_shards(
    measured: Measured,
    limits: Autoscaling,
    *,
    current: int,
    deadline: float,
    lead: float = DEFAULT_LEAD,
    capacity: float = CAPACITY,
) -> int:
    """Return `ceil((λ·c/u + backlog·c/catchUp + λ·c·lead/catchUp) / capacity)`, raised if overrun, bounded."""
    required = terms(measured, limits, lead=lead, capacity=capacity).shards
    if overrun(measured, limits, current=current, deadline=deadline):
        required = max(required, current + 1)
    return bounded(required, limits)


@dataclass
class Scaler:
    """Turns the law's results into steps: up once confirmed, or at once in a burst; down after the window.

    It remembers results; without a full window of them it removes no shard.
    """

    _results: deque[tuple[int, int]] = field(default_factory=deque)  # time, required; within the stabilization window
    _required: int = 0  # the latest confirmed result, without bounds
    _above: int = 0  # since when more shards are required; 0: they are not
    _panic: int = 0  # time of the latest burst
    _since: int = 0  # first result without a gap since
    _latest: int = 0  # latest result

    def decide(self, limits: Autoscaling, observed: Observed, deadline: float) -> Decision:
        """Decide the number of shards; `deadline` is the fleet's, in seconds."""
        now, current, measured = observed.time, observed.shards, observed.measured
        if measured is None:
            self._above = 0
            return self._unchanged(current, limits, "no shard reports its load")
        law = terms(measured, limits, lead=observed.lead, capacity=observed.capacity)
        why_more = overrun(measured, limits, current=current, deadline=deadline)
        unbounded = max(law.shards, current + 1) if why_more else self._steady(law)
        required = bounded(unbounded, limits)
        inputs = _inputs(measured, limits, observed)
        formula = f"{law}; {unbounded} until it is {MARGIN:g} lower" if unbounded > law.shards else str(law)
        text = "; ".join(filter(None, (why_more or formula, why_bounded(unbounded, limits))))
        if observed.missing:
            # The other shards' load is a lower bound: enough to add shards, never to remove any.
            missing = ", ".join(observed.missing[:5])
            if required <= current:
                return self._unchanged(current, limits, f"no load from {missing}")
            text = f"without {missing} already {text}"
        else:
            self._remember(now, required, limits)
        if required > current:
            shards, why = self._up(now, current, required, urgent=bool(why_more))
        else:
            self._above = 0
            shards, why = self._down(now, current, required, limits)
        if required <= max(current, shards):  # more shards must be confirmed first
            self._required = unbounded
        return Decision(shards, required, f"{why}{text}", inputs=inputs)

    def _steady(self, law: Terms) -> int:
        """Return the number of shards for the load, or the confirmed one if the load is hardly below its boundary."""
        is_close = 0 < law.shards < self._required and law.load > self._required - 1 - MARGIN
        return self._required if is_close else law.shards

    def _unchanged(self, current: int, limits: Autoscaling, why: str) -> Decision:
        # Bounds are the user's decision and need no measurement.
        shards = bounded(current, limits)
        reason = f"{why}: staying at {current}"
        if shards != current:
            reason = f"{why}, but minShards is {limits.min_shards} and maxShards is {limits.max_shards}"
        return Decision(shards, shards, reason, known=False)

    def _remember(self, now: int, required: int, limits: Autoscaling) -> None:
        window = limits.scale_down.stabilization
        if not self._results or not 0 <= now - self._latest <= GAP:
            # Unobserved time does not count, nor does time on a clock that was set back.
            self._results.clear()
            self._since = now
            self._above = 0
        self._latest = now
        # Only results that may become the highest stay: a falling sequence.
        while self._results and self._results[-1][1] <= required:
            self._results.pop()
        self._results.append((now, required))
        while self._results[0][0] < now - window:
            self._results.popleft()

    def _up(self, now: int, current: int, required: int, *, urgent: bool) -> tuple[int, str]:
        if not self._above or now < self._above:
            self._above = now
        if urgent or required >= PANIC_FACTOR * current:
            self._panic = now
            return required, "burst: "
        if now - self._above < CONFIRM:
            return current, "more shards are required, not confirmed yet:  "
        return required, ""

    def _down(self, now: int, current: int, required: int, limits: Autoscaling) -> tuple[int, str]:
        window = limits.scale_down.stabilization
        highest = max((result for _, result in self._results), default=required)
        if current > limits.max_shards:
            return limits.max_shards, f"maxShards is {limits.max_shards}: "
        if required == current:
            return current, ""
        if self._panic and 0 <= now - self._panic < PANIC:
            return current, f"a burst was {(now - self._panic) // SECOND} s ago: "
        if now - self._since < window:
            return current, f"observed too briefly, for {(window - now + self._since) // SECOND} s more:  "
        if highest >= current:
            return current, f"{highest} were needed within {window // SECOND} s: "
        return highest, f"no more than {highest} were needed for {window // SECOND} s: "


def _inputs(measured: Measured, limits: Autoscaling, observed: Observed) -> dict[str, float]:
    return {
        **measured.inputs(observed.lead),
        "utilization": float(f"{measured.utilization:.3g}"),
        "targetUtilization": limits.target_utilization,
        "catchUp": limits.catch_up / SECOND,
        "capacity": observed.capacity,
    }

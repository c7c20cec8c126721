"""How many shards a fleet needs, from what its shards measured."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from embereye.units import SECOND, counted
from embereye.v1.shard_pb2 import Load
from embereye_operator.api.shared import Autoscaling

CAPACITY = 1.0  # cores that one shard can use: it is one event loop
DEFAULT_LEAD = 10.0  # seconds until a new shard is ready, where none was measured
CONFIRM = 4 * SECOND  # that more must have been asked for before an ordinary step up; a burst is not waited for
PANIC_FACTOR = 1.5  # of what there is: asked for at once, this is a burst
GAP = 20 * SECOND  # without a measurement, after which watching starts anew
PANIC = 60 * SECOND  # after a burst, in which nothing is taken away


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
class Observed:
    """Everything that one evaluation is made on; a trace is a list of these."""

    time: int  # nanoseconds since the Unix epoch
    shards: int  # that there are to be now
    measured: Measured | None  # None: nobody told
    missing: tuple[str, ...] = ()  # shards that own devices and did not tell
    lead: float = DEFAULT_LEAD  # seconds until a new shard is ready
    capacity: float = CAPACITY  # cores per shard


@dataclass(frozen=True)
class Decision:
    """How many shards there are to be, and why."""

    shards: int
    required: int  # what the law asks for, whoever decides
    reason: str
    known: bool = True  # whether enough was measured to know what is required
    inputs: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Terms:
    """The law's three terms, in cores."""

    keep_up: float
    backlog: float
    lead: float
    capacity: float  # cores per shard

    @property
    def shards(self) -> int:
        """What they add up to."""
        return math.ceil(round((self.keep_up + self.backlog + self.lead) / self.capacity, 6))

    def __str__(self) -> str:
        return (
            f"ceil(({self.keep_up:.3g} to keep up + {self.backlog:.3g} for the backlog + {self.lead:.3g} for the time "
            f"a new shard takes) / {counted(self.capacity, 'core')}) = {self.shards}"
        )


def terms(measured: Measured, limits: Autoscaling, *, lead: float, capacity: float = CAPACITY) -> Terms:
    """λ·c/u, backlog·c/catchUp and λ·c·lead/catchUp.

    λ items/s arrive at a cost of c CPU seconds each; u is the utilization to run at, so the first term keeps up. The
    second works the backlog off within catchUp, the third what will pile up during the `lead` seconds that a new
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
    """`shards` within minShards and maxShards."""
    return min(max(shards, limits.min_shards), limits.max_shards)


def why_bounded(shards: int, limits: Autoscaling) -> str:
    """Which bound makes another number of `shards`, and what; '' where none does."""
    within = bounded(shards, limits)
    if within == shards:
        return ""
    return f"{'minShards' if within > shards else 'maxShards'} makes it {within}"


def overrun(measured: Measured, limits: Autoscaling, *, current: int, deadline: float) -> str:
    """Why there must be more than `current` shards whatever the cost says; '' where there need not be.

    Cost may be measured wrongly; a queue above its depth, or an item older than half of `deadline` seconds, is not.
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
    """`ceil((λ·c/u + backlog·c/catchUp + λ·c·lead/catchUp) / capacity)`, raised where overrun, within min and max."""
    required = terms(measured, limits, lead=lead, capacity=capacity).shards
    if overrun(measured, limits, current=current, deadline=deadline):
        required = max(required, current + 1)
    return bounded(required, limits)


@dataclass
class Scaler:
    """Makes steps out of what the law asks for: up when it is sure, at once in a burst, down when it has been so long.

    It remembers recommendations; one that starts without a memory takes nothing away until it has one.
    """

    _asked: deque[tuple[int, int]] = field(default_factory=deque)  # time, required: of the stabilization window
    _above: int = 0  # since when more is asked for than there is; 0: not
    _panic: int = 0  # when the latest burst was
    _since: int = 0  # since when recommendations are known
    _latest: int = 0  # until when

    def decide(self, limits: Autoscaling, observed: Observed, deadline: float) -> Decision:
        """What to run now; `deadline` is the fleet's, in seconds."""
        now, current, measured = observed.time, observed.shards, observed.measured
        if measured is None:
            self._above = 0
            return self._hold(current, limits, "no shard tells its load")
        sums = terms(measured, limits, lead=observed.lead, capacity=observed.capacity)
        why_more = overrun(measured, limits, current=current, deadline=deadline)
        asked = max(sums.shards, current + 1) if why_more else sums.shards
        required = bounded(asked, limits)
        inputs = _inputs(measured, limits, observed)
        text = "; ".join(filter(None, (why_more or str(sums), why_bounded(asked, limits))))
        if observed.missing:
            # What the others tell is the least there is: enough to add by it, never to take away.
            missing = ", ".join(observed.missing[:5])
            if required <= current:
                return self._hold(current, limits, f"no load from {missing}")
            text = f"without {missing} already {text}"
        else:
            self._remember(now, required, limits)
        if required > current:
            shards, why = self._up(now, current, required, urgent=bool(why_more))
        else:
            self._above = 0
            shards, why = self._down(now, current, required, limits)
        return Decision(shards, required, f"{why}{text}", inputs=inputs)

    def _hold(self, current: int, limits: Autoscaling, why: str) -> Decision:
        # Bounds are the user's word and need no measurement.
        shards = bounded(current, limits)
        held = f"{why}: holding {current}"
        if shards != current:
            held = f"{why}, but minShards is {limits.min_shards} and maxShards is {limits.max_shards}"
        return Decision(shards, shards, held, known=False)

    def _remember(self, now: int, required: int, limits: Autoscaling) -> None:
        window = limits.scale_down.stabilization
        if not self._asked or not 0 <= now - self._latest <= GAP:
            # What nobody saw was not watched; nor does a clock count that was set back.
            self._asked.clear()
            self._since = now
            self._above = 0
        self._latest = now
        # Only what may yet be the highest is kept: the first is, and those after it fall.
        while self._asked and self._asked[-1][1] <= required:
            self._asked.pop()
        self._asked.append((now, required))
        while self._asked[0][0] < now - window:
            self._asked.popleft()

    def _up(self, now: int, current: int, required: int, *, urgent: bool) -> tuple[int, str]:
        if not self._above or now < self._above:
            self._above = now
        if urgent or required >= PANIC_FACTOR * current:
            self._panic = now
            return required, "burst: "
        if now - self._above < CONFIRM:
            return current, "more for a moment only so far: "
        return required, ""

    def _down(self, now: int, current: int, required: int, limits: Autoscaling) -> tuple[int, str]:
        window = limits.scale_down.stabilization
        highest = max((asked for _, asked in self._asked), default=required)
        if current > limits.max_shards:
            return limits.max_shards, f"maxShards is {limits.max_shards}: "
        if required == current:
            return current, ""
        if self._panic and 0 <= now - self._panic < PANIC:
            return current, f"a burst was {(now - self._panic) // SECOND} s ago: "
        if now - self._since < window:
            return current, f"observed for too short a time, {(window - now + self._since) // SECOND} s to go: "
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

"""What the operator says about a fleet."""
# ruff: noqa: RUF009 (every field is made by `described`, which is dataclasses.field with a schema)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from embereye_operator.api.schema import Resource, described

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_DARK = 20
MAX_ADDRESSES = 200
MAX_MESSAGE = 4096  # characters of a condition's


@dataclass(frozen=True, slots=True)
class Condition(Resource):
    """The answer to one question about the fleet."""

    type: str = described("Which question.", max_length=63)
    status: ConditionStatus = described("The answer.")
    reason: str = described("Why, in one word.", default="", max_length=63)
    message: str = described("Why, in a sentence.", default="", max_length=MAX_MESSAGE)
    last_transition_time: str = described("When status last changed.", default="", format="date-time")
    observed_generation: int = described("Of the spec that was judged.", default=0, minimum=0)


@dataclass(frozen=True, slots=True)
class DarkDevice(Resource):
    """A declared device that is not covered."""

    id: str = described("The device.")
    zone: str = described("Its zone.", default="")
    reason: str = described("Why it is dark.", default="")


@dataclass(frozen=True, slots=True)
class DeviceSummary(Resource):
    """How many devices are watched."""

    declared: int = described("Devices in the fleet.", default=0)
    covered: int = described("Heard, analysed and able to see, within the deadline.", default=0)
    summary: str = described("covered/declared.", default="")
    dark: tuple[DarkDevice, ...] = described("The others, the first 20.", default=(), max_items=MAX_DARK)


@dataclass(frozen=True, slots=True)
class LoadSummary(Resource):
    """Measured by the shards, rounded."""

    arrival_rate: float = described("Items per second.", default=0.0)
    utilization: float = described("Of one core, mean over the shards.", default=0.0)
    queue_depth: int = described("Items waiting.", default=0)
    oldest_age: float = described("Seconds that the oldest item has waited.", default=0.0)
    cost: float = described("CPU seconds per item.", default=0.0)
    lead: float = described("Seconds until a new shard is ready.", default=0.0)


@dataclass(frozen=True, slots=True)
class LedgerSummary(Resource):
    """What became of everything its devices ever offered: offered = analysed + shed + duplicate + rejected."""

    time: str = described(
        "When it was so. It is written with other changes, when it has doubled, and when more was lost.",
        format="date-time",
    )
    offered: int = described("Packets or frames.", default=0)
    analysed: int = described("Of them, looked at.", default=0)
    shed: int = described("Of them, given up under overload.", default=0)
    duplicate: int = described("Of them, sent again though they had been taken.", default=0)
    rejected: int = described("Of them, not understood, or from an older sender.", default=0)


@dataclass(frozen=True, slots=True)
class LastScale(Resource):
    """The latest change of the number of shards."""

    time: str = described("When.", format="date-time")
    from_: int = described("Shards before.", default=0)
    to: int = described("Shards after.", default=0)
    reason: str = described("Why.", default="", max_length=1024)
    inputs: Mapping[str, float] = described("What it was decided on.", default=dict)


@dataclass(frozen=True, slots=True)
class ExposedAddress(Resource):
    """Where devices outside the cluster reach something of the fleet."""

    name: str = described("Of the Service or route.", max_length=253)
    protocol: Literal["grpc", "tcp", "tls", "rtp"] = described("Text lines: tcp, or tls where they are over TLS.")
    address: str = described("host:port.", max_length=300)
    device: str = described("The camera that pushes RTP there.", default="", max_length=63)
    shard: str = described("The shard that is reached there; empty: any.", default="", max_length=63)


@dataclass(frozen=True, slots=True)
class RolloutSummary(Resource):
    """How far a change of the shards' pods has got."""

    image: str = described("What its shards are to run.", default="", max_length=512)
    from_: str = described("What they were to run before.", default="", max_length=512)
    updated: int = described("Shards whose pod is as it is to be.", default=0)
    held: int = described("Shards that keep theirs for now.", default=0)
    why: str = described("What they wait for, or why it has failed.", default="", max_length=1024)


@dataclass(frozen=True, slots=True)
class HoldingOperator(Resource):
    """The operator that looks after a fleet; others leave it alone."""

    name: str = described("Its Lease: namespace/name.", max_length=320)
    image: str = described("What its shards run.", default="", max_length=512)


@dataclass(frozen=True, slots=True)
class FleetStatus(Resource):
    """What the operator says about a fleet."""

    operator: HoldingOperator | None = described("Who looks after it; others leave it alone.", default=None)
    observed_generation: int = described("Of the spec this status is about.", default=0)
    shards: int = described("Shards that exist.", default=0)
    ready_shards: int = described("Shards that work under the current placement.", default=0)
    selector: str = described("Label selector of the shards' pods, for HPA.", default="")
    devices: DeviceSummary = described("How many devices are watched.", default=DeviceSummary)
    load: LoadSummary | None = described("Measured by the shards.", default=None)
    ledger: LedgerSummary | None = described("What became of everything its devices ever offered.", default=None)
    required_shards: int = described("What the scaling law asks for.", default=0)
    last_scale: LastScale | None = described("The latest change of the number of shards.", default=None)
    placement_epoch: int = described("Grows with every change of placement or settings.", default=0)
    rollout: RolloutSummary | None = described("How far a change of its pods has got.", default=None)
    addresses: tuple[ExposedAddress, ...] = described(
        "Where devices outside the cluster reach it, where spec.expose says so: the fleet, its shards, then cameras "
        "that push RTP; the first 200.",
        default=(),
        max_items=MAX_ADDRESSES,
    )
    conditions: tuple[Condition, ...] = described("One per question.", default=(), list_key="type", max_items=16)

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type."""
        return next((condition for condition in self.conditions if condition.type == type_), None)

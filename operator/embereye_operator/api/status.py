"""The status of a fleet, as the operator writes it.

`decide/status.py` builds it in each pass, and commands and metrics read it. It is also memory for the next leader: the
operator that owns the fleet, the placement's epoch, and the device lists as last read. Lists in it are bounded, because
an object in etcd is.
"""

from collections.abc import Mapping
from typing import Literal

from embereye_operator.api.schema import Resource, described

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_DARK = 20
MAX_ADDRESSES = 200
MAX_DEVICE_LISTS = 400_000  # characters; an object in etcd has at most 1.5 MB
MAX_MESSAGE = 4096  # characters of a condition's message


DIFFERS = "CandidateDiffers"  # a condition


class Condition(Resource):
    """The answer to one question about the fleet."""

    type: str = described("The question.", max_length=63)
    status: ConditionStatus = described("The answer.")
    reason: str = described("The reason in one word.", default="", max_length=63)
    message: str = described("The reason in a sentence.", default="", max_length=MAX_MESSAGE)
    last_transition_time: str = described("Time of the latest change of status.", default="", format="date-time")
    observed_generation: int = described("Generation of the spec that it refers to.", default=0, between=(0, None))


class DarkDevice(Resource):
    """A declared device that is not covered."""

    id: str = described("The device.")
    zone: str = described("Its zone.", default="")
    reason: str = described("The reason why it is dark.", default="")


class DeviceSummary(Resource):
    """The number of watched devices."""

    declared: int = described("Devices in the fleet.", default=0)
    covered: int = described("Devices whose data arrived and was analysed within the deadline.", default=0)
    summary: str = described("covered/declared.", default="")
    dark: tuple[DarkDevice, ...] = described("The first 20 of the others.", default=(), max_items=MAX_DARK)


class LoadSummary(Resource):
    """The load measured by the shards, rounded."""

    arrival_rate: float = described("Items per second.", default=0.0)
    utilization: float = described("Share of one core, mean over the shards.", default=0.0)
    queue_depth: int = described("Items waiting.", default=0)
    oldest_age: float = described("Seconds that the oldest item has waited.", default=0.0)
    cost: float = described("CPU seconds per item.", default=0.0)
    lead: float = described("Seconds until a new shard is ready.", default=0.0)


class LedgerSummary(Resource):
    """The counts of all messages that its devices ever sent: offered = analysed + shed + duplicate + rejected."""

    time: str = described(
        "Time of the counts. They are written with other changes, once they double, and when losses grow.",
        format="date-time",
    )
    offered: int = described("Packets or frames received.", default=0)
    analysed: int = described("Analysed ones.", default=0)
    shed: int = described("Dropped under overload.", default=0)
    duplicate: int = described("Sent again after they had been accepted.", default=0)
    rejected: int = described("Malformed, or from an outdated sender.", default=0)


class LastScale(Resource):
    """The latest change of the number of shards."""

    time: str = described("Time of the change.", format="date-time")
    from_: int = described("Shards before.", default=0)
    to: int = described("Shards after.", default=0)
    reason: str = described("The reason.", default="", max_length=1024)
    inputs: Mapping[str, float] = described("Inputs of the decision.", default=dict)


class ExposedAddress(Resource):
    """An address at which devices outside the cluster reach the fleet."""

    name: str = described("Name of the Service or route.", max_length=253)
    protocol: Literal["grpc", "tcp", "tls", "http", "rtp"] = described(
        "tcp: text lines; tls: text lines over TLS; http: readings by HTTP."
    )
    address: str = described("host:port.", max_length=300)
    device: str = described("The camera that pushes RTP there.", default="", max_length=63)
    shard: str = described("The shard at this address; empty: any.", default="", max_length=63)


class RolloutSummary(Resource):
    """The progress of a change of the shards' pods."""

    image: str = described("The new image.", default="", max_length=512)
    from_: str = described("The previous image.", default="", max_length=512)
    updated: int = described("Shards with the new pod.", default=0)
    pending: int = described("Shards that still run the previous pod.", default=0, key="held")
    why: str = described("The reason why they wait, or why the roll-out failed.", default="", max_length=1024)


class HoldingOperator(Resource):
    """The operator that reconciles a fleet; others leave it alone."""

    name: str = described("Namespace/name of its Lease.", max_length=320)
    image: str = described("The image of its shards.", default="", max_length=512)


class FleetStatus(Resource):
    """The status of a fleet, as the operator writes it."""

    operator: HoldingOperator | None = described(
        "The operator that reconciles it; others leave it alone.", default=None
    )
    observed_generation: int = described("Generation of the spec that the status refers to.", default=0)
    last_observed: str | None = described(
        "Time of the observation that this status describes; renewed every 15 minutes if nothing changes.",
        default=None,
        format="date-time",
    )
    shards: int = described("Shards that exist.", default=0)
    ready_shards: int = described("Shards that work under the current placement.", default=0)
    selector: str = described("Label selector of the shards' pods, for HPA.", default="")
    devices: DeviceSummary = described("The number of watched devices.", default=DeviceSummary)
    load: LoadSummary | None = described(
        "The load measured by the shards, written when it doubles or halves, and with other changes.", default=None
    )
    ledger: LedgerSummary | None = described("The counts of all messages that its devices ever sent.", default=None)
    required_shards: int = described("The number of shards that the scaling law requires.", default=0)
    last_scale: LastScale | None = described("The latest change of the number of shards.", default=None)
    placement_epoch: int = described("Grows with every change of placement or settings.", default=0)
    rollout: RolloutSummary | None = described("The progress of a change of its pods.", default=None)
    addresses: tuple[ExposedAddress, ...] = described(
        "Addresses for devices outside the cluster, if spec.expose is set: of the fleet, its shards, then of cameras "
        "that push RTP; the first 200.",
        default=(),
        max_items=MAX_ADDRESSES,
    )
    device_lists: str = described(
        "The devices of its ConfigMaps at the latest reading, compressed: they stay declared if a list is lost.",
        default="",
        max_length=MAX_DEVICE_LISTS,
    )
    conditions: tuple[Condition, ...] = described("One per question.", default=(), list_key="type", max_items=16)

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of that type."""
        return next((condition for condition in self.conditions if condition.type == type_), None)

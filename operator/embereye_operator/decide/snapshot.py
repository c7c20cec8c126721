"""What a pass over a fleet found: all that it decides on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embereye.v1.shard_pb2 import ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.placement.record import PlacementRecord

Identity = tuple[str, str]  # kind, name


def identity(manifest: Mapping[str, Any]) -> Identity:
    """Kind and name: what tells a fleet's children apart."""
    return manifest["kind"], manifest["metadata"]["name"]


@dataclass(frozen=True)
class Snapshot:
    """A fleet and what there is of it, at one moment."""

    fleet: Fleet
    now: int  # nanoseconds since the Unix epoch, on a timeline that nobody sets
    previous: FleetStatus  # as it was written last
    versions: Mapping[Identity, str]  # of the objects that all this was read from; an empty one says nothing
    record: PlacementRecord  # of the placement; assignments only where they had to be read
    existing: Sequence[str]  # shards that there are, by index
    devices: Sequence[Device]  # all that are declared, by id
    declared_by: tuple[Any, ...]  # what `devices` follows from; empty where a list of devices could not be read
    statuses: Mapping[str, ShardStatus | None]  # by shard; None: no answer
    weights: Mapping[str, float]  # device id → cores; empty until they are known
    displaced: Mapping[str, Displaced]  # shards on nodes that are being emptied, or lost
    waiting: Mapping[str, str]  # shards that do not run → why, as far as anybody knows
    sees_nodes: bool  # whether `displaced` can know
    offered: Sequence[str]  # kinds of objects that can exist here, of those that not every cluster knows
    rivals: Sequence[str]  # autoscalers that are none of ours
    hub: NamedHub | None = None  # that it reports to; None: it cannot be told which, and all stays as it is
    hub_address: str = ""  # of `hub`, without a name; "" where that is not known
    hub_epoch: int = 0  # of the roster that it has of the fleet, or of a namesake before; 0: none is known of
    stepped: int = 0  # nanoseconds that the wall clock is ahead of `now`

    @property
    def label(self) -> int:
        """The moment as people's clocks have it."""
        return self.now + self.stepped

    @property
    def held(self) -> bool:
        """Whether everything is to stay as it is: people want that, or have to say first which hub it reports to."""
        return self.fleet.spec.paused or self.hub is None

    @property
    def leaving_nodes(self) -> dict[str, Displaced]:
        """Shards that a roll moves to another node."""
        return {shard: pod for shard, pod in self.displaced.items() if not pod.comes_back}

    @property
    def dead(self) -> set[str]:
        """Shards whose node does not run any more: they are not merely out of the operator's reach."""
        return {shard for shard, pod in self.displaced.items() if pod.lost}

    @property
    def evictable(self) -> bool:
        """Whether evictions have to be let through, since no roll can take their place."""
        return not self.sees_nodes or any(pod.comes_back for pod in self.displaced.values())

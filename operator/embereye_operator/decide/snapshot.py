"""A snapshot of one fleet: everything that a pass over it decides on.

`read_snapshot` builds it at the beginning of a pass, and no step changes it. Decisions use only this object and the
fleet's memory, so all of them agree on one moment. Shards that the pass assigns report again; their newer answers are
in `Applier`, not here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """Return the kind and name, which identify a child within its fleet."""
    return manifest["kind"], manifest["metadata"]["name"]


@dataclass(frozen=True)
class Snapshot:
    """A fleet and its objects, shards and devices at one moment."""

    fleet: Fleet
    now: int  # nanoseconds since the Unix epoch, on a clock that no person sets
    previous: FleetStatus  # the status as last written
    versions: Mapping[Identity, str]  # resource versions of the objects read; "" if unknown
    record: PlacementRecord  # the placement; with assignments only if they had to be read
    existing: Sequence[str]  # existing shards, by index
    devices: Sequence[Device]  # the declared devices that shards can watch, by id
    incomplete: Sequence[Device]  # other declared devices, whose settings were lost with their list
    unknown_lists: Sequence[str]  # a sentence for each list that cannot be read and whose devices are unknown
    declared_by: tuple[Any, ...]  # the inputs of `devices`; empty if a list of devices could not be read
    statuses: Mapping[str, ShardStatus | None]  # by shard; None: no answer
    weights: Mapping[str, float]  # device id → cores; empty until measured
    offered: Sequence[str]  # optional kinds of objects that this cluster has
    waiting: Mapping[str, str]  # shard that does not run → known reason
    displaced: Mapping[str, Displaced] = field(default_factory=dict)  # shards on drained or lost nodes
    can_see_nodes: bool = True  # False if `displaced` is always empty
    rivals: Sequence[str] = ()  # autoscalers that the operator did not create
    hub: NamedHub | None = None  # the fleet's hub; None: unknown, so nothing is changed
    hub_address: str = ""  # IP address and port of `hub`; "" if unknown
    hub_epoch: int = 0  # of the hub's roster for this name, maybe of a deleted namesake; 0: none known
    is_reaching_people: bool | None = None  # True if all routes of `hub` to people work; None: unknown, or it has none
    stepped: int = 0  # nanoseconds; wall clock minus `now`
    problems: Mapping[str, str] = field(default_factory=dict)  # reason → sentence; found while reading, worst first

    @property
    def wall_time_ns(self) -> int:
        """The current wall-clock time, for people, in nanoseconds since the Unix epoch."""
        return self.now + self.stepped

    @property
    def frozen(self) -> bool:
        """True if nothing may change: the fleet is paused, or its hub is unknown."""
        return self.fleet.spec.paused or self.hub is None

    @property
    def leaving_nodes(self) -> dict[str, Displaced]:
        """Return the shards that a roll-out moves to another node."""
        return {shard: pod for shard, pod in self.displaced.items() if not pod.comes_back}

    @property
    def dead(self) -> set[str]:
        """Return the shards on lost nodes: they have stopped, and are not merely unreachable for the operator."""
        return {shard for shard, pod in self.displaced.items() if pod.lost}

    @property
    def evictable(self) -> bool:
        """True if evictions must be allowed because no roll-out can replace them."""
        return not self.can_see_nodes or any(pod.comes_back for pod in self.displaced.values())

"""The interfaces between `reconcile` and the place that runs fleets: a cluster, or this machine.

All methods run on the event loop and may be called concurrently. All runtimes represent manifests as plain dictionaries
in Kubernetes' form.

A pass gets one `Runtime` of four parts: `World` reads, `Writer` writes, `Links` calls shards and hubs, and `Cluster`
has everything that only Kubernetes offers. So `reconcile` and all decisions are the same for pods and local processes.
RefusedError means that retries alone will not help, UnavailableError that they may.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.cluster.witnesses import Statements


class World(Protocol):
    """The fleets' existing objects."""

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """Return kind and name → version of everything in `children` and `config_maps`; "" if a version is unknown."""

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """Return the fleet's existing children: Deployments, Services, the placement ConfigMap, and so on.

        A Deployment's `status.availableReplicas` is 0 or absent only if its shard certainly does not run.
        """

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """Return the address of `shard` for other shards and devices: part of assignments, so it must rarely change."""

    def is_offered(self, kind: str) -> bool:
        """True if the cluster can contain objects of `kind`: some need CustomResourceDefinitions of other projects."""


class Writer(Protocol):
    """The changes to objects."""

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """Write the object with the fields of `manifest`, and remove fields of an earlier manifest that this one omits.

        RefusedError if that is not allowed. `new`: `children` did not return it; TakenError if an object of its name
        exists all the same and belongs to somebody else. With a `metadata.resourceVersion`, write only if the object
        still has it. Returns the stored object: admission may have changed it.
        """

    async def delete(self, manifest: Manifest) -> None:
        """Delete a child that `children` returned; no error if it is gone. Its shard drains first.

        RefusedError if that is not allowed.
        """

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """Set spec.shards with the scale subresource, only if it still has the value in `fleet`.

        RefusedError if that is not allowed.
        """

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        """Replace the fleet's status. RefusedError if that is not allowed."""

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record a Kubernetes Event about the fleet for people."""


class Links(Protocol):
    """The calls to shards and hubs, and the certificates for them."""

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """Issue a certificate for each of the fleet's `shards`, and delete those of deleted shards.

        UnavailableError, RefusedError: shards without a certificate cannot start; the others are not affected.
        """

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """Return the epoch of a hub's roster for the fleet, if known, else 0. The hub accepts no older roster."""

    def is_reaching_people(self, hub: str) -> bool | None:
        """True if all of a hub's routes to people work; None if that is unknown, or it has none."""

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """Query the shard's status with all its devices; None if it does not answer within two seconds."""

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """Send a shard its assignment directly, faster than its mounted file; None if it cannot be reached."""

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """Report all declared devices to a hub, by its name ("": the release's default hub).

        UnavailableError if the hub cannot be reached.
        Returns the hub's ledger of all messages of the fleet's devices; None if it has none.
        """

    async def report_scaling(self, scaling: FleetScaling) -> None:
        """Report the fleet's load to the hub; UnavailableError if it cannot be reached."""

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make every hub forget all fleets but these keys, and fleets that now belong to another hub.

        UnavailableError if a hub cannot be reached.
        """


class Cluster(Protocol):
    """The parts that only a cluster has: nodes, autoscalers, and other people's objects."""

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """Return the data of the ConfigMaps in `sensorsFrom` or `camerasFrom` by name; missing ones are left out."""

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str]:
        """Return the Secrets in the fleet's namespace that fleets may use."""

    def hub_address(self, name: str) -> str:
        """Return the IP address of a hub, by its name, for shards that cannot resolve names; "" if unknown."""

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """Return autoscalers that target the fleet and are not its children, as "HorizontalPodAutoscaler NAME"."""

    @property
    def can_see_nodes(self) -> bool:
        """False if `displaced` is always empty; evictions must be allowed then."""

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """Return the shards whose pods are on drained or lost nodes."""

    def statements(self, fleet: Fleet, shards: Iterable[str]) -> Statements:
        """Return which of `shards` the hub hears, and which ones neither the hub nor the operator hears."""

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        """Return shard → a sentence with the known reason why it does not run, for shards that do not answer."""

    def missing_rights(self, fleet: Fleet) -> str:
        """Return a sentence with the rights that the operator misses in the fleet's namespace; "" if there are none."""

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """Merge `pod` into the pod template of a child that `children` returned, and change only that."""

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """Return the owner reference for the fleet's disruption budget; None: the fleet owns it."""


@dataclass(frozen=True)
class Runtime:
    """Everything that a pass over a fleet reads, writes and calls; without `cluster` on a single machine."""

    world: World
    writer: Writer
    links: Links
    cluster: Cluster | None = None

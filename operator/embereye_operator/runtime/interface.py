"""What `reconcile` needs of the place that decisions are applied to."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.nodes import Displaced


class Runtime(Protocol):
    """Everything `reconcile` reads and does. All methods run on the event loop and may be called concurrently.

    Manifests are plain dictionaries in the form that Kubernetes stores them, for all runtimes.
    """

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """Kind and name → version, of all that `children` and `config_maps` would tell; an empty one says nothing."""
        ...

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """What exists of the fleet's children: Deployments, Services, the placement ConfigMap, and so on.

        A Deployment's `status.availableReplicas` is 0 or absent only where its shard surely does not run.
        """
        ...

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """Make the object exist with the fields of `manifest`, and without those that an earlier one of ours had more.

        RefusedError where that is not allowed. `new`: `children` did not return it; TakenError where there is an object
        of its name all the same, which is somebody else's then.
        A `metadata.resourceVersion` in it means: only if that is still the object's version.
        Returns the object as it is then: admission may have made something else of it than `manifest` says.
        """
        ...

    async def delete(self, manifest: Manifest) -> None:
        """Delete a child that `children` returned; no error where it is gone. Its shard drains first.

        RefusedError where that is not allowed.
        """
        ...

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """The data of the ConfigMaps that `sensorsFrom` or `camerasFrom` name, by name; missing ones are left out."""
        ...

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str] | None:
        """The Secrets of the fleet's namespace whose owners let fleets use them; None: nobody is asked."""
        ...

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """Give each of the fleet's `shards` a certificate, and take away those of shards that are gone.

        UnavailableError, RefusedError: a shard that has none yet does not start then, and the others go on.
        """
        ...

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """Where other shards and devices reach `shard`: goes into assignments, so it must not change without need."""
        ...

    def hub_address(self, name: str) -> str:
        """Where shards reach a hub, by its name, without asking for names; "" where that is not known."""
        ...

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """The epoch of the fleet's roster that a hub has, as far as it said; 0: none. It takes no older one."""
        ...

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """The shard's own word, with each device; None where it cannot be had within about a second."""
        ...

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """Give a shard its assignment without waiting for its file; None where it cannot be reached."""
        ...

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """Set spec.shards by the scale subresource, only where it still is what `fleet` says.

        RefusedError where that is not allowed.
        """
        ...

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """Autoscalers that target the fleet and are not its children: "HorizontalPodAutoscaler NAME"."""
        ...

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """Shards whose pod is on a node that is being emptied, or lost."""
        ...

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        """Why shards that do not answer do not run, as far as anybody knows: shard → a sentence for people."""
        ...

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """Merge `pod` into the pod template of a child that `children` returned, and change nothing else."""
        ...

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """The owner reference that makes the fleet's disruption budget go with the operator; None: the fleet's."""
        ...

    @property
    def sees_nodes(self) -> bool:
        """Whether `displaced` can know; if not, evictions must be let through."""
        ...

    def offers(self, kind: str) -> bool:
        """Whether objects of `kind` can exist here: some need a CustomResourceDefinition of somebody else's."""
        ...

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        """Replace the fleet's status."""
        ...

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """Tell a hub, by its name ("": the release's own), which devices ought to be watched.

        UnavailableError where it cannot be told.

        Returns what the hub knows of everything that the fleet's devices offered; None where it does not say.
        """
        ...

    async def tell_scaling(self, scaling: FleetScaling) -> None:
        """Tell the hub how busy a fleet is; UnavailableError where it cannot be told."""
        ...

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make every hub forget the fleets whose key is not named, and those that were told to another one.

        UnavailableError where one cannot be told.
        """
        ...

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Tell people that something about the fleet changed."""
        ...

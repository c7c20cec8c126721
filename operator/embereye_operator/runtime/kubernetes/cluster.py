"""The parts of an API server that only a cluster has: nodes, other people's objects, disruption budgets' owners.

It joins the answers of `Nodes`, `Guard`, the world and the links for passes, which only read what background tasks have
found. The controller calls `check_nodes` and `guard_budgets` periodically, and reconciles the fleets whose shards
cannot stay where they are. Among other people's Secrets, it lists only those with the label that allows fleets to use
them.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightkube import AsyncClient

from embereye_operator.api.fleets import FLEET_TYPES, Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.cluster.witnesses import Statements
from embereye_operator.decide.manifests.names import LABEL_ALLOWED
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey
from embereye_operator.runtime.kubernetes.client.resources import CHUNK, SECRETS
from embereye_operator.runtime.kubernetes.fence import Fence
from embereye_operator.runtime.kubernetes.guard import Guard
from embereye_operator.runtime.kubernetes.links import KubernetesLinks
from embereye_operator.runtime.kubernetes.nodes import Nodes, Shard
from embereye_operator.runtime.kubernetes.world import KubernetesWorld, fleet_key
from embereye_operator.runtime.kubernetes.writer import KubernetesWriter

MARKS_SECONDS = 10.0  # seconds between reads of the Secrets that fleets may use
ALLOWED: Any = {LABEL_ALLOWED: "true"}


@dataclass(eq=False)
class KubernetesCluster:
    """Implements `interface.Cluster`."""

    client: AsyncClient
    world: KubernetesWorld
    writer: KubernetesWriter
    links: KubernetesLinks
    fence: Fence
    guard: Guard
    nodes: Nodes  # watched if `can_see_nodes`
    can_see_nodes: bool  # an operator for some namespaces needs another right for that
    # By namespace, until a time in monotonic seconds.
    _allowed: dict[str, tuple[frozenset[str], float]] = field(default_factory=dict)

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """See Cluster."""
        return self.world.rivals.get(fleet_key(fleet), ())

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """See Cluster."""
        return self.nodes.displaced.get((fleet.namespace, fleet.names.label), {})

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        """See Cluster."""
        return self.nodes.waiting.get((fleet.namespace, fleet.names.label), {})

    def statements(self, fleet: Fleet, shards: Iterable[str]) -> Statements:
        """See Cluster."""
        return self.links.silence.statements(fleet, shards)

    def missing_rights(self, fleet: Fleet) -> str:
        """See Cluster."""
        return self.world.rights.why_missing(fleet.namespace)

    async def check_nodes(self, silent: Collection[Shard], unheard: Collection[Shard] = ()) -> list[ObjectKey]:
        """Find shards, and the hub, on drained or lost nodes; call it every few seconds.

        `silent` are shards that do not answer, `unheard` those that no hub hears either. Returns the affected fleets.
        """
        self.fence()
        fleets = []
        if self.can_see_nodes:
            for namespace, label in await self.nodes.find_displaced(silent, unheard):
                kind, _, name = label.partition(".")
                fleets += [(type_.resource, namespace, name) for type_ in FLEET_TYPES.values() if type_.kind == kind]
        await self.links.diagnose_hubs()
        return fleets

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """See Cluster."""
        return await self.world.config_maps(fleet)

    def hub_address(self, name: str) -> str:
        """See Cluster."""
        return self.links.hub_address(name)

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """See Cluster."""
        await self.writer.roll(deployment, pod)

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """See Cluster."""
        self.fence()
        return await self.guard.reference(fleet.namespace)

    async def guard_budgets(self) -> None:
        """Renew the budgets' owner, and delete budgets of deleted fleets; call it periodically."""
        self.fence()
        objects = self.world.cache.objects
        fleets = {(key[1], f"{FLEET_TYPES[key[0]].kind}.{key[2]}") for key in objects if key[0] in FLEET_TYPES}
        await self.guard.renew({namespace for namespace, _ in fleets})
        for key, stored in list(objects.items()):
            if key[0] != "PodDisruptionBudget" or not stored.label or (key[1], stored.label) in fleets:
                continue
            if (
                not stored.deleting
                and key[1] not in self.world.unseen
                and self.guard.is_owner_of(budget := stored.manifest())
            ):
                await self.writer.delete(budget)

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str]:
        """See Cluster. The operator reads only these among other people's Secrets, every MARKS_SECONDS."""
        names, until = self._allowed.get(fleet.namespace, (frozenset(), 0.0))
        if time.monotonic() >= until:
            listed = self.client.list(SECRETS, namespace=fleet.namespace, labels=ALLOWED, chunk_size=CHUNK)
            names = frozenset([secret["metadata"]["name"] async for secret in listed])
            self._allowed[fleet.namespace] = names, time.monotonic() + MARKS_SECONDS
        return names

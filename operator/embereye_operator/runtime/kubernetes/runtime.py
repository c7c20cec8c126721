"""The Kubernetes runtime, assembled: reads from a cache, writes with server-side apply, and calls over gRPC.

`build_runtime` creates the four parts of a `Runtime` around one client, one cache and one fence, so that all agree on
the objects and on who leads. Its owner, the controller, lists everything with `resync` before the first pass, because
passes read the cache.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lightkube import AsyncClient

from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.runtime.interface import Runtime
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES
from embereye_operator.runtime.kubernetes.cluster import KubernetesCluster
from embereye_operator.runtime.kubernetes.fence import Fence
from embereye_operator.runtime.kubernetes.guard import Guard
from embereye_operator.runtime.kubernetes.identities import Identities
from embereye_operator.runtime.kubernetes.links import KubernetesLinks
from embereye_operator.runtime.kubernetes.nodes import Nodes
from embereye_operator.runtime.kubernetes.world import KubernetesWorld
from embereye_operator.runtime.kubernetes.writer import KubernetesWriter


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """The operator's options for a Kubernetes runtime."""

    hub: str  # host:port of the release's default hub
    hubs: Sequence[NamedHub] = ()  # additional hubs
    namespaces: Sequence[str] = (ALL_NAMESPACES,)
    is_selected: Callable[[Mapping[str, str]], bool] = lambda _: True  # true for the labels of the operator's fleets
    operator: str = ""  # the name that owned fleets have in their status; empty: the operator can own none
    is_leading: Callable[[], bool] = lambda: True  # checked before every write, which must not follow a lost lead
    resolve: Callable[[Fleet, str], str] | None = None  # the address for calls to a shard; None: its Service
    role: str = ""  # the operator's role, which owns disruption budgets; empty: only their fleets own them
    image: str = ""  # of the budgets' Jobs
    # Namespace and name of the release whose certificates processes use; None: no certificates.
    release: tuple[str, str] | None = None
    watches_nodes: bool = False  # nodes may be read although not all namespaces are watched
    authority_secret: str = ""  # Secret of an external certificate authority; empty: the operator creates one
    hub_names: tuple[str, ...] = ()  # host names that people use for the hub, for its certificate


@dataclass(frozen=True)
class KubernetesRuntime(Runtime):
    """A `Runtime` of an API server. Its owner calls `resync` first and then periodically."""

    world: KubernetesWorld
    writer: KubernetesWriter
    links: KubernetesLinks
    cluster: KubernetesCluster
    client: AsyncClient = field(kw_only=True)

    async def resync(self) -> list[ObjectKey]:
        """List all objects and return what the watches have missed; the first call fills the cache."""
        missed = await self.world.resync()
        await self.links.resync()
        return missed

    async def close(self) -> None:
        """Write the waiting Events, and close all connections."""
        await self.writer.close()
        await self.links.close()
        await self.client.close()


def build_runtime(
    client: AsyncClient,
    options: KubernetesOptions,
    world_type: type[KubernetesWorld] = KubernetesWorld,
    links_type: type[KubernetesLinks] = KubernetesLinks,
) -> KubernetesRuntime:
    """Build a runtime of the API server of `client`."""
    everywhere = ALL_NAMESPACES in options.namespaces
    world = world_type(client, options.namespaces, options.is_selected)
    fence = Fence(world.cache, options.is_leading, options.operator)
    nodes = Nodes(client, () if everywhere else options.namespaces)
    identities = None
    if options.release:
        identities = Identities(
            client,
            namespace=options.release[0],
            name=options.release[1],
            fence=fence,
            issued=options.authority_secret,
            hub_names=options.hub_names,
            hubs=options.hubs,
        )
    hubs = {"": options.hub, **{named.name: named.address for named in options.hubs}}
    links = links_type(
        client,
        world,
        nodes,
        fence,
        hubs=hubs,
        identities=identities,
        namespaces=options.namespaces,
        resolve=options.resolve,
    )
    writer = KubernetesWriter(client, world, fence)
    guard = Guard(client, options.role, options.image, cluster_wide=everywhere)
    can_see_nodes = options.watches_nodes or everywhere
    cluster = KubernetesCluster(
        client, world, writer, links, fence, guard=guard, nodes=nodes, can_see_nodes=can_see_nodes
    )
    return KubernetesRuntime(world, writer, links, cluster, client=client)

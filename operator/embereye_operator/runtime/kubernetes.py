"""A Kubernetes API server as the runtime: server-side apply out, a cache fed by watches in."""

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import GenericNamespacedResource, create_api_info
from lightkube.types import CascadeType, PatchType

from embereye.v1.roster_pb2 import FleetLedger, FleetRoster
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.manifests import LABEL_MANAGED_BY, MANAGED_BY, fleet_label, peer_address
from embereye_operator.model import API_VERSION, FLEET_TYPES, GROUP, VERSION, Fleet
from embereye_operator.nodes import Displaced
from embereye_operator.runtime import NotLeadingError, RefusedError, UnavailableError
from embereye_operator.runtime.cache import Cache, ObjectKey, Stored, key_of, label_of, version_of
from embereye_operator.runtime.guard import Guard
from embereye_operator.runtime.hub_pods import HubPods
from embereye_operator.runtime.links import Hub, Shards
from embereye_operator.runtime.nodes import EVERYWHERE, Nodes, Shard
from embereye_operator.schema import Manifest
from embereye_operator.status import timestamp

logger = logging.getLogger(__name__)
ABSENT_SECONDS = 10.0  # how long a ConfigMap that was not there is believed to be absent without an event
CHUNK = 50  # objects of one answer to a list: a larger one takes more memory than all that is kept of it
ALL_NAMESPACES = EVERYWHERE
Kind = type[GenericNamespacedResource]


def _resource(group: str, version: str, kind: str, plural: str) -> Kind:
    # Not by lightkube's registry, which has its own ConfigMap: ours are plain dictionaries throughout.
    info = create_api_info(group, version, kind, plural)
    return type(kind, (GenericNamespacedResource,), {"_api_info": info})


CHILDREN: Mapping[str, Kind] = {
    "Deployment": _resource("apps", "v1", "Deployment", "deployments"),
    "Service": _resource("", "v1", "Service", "services"),
    "ConfigMap": _resource("", "v1", "ConfigMap", "configmaps"),
    "PodDisruptionBudget": _resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    "NetworkPolicy": _resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    "HorizontalPodAutoscaler": _resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    "ServiceMonitor": _resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    "PrometheusRule": _resource("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    "ScaledObject": _resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
}
UNWATCHED = ("NetworkPolicy", "HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule", "ScaledObject")
OPTIONAL = ("ServiceMonitor", "PrometheusRule", "ScaledObject")  # their CustomResourceDefinitions are others'
FLEETS: Mapping[str, Kind] = {
    name: _resource(GROUP, VERSION, name, fleet.plural) for name, fleet in FLEET_TYPES.items()
}
EVENTS: Any = _resource("", "v1", "Event", "events")


def _subresource(kind: Kind, action: str) -> Any:
    info = kind._api_info
    sub = create_api_info(info.resource.group, info.resource.version, info.resource.kind, info.plural)
    sub.action, sub.parent = action, info.resource
    return type(f"{kind.__name__}{action}", (GenericNamespacedResource,), {"_api_info": sub})


STATUSES: Mapping[str, Any] = {name: _subresource(kind, "status") for name, kind in FLEETS.items()}
SCALES: Mapping[str, Any] = {name: _subresource(kind, "scale") for name, kind in FLEETS.items()}


class KubernetesRuntime:
    """Implements `runtime.Runtime`. The owner feeds `cache` from watches and calls `resync` first and now and then."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        hub: str,
        namespace: str = ALL_NAMESPACES,
        resolve: Callable[[Fleet, str], str] | None = None,
        leads: Callable[[], bool] = lambda: True,
        role: str = "",
    ) -> None:
        """`resolve` gives the address that the operator itself calls a shard at; by default its Service.

        `leads` is asked before every write: one that was decided on while leading must not come after. `role` is the
        operator's own, with which the disruption budgets go; "": they go with their fleets alone.
        """
        self.cache = Cache()
        self._client = client
        self._namespace = namespace
        self._resolve = resolve or (lambda fleet, shard: peer_address(fleet, shard).grpc)
        self._leads = leads
        self._shards = Shards()
        self._hub = Hub(hub)
        self._offered: set[str] = set()  # kinds that the server knows
        self._rivals: dict[ObjectKey, list[str]] = {}  # fleet → autoscalers that are not ours
        self.nodes = Nodes(client)
        self._guard = Guard(client, role, "" if namespace == ALL_NAMESPACES else namespace)
        self._hub_pods = HubPods(client, hub, self.nodes)
        self._absent: dict[tuple[str, str], float] = {}  # ConfigMaps that were not there → monotonic seconds
        self._referenced: dict[tuple[str, str], set[ObjectKey]] = {}  # ConfigMap → fleets that name it

    async def close(self) -> None:
        """Close all connections."""
        await self._shards.close()
        await self._hub.close()
        await self._client.close()

    # --- observing ---

    async def resync(self) -> list[ObjectKey]:
        """List what watches ought to have told; returns what they had not. Also the first fill of the cache."""
        news: list[ObjectKey] = []
        for name in (*FLEETS, *CHILDREN):
            try:
                news += await self._list(name)
            except httpx.HTTPStatusError as error:  # ApiError is one
                # Without its CustomResourceDefinition the server knows no such path; without the right it says so.
                if name not in OPTIONAL or error.response.status_code not in {403, 404}:
                    raise
                self._offered.discard(name)
            else:
                self._offered.add(name)
        await self._shards.close_idle()
        return news

    async def _list(self, name: str) -> list[ObjectKey]:
        kind = FLEETS.get(name) or CHILDREN[name]
        # Autoscalers of other people are looked at, too: two of them must not pull at one fleet.
        ours = name in CHILDREN and name != "HorizontalPodAutoscaler"
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY} if ours else None
        listed = self._client.list(kind, namespace=self._namespace, labels=labels, chunk_size=CHUNK)
        # Items of a list do not say what they are.
        found, news = [], []
        rivals: dict[ObjectKey, list[str]] = defaultdict(list)
        async for manifest in listed:
            key = name, sys.intern(manifest["metadata"]["namespace"]), manifest["metadata"]["name"]
            if name == "HorizontalPodAutoscaler" and not label_of(manifest):
                target = manifest["spec"].get("scaleTargetRef") or {}
                rivals[target.get("kind", ""), key[1], target.get("name", "")].append(f"{name} {key[2]}")
                continue
            found.append(key)
            if self.cache.put({**manifest, "kind": name, "apiVersion": _api_version(kind)}):
                news.append(key)
        if name == "HorizontalPodAutoscaler":
            self._rivals = dict(rivals)
        news += self.cache.replace(name, found, int(listed.resourceVersion))
        return [] if name in UNWATCHED and name in self._offered else news

    def observe(self, type_: str | None, manifest: Manifest) -> set[ObjectKey]:
        """Take a watch event; returns the fleets that it concerns."""
        kind, namespace, name = key = key_of(manifest)
        if kind == "ConfigMap" and not label_of(manifest):
            self._absent.pop((namespace, name), None)
            concerned = self._referenced.get((namespace, name), set())
            if not concerned:
                return set()  # somebody else's
        else:
            concerned = {key} if kind in FLEET_TYPES else set(_owner(manifest))
        news = self.cache.drop(key, version_of(manifest)) if type_ == "DELETED" else self.cache.put(manifest)
        return set(concerned) if news else set()

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """See Runtime."""
        return [stored.manifest() for _, stored in self.cache.of_fleet(fleet)]

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """See Runtime."""
        found = {(key[0], key[2]): str(stored.version) for key, stored in self.cache.of_fleet(fleet)}
        for reference in fleet.devices_from:
            name = reference.config_map_ref.name
            stored = await self._config_map(fleet, name)
            found["ConfigMap", name] = str(stored.version) if stored else "absent"
        return found

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """See Runtime."""
        found = {}
        for name in {reference.config_map_ref.name for reference in fleet.devices_from}:
            if stored := await self._config_map(fleet, name):
                found[name] = stored.manifest().get("data") or {}
        return found

    async def _config_map(self, fleet: Fleet, name: str) -> Stored | None:
        key = fleet.type.resource, fleet.namespace, fleet.name
        self._referenced.setdefault((fleet.namespace, name), set()).add(key)
        known = self.cache.objects.get(("ConfigMap", fleet.namespace, name))
        return known or await self._read_config_map(fleet.namespace, name)

    async def _read_config_map(self, namespace: str, name: str) -> Stored | None:
        if time.monotonic() - self._absent.get((namespace, name), -ABSENT_SECONDS) < ABSENT_SECONDS:
            return None
        try:
            read = await self._client.get(CHILDREN["ConfigMap"], name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._absent[namespace, name] = time.monotonic()
            return None
        self.cache.put({**read, "kind": "ConfigMap", "apiVersion": "v1"})
        return self.cache.objects.get(("ConfigMap", namespace, name))

    # --- changing ---

    def _fence(self) -> None:
        if not self._leads():
            raise NotLeadingError("another operator leads: nothing is written")

    async def apply(self, manifest: Manifest) -> None:
        """See Runtime."""
        self._fence()
        try:
            try:
                stored = await self._patch(manifest, PatchType.APPLY)
            except ApiError as error:
                if error.status.code != 422 or key_of(manifest) not in self.cache.objects:
                    raise
                # What somebody else added contradicts ours. A merge patch replaces lists as a whole.
                await self._patch({key: manifest[key] for key in manifest if key != "apiVersion"}, PatchType.MERGE)
                stored = await self._patch(manifest, PatchType.APPLY)
            if surplus := _surplus(manifest, stored):
                # Keys that somebody else came to own: apply alone leaves them to their owner.
                stored = await self._patch({**manifest, **surplus}, PatchType.MERGE)
        except ApiError as error:
            # 409: somebody was faster; 404: the namespace is going; 429, 5xx: not now.
            if error.status.code in {400, 403, 422}:
                what = " ".join(key_of(manifest))
                raise RefusedError(f"{what} is refused: {error.status.message}") from error
            raise
        self.cache.put(stored)

    async def _patch(self, manifest: Manifest, patch_type: PatchType) -> Manifest:
        metadata = manifest["metadata"]
        if patch_type is PatchType.MERGE:
            # Its version has just become another one.
            manifest = {**manifest, "metadata": {k: v for k, v in metadata.items() if k != "resourceVersion"}}
        stored: Manifest = await self._client.patch(
            CHILDREN[manifest["kind"]],
            metadata["name"],
            manifest,
            namespace=metadata["namespace"],
            patch_type=patch_type,
            force=True,
            field_manager=MANAGED_BY,
        )
        return stored

    async def delete(self, manifest: Manifest) -> None:
        """See Runtime."""
        self._fence()
        kind, namespace, name = key = key_of(manifest)
        try:
            await self._client.delete(CHILDREN[kind], name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except ApiError as error:
            if error.status.code != 404:
                raise
            self.cache.drop(key, version_of(manifest))

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """See Runtime. 422, and nothing happens, where somebody has scaled meanwhile."""
        self._fence()
        patch: Any = [
            {"op": "test", "path": "/metadata/uid", "value": fleet.uid},
            {"op": "test", "path": "/spec/replicas", "value": fleet.spec.shards},
            {"op": "replace", "path": "/spec/replicas", "value": shards},
        ]
        await self._client.patch(
            SCALES[fleet.type.resource], fleet.name, patch, namespace=fleet.namespace, patch_type=PatchType.JSON,
            field_manager=MANAGED_BY,
        )  # fmt: skip

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """See Runtime."""
        return self._rivals.get((fleet.type.resource, fleet.namespace, fleet.name), ())

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """See Runtime."""
        return self.nodes.displaced.get((fleet.namespace, fleet_label(fleet)), {})

    @property
    def sees_nodes(self) -> bool:
        """See Runtime. Nodes belong to no namespace: an operator of one namespace has no right to them."""
        return self._namespace == ALL_NAMESPACES

    async def look_at_nodes(self, silent: Collection[Shard]) -> list[ObjectKey]:
        """Find shards, and the hub, on nodes that are being emptied or lost; ask for it every few seconds.

        `silent` are shards that do not answer. Returns the fleets that this concerns.
        """
        self._fence()
        fleets = []
        if self.sees_nodes:
            for namespace, label in await self.nodes.look(silent):
                kind, _, name = label.partition(".")
                fleets += [(type_.resource, namespace, name) for type_ in FLEET_TYPES.values() if type_.kind == kind]
        await self._hub_pods.look(answers=await self._hub.answers())
        return fleets

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """See Runtime."""
        self._fence()
        metadata = deployment["metadata"]
        stored = await self._client.patch(
            CHILDREN["Deployment"], metadata["name"], {"spec": {"template": pod}}, namespace=metadata["namespace"],
            patch_type=PatchType.MERGE, field_manager=MANAGED_BY,
        )  # fmt: skip
        self.cache.put(stored)

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """See Runtime."""
        self._fence()
        return await self._guard.reference(fleet.namespace)

    async def guard_budgets(self) -> None:
        """Hold the budgets for another while, and delete those whose fleet is gone; ask for it now and then."""
        self._fence()
        fleets = {
            (key[1], f"{FLEET_TYPES[key[0]].kind}.{key[2]}") for key in self.cache.objects if key[0] in FLEET_TYPES
        }
        await self._guard.renew({namespace for namespace, _ in fleets})
        for key, stored in list(self.cache.objects.items()):
            if key[0] == "PodDisruptionBudget" and stored.label and (key[1], stored.label) not in fleets:
                await self.delete(stored.manifest())

    def offers(self, kind: str) -> bool:
        """See Runtime."""
        return kind in self._offered

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        """See Runtime."""
        self._fence()
        body = {
            "apiVersion": API_VERSION,
            "kind": fleet.type.resource,
            # With the uid, a fleet that was deleted and declared anew does not inherit its namesake's status.
            "metadata": {"name": fleet.name, "namespace": fleet.namespace, "uid": fleet.uid},
            "status": status,
        }
        stored = await self._client.patch(
            STATUSES[fleet.type.resource], fleet.name, body, namespace=fleet.namespace, patch_type=PatchType.APPLY,
            force=True, field_manager=MANAGED_BY,
        )  # fmt: skip
        self.cache.put(stored)

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """See Runtime. An event that cannot be told is only logged: the condition says the same."""
        now = timestamp(time.time_ns())
        body: Any = {
            "metadata": {"generateName": f"{fleet.name}-{fleet.kind}-", "namespace": fleet.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": fleet.type.resource,
                "name": fleet.name,
                "namespace": fleet.namespace,
                "uid": fleet.uid,
            },
            "type": type_,
            "reason": reason,
            "message": message[:1000],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": MANAGED_BY},
            "reportingComponent": MANAGED_BY,
        }
        try:
            await self._client.create(EVENTS.from_dict(body))
        except ApiError as error:
            logger.warning("no event for %s: %s", fleet.key, error.status.message)

    # --- shards and hub ---

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """See Runtime."""
        return peer_address(fleet, shard)

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """See Runtime."""
        if ("Deployment", fleet.namespace, shard) not in self.cache.objects:
            return None
        status = await self._shards.status(self._resolve(fleet, shard))
        # An address that another shard has got meanwhile says nothing about this one.
        return status if status is None or status.shard == shard else None

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """See Runtime."""
        self._fence()
        return await self._shards.assign(self._resolve(fleet, shard), assignment)

    async def set_roster(self, roster: FleetRoster) -> FleetLedger | None:
        """See Runtime."""
        self._fence()
        try:
            return await self._hub.set(roster)
        except UnavailableError as error:
            if not self._hub_pods.trouble:
                raise
            raise UnavailableError(f"{error}: {self._hub_pods.trouble}") from error

    async def retain(self, fleets: Sequence[str]) -> None:
        """See Runtime."""
        self._fence()
        await self._hub.retain(fleets)


def retry_after(error: Exception) -> float:
    """Seconds for which the API server that answered with `error` asks to be left alone; at most a minute."""
    response = error.response if isinstance(error, httpx.HTTPStatusError) else None
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(asked), 60.0) if asked.isdecimal() else 0.0


def _api_version(kind: Kind) -> str:
    resource = kind._api_info.resource
    return f"{resource.group}/{resource.version}" if resource.group else str(resource.version)


def _owner(manifest: Mapping[str, Any]) -> Iterator[ObjectKey]:
    for owner in manifest["metadata"].get("ownerReferences") or ():
        if owner.get("apiVersion") == API_VERSION and owner.get("kind") in FLEET_TYPES:
            yield owner["kind"], manifest["metadata"].get("namespace", ""), owner["name"]
    label = label_of(manifest)
    for fleet_type in FLEET_TYPES.values():
        if label.startswith(f"{fleet_type.kind}."):
            name = label.removeprefix(f"{fleet_type.kind}.")
            yield fleet_type.resource, manifest["metadata"].get("namespace", ""), name


def _surplus(manifest: Manifest, stored: Mapping[str, Any]) -> Manifest:
    """The merge patch that takes away what a ConfigMap has and is not to have."""
    if manifest["kind"] != "ConfigMap":
        return {}
    surplus = {
        field: [key for key in stored.get(field) or {} if key not in (manifest.get(field) or {})]
        for field in ("data", "binaryData")
    }
    return {field: dict.fromkeys(keys) for field, keys in surplus.items() if keys}

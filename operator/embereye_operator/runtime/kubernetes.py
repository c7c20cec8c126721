"""A Kubernetes API server as the runtime: server-side apply out, a cache fed by watches in."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import GenericGlobalResource, GenericNamespacedResource, create_api_info
from lightkube.types import CascadeType, PatchType

from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.manifests import (
    LABEL_FLEET,
    LABEL_MANAGED_BY,
    LABEL_SHARD,
    MANAGED_BY,
    fleet_label,
    peer_address,
)
from embereye_operator.model import API_VERSION, FLEET_TYPES, GROUP, VERSION, Fleet
from embereye_operator.runtime import NotLeadingError, RefusedError
from embereye_operator.runtime.links import Hub, Shards
from embereye_operator.schema import Manifest
from embereye_operator.status import timestamp

logger = logging.getLogger(__name__)
ABSENT_SECONDS = 10.0  # how long a ConfigMap that was not there is believed to be absent without an event
ALL_NAMESPACES = "*"
Kind = type[GenericNamespacedResource]
ObjectKey = tuple[str, str, str]  # kind, namespace, name


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
PODS: Any = _resource("", "v1", "Pod", "pods")
NODES: Any = type("Node", (GenericGlobalResource,), {"_api_info": create_api_info("", "v1", "Node", "nodes")})
EVENTS: Any = _resource("", "v1", "Event", "events")


def _subresource(kind: Kind, action: str) -> Any:
    info = kind._api_info
    sub = create_api_info(info.resource.group, info.resource.version, info.resource.kind, info.plural)
    sub.action, sub.parent = action, info.resource
    return type(f"{kind.__name__}{action}", (GenericNamespacedResource,), {"_api_info": sub})


STATUSES: Mapping[str, Any] = {name: _subresource(kind, "status") for name, kind in FLEETS.items()}
SCALES: Mapping[str, Any] = {name: _subresource(kind, "scale") for name, kind in FLEETS.items()}


def key_of(manifest: Mapping[str, Any]) -> ObjectKey:
    """What an object is stored under."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def version_of(manifest: Mapping[str, Any]) -> int:
    """The object's resource version; those of one server grow."""
    text = str(manifest["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


@dataclass
class Cache:
    """What watches and our own writes told last, and never anything older."""

    objects: dict[ObjectKey, Manifest] = field(default_factory=dict)
    deleted: dict[ObjectKey, int] = field(default_factory=dict)  # resource version at deletion
    by_fleet: dict[tuple[str, str], set[ObjectKey]] = field(default_factory=dict)  # namespace, label → children

    def put(self, manifest: Manifest) -> bool:
        """Take `manifest` unless a newer one is known; True if it is news."""
        key, version = key_of(manifest), version_of(manifest)
        known = self.objects.get(key)
        if (known is not None and version_of(known) >= version) or self.deleted.get(key, 0) >= version:
            return False
        self._forget(key)
        self.deleted.pop(key, None)
        self.objects[key] = manifest
        if label := _fleet_label(manifest):
            self.by_fleet.setdefault((key[1], label), set()).add(key)
        return True

    def drop(self, key: ObjectKey, version: int) -> bool:
        """Take note that the object was deleted at `version`; True if it is news."""
        known = self.objects.get(key)
        self.deleted[key] = max(version, self.deleted.get(key, 0))
        if known is None or version_of(known) > version:
            return False
        self._forget(key)
        return True

    def replace(self, kind: str, listed: Iterable[Manifest], version: int) -> list[Manifest]:
        """Take a complete list of one kind as of `version`; returns what watches had failed to tell."""
        news = []
        seen = set()
        for manifest in listed:
            seen.add(key_of(manifest))
            if self.put(manifest):
                news.append(manifest)
        for key in [key for key in self.objects if key[0] == kind and key not in seen]:
            gone = self.objects[key]
            if version_of(gone) <= version and self.drop(key, version):
                news.append(gone)
        self.deleted = {key: at for key, at in self.deleted.items() if key[0] != kind or at > version}
        return news

    def of_fleet(self, fleet: Fleet) -> list[Manifest]:
        """The fleet's children."""
        keys = self.by_fleet.get((fleet.namespace, fleet_label(fleet)), set())
        return [self.objects[key] for key in sorted(keys)]

    def _forget(self, key: ObjectKey) -> None:
        before = self.objects.pop(key, None)
        if before is not None and (label := _fleet_label(before)):
            self.by_fleet.get((key[1], label), set()).discard(key)


def _fleet_label(manifest: Mapping[str, Any]) -> str:
    labels = manifest["metadata"].get("labels") or {}
    return str(labels.get(LABEL_FLEET, "")) if labels.get(LABEL_MANAGED_BY) == MANAGED_BY else ""


def trimmed(manifest: Mapping[str, Any]) -> Manifest:
    """Without managedFields, which are most of an object and of no use to us."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    return {**manifest, "metadata": metadata}


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
    ) -> None:
        """`resolve` gives the address that the operator itself calls a shard at; by default its Service.

        `leads` is asked before every write: one that was decided on while leading must not come after.
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
        self._displaced: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}  # namespace, label → shards
        self._absent: dict[tuple[str, str], float] = {}  # ConfigMaps that were not there → monotonic seconds
        self._referenced: dict[tuple[str, str], set[ObjectKey]] = {}  # ConfigMap → fleets that name it

    async def close(self) -> None:
        """Close all connections."""
        await self._shards.close()
        await self._hub.close()
        await self._client.close()

    # --- observing ---

    async def resync(self) -> list[Manifest]:
        """List what watches ought to have told; returns what they had not. Also the first fill of the cache."""
        news = []
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

    async def _list(self, name: str) -> list[Manifest]:
        kind = FLEETS.get(name) or CHILDREN[name]
        # Autoscalers of other people are looked at, too: two of them must not pull at one fleet.
        ours = name in CHILDREN and name != "HorizontalPodAutoscaler"
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY} if ours else None
        listed = self._client.list(kind, namespace=self._namespace, labels=labels, chunk_size=500)
        # Items of a list do not say what they are.
        objects = [trimmed({**manifest, "kind": name, "apiVersion": _api_version(kind)}) async for manifest in listed]
        if name == "HorizontalPodAutoscaler":
            self._rivals = {}
            for manifest in objects:
                target = manifest["spec"].get("scaleTargetRef") or {}
                if target.get("kind") in FLEET_TYPES and not _fleet_label(manifest):
                    key = target["kind"], manifest["metadata"]["namespace"], target.get("name", "")
                    self._rivals.setdefault(key, []).append(f"{name} {manifest['metadata']['name']}")
            objects = [manifest for manifest in objects if _fleet_label(manifest)]
        news = self.cache.replace(name, objects, int(listed.resourceVersion))
        return [] if name in UNWATCHED and name in self._offered else news

    def observe(self, type_: str | None, manifest: Manifest) -> set[ObjectKey]:
        """Take a watch event; returns the fleets that it concerns."""
        kind, namespace, name = key = key_of(manifest)
        if kind == "ConfigMap" and not _fleet_label(manifest):
            self._absent.pop((namespace, name), None)
            concerned = self._referenced.get((namespace, name), set())
            if not concerned:
                return set()  # somebody else's
        else:
            concerned = {key} if kind in FLEET_TYPES else set(_owner(manifest))
        manifest = trimmed(manifest)
        news = self.cache.drop(key, version_of(manifest)) if type_ == "DELETED" else self.cache.put(manifest)
        return set(concerned) if news else set()

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """See Runtime."""
        found = self.cache.of_fleet(fleet)
        return [manifest for manifest in found if _owned(manifest, fleet)]

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """See Runtime."""
        key = (fleet.type.resource, fleet.namespace, fleet.name)
        found = {}
        for name in {reference.config_map_ref.name for reference in fleet.devices_from}:
            self._referenced.setdefault((fleet.namespace, name), set()).add(key)
            manifest = self.cache.objects.get(("ConfigMap", fleet.namespace, name))
            if manifest is None:
                manifest = await self._read_config_map(fleet.namespace, name)
            if manifest is not None:
                found[name] = manifest.get("data") or {}
        return found

    async def _read_config_map(self, namespace: str, name: str) -> Manifest | None:
        if time.monotonic() - self._absent.get((namespace, name), -ABSENT_SECONDS) < ABSENT_SECONDS:
            return None
        try:
            read = await self._client.get(CHILDREN["ConfigMap"], name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._absent[namespace, name] = time.monotonic()
            return None
        manifest = trimmed({**read, "kind": "ConfigMap", "apiVersion": "v1"})
        self.cache.put(manifest)
        return manifest

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
                stored = await self._patch({**manifest, "data": dict.fromkeys(surplus)}, PatchType.MERGE)
        except ApiError as error:
            # 409: somebody was faster; 404: the namespace is going; 429, 5xx: not now.
            if error.status.code in {400, 403, 422}:
                what = " ".join(key_of(manifest))
                raise RefusedError(f"{what} is refused: {error.status.message}") from error
            raise
        self.cache.put(trimmed(stored))

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

    def displaced(self, fleet: Fleet) -> Mapping[str, tuple[str, str]]:
        """See Runtime."""
        return self._displaced.get((fleet.namespace, fleet_label(fleet)), {})

    @property
    def sees_nodes(self) -> bool:
        """See Runtime. Nodes belong to no namespace: an operator of one namespace has no right to them."""
        return self._namespace == ALL_NAMESPACES

    async def look_at_nodes(self) -> None:
        """Find shards on nodes that are cordoned; ask for it every few seconds."""
        if not self.sees_nodes:
            return
        found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
        cordoned: Any = self._client.list(NODES, fields={"spec.unschedulable": "true"})
        for node in [node["metadata"]["name"] async for node in cordoned]:
            ours: Any = {LABEL_MANAGED_BY: MANAGED_BY}
            pods: Any = self._client.list(PODS, namespace=ALL_NAMESPACES, labels=ours, fields={"spec.nodeName": node})
            async for pod in pods:
                metadata = pod["metadata"]
                if not metadata.get("deletionTimestamp") and LABEL_SHARD in metadata["labels"]:
                    key = metadata["namespace"], metadata["labels"].get(LABEL_FLEET, "")
                    found.setdefault(key, {})[metadata["labels"][LABEL_SHARD]] = (node, metadata["uid"])
        self._displaced = found

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
        self.cache.put(trimmed(stored))

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

    async def set_roster(self, roster: FleetRoster) -> None:
        """See Runtime."""
        self._fence()
        await self._hub.set(roster)

    async def retain(self, fleets: Sequence[str]) -> None:
        """See Runtime."""
        self._fence()
        await self._hub.retain(fleets)


def _api_version(kind: Kind) -> str:
    resource = kind._api_info.resource
    return f"{resource.group}/{resource.version}" if resource.group else str(resource.version)


def _owner(manifest: Mapping[str, Any]) -> Iterator[ObjectKey]:
    for owner in manifest["metadata"].get("ownerReferences") or ():
        if owner.get("apiVersion") == API_VERSION and owner.get("kind") in FLEET_TYPES:
            yield owner["kind"], manifest["metadata"].get("namespace", ""), owner["name"]
    label = _fleet_label(manifest)
    for fleet_type in FLEET_TYPES.values():
        if label.startswith(f"{fleet_type.kind}."):
            name = label.removeprefix(f"{fleet_type.kind}.")
            yield fleet_type.resource, manifest["metadata"].get("namespace", ""), name


def _owned(manifest: Mapping[str, Any], fleet: Fleet) -> bool:
    """Whether it is this fleet's, or nobody's: an owner with another uid is a deleted namesake, and gone soon."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return not owners or any(owner.get("uid") == fleet.uid for owner in owners)


def _surplus(manifest: Manifest, stored: Mapping[str, Any]) -> list[str]:
    if manifest["kind"] != "ConfigMap":
        return []
    return [key for key in stored.get("data") or {} if key not in manifest["data"]]

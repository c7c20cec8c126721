"""The objects of an API server, from a cache fed by watches.

Watches call `observe`, and `resync` lists everything at the start and then periodically. `Cache` has the latest version
of each object, packed. `WatchLag` compares lists with watches and detects dead watches.
"""

import logging
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.v1.shard_pb2 import Peer
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetReference
from embereye_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION, API_VERSIONS, GROUP
from embereye_operator.decide.cluster.watch_lag import WatchLag
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.manifests.services import peer_address
from embereye_operator.errors import KindMissingError
from embereye_operator.runtime.kubernetes.client.answers import find
from embereye_operator.runtime.kubernetes.client.cache import Cache, ObjectKey, Stored, key_of, label_of, version_of
from embereye_operator.runtime.kubernetes.client.resources import (
    ALL_NAMESPACES,
    CHILDREN,
    CHUNK,
    FLEETS,
    OPTIONAL,
    UNWATCHED,
    api_version,
)
from embereye_operator.runtime.kubernetes.device_lists import DeviceLists
from embereye_operator.runtime.kubernetes.rights import Rights

logger = logging.getLogger(__name__)


class KubernetesWorld:
    """Implements `interface.World`. Its owner feeds it from watches, and calls `resync` first and then periodically."""

    def __init__(
        self, client: AsyncClient, namespaces: Sequence[str], is_selected: Callable[[Mapping[str, str]], bool]
    ) -> None:
        """Read `namespaces`, and there only fleets whose labels pass `is_selected`."""
        self.cache = Cache()
        self.lag = WatchLag()
        self.rivals: dict[ObjectKey, list[str]] = {}  # fleet → autoscalers of other owners
        self.unseen: Mapping[str, str] = {}  # forbidden namespace → why
        self.rights = Rights(client, namespaces)
        self._client = client
        self._namespaces = namespaces
        self._is_selected = is_selected
        self._offered: set[str] = set()  # kinds that the server knows, and TOLERANCE
        self._tried_tolerance = False
        self._lists = DeviceLists()
        # Fleets' kinds and namespaces that were never listed.
        self._unlisted = {(kind, watched) for kind in FLEETS for watched in namespaces}
        self._filled = False  # everything was listed once

    @property
    def has_listed_fleets(self) -> bool:
        """True once every kind of fleet was listed in every namespace."""
        return not self._unlisted

    async def resync(self) -> list[ObjectKey]:
        """List all objects and return what the watches have missed; the first call fills the cache.

        Cached objects of a forbidden namespace, for example a deleted one, remain. KindMissingError if the server has
        no such fleets.
        """
        news: list[ObjectKey] = []
        unseen: dict[str, str] = {}
        for name in (*FLEETS, *CHILDREN):
            refused_here: dict[str, str] = {}  # counts only if another namespace has the kind
            try:
                news += await self._list(name, refused_here)
            except httpx.HTTPStatusError as error:  # ApiError is one
                # 404: without its CustomResourceDefinition the path does not exist; 403: the right is missing.
                if name in FLEETS and error.response.status_code == 404:
                    raise KindMissingError(_missing([name])) from error
                if name not in OPTIONAL or error.response.status_code not in {403, 404}:
                    raise
                self.note_missing_kind(name, gone=error.response.status_code == 404)
            else:
                self._offered.add(name)
                unseen = {**refused_here, **unseen}
        news += await self._reread_device_lists()
        self._filled = True
        for namespace in unseen.keys() - self.unseen.keys():
            logger.warning("namespace %s cannot be read, and is left unchanged: %s", namespace, unseen[namespace])
        self.unseen = unseen
        if not self._tried_tolerance:
            await self._try_tolerance()
        return news

    async def check_kinds(self) -> None:
        """KindMissingError if a kind of fleet is being removed, which deletes its fleets, or does not exist."""
        # lightkube has no call for discovery. A kind that is being removed has no verb `create` any more.
        answer = await self._client._client._client.get(f"/apis/{API_VERSION}")
        if answer.status_code != 404:
            answer.raise_for_status()
        resources = answer.json().get("resources", ()) if answer.status_code == 200 else ()
        complete = {entry["name"] for entry in resources if "create" in entry["verbs"]}
        if missing := [name for name, fleet in FLEET_TYPES.items() if fleet.plural not in complete]:
            raise KindMissingError(_missing(missing))

    def note_missing_kind(self, kind: str, *, gone: bool) -> None:
        """Record that the server does not offer `kind`; `gone`: its objects do not exist any more, either."""
        self._offered.discard(kind)
        for key in [key for key in self.cache.objects if gone and key[0] == kind]:
            self.cache.forget(key)

    async def _try_tolerance(self) -> None:
        """Check that the server stores the tolerance of an autoscaler: an old one drops it silently."""
        readable = [name for name in self._namespaces if name != ALL_NAMESPACES and name not in self.unseen]
        namespace = next(iter(readable), "default")
        target = {"apiVersion": API_VERSION, "kind": next(iter(FLEETS)), "name": "embereye-tolerance"}
        rules = {"behavior": {"scaleUp": {"tolerance": "0"}}, "scaleTargetRef": target, "maxReplicas": 1}
        kind: Any = CHILDREN["HorizontalPodAutoscaler"]
        metadata = {"name": target["name"], "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
        try:
            stored = await self._client.create(kind.from_dict({"metadata": metadata, "spec": rules}), dry_run=True)
        except ApiError as error:
            logger.info("cannot check if autoscalers support a tolerance: %s", error.status.message)
            return
        self._tried_tolerance = True
        if "tolerance" in (stored["spec"].get("behavior") or {}).get("scaleUp", {}):
            self._offered.add(TOLERANCE)

    async def _list(self, name: str, unseen: dict[str, str]) -> list[ObjectKey]:
        kind = FLEETS.get(name) or CHILDREN[name]
        # Other people's autoscalers count, too: two of them must not scale the same fleet.
        ours = name in CHILDREN and name != "HorizontalPodAutoscaler"
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY} if ours else None
        listed, news = [], []
        versions: list[int] = []
        rivals: dict[ObjectKey, list[str]] = defaultdict(list)
        refused: set[str] = set()
        async for manifest in self._list_all(kind, labels, versions, unseen, refused):
            key = name, sys.intern(manifest["metadata"]["namespace"]), manifest["metadata"]["name"]
            if name in FLEETS and not self._is_selected(manifest["metadata"].get("labels") or {}):
                continue
            if name == "HorizontalPodAutoscaler" and not label_of(manifest):
                target = manifest["spec"].get("scaleTargetRef") or {}
                rivals[target.get("kind", ""), key[1], target.get("name", "")].append(f"{name} {key[2]}")
                continue
            listed.append(key)
            if self.cache.put({**manifest, "kind": name, "apiVersion": api_version(kind)}):
                news.append(key)
                self._expect(key)  # before any await: the watch may report it at any moment
        if name == "HorizontalPodAutoscaler":
            self.rivals = {key: names for key, names in self.rivals.items() if key[1] in refused} | rivals
        version = min(versions)
        self.lag.note_list(name, version)
        self._unlisted -= {(name, namespace) for namespace in self._namespaces if namespace not in refused}
        others = [*self._lists] if name == "ConfigMap" else []
        self.lag.retain(name, [*listed, *others])  # a kind that cannot be listed has no watch, either
        others += [key for key in self.cache.objects if key[0] == name and key[1] in refused]
        gone = self.cache.replace(name, listed, version, others=others)
        for key in gone if name in FLEETS else ():
            self._refer(key, ())
        return [] if name in UNWATCHED and name in self._offered else [*news, *gone]

    async def _reread_device_lists(self) -> list[ObjectKey]:
        """Read the device lists one by one: a list of all ConfigMaps would read every user's."""
        news = []
        for key in self._lists:
            known = self.cache.objects.get(key)
            try:
                stored = await self._read_config_map(key)
            except ApiError as error:
                logger.debug("%s: %s", " ".join(key), error)  # the passes over its fleets fail and report it
                continue
            if stored is None and known is not None:
                self.cache.drop(key, known.version)
                news.append(key)
            elif stored is not None and (known is None or known.version < stored.version):
                self._expect(key)
                news.append(key)
        return news

    def _expect(self, key: ObjectKey) -> None:
        # Objects of the first list have no watch yet.
        if self._filled and key[0] not in UNWATCHED:
            self.lag.expect(key, self.cache.objects[key].version, time.monotonic())

    async def _list_all(
        self, kind: Any, labels: Any, versions: list[int], unseen: dict[str, str], refused: set[str]
    ) -> AsyncIterator[Manifest]:
        """Yield the objects of all watched namespaces, without kind, and append the lists' versions to `versions`.

        Adds forbidden namespaces to `refused` and `unseen`; raises if all are forbidden.
        """
        for namespace in self._namespaces:
            listed = self._client.list(kind, namespace=namespace, labels=labels, chunk_size=CHUNK)
            try:
                async for manifest in listed:
                    yield manifest
            except httpx.HTTPStatusError as error:  # ApiError is one
                refused.add(namespace)
                if error.response.status_code not in {403, 404} or refused.issuperset(self._namespaces):
                    raise
                unseen.setdefault(namespace, str(error))
                continue
            versions.append(int(listed.resourceVersion))

    def observe(self, type_: str | None, manifest: Manifest) -> set[ObjectKey]:
        """Process a watch event; return the fleets that it affects."""
        if manifest["kind"] in FLEETS and not self._is_selected(manifest["metadata"].get("labels") or {}):
            type_ = "DELETED"  # for this operator; another may reconcile it
        kind, version = (key := key_of(manifest))[0], version_of(manifest)
        self.lag.note_event(key, version)
        self._lists.note_present(key)
        concerned = {key} if kind in FLEETS else self._fleets_of(key, manifest)
        if not concerned and key not in self.cache.objects:
            return set()  # not ours
        if type_ == "DELETED":
            news = self.cache.drop(key, version)
            if kind in FLEETS:
                self._refer(key, ())
        else:
            news = self.cache.put(manifest)
        return concerned if news else set()

    def _fleets_of(self, key: ObjectKey, manifest: Manifest) -> set[ObjectKey]:
        """Return the fleets affected by a change of the object: its owners, its former owners, and its readers."""
        known = self.cache.objects.get(key)
        before = labelled_fleets(known.label, key[1]) if known else ()
        return {*owners_of(manifest), *before, *self._lists.fleets(key)}

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """See World."""
        return [stored.manifest() for _, stored in self.cache.of_fleet(fleet)]

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """See World."""
        result = {(key[0], key[2]): str(stored.version) for key, stored in self.cache.of_fleet(fleet)}
        names = sorted({reference.config_map_ref.name for reference in fleet.devices_from})
        self._refer(fleet_key(fleet), names)
        for name in names:
            stored = await self._config_map(("ConfigMap", fleet.namespace, name))
            result["ConfigMap", name] = str(stored.version) if stored else "absent"
        return result

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """Return the data of the ConfigMaps in `sensorsFrom` or `camerasFrom` by name; missing ones are left out."""
        result = {}
        for name in {reference.config_map_ref.name for reference in fleet.devices_from}:
            if stored := await self._config_map(("ConfigMap", fleet.namespace, name)):
                result[name] = stored.manifest().get("data") or {}
        return result

    def _refer(self, fleet: ObjectKey, names: Sequence[str]) -> None:
        for key in self._lists.refer(fleet, names):
            if (stored := self.cache.objects.get(key)) is not None and not stored.label:
                self.cache.forget(key)

    async def _config_map(self, key: ObjectKey) -> Stored | None:
        return self.cache.objects.get(key) or await self._read_config_map(key)

    async def _read_config_map(self, key: ObjectKey) -> Stored | None:
        if self._lists.is_absent(key, time.monotonic()):
            return None
        if (read := await find(self._client, CHILDREN["ConfigMap"], key[2], key[1])) is None:
            self._lists.note_absent(key, time.monotonic())
            return None
        self.cache.put({**read, "kind": "ConfigMap", "apiVersion": "v1"})
        return self.cache.objects.get(key)

    def is_offered(self, kind: str) -> bool:
        """See World."""
        return kind in self._offered

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """See World."""
        service = self.cache.objects.get(("Service", fleet.namespace, shard))
        return peer_address(fleet, shard, service.cluster_ip if service else "")


def _missing(kinds: Sequence[str]) -> str:
    names = ", ".join(f"{FLEET_TYPES[kind].plural}.{GROUP}" for kind in kinds)
    return (
        f"CustomResourceDefinition {names} is missing, and with it all its fleets: install it (helm upgrade with "
        "crds.enabled=true) and apply the fleets again"
    )


def fleet_key(fleet: FleetReference) -> ObjectKey:
    """Return the fleet's key in the cache."""
    return fleet.type.resource, fleet.namespace, fleet.name


def owners_of(manifest: Mapping[str, Any]) -> Iterator[ObjectKey]:
    """Yield the fleets that own the object."""
    namespace = manifest["metadata"].get("namespace", "")
    for owner in manifest["metadata"].get("ownerReferences") or ():
        if owner.get("apiVersion") in API_VERSIONS and owner.get("kind") in FLEET_TYPES:
            yield owner["kind"], namespace, owner["name"]
    yield from labelled_fleets(label_of(manifest), namespace)


def labelled_fleets(label: str, namespace: str) -> Iterator[ObjectKey]:
    """Yield the fleets with this label in a namespace."""
    for fleet_type in FLEET_TYPES.values():
        if label.startswith(f"{fleet_type.kind}."):
            yield fleet_type.resource, namespace, label.removeprefix(f"{fleet_type.kind}.")

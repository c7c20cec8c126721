"""The Kubernetes runtime: writes objects with server-side apply, and reads them from a cache fed by watches.

Watches call `observe`, and `resync` lists everything at the start and then periodically. `Cache` has the latest version
of each object, packed. `WatchLag` compares lists with watches and detects dead watches. Reads come from the cache;
every write passes `_fence`, which stops a replica that lost the lead. Shards and hubs are called over `links`.
"""

import contextlib
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import CascadeType, PatchType

from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetReference
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.cluster.watch_lag import WatchLag
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.manifests.names import LABEL_ALLOWED, LABEL_MANAGED_BY, MANAGED_BY, fleet_label
from embereye_operator.decide.manifests.services import peer_address
from embereye_operator.decide.ownership.applied import owner_text, owner_uids, with_updates_applied
from embereye_operator.errors import NotLeadingError, RefusedError, TakenError, UnavailableError
from embereye_operator.runtime.kubernetes.client.cache import Cache, ObjectKey, Stored, key_of, label_of, version_of
from embereye_operator.runtime.kubernetes.client.resources import (
    CHILDREN,
    FLEETS,
    OPTIONAL,
    SECRETS,
    UNWATCHED,
    api_version,
)
from embereye_operator.runtime.kubernetes.device_lists import DeviceLists
from embereye_operator.runtime.kubernetes.events import EventWriter
from embereye_operator.runtime.kubernetes.guard import Guard
from embereye_operator.runtime.kubernetes.hub_pods import HubPods
from embereye_operator.runtime.kubernetes.identities import Identities
from embereye_operator.runtime.kubernetes.nodes import EVERYWHERE, Nodes, Shard
from embereye_operator.runtime.links import Address, Hub, Shards

logger = logging.getLogger(__name__)
CHUNK = 50  # objects per page of a list: a larger page takes more memory than the whole cache
MARKS_SECONDS = 10.0  # seconds between reads of the Secrets that fleets may use
REFUSALS = frozenset({400, 403, 422})  # answers of a quota, a policy or a validation
ALLOWED: Any = {LABEL_ALLOWED: "true"}
FLUSH_SECONDS = 1.0  # time to write waiting events when the operator ends
ALL_NAMESPACES = EVERYWHERE


class KubernetesRuntime:
    """Implements `runtime.Runtime`. The owner feeds it from watches, and calls `resync` first and then periodically."""

    def __init__(  # noqa: PLR0913 -- the operator's options
        self,
        client: AsyncClient,
        *,
        hub: str,
        namespace: str | Sequence[str] = ALL_NAMESPACES,
        is_selected: Callable[[Mapping[str, str]], bool] = lambda _: True,
        operator: str = "",
        resolve: Callable[[Fleet, str], str] | None = None,
        is_leading: Callable[[], bool] = lambda: True,
        role: str = "",
        image: str = "",
        release: tuple[str, str] | None = None,
        watches_nodes: bool = False,
        authority_secret: str = "",
        hub_names: tuple[str, ...] = (),
        hubs: Sequence[NamedHub] = (),
    ) -> None:
        """Create a runtime for the fleets in `namespace`, one or several, whose labels pass `is_selected`.

        `watches_nodes`: nodes may be read although not all namespaces are watched. `operator` is the name that owned
        fleets have in their status; empty: the operator can own none. `resolve` returns the address for the operator's
        calls to a shard; by default its Service. `is_leading` is checked before every write, which must not follow a
        lost lead. `role` is the operator's role, which owns disruption budgets; "": only their fleets own them. Their
        Jobs have `image`. `release` is the namespace and name of the release whose certificates processes use; None: no
        certificates. `authority_secret` has an external certificate authority; "": the operator creates one. `hubs` are
        those in addition to `hub`, which is the release's default hub.
        """
        self.cache = Cache()
        # Kind, whether it changed anything → number of patches.
        self.write_counts: Counter[tuple[str, bool]] = Counter()
        self.lag = WatchLag()
        self._client = client
        self._namespaces = [namespace] if isinstance(namespace, str) else list(namespace)
        self._is_selected = is_selected
        self._operator = operator
        self._resolve = resolve or (lambda fleet, shard: self.address(fleet, shard).control)
        self._is_leading = is_leading
        self._shards = Shards()
        addresses = {"": hub, **{named.name: named.address for named in hubs}}  # by name; "": the release's default hub
        self._hubs = {name: Hub(address) for name, address in addresses.items()}
        self._reports_to: dict[str, str] = {}  # fleet → name of the hub that has its roster
        self._offered: set[str] = set()  # kinds that the server knows, and TOLERANCE
        self._tried_tolerance = False
        self._rivals: dict[ObjectKey, list[str]] = {}  # fleet → autoscalers of other owners
        everywhere = ALL_NAMESPACES in self._namespaces
        self._watches_nodes = watches_nodes or everywhere
        self.nodes = Nodes(client, () if everywhere else self._namespaces)
        self._guard = Guard(client, role, image, cluster_wide=everywhere)
        self._hub_pods = {name: HubPods(client, address, self.nodes) for name, address in addresses.items()}
        self._lists = DeviceLists()
        self._events = EventWriter(client)
        self._allowed: dict[str, tuple[frozenset[str], float]] = {}  # by namespace, until a time in monotonic seconds
        self.identities: Identities | None = None
        if release:
            self.identities = Identities(
                client,
                namespace=release[0],
                name=release[1],
                fence=self._fence,
                issued=authority_secret,
                hub_names=hub_names,
                hubs=hubs,
            )
        self._unseen: Mapping[str, str] = {}  # forbidden namespace → why
        # Fleets' kinds and namespaces that were never listed.
        self._unlisted = {(kind, watched) for kind in FLEETS for watched in self._namespaces}
        self._filled = False  # everything was listed once

    async def close(self) -> None:
        """Write the waiting events within FLUSH_SECONDS, and close all connections."""
        await self._events.flush(FLUSH_SECONDS)
        await self._shards.close()
        for hub in self._hubs.values():
            await hub.close()
        await self._client.close()
        if self.identities:
            self.identities.close()

    async def resync(self) -> list[ObjectKey]:
        """List all objects and return what the watches have missed; the first call fills the cache.

        Cached objects of a forbidden namespace, for example a deleted one, remain.
        """
        news: list[ObjectKey] = []
        unseen: dict[str, str] = {}
        for name in (*FLEETS, *CHILDREN):
            try:
                news += await self._list(name, unseen)
            except httpx.HTTPStatusError as error:  # ApiError is one
                # 404: without its CustomResourceDefinition the path does not exist; 403: the right is missing.
                if name not in OPTIONAL or error.response.status_code not in {403, 404}:
                    raise
                self._note_missing_kind(name, gone=error.response.status_code == 404)
            else:
                self._offered.add(name)
        news += await self._reread_device_lists()
        self._filled = True
        for namespace in unseen.keys() - self._unseen.keys():
            logger.warning("namespace %s cannot be read, and is left unchanged: %s", namespace, unseen[namespace])
        self._unseen = unseen
        for name, hub in self._hubs.items():
            await self._hub_pods[name].locate()
            hub.set_address(self._hub_pods[name].address)
        if not self._tried_tolerance:
            await self._try_tolerance()
        await self._shards.close_idle()
        return news

    def _note_missing_kind(self, kind: str, *, gone: bool) -> None:
        """Record that the server does not offer `kind`; `gone`: its objects do not exist any more, either."""
        self._offered.discard(kind)
        for key in [key for key in self.cache.objects if gone and key[0] == kind]:
            self.cache.forget(key)

    async def _try_tolerance(self) -> None:
        """Check that the server stores the tolerance of an autoscaler: an old one drops it silently."""
        readable = [name for name in self._namespaces if name != ALL_NAMESPACES and name not in self._unseen]
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
            self._rivals = {key: names for key, names in self._rivals.items() if key[1] in refused} | rivals
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
        before = _labelled(known.label, key[1]) if known else ()
        return {*_owners(manifest), *before, *self._lists.fleets(key)}

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """See Runtime."""
        return [stored.manifest() for _, stored in self.cache.of_fleet(fleet)]

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """See Runtime."""
        result = {(key[0], key[2]): str(stored.version) for key, stored in self.cache.of_fleet(fleet)}
        names = sorted({reference.config_map_ref.name for reference in fleet.devices_from})
        self._refer(fleet_key(fleet), names)
        for name in names:
            stored = await self._config_map(("ConfigMap", fleet.namespace, name))
            result["ConfigMap", name] = str(stored.version) if stored else "absent"
        return result

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """See Runtime."""
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
        try:
            read = await self._client.get(CHILDREN["ConfigMap"], key[2], namespace=key[1])
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._lists.note_absent(key, time.monotonic())
            return None
        self.cache.put({**read, "kind": "ConfigMap", "apiVersion": "v1"})
        return self.cache.objects.get(key)

    def _fence(self, fleets: Iterable[ObjectKey] = ()) -> None:
        if not self._is_leading():
            raise NotLeadingError("another replica leads: nothing is written")
        for key in fleets:
            if (stored := self.cache.objects.get(key)) is not None and stored.deleting:
                raise NotLeadingError(f"{' '.join(key)} is being deleted: nothing is written")
            if stored is not None and self._operator and stored.holder not in {"", self._operator}:
                raise NotLeadingError(f"{' '.join(key)} belongs to operator {stored.holder}: nothing is written")

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """See Runtime."""
        self._fence(_owners(manifest))
        new = new and await self._is_absent(manifest)
        try:
            try:
                stored = await self._patch(manifest, PatchType.APPLY, force=not new)
            except ApiError as error:
                if error.status.code != 422 or new:
                    raise
                # Another writer's fields contradict ours. A merge patch replaces lists as a whole.
                await self._patch({key: manifest[key] for key in manifest if key != "apiVersion"})
                stored = await self._patch(manifest, PatchType.APPLY)
            if entries := with_updates_applied(stored["metadata"].get("managedFields") or (), MANAGED_BY):
                stored = await self._set_managed_fields(stored, entries)
                stored = await self._patch(manifest, PatchType.APPLY)
            if surplus := _surplus(manifest, stored):
                # Keys that another writer owns: apply alone leaves them to their owner.
                stored = await self._patch({"kind": manifest["kind"], "metadata": manifest["metadata"], **surplus})
        except ApiError as error:
            # 409: another write was faster; 404: the namespace is being deleted; 429, 5xx: try later.
            target = " ".join(key_of(manifest))
            if error.status.code in REFUSALS:
                raise RefusedError(f"{target} is refused: {error.status.message}") from error
            error.add_note(f"{target} is not written")
            raise
        except httpx.HTTPStatusError as error:
            # The path does not exist, because the kind was removed from the server.
            if manifest["kind"] not in OPTIONAL or error.response.status_code != 404:
                raise
            self._note_missing_kind(manifest["kind"], gone=True)
            raise RefusedError(
                f"{' '.join(key_of(manifest))}: the cluster has no {manifest['kind']} any more"
            ) from error
        self.cache.put(stored)
        return stored

    async def _is_absent(self, manifest: Manifest) -> bool:
        """True if no object of this name exists; TakenError if one exists and belongs to somebody else."""
        kind, namespace, name = key = key_of(manifest)
        if (known := self.cache.objects.get(key)) is not None:
            existing = [known.manifest()]
        else:
            # Only objects with the operator's label are watched.
            listed: Any = self._client.list(CHILDREN[kind], namespace=namespace, fields={"metadata.name": name})
            existing = [stored async for stored in listed]
        for stored in existing:
            owners, orphan = owner_uids(stored), label_of(stored) == label_of(manifest)
            if not set(owners) & set(owner_uids(manifest)) and not (orphan and not owners):
                raise TakenError(
                    f"{kind} {name} exists already and is not this fleet's ({owner_text(stored)}): left unchanged. "
                    "Delete it, or give the fleet another name"
                )
        return not existing

    async def _set_managed_fields(self, stored: Manifest, entries: Sequence[Manifest]) -> Manifest:
        """Replace the object's managedFields with `entries`."""
        metadata = stored["metadata"]
        patch: Any = [
            {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        ]
        changed: Manifest = await self._client.patch(
            CHILDREN[stored["kind"]],
            metadata["name"],
            patch,
            namespace=metadata["namespace"],
            patch_type=PatchType.JSON,
            field_manager=MANAGED_BY,
        )
        return changed

    async def _patch(
        self, manifest: Manifest, patch_type: PatchType = PatchType.MERGE, *, force: bool = True
    ) -> Manifest:
        metadata = manifest["metadata"]
        if patch_type is PatchType.MERGE:
            # The preceding patch has changed the version.
            manifest = {**manifest, "metadata": {k: v for k, v in metadata.items() if k != "resourceVersion"}}
        before = self._version(key_of(manifest))
        stored: Manifest = await self._client.patch(
            CHILDREN[manifest["kind"]],
            metadata["name"],
            manifest,
            namespace=metadata["namespace"],
            patch_type=patch_type,
            force=force,
            field_manager=MANAGED_BY,
        )
        stored = {**stored, "kind": manifest["kind"]}
        self._count_write(stored, before)
        return stored

    def _version(self, key: ObjectKey) -> int:
        known = self.cache.objects.get(key)
        return known.version if known else 0

    def _count_write(self, stored: Manifest, before: int) -> None:
        # The server gives unchanged objects no new version. `before` is the version before the request, because a watch
        # may report the new one earlier than the answer does.
        self.write_counts[stored["kind"], version_of(stored) != before] += 1

    async def delete(self, manifest: Manifest) -> None:
        """See Runtime."""
        self._fence()
        kind, namespace, name = key = key_of(manifest)
        try:
            await self._client.delete(CHILDREN[kind], name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except httpx.HTTPStatusError as error:  # ApiError is one; without the kind the server knows no such path
            if error.response.status_code in REFUSALS:
                raise RefusedError(f"{' '.join(key)} is not deleted: {error}") from error
            if error.response.status_code != 404:
                raise
            self.cache.drop(key, version_of(manifest))

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """See Runtime. 422, without any change, if somebody has scaled meanwhile."""
        self._fence([fleet_key(fleet)])
        patch: Any = [
            {"op": "test", "path": "/metadata/uid", "value": fleet.uid},
            {"op": "test", "path": "/spec/replicas", "value": fleet.spec.shards},
            {"op": "replace", "path": "/spec/replicas", "value": shards},
        ]
        try:
            await self._client.patch(
                FLEETS[fleet.type.resource].Scale, fleet.name, patch, namespace=fleet.namespace,
                patch_type=PatchType.JSON, field_manager=MANAGED_BY,
            )  # fmt: skip
        except ApiError as error:
            if error.status.code not in REFUSALS or error.status.code == 422:
                raise
            raise RefusedError(f"{fleet.key} is not scaled: {error.status.message}") from error

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """See Runtime."""
        return self._rivals.get(fleet_key(fleet), ())

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """See Runtime."""
        return self.nodes.displaced.get((fleet.namespace, fleet_label(fleet)), {})

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        """See Runtime."""
        return self.nodes.waiting.get((fleet.namespace, fleet_label(fleet)), {})

    @property
    def can_see_nodes(self) -> bool:
        """See Runtime. Nodes belong to no namespace: an operator for some namespaces needs an additional right."""
        return self._watches_nodes

    async def check_nodes(self, silent: Collection[Shard]) -> list[ObjectKey]:
        """Find shards, and the hub, on drained or lost nodes; call it every few seconds.

        `silent` are shards that do not answer. Returns the affected fleets.
        """
        self._fence()
        fleets = []
        if self.can_see_nodes:
            for namespace, label in await self.nodes.find_displaced(silent):
                kind, _, name = label.partition(".")
                fleets += [(type_.resource, namespace, name) for type_ in FLEET_TYPES.values() if type_.kind == kind]
        for name, hub in self._hubs.items():
            pods = self._hub_pods[name]
            await pods.diagnose(is_serving=self._is_identified() and await hub.is_serving())
            hub.set_address(pods.address)
        return fleets

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """See Runtime."""
        self._fence(_owners(deployment))
        metadata = {key: deployment["metadata"][key] for key in ("name", "namespace")}
        self.cache.put(await self._patch({"kind": "Deployment", "metadata": metadata, "spec": {"template": pod}}))

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """See Runtime."""
        self._fence()
        return await self._guard.reference(fleet.namespace)

    async def guard_budgets(self) -> None:
        """Renew the budgets' owner, and delete budgets of deleted fleets; call it periodically."""
        self._fence()
        fleets = {
            (key[1], f"{FLEET_TYPES[key[0]].kind}.{key[2]}") for key in self.cache.objects if key[0] in FLEET_TYPES
        }
        await self._guard.renew({namespace for namespace, _ in fleets})
        for key, stored in list(self.cache.objects.items()):
            if key[0] != "PodDisruptionBudget" or not stored.label or (key[1], stored.label) in fleets:
                continue
            if (
                not stored.deleting
                and key[1] not in self._unseen
                and self._guard.is_owner_of(budget := stored.manifest())
            ):
                await self.delete(budget)

    def is_offered(self, kind: str) -> bool:
        """See Runtime."""
        return kind in self._offered

    async def write_status(self, fleet: Fleet | FleetReference, status: Manifest) -> None:
        """See Runtime."""
        self._fence([fleet_key(fleet)])
        body = {
            "apiVersion": API_VERSION,
            "kind": fleet.type.resource,
            # With the uid, a fleet that was deleted and declared again does not inherit its namesake's status.
            "metadata": {"name": fleet.name, "namespace": fleet.namespace, "uid": fleet.uid},
            "status": _without_empty_maps(status),
        }
        before = self._version((fleet.type.resource, fleet.namespace, fleet.name))
        stored = await self._client.patch(
            FLEETS[fleet.type.resource].Status, fleet.name, body, namespace=fleet.namespace, patch_type=PatchType.APPLY,
            force=True, field_manager=MANAGED_BY,
        )  # fmt: skip
        self._count_write({**stored, "kind": fleet.type.resource}, before)
        self.cache.put(stored)

    async def event(
        self, fleet: Fleet | FleetReference, type_: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """See Runtime."""
        with contextlib.suppress(NotLeadingError):
            self._fence([fleet_key(fleet)])
            self._events.note(fleet, type_, reason, message)

    async def write_events(self) -> None:
        """Write Events until cancelled."""
        await self._events.run()

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """See Runtime."""
        service = self.cache.objects.get(("Service", fleet.namespace, shard))
        return peer_address(fleet, shard, service.cluster_ip if service else "")

    def hub_address(self, name: str) -> str:
        """See Runtime."""
        return self._hub_pods[name].address

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """See Runtime."""
        return self._hubs[hub].epochs.get(fleet.key, 0)

    async def renew_identities(self) -> None:
        """Issue and renew certificates; call it every few seconds."""
        if self.identities is None:
            return
        try:
            await self.identities.renew(self._namespaces)
        finally:  # the operator's certificate may exist even if another could not be written
            self._shards.credentials = self.identities.credentials
            for hub in self._hubs.values():
                hub.credentials = self.identities.credentials

    def take_unidentified(self) -> list[ObjectKey]:
        """Return the fleets that have lost certificates since the last call; their next pass issues them again."""
        if self.identities is None:
            return []
        lost, self.identities.lost = self.identities.lost, set()
        return [key for namespace, label in lost for key in _labelled(label, namespace)]

    def _is_identified(self) -> bool:
        """True if this operator has a certificate, or needs none."""
        return self.identities is None or self._shards.credentials is not None

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str] | None:
        """See Runtime. The operator reads only these among other people's Secrets, every MARKS_SECONDS."""
        names, until = self._allowed.get(fleet.namespace, (frozenset(), 0.0))
        if time.monotonic() >= until:
            listed = self._client.list(SECRETS, namespace=fleet.namespace, labels=ALLOWED, chunk_size=CHUNK)
            names = frozenset([secret["metadata"]["name"] async for secret in listed])
            self._allowed[fleet.namespace] = names, time.monotonic() + MARKS_SECONDS
        return names

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """See Runtime."""
        if self.identities is not None:
            await self.identities.identify(fleet, shards)

    def _address(self, fleet: Fleet, shard: str) -> Address:
        return Address(fleet.namespace, shard, self._resolve(fleet, shard))

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """See Runtime."""
        if ("Deployment", fleet.namespace, shard) not in self.cache.objects or not self._is_identified():
            return None
        status = await self._shards.status(self._address(fleet, shard))
        # A reused address of another shard proves nothing about this one.
        return status if status is None or status.shard == shard else None

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """See Runtime."""
        self._fence()
        if not self._is_identified():
            return None
        return await self._shards.assign(self._address(fleet, shard), assignment)

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """See Runtime."""
        self._fence()
        self._check_identity()
        try:
            ledger = await self._hubs[hub].set(roster)
        except UnavailableError as error:
            if not (trouble := self._hub_pods[hub].trouble):
                raise
            raise UnavailableError(f"{error}: {trouble}") from error
        self._reports_to[roster.fleet] = hub
        return ledger

    async def report_scaling(self, scaling: FleetScaling) -> None:
        """See Runtime."""
        self._fence()
        self._check_identity()
        # Only the hub that has the fleet's roster.
        if (hub := self._reports_to.get(scaling.fleet)) is not None:
            await self._hubs[hub].report_scaling(scaling)

    async def retain(self, fleets: Sequence[str]) -> None:
        """See Runtime. Does nothing until every fleet was listed, because earlier operators may have reported any."""
        self._fence()
        self._check_identity()
        if self._unlisted:
            return
        for fleet in self._reports_to.keys() - set(fleets):
            del self._reports_to[fleet]
        unreachable = []
        for name, hub in self._hubs.items():
            # A fleet without a report under this leader may be at any hub.
            try:
                await hub.retain([fleet for fleet in fleets if self._reports_to.get(fleet, name) == name])
            except UnavailableError as error:
                unreachable.append(str(error))
        if unreachable:
            raise UnavailableError("; ".join(unreachable))

    def _check_identity(self) -> None:
        if self.identities is not None and not self._is_identified():
            raise UnavailableError(f"cannot report the roster to the hub: {self.identities.trouble}")


def fleet_key(fleet: Fleet | FleetReference) -> ObjectKey:
    """Return the fleet's key in the cache."""
    return fleet.type.resource, fleet.namespace, fleet.name


def _owners(manifest: Mapping[str, Any]) -> Iterator[ObjectKey]:
    namespace = manifest["metadata"].get("namespace", "")
    for owner in manifest["metadata"].get("ownerReferences") or ():
        if owner.get("apiVersion") == API_VERSION and owner.get("kind") in FLEET_TYPES:
            yield owner["kind"], namespace, owner["name"]
    yield from _labelled(label_of(manifest), namespace)


def _labelled(label: str, namespace: str) -> Iterator[ObjectKey]:
    for fleet_type in FLEET_TYPES.values():
        if label.startswith(f"{fleet_type.kind}."):
            yield fleet_type.resource, namespace, label.removeprefix(f"{fleet_type.kind}.")


def _without_empty_maps(value: Any) -> Any:
    """Return a copy of `value` without empty maps: apply turns a map that it empties into null, which is invalid."""
    if isinstance(value, Mapping):
        entries = {key: _without_empty_maps(entry) for key, entry in value.items()}
        return {key: entry for key, entry in entries.items() if entry != {}}
    return [_without_empty_maps(entry) for entry in value] if isinstance(value, list) else value


def _surplus(manifest: Manifest, stored: Mapping[str, Any]) -> Manifest:
    """Return the merge patch that removes a ConfigMap's unwanted keys."""
    if manifest["kind"] != "ConfigMap":
        return {}
    surplus = {
        field: [key for key in stored.get(field) or {} if key not in (manifest.get(field) or {})]
        for field in ("data", "binaryData")
    }
    return {field: dict.fromkeys(keys) for field, keys in surplus.items() if keys}

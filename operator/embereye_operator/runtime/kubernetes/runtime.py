"""A Kubernetes API server as the runtime: server-side apply out, a cache fed by watches in."""

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
from embereye_operator.decide.ownership.applied import owner_uids, whose, with_updates_applied
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
CHUNK = 50  # objects of one answer to a list: a larger one takes more memory than all that is kept of it
MARKS_SECONDS = 10.0  # after which it is asked again which Secrets fleets may use
REFUSALS = frozenset({400, 403, 422})  # by a quota, a policy, a validation
ALLOWED: Any = {LABEL_ALLOWED: "true"}
FLUSH_SECONDS = 1.0  # for events that are due when the operator ends
ALL_NAMESPACES = EVERYWHERE


class KubernetesRuntime:
    """Implements `runtime.Runtime`. The owner feeds `cache` from watches and calls `resync` first and now and then."""

    def __init__(  # noqa: PLR0913 -- what an operator is started with, all by name
        self,
        client: AsyncClient,
        *,
        hub: str,
        namespace: str | Sequence[str] = ALL_NAMESPACES,
        selects: Callable[[Mapping[str, str]], bool] = lambda _: True,
        operator: str = "",
        resolve: Callable[[Fleet, str], str] | None = None,
        leads: Callable[[], bool] = lambda: True,
        role: str = "",
        image: str = "",
        release: tuple[str, str] | None = None,
        watches_nodes: bool = False,
        authority_secret: str = "",
        hub_names: tuple[str, ...] = (),
        hubs: Sequence[NamedHub] = (),
    ) -> None:
        """`namespace` is the one that is watched, or several; `selects` is given a fleet's labels.

        `watches_nodes` says that there is a right to see nodes even so; with all namespaces there always is.

        `operator` is what a fleet's status names where this operator holds it; empty: it can hold none.

        `resolve` gives the address that the operator itself calls a shard at; by default its Service.

        `leads` is asked before every write: one that was decided on while leading must not come after. `role` is the
        operator's own, with which the disruption budgets go; "": they go with their fleets alone. Their Jobs name
        `image`. `release` is its namespace and name: processes prove who they are by certificates of it; None: nobody
        proves anything. The authority is one that others make, in `authority_secret` of that namespace; "": we do.
        `hubs` are those beside `hub`, which is the release's own.
        """
        self.cache = Cache()
        self.writes: Counter[tuple[str, bool]] = Counter()  # kind, whether it changed anything → patches
        self.lag = WatchLag()
        self._client = client
        self._namespaces = [namespace] if isinstance(namespace, str) else list(namespace)
        self._selects = selects
        self._operator = operator
        self._resolve = resolve or (lambda fleet, shard: self.address(fleet, shard).control)
        self._leads = leads
        self._shards = Shards()
        addresses = {"": hub, **{one.name: one.address for one in hubs}}  # by name; "": the release's own
        self._hubs = {name: Hub(address) for name, address in addresses.items()}
        self._reports_to: dict[str, str] = {}  # fleet → name of the hub that was told of it
        self._offered: set[str] = set()  # kinds that the server knows, and TOLERANCE
        self._tried_tolerance = False
        self._rivals: dict[ObjectKey, list[str]] = {}  # fleet → autoscalers that are not ours
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
        self._unseen: Mapping[str, str] = {}  # namespace that may not be seen → why
        self._unlisted = {(kind, each) for kind in FLEETS for each in self._namespaces}  # fleets that were never seen
        self._filled = False  # whether everything was listed once

    async def close(self) -> None:
        """Write the events that are due, within a moment, and close all connections."""
        await self._events.flush(FLUSH_SECONDS)
        await self._shards.close()
        for hub in self._hubs.values():
            await hub.close()
        await self._client.close()
        if self.identities:
            self.identities.close()

    # --- observing ---

    async def resync(self) -> list[ObjectKey]:
        """List what watches ought to have told; returns what they had not. Also the first fill of the cache.

        Of a namespace that may not be seen, one that was deleted for example, what was known stays known.
        """
        news: list[ObjectKey] = []
        unseen: dict[str, str] = {}
        for name in (*FLEETS, *CHILDREN):
            try:
                news += await self._list(name, unseen)
            except httpx.HTTPStatusError as error:  # ApiError is one
                # Without its CustomResourceDefinition the server knows no such path; without the right it says so.
                if name not in OPTIONAL or error.response.status_code not in {403, 404}:
                    raise
                self._lack(name, gone=error.response.status_code == 404)
            else:
                self._offered.add(name)
        news += await self._reread_device_lists()
        self._filled = True
        for namespace in unseen.keys() - self._unseen.keys():
            logger.warning("namespace %s cannot be seen, and is left as it was: %s", namespace, unseen[namespace])
        self._unseen = unseen
        for name, hub in self._hubs.items():
            await self._hub_pods[name].locate()
            hub.found_at(self._hub_pods[name].address)
        if not self._tried_tolerance:
            await self._try_tolerance()
        await self._shards.close_idle()
        return news

    def _lack(self, kind: str, *, gone: bool) -> None:
        """Note that the server does not offer `kind`; `gone`: nor has it any of its objects."""
        self._offered.discard(kind)
        for key in [key for key in self.cache.objects if gone and key[0] == kind]:
            self.cache.forget(key)

    async def _try_tolerance(self) -> None:
        """Find out whether the server stores a tolerance of an autoscaler: one that does not drops it silently."""
        seen = [name for name in self._namespaces if name != ALL_NAMESPACES and name not in self._unseen]
        namespace = next(iter(seen), "default")
        target = {"apiVersion": API_VERSION, "kind": next(iter(FLEETS)), "name": "embereye-tolerance"}
        rules = {"behavior": {"scaleUp": {"tolerance": "0"}}, "scaleTargetRef": target, "maxReplicas": 1}
        kind: Any = CHILDREN["HorizontalPodAutoscaler"]
        metadata = {"name": target["name"], "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
        try:
            stored = await self._client.create(kind.from_dict({"metadata": metadata, "spec": rules}), dry_run=True)
        except ApiError as error:
            logger.info("whether autoscalers have a tolerance of their own cannot be told: %s", error.status.message)
            return
        self._tried_tolerance = True
        if "tolerance" in (stored["spec"].get("behavior") or {}).get("scaleUp", {}):
            self._offered.add(TOLERANCE)

    async def _list(self, name: str, unseen: dict[str, str]) -> list[ObjectKey]:
        kind = FLEETS.get(name) or CHILDREN[name]
        # Autoscalers of other people are looked at, too: two of them must not pull at one fleet.
        ours = name in CHILDREN and name != "HorizontalPodAutoscaler"
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY} if ours else None
        found, news = [], []
        versions: list[int] = []
        rivals: dict[ObjectKey, list[str]] = defaultdict(list)
        refused: set[str] = set()
        async for manifest in self._list_all(kind, labels, versions, unseen, refused):
            key = name, sys.intern(manifest["metadata"]["namespace"]), manifest["metadata"]["name"]
            if name in FLEETS and not self._selects(manifest["metadata"].get("labels") or {}):
                continue
            if name == "HorizontalPodAutoscaler" and not label_of(manifest):
                target = manifest["spec"].get("scaleTargetRef") or {}
                rivals[target.get("kind", ""), key[1], target.get("name", "")].append(f"{name} {key[2]}")
                continue
            found.append(key)
            if self.cache.put({**manifest, "kind": name, "apiVersion": api_version(kind)}):
                news.append(key)
                self._expect(key)  # before anything is awaited: the watch may tell it at any moment
        if name == "HorizontalPodAutoscaler":
            self._rivals = {key: named for key, named in self._rivals.items() if key[1] in refused} | rivals
        version = min(versions)
        self.lag.listed(name, version)
        self._unlisted -= {(name, namespace) for namespace in self._namespaces if namespace not in refused}
        others = [*self._lists] if name == "ConfigMap" else []
        self.lag.retain(name, [*found, *others])  # what may not be listed, the watch does not tell either
        others += [key for key in self.cache.objects if key[0] == name and key[1] in refused]
        gone = self.cache.replace(name, found, version, others=others)
        for key in gone if name in FLEETS else ():
            self._refer(key, ())
        return [] if name in UNWATCHED and name in self._offered else [*news, *gone]

    async def _reread_device_lists(self) -> list[ObjectKey]:
        """One by one: a list of all ConfigMaps would read everybody's."""
        news = []
        for key in self._lists:
            known = self.cache.objects.get(key)
            try:
                stored = await self._read_config_map(key)
            except ApiError as error:
                logger.debug("%s: %s", " ".join(key), error)  # the passes over its fleets fail, and tell it
                continue
            if stored is None and known is not None:
                self.cache.drop(key, known.version)
                news.append(key)
            elif stored is not None and (known is None or known.version < stored.version):
                self._expect(key)
                news.append(key)
        return news

    def _expect(self, key: ObjectKey) -> None:
        # What is listed first, nobody watches yet.
        if self._filled and key[0] not in UNWATCHED:
            self.lag.expect(key, self.cache.objects[key].version, time.monotonic())

    async def _list_all(
        self, kind: Any, labels: Any, versions: list[int], unseen: dict[str, str], refused: set[str]
    ) -> AsyncIterator[Manifest]:
        """The objects of all namespaces that are watched, which do not say what they are; then the lists' versions.

        Namespaces that may not be seen are noted as `refused`, and why; where all are, that is an error.
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
        """Take a watch event; returns the fleets that it concerns."""
        if manifest["kind"] in FLEETS and not self._selects(manifest["metadata"].get("labels") or {}):
            type_ = "DELETED"  # here: another operator may look after it
        kind, version = (key := key_of(manifest))[0], version_of(manifest)
        self.lag.told(key, version)
        self._lists.found(key)
        concerned = {key} if kind in FLEETS else self._fleets_of(key, manifest)
        if not concerned and key not in self.cache.objects:
            return set()  # somebody else's
        if type_ == "DELETED":
            news = self.cache.drop(key, version)
            if kind in FLEETS:
                self._refer(key, ())
        else:
            news = self.cache.put(manifest)
        return concerned if news else set()

    def _fleets_of(self, key: ObjectKey, manifest: Manifest) -> set[ObjectKey]:
        """The fleets that a change of the object concerns: its owners, those it belonged to, those that read it."""
        known = self.cache.objects.get(key)
        before = _labelled(known.label, key[1]) if known else ()
        return {*_owners(manifest), *before, *self._lists.fleets(key)}

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """See Runtime."""
        return [stored.manifest() for _, stored in self.cache.of_fleet(fleet)]

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """See Runtime."""
        found = {(key[0], key[2]): str(stored.version) for key, stored in self.cache.of_fleet(fleet)}
        names = sorted({reference.config_map_ref.name for reference in fleet.devices_from})
        self._refer(fleet_key(fleet), names)
        for name in names:
            stored = await self._config_map(("ConfigMap", fleet.namespace, name))
            found["ConfigMap", name] = str(stored.version) if stored else "absent"
        return found

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """See Runtime."""
        found = {}
        for name in {reference.config_map_ref.name for reference in fleet.devices_from}:
            if stored := await self._config_map(("ConfigMap", fleet.namespace, name)):
                found[name] = stored.manifest().get("data") or {}
        return found

    def _refer(self, fleet: ObjectKey, names: Sequence[str]) -> None:
        for key in self._lists.refer(fleet, names):
            if (stored := self.cache.objects.get(key)) is not None and not stored.label:
                self.cache.forget(key)

    async def _config_map(self, key: ObjectKey) -> Stored | None:
        return self.cache.objects.get(key) or await self._read_config_map(key)

    async def _read_config_map(self, key: ObjectKey) -> Stored | None:
        if self._lists.lacks(key, time.monotonic()):
            return None
        try:
            read = await self._client.get(CHILDREN["ConfigMap"], key[2], namespace=key[1])
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._lists.missing(key, time.monotonic())
            return None
        self.cache.put({**read, "kind": "ConfigMap", "apiVersion": "v1"})
        return self.cache.objects.get(key)

    # --- changing ---

    def _fence(self, fleets: Iterable[ObjectKey] = ()) -> None:
        if not self._leads():
            raise NotLeadingError("another operator leads: nothing is written")
        for key in fleets:
            if (stored := self.cache.objects.get(key)) is not None and stored.deleting:
                raise NotLeadingError(f"{' '.join(key)} is being deleted: nothing is written")
            if stored is not None and self._operator and stored.holder not in {"", self._operator}:
                raise NotLeadingError(f"{' '.join(key)} is held by operator {stored.holder}: nothing is written")

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
                # What somebody else added contradicts ours. A merge patch replaces lists as a whole.
                await self._patch({key: manifest[key] for key in manifest if key != "apiVersion"})
                stored = await self._patch(manifest, PatchType.APPLY)
            if entries := with_updates_applied(stored["metadata"].get("managedFields") or (), MANAGED_BY):
                stored = await self._own(stored, entries)
                stored = await self._patch(manifest, PatchType.APPLY)
            if surplus := _surplus(manifest, stored):
                # Keys that somebody else came to own: apply alone leaves them to their owner.
                stored = await self._patch({"kind": manifest["kind"], "metadata": manifest["metadata"], **surplus})
        except ApiError as error:
            # 409: somebody was faster; 404: the namespace is going; 429, 5xx: not now.
            what = " ".join(key_of(manifest))
            if error.status.code in REFUSALS:
                raise RefusedError(f"{what} is refused: {error.status.message}") from error
            error.add_note(f"{what} is not written")
            raise
        except httpx.HTTPStatusError as error:
            # No answer of the API's: a path that it does not know, since the kind is not there any more.
            if manifest["kind"] not in OPTIONAL or error.response.status_code != 404:
                raise
            self._lack(manifest["kind"], gone=True)
            raise RefusedError(f"{' '.join(key_of(manifest))}: there is no {manifest['kind']} here any more") from error
        self.cache.put(stored)
        return stored

    async def _is_absent(self, manifest: Manifest) -> bool:
        """Whether there is no object of this name; TakenError where there is one, and it is not its fleet's."""
        kind, namespace, name = key = key_of(manifest)
        if (known := self.cache.objects.get(key)) is not None:
            found = [known.manifest()]
        else:
            # Only what is labelled as ours is watched.
            listed: Any = self._client.list(CHILDREN[kind], namespace=namespace, fields={"metadata.name": name})
            found = [stored async for stored in listed]
        for stored in found:
            owners, orphan = owner_uids(stored), label_of(stored) == label_of(manifest)
            if not set(owners) & set(owner_uids(manifest)) and not (orphan and not owners):
                raise TakenError(
                    f"{kind} {name} is there already and is not this fleet's ({whose(stored)}): it is left as it is; "
                    "delete it, or give the fleet another name"
                )
        return not found

    async def _own(self, stored: Manifest, entries: Sequence[Manifest]) -> Manifest:
        """Make `entries` the object's managedFields."""
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
            # Its version has just become another one.
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
        # The server gives no new version to what is as it was. The version is the one before the request: a watch may
        # tell the new one earlier than the answer does.
        self.writes[stored["kind"], version_of(stored) != before] += 1

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
        """See Runtime. 422, and nothing happens, where somebody has scaled meanwhile."""
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
    def sees_nodes(self) -> bool:
        """See Runtime. Nodes belong to no namespace: whoever watches some needs a right of its own to them."""
        return self._watches_nodes

    async def look_at_nodes(self, silent: Collection[Shard]) -> list[ObjectKey]:
        """Find shards, and the hub, on nodes that are being emptied or lost; ask for it every few seconds.

        `silent` are shards that do not answer. Returns the fleets that this concerns.
        """
        self._fence()
        fleets = []
        if self.sees_nodes:
            for namespace, label in await self.nodes.find_displaced(silent):
                kind, _, name = label.partition(".")
                fleets += [(type_.resource, namespace, name) for type_ in FLEET_TYPES.values() if type_.kind == kind]
        for name, hub in self._hubs.items():
            pods = self._hub_pods[name]
            await pods.diagnose(answers=self._is_identified() and await hub.answers())
            hub.found_at(pods.address)
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
        """Hold the budgets for another while, and delete those whose fleet is gone; ask for it now and then."""
        self._fence()
        fleets = {
            (key[1], f"{FLEET_TYPES[key[0]].kind}.{key[2]}") for key in self.cache.objects if key[0] in FLEET_TYPES
        }
        await self._guard.renew({namespace for namespace, _ in fleets})
        for key, stored in list(self.cache.objects.items()):
            if key[0] != "PodDisruptionBudget" or not stored.label or (key[1], stored.label) in fleets:
                continue
            if not stored.deleting and key[1] not in self._unseen and self._guard.holds(budget := stored.manifest()):
                await self.delete(budget)

    def offers(self, kind: str) -> bool:
        """See Runtime."""
        return kind in self._offered

    async def write_status(self, fleet: Fleet | FleetReference, status: Manifest) -> None:
        """See Runtime."""
        self._fence([fleet_key(fleet)])
        body = {
            "apiVersion": API_VERSION,
            "kind": fleet.type.resource,
            # With the uid, a fleet that was deleted and declared anew does not inherit its namesake's status.
            "metadata": {"name": fleet.name, "namespace": fleet.namespace, "uid": fleet.uid},
            "status": status,
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
        """Write what people are to be told, until cancelled."""
        await self._events.run()

    # --- shards and hub ---

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

    async def keep_identities(self) -> None:
        """Make and renew certificates; ask for it every minute."""
        if self.identities is None:
            return
        try:
            await self.identities.keep(self._namespaces)
        finally:  # our own certificate may be there although another one cannot be written
            self._shards.credentials = self.identities.credentials
            for hub in self._hubs.values():
                hub.credentials = self.identities.credentials

    def _is_identified(self) -> bool:
        """Whether this operator can prove who it is, or need not."""
        return self.identities is None or self._shards.credentials is not None

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str] | None:
        """See Runtime. Of other people's Secrets the operator reads these alone, every MARKS_SECONDS."""
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
        # An address that another shard has got meanwhile says nothing about this one.
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

    async def tell_scaling(self, scaling: FleetScaling) -> None:
        """See Runtime."""
        self._fence()
        self._check_identity()
        # To the one that was told of the fleet, of which the release's own has no name.
        if (hub := self._reports_to.get(scaling.fleet)) is not None:
            await self._hubs[hub].tell_scaling(scaling)

    async def retain(self, fleets: Sequence[str]) -> None:
        """See Runtime. Nothing is forgotten before every fleet was seen that an earlier operator may have told of."""
        self._fence()
        self._check_identity()
        if self._unlisted:
            return
        for fleet in self._reports_to.keys() - set(fleets):
            del self._reports_to[fleet]
        away = []
        for name, hub in self._hubs.items():
            # One that nobody has been told of since this operator leads may be at any of them.
            try:
                await hub.retain([fleet for fleet in fleets if self._reports_to.get(fleet, name) == name])
            except UnavailableError as error:
                away.append(str(error))
        if away:
            raise UnavailableError("; ".join(away))

    def _check_identity(self) -> None:
        if self.identities is not None and not self._is_identified():
            raise UnavailableError(f"the hub cannot be told the roster: {self.identities.trouble}")


def fleet_key(fleet: Fleet | FleetReference) -> ObjectKey:
    """What the fleet itself is stored under."""
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


def _surplus(manifest: Manifest, stored: Mapping[str, Any]) -> Manifest:
    """The merge patch that takes away what a ConfigMap has and is not to have."""
    if manifest["kind"] != "ConfigMap":
        return {}
    surplus = {
        field: [key for key in stored.get(field) or {} if key not in (manifest.get(field) or {})]
        for field in ("data", "binaryData")
    }
    return {field: dict.fromkeys(keys) for field, keys in surplus.items() if keys}

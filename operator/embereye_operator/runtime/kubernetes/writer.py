"""Writes to an API server, with server-side apply, and Events for people. Every write passes the fence.

Passes call it with complete manifests, and server-side apply merges them with the fields of other writers. The operator
forces its fields, except on a new object, which may belong to somebody else. Answers that a retry does not change
become RefusedError; others are raised, and the pass is tried again. A stored object goes into the cache at once,
because the next pass may come before its watch event.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import CascadeType, PatchType

from embereye_operator.api.fleets import Fleet, FleetReference
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION
from embereye_operator.decide.ownership.applied import owner_text, owner_uids, with_updates_applied
from embereye_operator.errors import NotLeadingError, RefusedError, TakenError
from embereye_operator.runtime.kubernetes.client.answers import REFUSALS
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey, key_of, label_of, version_of
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, FLEETS, OPTIONAL
from embereye_operator.runtime.kubernetes.events import EventWriter
from embereye_operator.runtime.kubernetes.fence import Fence
from embereye_operator.runtime.kubernetes.world import KubernetesWorld, fleet_key, owners_of

FLUSH_SECONDS = 1.0  # time to write waiting events when the operator ends


@dataclass(eq=False)
class KubernetesWriter:
    """Implements `interface.Writer`. `write_events` must run."""

    client: AsyncClient
    world: KubernetesWorld  # its cache gets every written object, because the watch may report it later
    fence: Fence
    # Kind, whether it changed anything → number of patches.
    write_counts: Counter[tuple[str, bool]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._events = EventWriter(self.client)

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """See Writer."""
        self.fence(owners_of(manifest))
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
            self.world.note_missing_kind(manifest["kind"], gone=True)
            raise RefusedError(
                f"{' '.join(key_of(manifest))}: the cluster has no {manifest['kind']} any more"
            ) from error
        self.world.cache.put(stored)
        return stored

    async def _is_absent(self, manifest: Manifest) -> bool:
        """True if no object of this name exists; TakenError if one exists and belongs to somebody else."""
        kind, namespace, name = key = key_of(manifest)
        if (known := self.world.cache.objects.get(key)) is not None:
            existing = [known.manifest()]
        else:
            # Only objects with the operator's label are watched.
            listed: Any = self.client.list(CHILDREN[kind], namespace=namespace, fields={"metadata.name": name})
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
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        ]
        return await self._send(CHILDREN[stored["kind"]], metadata, patch, PatchType.JSON)

    async def _patch(
        self, manifest: Manifest, patch_type: PatchType = PatchType.MERGE, *, force: bool = True
    ) -> Manifest:
        metadata = manifest["metadata"]
        if patch_type is PatchType.MERGE:
            # The preceding patch has changed the version.
            manifest = {**manifest, "metadata": {k: v for k, v in metadata.items() if k != "resourceVersion"}}
        before = self._version(key_of(manifest))
        stored = await self._send(CHILDREN[manifest["kind"]], metadata, manifest, patch_type, force=force)
        stored = {**stored, "kind": manifest["kind"]}
        self._count_write(stored, before)
        return stored

    async def _send(
        self, kind: Any, metadata: Mapping[str, Any], patch: Any, patch_type: PatchType, *, force: bool = False
    ) -> Manifest:
        """Patch the object with the name and namespace in `metadata`; return it as stored."""
        stored: Manifest = await self.client.patch(
            kind, metadata["name"], patch, namespace=metadata["namespace"], patch_type=patch_type, force=force,
            field_manager=MANAGED_BY,
        )  # fmt: skip
        return stored

    def _version(self, key: ObjectKey) -> int:
        known = self.world.cache.objects.get(key)
        return known.version if known else 0

    def _count_write(self, stored: Manifest, before: int) -> None:
        # The server gives unchanged objects no new version. `before` is the version before the request, because a watch
        # may report the new one earlier than the answer does.
        self.write_counts[stored["kind"], version_of(stored) != before] += 1

    async def delete(self, manifest: Manifest) -> None:
        """See Writer."""
        self.fence()
        kind, namespace, name = key = key_of(manifest)
        try:
            await self.client.delete(CHILDREN[kind], name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except httpx.HTTPStatusError as error:  # ApiError is one; without the kind the server knows no such path
            if error.response.status_code in REFUSALS:
                raise RefusedError(f"{' '.join(key)} is not deleted: {error}") from error
            if error.response.status_code != 404:
                raise
            self.world.cache.drop(key, version_of(manifest))

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """See Writer. 422, without any change, if somebody has scaled meanwhile."""
        self.fence([fleet_key(fleet)])
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": fleet.uid},
            {"op": "test", "path": "/spec/replicas", "value": fleet.spec.shards},
            {"op": "replace", "path": "/spec/replicas", "value": shards},
        ]
        try:
            place = {"name": fleet.name, "namespace": fleet.namespace}
            await self._send(FLEETS[fleet.type.resource].Scale, place, patch, PatchType.JSON)
        except ApiError as error:
            if error.status.code not in REFUSALS or error.status.code == 422:
                raise
            raise RefusedError(f"{fleet.key} is not scaled: {error.status.message}") from error

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """Merge `pod` into the pod template of a Deployment, and change only that."""
        self.fence(owners_of(deployment))
        metadata = {key: deployment["metadata"][key] for key in ("name", "namespace")}
        rolled = {"kind": "Deployment", "metadata": metadata, "spec": {"template": pod}}
        self.world.cache.put(await self._patch(rolled))

    async def write_status(self, fleet: FleetReference, status: Manifest) -> None:
        """See Writer."""
        self.fence([fleet_key(fleet)])
        body: Manifest = {
            "apiVersion": API_VERSION,
            "kind": fleet.type.resource,
            # With the uid, a fleet that was deleted and declared again does not inherit its namesake's status.
            "metadata": {"name": fleet.name, "namespace": fleet.namespace, "uid": fleet.uid},
            "status": _without_empty_maps(status),
        }
        before = self._version((fleet.type.resource, fleet.namespace, fleet.name))
        try:
            status_of = FLEETS[fleet.type.resource].Status
            stored = await self._send(status_of, body["metadata"], body, PatchType.APPLY, force=True)
        except ApiError as error:
            if error.status.code != 403:
                raise
            raise RefusedError(f"the status cannot be written: {error.status.message}") from error
        self._count_write({**stored, "kind": fleet.type.resource}, before)
        self.world.cache.put(stored)

    async def event(
        self, fleet: FleetReference, type_: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """See Writer."""
        with contextlib.suppress(NotLeadingError):
            self.fence([fleet_key(fleet)])
            self._events.note(fleet, type_, reason, message)

    async def write_events(self) -> None:
        """Write Events until cancelled."""
        await self._events.run()

    async def close(self) -> None:
        """Write the waiting Events within FLUSH_SECONDS."""
        await self._events.flush(FLUSH_SECONDS)


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

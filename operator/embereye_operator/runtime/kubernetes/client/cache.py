"""The cache of API objects, packed, because objects are large and many, and most are never read again.

Watches, lists and our own writes `put` objects here, and the version decides: an older one never replaces a newer one,
nor brings a deleted object back. An object is JSON without managedFields, compressed with another object of its kind as
dictionary. A few fields that are often needed are also stored unpacked. An index by fleet finds children without a
search.
"""

import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from embereye_operator.api.fleets import FLEET_TYPES, Fleet
from embereye_operator.api.names import LABEL_FLEET, LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.api.schema import Manifest

ObjectKey = tuple[str, str, str]  # kind, namespace, name
PACKING = 6  # compression level of zlib
WINDOW = 16 * 1024  # bytes of an example; zlib's window of 32 kB also contains the object
LONGER = 1.5  # how much longer an object must be to replace the example: a fleet with status replaces one without


def key_of(manifest: Mapping[str, Any]) -> ObjectKey:
    """Return an object's key in the cache."""
    metadata = manifest["metadata"]
    return sys.intern(manifest["kind"]), sys.intern(metadata.get("namespace", "")), metadata["name"]


def version_of(manifest: Mapping[str, Any]) -> int:
    """Return the object's resource version; on one server they only grow."""
    text = str(manifest["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def label_of(manifest: Mapping[str, Any]) -> str:
    """Return the fleet of a child, from its label; empty for objects of other owners."""
    labels = manifest["metadata"].get("labels") or {}
    return str(labels.get(LABEL_FLEET, "")) if labels.get(LABEL_MANAGED_BY) == MANAGED_BY else ""


def holder_of(manifest: Mapping[str, Any]) -> str:
    """Return the operator in a fleet's status; empty if it has none, or is no fleet."""
    operator = (manifest.get("status") or {}).get("operator") if manifest["kind"] in FLEET_TYPES else None
    return str(operator.get("name", "")) if isinstance(operator, Mapping) else ""


def cluster_ip_of(manifest: Mapping[str, Any]) -> str:
    """Return a Service's address inside the cluster, which never changes; "" for other objects."""
    address = manifest.get("spec", {}).get("clusterIP") if manifest["kind"] == "Service" else ""
    return address if address and address != "None" else ""


def writers_of_shards(manifest: Mapping[str, Any]) -> list[Manifest]:
    """Return the managedFields entries that own spec.shards of a fleet, without their other fields."""
    if manifest["kind"] not in FLEET_TYPES:
        return []
    return [
        {key: value for key, value in entry.items() if key != "fieldsV1"}
        for entry in manifest["metadata"].get("managedFields") or ()
        if "f:shards" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]


@dataclass(frozen=True, slots=True)
class Stored:
    """An object without its managedFields, which are most of it; for a fleet, those that own spec.shards remain."""

    version: int
    label: str  # see label_of
    owners: tuple[str, ...]  # their uids
    holder: str  # for a fleet: the operator in its status
    deleting: bool  # it waits for finalizers or dependents
    cluster_ip: str  # for a Service; otherwise ""
    _packed: bytes
    _example: bytes  # the dictionary for unpacking

    @classmethod
    def pack(cls, manifest: Mapping[str, Any], examples: "Examples") -> "Stored":
        """Pack `manifest`."""
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
        if writers := writers_of_shards(manifest):
            metadata["managedFields"] = writers
        text = json.dumps({**manifest, "metadata": metadata}, ensure_ascii=False, separators=(",", ":")).encode()
        owners = tuple(sys.intern(owner["uid"]) for owner in metadata.get("ownerReferences") or ())
        deleting = bool(metadata.get("deletionTimestamp"))
        example = examples.of(manifest["kind"], text)
        packer = zlib.compressobj(PACKING, zdict=example)
        packed = packer.compress(text) + packer.flush()
        label, holder = sys.intern(label_of(manifest)), sys.intern(holder_of(manifest))
        return cls(version_of(manifest), label, owners, holder, deleting, cluster_ip_of(manifest), packed, example)

    def manifest(self) -> Manifest:
        """Return the object as received, unpacked."""
        unpacked: Manifest = json.loads(zlib.decompressobj(zdict=self._example).decompress(self._packed))
        return unpacked


class Examples:
    """An object of each kind as zlib's dictionary for packing others of that kind, which are similar."""

    def __init__(self) -> None:
        self._of: dict[str, bytes] = {}

    def of(self, kind: str, text: bytes) -> bytes:
        """Return the example for an object with this `text`: itself if it is much longer than the present one."""
        known = self._of.get(kind, b"")
        if len(known) < WINDOW and len(text) > LONGER * len(known):
            known = self._of[kind] = text[:WINDOW]
        return known


@dataclass
class Cache:
    """The latest version of each object, from watches and our own writes; never an older one."""

    objects: dict[ObjectKey, Stored] = field(default_factory=dict)
    deleted: dict[ObjectKey, int] = field(default_factory=dict)  # resource version at deletion
    by_fleet: dict[tuple[str, str], set[ObjectKey]] = field(default_factory=dict)  # namespace, label → children
    _examples: Examples = field(default_factory=Examples)

    def put(self, manifest: Mapping[str, Any]) -> bool:
        """Store `manifest` unless a newer version is known; True if it is new."""
        key, version = key_of(manifest), version_of(manifest)
        known = self.objects.get(key)
        if (known is not None and known.version >= version) or self.deleted.get(key, 0) >= version:
            return False
        self.forget(key)
        self.deleted.pop(key, None)
        self.objects[key] = stored = Stored.pack(manifest, self._examples)
        if stored.label:
            self.by_fleet.setdefault((key[1], stored.label), set()).add(key)
        return True

    def drop(self, key: ObjectKey, version: int) -> bool:
        """Record that the object was deleted at `version`; True if that is new."""
        known = self.objects.get(key)
        self.deleted[key] = max(version, self.deleted.get(key, 0))
        if known is None or known.version > version:
            return False
        self.forget(key)
        return True

    def replace(
        self, kind: str, listed: Iterable[ObjectKey], version: int, *, others: Iterable[ObjectKey] = ()
    ) -> list[ObjectKey]:
        """Drop objects of one kind that a complete list as of `version` did not contain; return their keys.

        The list's objects must have been `put` one by one, because all at once would take more memory than the cache.
        `others` are objects of that kind that the list's selector leaves out.
        """
        seen = {*listed, *others}
        missing = [key for key in self.objects if key[0] == kind and key not in seen]
        gone = [key for key in missing if self.objects[key].version <= version and self.drop(key, version)]
        self.deleted = {key: at for key, at in self.deleted.items() if key[0] != kind or at > version}
        return gone

    def forget(self, key: ObjectKey) -> None:
        """Drop the object from the cache, even if it still exists."""
        before = self.objects.pop(key, None)
        if before is not None and before.label:
            siblings = self.by_fleet[key[1], before.label]
            siblings.discard(key)
            if not siblings:
                del self.by_fleet[key[1], before.label]

    def of_fleet(self, fleet: Fleet) -> Iterator[tuple[ObjectKey, Stored]]:
        """Yield the fleet's children. Those with another owner belong to a deleted namesake and will be deleted soon.

        Disruption budgets may be owned by the operator's Job, see `runtime.guard`.
        """
        for key in sorted(self.by_fleet.get((fleet.namespace, fleet.names.label), ())):
            stored = self.objects[key]
            if not stored.owners or fleet.uid in stored.owners or key[0] == "PodDisruptionBudget":
                yield key, stored

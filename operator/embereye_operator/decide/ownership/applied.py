"""What was applied to a child, as the child itself tells it: whether it says more than is wanted, and whose it is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.schema import Manifest

ANNOTATION_APPLIED = "embereye.dev/applied"  # of a child: a hash of all that was applied to it


def marked(manifest: Manifest) -> Manifest:
    """`manifest` with the hash of all that it says.

    A comparison of what is wanted with what there is cannot tell a field that is no longer wanted from one that
    somebody else set. The hash can: where it is another, the manifest is applied again, and the API server removes what
    its field manager owned and does not say any more.
    """
    return annotated(manifest, ANNOTATION_APPLIED, hashed(manifest))


def annotated(manifest: Manifest, annotation: str, value: str) -> Manifest:
    """`manifest` with an annotation more."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), annotation: value}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def hashed(said: Mapping[str, Any]) -> str:
    """A short text that is another where what is `said` is."""
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def owner_uids(manifest: Mapping[str, Any]) -> list[str]:
    """The uids of the object's owners."""
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()]


def whose(manifest: Mapping[str, Any]) -> str:
    """The object's owner, for people."""
    owners = [f"{owner['kind']} {owner['name']}" for owner in manifest["metadata"].get("ownerReferences") or ()]
    return f"it belongs to {' and '.join(owners)}" if owners else "no fleet made it"


def with_updates_applied(entries: Sequence[Mapping[str, Any]], manager: str) -> list[Manifest] | None:
    """`managedFields` in which what `manager` once wrote by another patch counts as applied; None: nothing to change.

    Fields of such an entry would stay for ever: applying removes only what was applied.
    """
    main = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    applied = next((entry for entry in main if entry.get("operation") == "Apply"), None)
    updates = [entry for entry in main if entry.get("operation") == "Update"]
    if applied is None or not updates:
        return None
    fields = dict(applied["fieldsV1"])
    for entry in updates:
        fields = _union(fields, entry["fieldsV1"])
    kept = [dict(entry) for entry in entries if entry is not applied and entry not in updates]
    return [{**applied, "fieldsV1": fields}, *kept]


def _union(a: Mapping[str, Any], b: Mapping[str, Any]) -> Manifest:
    return {key: _union(a.get(key) or {}, b.get(key) or {}) for key in sorted({*a, *b})}

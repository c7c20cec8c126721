"""The applied state of a child, read from the child: its surplus fields and its owner."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.schema import Manifest

ANNOTATION_APPLIED = "embereye.dev/applied"  # on a child: a hash of the applied manifest


def marked(manifest: Manifest) -> Manifest:
    """Return `manifest` with a hash of its content as an annotation.

    A comparison of wanted and existing fields cannot distinguish a field that became unwanted from one that somebody
    else set. The hash can: if it differs, the manifest is applied again, and the API server removes the fields that
    its field manager owned and that the new manifest omits.
    """
    return annotated(manifest, ANNOTATION_APPLIED, hashed(manifest))


def annotated(manifest: Manifest, annotation: str, value: str) -> Manifest:
    """Return `manifest` with an additional annotation."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), annotation: value}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def hashed(content: Mapping[str, Any]) -> str:
    """Return a short hash of `content`."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def owner_uids(manifest: Mapping[str, Any]) -> list[str]:
    """List the uids of the object's owners."""
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()]


def owner_text(manifest: Mapping[str, Any]) -> str:
    """Describe the object's owner for people."""
    owners = [f"{owner['kind']} {owner['name']}" for owner in manifest["metadata"].get("ownerReferences") or ()]
    return f"it belongs to {' and '.join(owners)}" if owners else "no fleet owns it"


def with_updates_applied(entries: Sequence[Mapping[str, Any]], manager: str) -> list[Manifest] | None:
    """Return `managedFields` in which updates by `manager` count as applied; None if there are none.

    Otherwise such fields would remain forever, because applying removes only applied fields.
    """
    main = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    applied = next((entry for entry in main if entry.get("operation") == "Apply"), None)
    updates = [entry for entry in main if entry.get("operation") == "Update"]
    if applied is None or not updates:
        return None
    fields = dict(applied["fieldsV1"])
    for entry in updates:
        fields = _union(fields, entry["fieldsV1"])
    others = [dict(entry) for entry in entries if entry is not applied and entry not in updates]
    return [{**applied, "fieldsV1": fields}, *others]


def _union(a: Mapping[str, Any], b: Mapping[str, Any]) -> Manifest:
    return {key: _union(a.get(key) or {}, b.get(key) or {}) for key in sorted({*a, *b})}

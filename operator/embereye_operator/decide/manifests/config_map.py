"""The placement ConfigMap, which shards read as files.

Each shard's assignment is a file in it, and one more file is the record for the next leader. All change in one write,
so they always agree on the epoch. Equal content gives equal bytes. Large ones are packed with gzip, because the API
server limits the size.
"""

import base64
import contextlib
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from embereye.v1.shard_pb2 import Assignment
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.placement.assignments import encode

PLACEMENT_KEY = "placement.json"
PLAIN_PLACEMENT = 250_000  # characters; beyond it files are packed, because a ConfigMap has at most a million bytes


def build_placement(fleet: Fleet, *, assignments: Mapping[str, Assignment], record: Manifest) -> Manifest:
    """Build the ConfigMap that shards read as files, and a new leader reads before it decides anything.

    People can read it, unless it is large: then its files are packed with gzip.
    """
    files = {f"{shard}.json": encode(assignment) for shard, assignment in assignments.items()}
    files[PLACEMENT_KEY] = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": fleet.names.metadata(fleet.names.placement),
    }
    if sum(map(len, files.values())) > PLAIN_PLACEMENT:
        packed = {f"{name}.gz": gzip.compress(text.encode(), mtime=0) for name, text in sorted(files.items())}
        manifest["binaryData"] = {name: base64.b64encode(content).decode() for name, content in packed.items()}
    else:
        manifest["data"] = dict(sorted(files.items()))
    return manifest


def placement_files(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of `build_placement` by name, without unreadable ones."""
    files = dict(manifest.get("data") or {})
    for name, content in (manifest.get("binaryData") or {}).items():
        with contextlib.suppress(ValueError, OSError, EOFError, zlib.error):
            files[name.removesuffix(".gz")] = gzip.decompress(base64.b64decode(content)).decode()
    return files


def placement_size(manifest: Mapping[str, Any]) -> int:
    """Return the size in bytes, as the API server counts it."""
    packed = sum(len(content) * 3 // 4 for content in (manifest.get("binaryData") or {}).values())
    return packed + sum(len(text.encode()) for text in (manifest.get("data") or {}).values())

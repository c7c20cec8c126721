"""Packs a Helm chart as an archive of an OCI image layout, as `helm push` would store it in a registry.

Layout: github.com/opencontainers/image-spec, version 1.1. Media types: helm.sh/docs/topics/registries.
"""

import hashlib
import io
import json
import tarfile
from typing import Any

import yaml

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def pack_chart(chart: bytes, created: str) -> bytes:
    """Pack a chart as `helm package` makes it. `created` is a time such as 2026-01-31T12:00:00Z."""
    metadata = _metadata(chart)
    blobs: dict[str, bytes] = {}

    def add(kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    annotations = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.title": metadata["name"],
        "org.opencontainers.image.version": metadata["version"],
        "org.opencontainers.image.description": metadata.get("description", ""),
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": add(CONFIG, json.dumps(metadata).encode()),
        "layers": [add(CONTENT, chart)],
        "annotations": annotations,
    }
    entry = add(MANIFEST, json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": metadata["version"]}
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        **blobs,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _metadata(chart: bytes) -> dict[str, Any]:
    """Read the content of Chart.yaml, which lies in the chart's only folder."""
    with tarfile.open(fileobj=io.BytesIO(chart)) as archive:
        name = next(name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/Chart.yaml"))
        file = archive.extractfile(name)
        assert file is not None, name
        content: dict[str, Any] = yaml.safe_load(file)
    return content

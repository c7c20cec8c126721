"""Writes an image's bill of materials as CycloneDX: packages of Python, libraries in their wheels, packages of Debian.

It starts with cyclonedx-py's document of the pinned requirements, which has their hashes and dependencies.
"""

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deploy.image.debian import run
from deploy.image.packages import plain

PROJECT = "embereye"
ROOT = Path(__file__).parents[2]
BUNDLED = re.compile(r"(lib[A-Za-z0-9_+.-]+?)(?:-[0-9a-f]{8})*\.so(?:\.([0-9][\w.]*))?")


def pinned() -> dict[str, Any]:
    """Describe the pinned requirements of the project."""
    command = Path(sys.executable).with_name("cyclonedx-py")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "sbom.json"
        options = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "application", "--output-reproducible")
        written = ("--output-format", "JSON", "--output-file", path)
        run(command, "requirements", *options, *written, ROOT / "requirements.txt")
        document: dict[str, Any] = json.loads(path.read_text())
    return document


def fit(document: dict[str, Any], installed: Mapping[str, str]) -> dict[str, Any]:
    """Reduce `document` to the `installed` components. Raises ValueError for installed but unknown ones."""
    versions = {plain(name): version for name, version in installed.items() if plain(name) != PROJECT}
    components = [part for part in document["components"] if versions.get(plain(part["name"])) == part["version"]]
    known = {plain(part["name"]) for part in components}
    if unknown := sorted(f"{name} {version}" for name, version in versions.items() if name not in known):
        raise ValueError(f"installed, and not among the pinned requirements: {', '.join(unknown)}")
    references = {part["bom-ref"] for part in components} | {document["metadata"]["component"]["bom-ref"]}
    dependencies = [edge for edge in document.get("dependencies", ()) if edge["ref"] in references]
    return {**document, "components": components, "dependencies": dependencies}


def debian(packages: Mapping[str, str], distribution: str, architecture: str) -> list[dict[str, Any]]:
    """Describe Debian's `packages`, name → version, as components."""
    more = f"arch={architecture}&distro={distribution}"
    purls = {
        name: f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?{more}" for name, version in packages.items()
    }
    return [
        {"type": "library", "bom-ref": purls[name], "name": name, "version": version, "purl": purls[name]}
        for name, version in sorted(packages.items())
    ]


def bundled(site: Path) -> Iterable[dict[str, Any]]:
    """Describe the libraries that wheels bring in their folders NAME.libs, such as FFmpeg and x264 in PyAV's.

    Their file names have the version of their interface; a wheel does not say which release they are.
    """
    for path in sorted(site.glob("*.libs/*.so*")):
        match = BUNDLED.fullmatch(path.name)
        if path.is_symlink() or match is None:
            continue
        yield {
            "type": "library",
            "bom-ref": f"{path.parent.name}/{path.name}",
            "name": match[1],
            "version": match[2] or "unknown",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
            "properties": [{"name": "embereye:bundled-in", "value": path.parent.name.removesuffix(".libs")}],
        }

"""Reduce a CycloneDX document of pinned requirements to an image's packages: `fit_sbom.py DOCUMENT INSTALLED`.

INSTALLED is the output of installed.py in the image. Python packages that are not installed are left out. One that is
installed and not pinned is an error, because the document would lack it. Debian's packages of the base are added.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

PROJECT = "embereye"


def plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


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


def debian(packages: Mapping[str, str], distribution: str) -> list[dict[str, Any]]:
    """Describe Debian's `packages`, name → version, as components."""
    purls = {
        name: f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?distro={distribution}"
        for name, version in packages.items()
    }
    return [
        {"type": "library", "bom-ref": purls[name], "name": name, "version": version, "purl": purls[name]}
        for name, version in sorted(packages.items())
    ]


if __name__ == "__main__":
    path, installed = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    try:
        fitted = fit(json.loads(path.read_text()), installed["python"])
        fitted["components"] += debian(installed["debian"], installed["distribution"])
    except ValueError as error:
        sys.exit(str(error))
    path.write_text(json.dumps(fitted, indent=2) + "\n")

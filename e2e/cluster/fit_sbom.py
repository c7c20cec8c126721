"""Makes a CycloneDX document of pinned requirements one of an image: `fit_sbom.py DOCUMENT INSTALLED`.

INSTALLED is what installed.py printed there. What is not installed is left out; what is installed and not pinned is an
error: the document would not tell of it.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OWN = "embereye"


def plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fit(document: dict[str, Any], installed: Mapping[str, str]) -> dict[str, Any]:
    """`document` with the components that are `installed`; ValueError names those that it does not know."""
    there = {plain(name): version for name, version in installed.items() if plain(name) != OWN}
    kept = [one for one in document["components"] if there.get(plain(one["name"])) == one["version"]]
    known = {plain(one["name"]) for one in kept}
    if unknown := sorted(f"{name} {version}" for name, version in there.items() if name not in known):
        raise ValueError(f"installed, and not among the pinned requirements: {', '.join(unknown)}")
    references = {one["bom-ref"] for one in kept} | {document["metadata"]["component"]["bom-ref"]}
    dependencies = [one for one in document.get("dependencies", ()) if one["ref"] in references]
    return {**document, "components": kept, "dependencies": dependencies}


if __name__ == "__main__":
    path, found = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    try:
        fitted = fit(json.loads(path.read_text()), found)
    except ValueError as error:
        sys.exit(str(error))
    path.write_text(json.dumps(fitted, indent=2) + "\n")

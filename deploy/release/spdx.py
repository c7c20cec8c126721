"""Turns a CycloneDX bill of materials into an SPDX 2.3 document with the same packages."""

import hashlib
import json
import re
from typing import Any

ROOT = "SPDXRef-embereye"
ALGORITHMS = {"SHA-1": "SHA1", "SHA-256": "SHA256", "SHA-384": "SHA384", "SHA-512": "SHA512"}


def convert(document: dict[str, Any], *, created: str, home: str) -> dict[str, Any]:
    """Convert CycloneDX `document`. `created` is a time such as 2026-01-31T12:00:00Z."""
    product = document["metadata"]["component"]
    identifiers = {product["bom-ref"]: ROOT}
    packages = [{**_package(product), "SPDXID": ROOT}]
    for component in document["components"]:
        name = f"{component['name']}-{component['version']}" if "purl" in component else component["bom-ref"]
        kind = component["purl"].split(":")[1].split("/")[0] if "purl" in component else "bundled"
        identifier = f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}"
        identifiers[component["bom-ref"]] = identifier
        packages.append({**_package(component), "SPDXID": identifier})
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"embereye-{product['version']}",
        "documentNamespace": f"{home}/spdx/{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: make-release"]},
        "packages": packages,
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", ROOT),
            *(_relation(ROOT, "CONTAINS", package["SPDXID"]) for package in packages[1:]),
            *(
                _relation(identifiers[edge["ref"]], "DEPENDS_ON", identifiers[needed])
                for edge in document.get("dependencies", ())
                for needed in edge.get("dependsOn", ())
                if edge["ref"] in identifiers and needed in identifiers
            ),
        ],
    }


def _package(component: dict[str, Any]) -> dict[str, Any]:
    package: dict[str, Any] = {
        "name": component["name"],
        "versionInfo": component["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    if purl := component.get("purl"):
        package["externalRefs"] = [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        ]
    sources = (component, *component.get("externalReferences", ()))
    hashed = [digest for source in sources for digest in source.get("hashes", ())]
    if hashed and len(hashed) == 1:  # several are those of wheels for several platforms, and not one package's
        package["checksums"] = [{"algorithm": ALGORITHMS[hashed[0]["alg"]], "checksumValue": hashed[0]["content"]}]
    return package


def _relation(element: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}

"""The image's bill of materials (SBOM): cyclonedx-py's of the pinned requirements, fitted to what is installed."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cluster.fit_sbom import debian, fit, plain
from harness.need import ROOT

PINNED = {
    plain(line.partition("==")[0]): line.partition("==")[2].split()[0]
    for line in (ROOT / "requirements.txt").read_text().splitlines()
    if "==" in line and not line.startswith((" ", "#"))
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The bill of materials as e2e/cluster/build-image makes it."""
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    command = [
        str(Path(sys.executable).with_name("cyclonedx-py")), "requirements",
        "--pyproject", str(ROOT / "pyproject.toml"),
        "--mc-type", "application", "--output-reproducible", "--output-format", "JSON", "--output-file", str(path),
        str(ROOT / "requirements.txt"),
    ]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr
    return json.loads(path.read_text())


def test_every_pinned_requirement_is_in_it_with_its_hashes(document: Any) -> None:
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "embereye")
    assert {plain(part["name"]): part["version"] for part in document["components"]} == PINNED
    for component in document["components"]:
        (source,) = component["externalReferences"]
        assert {digest["alg"] for digest in source["hashes"]} == {"SHA-256"}, component["name"]


def test_it_lists_only_installed_packages(document: Any) -> None:
    installed = {"EmberEye": "0.1.0", "aioHTTP": PINNED["aiohttp"], "prometheus_client": PINNED["prometheus-client"]}
    fitted = fit(document, installed)
    assert sorted(part["name"] for part in fitted["components"]) == ["aiohttp", "prometheus-client"]


def test_packages_of_the_base_are_named_as_scanners_expect() -> None:
    (component,) = debian({"libstdc++6": "12.2.0-14+deb12u1"}, "debian-12")
    assert component["purl"] == "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?distro=debian-12"
    assert component["bom-ref"] == component["purl"]


@pytest.mark.parametrize("installed", [{"stranger": "1.0"}, {"aiohttp": "0.0.1"}])
def test_what_is_installed_and_not_pinned_is_an_error(document: Any, installed: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not among the pinned requirements"):
        fit(document, installed)


def test_every_requirement_is_pinned_with_a_hash() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        lines = (ROOT / name).read_text().splitlines()
        for line, following in pairwise([*lines, ""]):
            if line and not line.startswith((" ", "#")):
                assert following.strip().startswith("--hash=sha256:"), f"{name}: {line}"

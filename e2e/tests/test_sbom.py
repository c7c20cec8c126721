"""The image's bill of materials (SBOM): cyclonedx-py's of the pinned requirements, fitted to what is installed."""

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness.need import ROOT

from deploy.image.materials import bundled, debian, fit, pinned
from deploy.image.packages import plain

PINNED = {
    plain(line.partition("==")[0]): line.partition("==")[2].split()[0]
    for line in (ROOT / "requirements.txt").read_text().splitlines()
    if "==" in line and not line.startswith((" ", "#"))
}


@pytest.fixture(scope="module")
def document() -> Any:
    """The bill of materials of the pinned requirements."""
    return pinned()


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
    (component,) = debian({"libstdc++6": "12.2.0-14+deb12u1"}, "debian-12", "arm64")
    assert component["purl"] == "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=arm64&distro=debian-12"
    assert component["bom-ref"] == component["purl"]


def test_libraries_inside_wheels_are_listed_with_their_digests(tmp_path: Path) -> None:
    (tmp_path / "av.libs").mkdir()
    (tmp_path / "av.libs/libx264-d6533a8d.so.165").write_bytes(b"x264")
    (tmp_path / "av.libs/libscipy_openblas64_-32a4b2a6.so").write_bytes(b"BLAS")
    (tmp_path / "av.libs/libz-1.so.1").symlink_to("libx264-d6533a8d.so.165")
    parts = {part["name"]: part for part in bundled(tmp_path)}
    assert {name: part["version"] for name, part in parts.items()} == {
        "libx264": "165", "libscipy_openblas64_": "unknown"
    }  # fmt: skip
    assert parts["libx264"]["hashes"][0]["content"] == hashlib.sha256(b"x264").hexdigest()
    assert parts["libx264"]["properties"] == [{"name": "embereye:bundled-in", "value": "av"}]


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

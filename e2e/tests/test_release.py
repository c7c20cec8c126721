"""The files of `make release`: notes, a plugin that Krew can install, checksums."""

import hashlib
import io
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RELEASE: Any = runpy.run_path(str(ROOT / "deploy/release.py"))
CHANGELOG = """# Changelog

## Unreleased

- Something new.

## 0.1.0 (2026-01-01)

### Operator
- The first.
"""


def test_notes_are_of_the_version_and_name_its_commits() -> None:
    notes = RELEASE["build_notes"]("0.1.0", CHANGELOG, ["Put it right", "Begin"])
    assert notes.startswith("# EmberEye 0.1.0\n")
    assert "- The first." in notes
    assert "Something new" not in notes
    assert notes.endswith("## Commits\n- Put it right\n- Begin\n")


def test_notes_of_a_version_without_a_section_have_what_is_unreleased() -> None:
    assert "- Something new." in RELEASE["build_notes"]("0.2.0", CHANGELOG, [])


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "embereye-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_krews_manifest_has_the_digest_of_the_archive_and_what_to_run_in_it(wheel: Path) -> None:
    archive = RELEASE["build_plugin"]("0.1.0", wheel, ROOT / "LICENSE")
    digest = hashlib.sha256(archive).hexdigest()
    manifest = yaml.safe_load(RELEASE["build_krew"]("0.1.0", digest, "https://example.com/plugin.tar.gz"))
    assert manifest["metadata"]["name"] == "embereye"
    assert manifest["spec"]["version"] == "v0.1.0"
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        names = members.getnames()
    for platform in manifest["spec"]["platforms"]:
        assert platform["sha256"] == digest
        assert platform["bin"] in names
    assert {"linux", "darwin"} == {
        platform["selector"]["matchLabels"]["os"] for platform in manifest["spec"]["platforms"]
    }


def test_checksums_are_what_sha256sum_checks(tmp_path: Path, wheel: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text(RELEASE["checksums"](tmp_path))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


def test_the_plugin_says_so_where_python_is_too_old(tmp_path: Path, wheel: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(RELEASE["build_plugin"]("0.1.0", wheel, ROOT / "LICENSE"))) as archive:
        archive.extractall(tmp_path)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    run = subprocess.run(
        [tmp_path / "kubectl-embereye", "status"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "EMBEREYE_PYTHON": str(old)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert "is not Python 3.11 or later" in run.stderr


def test_versions_agree() -> None:
    assert RELEASE["versions"]() in (ROOT / "pyproject.toml").read_text()
    assert sys.version_info >= (3, 11)


def test_the_licences_of_all_pinned_packages_are_listed_with_their_texts() -> None:
    text = RELEASE["build_licences"]((ROOT / "requirements.txt").read_text())
    assert "\nav " in text
    assert "x264" in text
    assert "\naiohttp " in text
    assert "Apache License" in text
    unknown = [line for line in text.splitlines() if line.endswith(": see its text")]
    assert len(unknown) < 5, unknown


def test_a_package_that_is_not_installed_is_an_obstacle() -> None:
    with pytest.raises(RELEASE["ReleaseError"], match="make install"):
        RELEASE["build_licences"]("no-such-package==1.0 \\\n")

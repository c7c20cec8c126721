"""The files of `make release`: notes, a plugin that Krew can install, a chart for registries, signatures."""

import base64
import hashlib
import http.server
import io
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.need import COSIGN, HELM, ROOT, program

from deploy.release import __main__ as release
from deploy.release import oci, provenance, spdx
from deploy.release.signing import Key, KeyFileError

CHANGELOG = """# Changelog

## Unreleased

- Something new.

## 0.1.0 (2026-01-01)

### Operator
- The first.
"""


def test_notes_have_the_version_all_later_changes_and_its_commits() -> None:
    notes = release.build_notes("0.1.0", CHANGELOG, ["Put it right", "Begin"])
    assert notes.startswith("# EmberEye 0.1.0\n")
    assert "- The first.\n\n## Changes since then\n- Something new.\n" in notes
    assert notes.endswith("## Commits\n- Put it right\n- Begin\n")


def test_notes_of_a_version_without_a_section_have_what_is_unreleased() -> None:
    assert "- Something new." in release.build_notes("0.2.0", CHANGELOG, [])


def test_notes_list_no_more_commits_than_github_takes() -> None:
    notes = release.build_notes("0.1.0", CHANGELOG, ["x" * 72] * 3000)
    assert notes.endswith("- and 2700 earlier ones\n")
    assert len(notes) < 50_000


def test_notes_of_a_tagged_commit_list_the_commits_since_the_tag_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.run("git", "init", "--quiet")
    for subject, tag in (("Begin", "v0.1.0"), ("Mend it", ""), ("Put it right", "v0.2.0")):
        who = ("-c", "user.name=releaser", "-c", "user.email=releaser@example.com")
        release.run("git", *who, "commit", "--quiet", "--allow-empty", "--message", subject)
        if tag:
            release.run("git", "tag", tag)
    assert release.commits() == ["Put it right", "Mend it"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "embereye-0.1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_krews_manifest_has_the_digest_of_the_archive_and_what_to_run_in_it(wheel: Path) -> None:
    archive = release.build_plugin("0.1.0", wheel, ROOT / "LICENSE")
    digest = hashlib.sha256(archive).hexdigest()
    manifest = yaml.safe_load(release.build_krew("0.1.0", digest, "https://example.com/plugin.tar.gz"))
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
    (tmp_path / "SHA256SUMS").write_text(release.checksums(tmp_path))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


def test_the_plugin_says_so_where_python_is_too_old(tmp_path: Path, wheel: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(release.build_plugin("0.1.0", wheel, ROOT / "LICENSE"))) as archive:
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
    assert release.versions() in (ROOT / "pyproject.toml").read_text()
    assert sys.version_info >= (3, 11)


def test_the_licences_of_all_pinned_packages_are_listed_with_their_texts() -> None:
    text = release.build_licences((ROOT / "requirements.txt").read_text())
    assert "\nav " in text
    assert "x264" in text
    assert "\naiohttp " in text
    assert "Apache License" in text
    unknown = [line for line in text.splitlines() if line.endswith(": see its text")]
    assert len(unknown) < 5, unknown


def test_a_package_that_is_not_installed_is_an_obstacle() -> None:
    with pytest.raises(release.ReleaseError, match="make install"):
        release.build_licences("no-such-package==1.0 \\\n")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "keys/release.pem"
    path.parent.mkdir()
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path], check=True)
    return path


def verified(public: bytes, signature: str, content: bytes, folder: Path) -> bool:
    """Check a signature as docs/how-to/verify.md says, by OpenSSL."""
    (folder / "public").write_bytes(public)
    (folder / "signature").write_bytes(base64.b64decode(signature))
    command: list[str | Path] = [
        "openssl",
        "dgst",
        "-sha256",
        "-verify",
        folder / "public",
        "-signature",
        folder / "signature",
    ]
    return subprocess.run(command, input=content, capture_output=True, check=False).returncode == 0


def test_checksums_are_signed_as_openssl_checks_them(tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "NOTES.md").write_text("# EmberEye 0.1.0")
    statement = build_statement(folder)
    release.finish(folder, "0.1.0", statement, Key(key))
    sums = (folder / "SHA256SUMS").read_bytes()
    assert {line.split()[1] for line in sums.decode().splitlines()} == {
        "NOTES.md", "embereye.pub", "embereye-0.1.0.intoto.json"
    }  # fmt: skip
    public, signature = (folder / "embereye.pub").read_bytes(), (folder / "SHA256SUMS.sig").read_text()
    assert verified(public, signature, sums, tmp_path)
    assert not verified(public, signature, sums.replace(b"NOTES", b"notes"), tmp_path)


@pytest.mark.needs(COSIGN)
def test_the_commands_of_the_page_verify_a_release_and_refuse_a_changed_one(tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "compose.yaml").write_text("services: {}\n")
    (folder / "embereye-0.1.0-amd64.cdx.json").write_text('{"components": [{"name": "aiohttp", "version": "3"}]}')
    release.finish(folder, "0.1.0", build_statement(folder), Key(key))
    page = (ROOT / "docs/how-to/verify.md").read_text().partition("\n## Build it yourself")[0]
    lines = "\n".join(page.split("```\n")[1::2]).replace("VERSION", "0.1.0").splitlines()
    # A proxy that does not exist prevents cosign from asking sigstore.dev for keys, which it does not need.
    path = f"{Path(str(program('cosign'))).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:9"}

    def type_all() -> list[int]:
        return [
            subprocess.run(
                ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, check=False
            ).returncode
            for line in filter(None, lines)
        ]

    assert type_all() == [0, 0, 0, 0, 0]
    (folder / "compose.yaml").write_text("services: {more: {}}\n")
    assert type_all() == [1, 0, 0, 1, 0], "the file's checksum, and the provenance"
    (folder / "SHA256SUMS").write_text(release.checksums(folder))
    assert type_all() == [0, 1, 1, 1, 0], "the signatures"


def test_a_release_without_a_key_has_no_signatures(tmp_path: Path) -> None:
    release.finish(tmp_path, "0.1.0", build_statement(tmp_path), None)
    assert {path.name for path in tmp_path.iterdir()} == {"SHA256SUMS", "embereye-0.1.0.intoto.json"}


def build_statement(folder: Path) -> dict[str, Any]:
    return provenance.build_statement(
        folder.iterdir(), home="https://example.com/embereye", commit="c0ffee", version="0.1.0",
        builder=provenance.builder({}, "https://example.com/embereye"), started=datetime(2026, 1, 31, tzinfo=UTC),
    )  # fmt: skip


def test_provenance_names_commit_and_files_in_a_signed_envelope(tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "file").write_bytes(b"content")
    envelope = Key(key).envelop(build_statement(folder))
    payload = base64.b64decode(envelope["payload"])
    statement = json.loads(payload)
    assert statement["subject"] == [{"name": "file", "digest": {"sha256": hashlib.sha256(b"content").hexdigest()}}]
    (source,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c0ffee"}
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    (signature,) = envelope["signatures"]
    assert verified(Key(key).public, signature["sig"], signed, tmp_path)


def test_the_run_of_a_workflow_is_the_builder() -> None:
    environment = {"GITHUB_RUN_ID": "7", "GITHUB_SERVER_URL": "https://example.com", "GITHUB_REPOSITORY": "a/b"}
    assert provenance.builder(environment, "home") == "https://example.com/a/b/actions/runs/7"


def test_a_key_that_is_no_use_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(KeyFileError, match="No such file"):
        Key(path)
    path.write_text("no key")
    with pytest.raises(KeyFileError, match="RELEASE_KEY_PASSWORD"):
        Key(path)
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    with pytest.raises(KeyFileError, match="prime256v1"):
        Key(path)


def test_the_spdx_document_has_the_packages_of_the_other() -> None:
    product = {"bom-ref": "root", "name": "embereye", "version": "0.1.0"}
    aiohttp = {"bom-ref": "r1", "name": "aiohttp", "version": "3.1", "purl": "pkg:pypi/aiohttp@3.1"}
    libc = {"bom-ref": "r2", "name": "libc6", "version": "2.36", "purl": "pkg:deb/debian/libc6@2.36?distro=debian-12"}
    digest = {"alg": "SHA-256", "content": "ab"}
    x264 = {"bom-ref": "av.libs/libx264-d6.so.165", "name": "libx264", "version": "165", "hashes": [digest]}
    edges = [{"ref": "root", "dependsOn": ["r1"]}]
    document = {"metadata": {"component": product}, "components": [aiohttp, libc, x264], "dependencies": edges}
    made = spdx.convert(document, created="2026-01-31T00:00:00Z", home="https://example.com")
    identifiers = [package["SPDXID"] for package in made["packages"]]
    assert identifiers[:3] == ["SPDXRef-embereye", "SPDXRef-pypi-aiohttp-3.1", "SPDXRef-deb-libc6-2.36"]
    assert identifiers[3] == "SPDXRef-bundled-av.libs-libx264-d6.so.165"
    assert made["packages"][3]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "ab"}]
    related = {(edge["relationshipType"], edge["relatedSpdxElement"]) for edge in made["relationships"]}
    assert ("DEPENDS_ON", "SPDXRef-pypi-aiohttp-3.1") in related
    assert ("CONTAINS", "SPDXRef-deb-libc6-2.36") in related


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry that has one OCI layout, and can only be read."""

    files: dict[str, bytes]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        index = json.loads(self.files["index.json"])["manifests"][0]
        if "/manifests/" in self.path:
            name = index["digest"] if name == "0.1.0" else name
        content = self.files.get(f"blobs/{name.replace(':', '/')}", b"{}" if self.path == "/v2/" else None)
        self.send_response(200 if content is not None else 404)
        self.send_header(
            "Content-Type", index["mediaType"] if "/manifests/" in self.path else "application/octet-stream"
        )
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("Docker-Content-Digest", name)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def helm() -> Path:
    HELM.require()
    path = program("helm")
    assert path is not None
    return path


@pytest.fixture
def registry(tmp_path: Path, helm: Path) -> Iterator[int]:
    """Serve the chart's OCI layout; yield the port."""
    subprocess.run([helm, "package", ROOT / "charts/embereye", "--destination", tmp_path], check=True)
    (chart,) = tmp_path.glob("*.tgz")
    packed = oci.pack_chart(chart.read_bytes(), "2026-01-31T00:00:00Z")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        Registry.files = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_helm_pulls_the_chart_from_a_registry_with_its_oci_layout(registry: int, helm: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        helm,
        "pull",
        f"oci://127.0.0.1:{registry}/embereye",
        "--version",
        "0.1.0",
        "--plain-http",
    ]
    (tmp_path / "pulled").mkdir()
    pulled = subprocess.run(
        [*command, "--destination", tmp_path / "pulled"], capture_output=True, text=True, check=False
    )
    assert pulled.returncode == 0, pulled.stderr
    assert (tmp_path / "pulled/embereye-0.1.0.tgz").read_bytes() == (tmp_path / "embereye-0.1.0.tgz").read_bytes()

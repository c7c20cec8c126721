"""Builds all files of a release into one folder: `make release` uses dist/VERSION.

The wheels of the service and of its simulators, the source, the image for amd64 and arm64, its bills of materials as
CycloneDX and SPDX, licences of what it contains, the chart as an archive and as an OCI layout, the Compose file and the
unit for systemd, the kubectl plugin for Krew, notes, the provenance, and checksums of all of them. With --key FILE,
provenance and checksums are signed. Nothing is uploaded: the last line says what is left to do.
"""

import argparse
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from deploy.image import __main__ as images
from deploy.image.debian import ImageError, own_architecture
from deploy.image.packages import build_wheel
from deploy.release import oci, provenance, spdx
from deploy.release.signing import Key, KeyFileError

ROOT = Path(__file__).parents[2]
HOME = "https://github.com/embereye/embereye"  # releases are downloaded from here, unless --home says otherwise
SIMULATORS = ROOT / "service/embereye/sim"  # a separate wheel
MOST_COMMITS = 300  # in the notes: GitHub takes 125,000 characters
ARCHITECTURES = ("amd64", "arm64")
PLATFORMS = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"))
# The plugin is Python: at its first call it installs itself and its dependencies.
LAUNCHER = """#!/bin/sh
# kubectl embereye {version}. Installs itself, once, for Python 3.11 or later: python3, or the one in EMBEREYE_PYTHON.
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
home=${{XDG_DATA_HOME:-$HOME/.local/share}}/embereye/plugin-{version}
if [ ! -x "$home/bin/kubectl-embereye" ]; then
  python=${{EMBEREYE_PYTHON:-python3}}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    {{ echo "kubectl embereye: $python is not Python 3.11 or later. Name one in EMBEREYE_PYTHON." >&2; exit 2; }}
  echo "kubectl embereye: installing into $home (once, takes a minute)" >&2
  rm -rf "$home" && "$python" -m venv "$home" &&
    "$home/bin/pip" install --quiet --disable-pip-version-check "$here"/*.whl >&2 ||
    {{ rm -rf "$home"; echo "kubectl embereye: the installation failed; see pip's output above" >&2; exit 2; }}
fi
exec "$home/bin/kubectl-embereye" "$@"
"""


PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", re.MULTILINE)
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice|authors)(?!.*\.pyc?$)", re.IGNORECASE)
LICENCES_HEAD = "Packages in the image of EmberEye, their licences and the texts that their wheels contain."
BASE_HEAD = "Debian's packages of the image's base."
NOTES = {  # about what a wheel contains beside its code
    "av": "\nThe wheel contains FFmpeg's libraries, with x264 and x265, which are under the GPL, version 2 or later. "
    "An image with it distributes them, too: NOTICE names their sources.",
}


class ReleaseError(Exception):
    """The obstacle to a release, and its remedy."""


def run(*command: str | Path) -> str:
    """Run a command and return its output; ReleaseError if it fails."""
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout.strip()


def versions() -> str:
    """Return the version in pyproject.toml, the chart and its image; ReleaseError if they differ."""
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    chart = yaml.safe_load((ROOT / "charts/embereye/Chart.yaml").read_text())
    simulators = re.search(r'^version = "(.+)"$', (SIMULATORS / "pyproject.toml").read_text(), re.MULTILINE)
    places = {
        "pyproject.toml": project[1] if project else "",
        "the simulators' pyproject.toml": simulators[1] if simulators else "",
        "Chart.yaml's version": chart["version"],
        "Chart.yaml's appVersion": chart["appVersion"],
    }
    if len(set(places.values())) != 1:
        listed = ", ".join(f"{place} says {version}" for place, version in places.items())
        raise ReleaseError(f"{listed}. Make them the same.")
    return str(places["pyproject.toml"])


def build_notes(version: str, changelog: str, commits: Sequence[str]) -> str:
    """Join the subjects of `commits` and CHANGELOG.md's sections of `version` and of what is unreleased."""
    sections = dict(re.findall(r"^## (\S+).*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    written, unreleased = (sections.get(name, "").strip() for name in (version, "Unreleased"))
    # A release is made from the whole tree, so it also has the changes after its section was written.
    section = f"{written}\n\n## Changes since then\n{unreleased}" if written and unreleased else written or unreleased
    listed = "".join(f"- {subject}\n" for subject in commits[:MOST_COMMITS])
    if len(commits) > MOST_COMMITS:
        listed += f"- and {len(commits) - MOST_COMMITS} earlier ones\n"
    return f"# EmberEye {version}\n\n{section}\n\n## Commits\n{listed}"


def build_krew(version: str, digest: str, url: str) -> str:
    """Make Krew's manifest of the plugin in the archive at `url`."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": url,
            "sha256": digest,
            "bin": "kubectl-embereye",
        }
        for system, machine in PLATFORMS
    ]
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "embereye"},
        "spec": {
            "version": f"v{version}",
            "homepage": HOME,
            "shortDescription": "Fleets of fire sensors and cameras: their state and coverage",
            "description": "Shows the state of fleets of sensors and cameras: which devices are watched or dark,\n"
            "why a fleet has its number of shards, the progress of a roll-out. Drains shards and collects reports.\n",
            "caveats": "It needs Python 3.11 or later, and installs itself at its first call.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=120)


def build_plugin(version: str, wheel: Path, licence: Path) -> bytes:
    """Make the archive that Krew unpacks; the same for the same wheel."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=9) as archive:
        members = (
            ("kubectl-embereye", LAUNCHER.format(version=version).encode(), 0o755),
            (wheel.name, wheel.read_bytes(), 0o644),
            ("LICENSE", licence.read_bytes(), 0o644),
        )
        for name, content, mode in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def build_licences(requirements: str) -> str:
    """Join the licences of the pinned packages in `requirements`, with their full texts, as their wheels have them."""
    parts = [LICENCES_HEAD]
    for name in sorted(set(PINNED.findall(requirements)), key=str.lower):
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise ReleaseError(f"{name} is not installed. Run make install.") from error
        about = package.metadata
        files = [file for file in package.files or () if LICENCE_FILE.search(file.name) and ".dist-info" in str(file)]
        texts = [Path(str(file.locate())).read_text(errors="replace").strip() for file in files]
        head = f"{about['Name']} {package.version}: {_licence_name(about) or 'see its text'}"
        parts.append("\n\n".join([f"{'=' * 80}\n{head}{NOTES.get(name.lower(), '')}", *texts]))
    return "\n\n".join(parts) + "\n"


def _licence_name(about: Any) -> str:
    """The licence that a package's metadata name; "" if they name none."""
    classified = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License")]
    return about.get("License-Expression") or ", ".join(classified) or (about.get("License") or "").split("\n")[0]


def checksums(folder: Path) -> str:
    """Make the input of `sha256sum --check` for every file in `folder`."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("SHA256SUMS"))
    return "".join(f"{provenance.digest(path)}  {path.name}\n" for path in files)


def release(folder: Path, home: str, *, image: bool, key: Key | None) -> str:
    """Build everything in `folder`, signed with `key` if there is one; return the version."""
    version, started = versions(), datetime.now(UTC)
    created = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    if dirty := run("git", "status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError(f"{len(dirty.splitlines())} files have uncommitted changes. Commit or restore them.")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty. Delete it, or name another folder with --to.")
    run(
        sys.executable,
        "-W",
        "ignore",
        "-c",
        f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})",
    )
    for project in (ROOT, SIMULATORS):
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(build_wheel(project, Path(name)), folder)
    (wheel,) = folder.glob("embereye-*.whl")
    (folder / "NOTES.md").write_text(build_notes(version, (ROOT / "CHANGELOG.md").read_text(), commits()))
    helm = Path(run(ROOT / "e2e/cluster/binaries", "helm").splitlines()[-1]) / "helm"
    run(helm, "package", ROOT / "charts/embereye", "--destination", folder)
    chart = (folder / f"embereye-{version}.tgz").read_bytes()
    (folder / f"embereye-{version}-chart-oci.tar").write_bytes(oci.pack_chart(chart, created))
    for name in ("compose.yaml", "embereye.service"):
        shutil.copy(ROOT / "deploy" / name, folder)
    plugin = folder / f"kubectl-embereye-{version}.tar.gz"
    plugin.write_bytes(build_plugin(version, wheel, ROOT / "LICENSE"))
    digest = hashlib.sha256(plugin.read_bytes()).hexdigest()
    (folder / "krew.yaml").write_text(build_krew(version, digest, f"{home}/releases/download/v{version}/{plugin.name}"))
    licences = build_licences((ROOT / "requirements.txt").read_text())
    if image:
        licences += build_image(folder, version, created=created, home=home)
    (folder / f"embereye-{version}-licences.txt").write_text(licences)
    statement = provenance.build_statement(
        folder.iterdir(),
        home=home,
        commit=run("git", "rev-parse", "HEAD"),
        version=version,
        builder=provenance.builder(os.environ, home),
        started=started,
    )
    finish(folder, version, statement, key)
    return version


def build_image(folder: Path, version: str, *, created: str, home: str) -> str:
    """Build the image and its bills of materials in `folder`; return the licences of its base."""
    tag = f"embereye:{version}"
    built = images.build(folder, tag, ARCHITECTURES, cache=ROOT / ".cache/image")
    for materials in folder.glob("*.cdx.json"):
        converted = spdx.convert(json.loads(materials.read_text()), created=created, home=home)
        materials.with_name(materials.name.replace(".cdx.", ".spdx.")).write_text(
            json.dumps(converted, indent=2) + "\n"
        )
    here = own_architecture()
    if shutil.which("docker"):
        run(ROOT / "e2e/cluster/try-image", folder / f"embereye-{version}-image-{here}.tar", tag)
    else:
        print(f"the image for {here} was not tried: Docker is not installed", file=sys.stderr)
    texts = {path.parent.name: path.read_text(errors="replace") for path in built.copyrights}
    listed = (f"{'=' * 80}\n{name}, from Debian\n\n{text}" for name, text in texts.items())
    return "\n\n".join(["", BASE_HEAD, *listed])


def finish(folder: Path, version: str, statement: dict[str, Any], key: Key | None) -> None:
    """Write provenance, checksums and, with a key, the signatures and the public key."""
    if key is not None:
        (folder / "embereye.pub").write_bytes(key.public)
    written = statement if key is None else key.envelop(statement)
    (folder / f"embereye-{version}.intoto.json").write_text(json.dumps(written) + "\n")
    (folder / "SHA256SUMS").write_text(checksums(folder))
    if key is not None:
        (folder / "SHA256SUMS.sig").write_text(key.sign((folder / "SHA256SUMS").read_bytes()) + "\n")


def commits() -> list[str]:
    """Return the subjects since the tag before HEAD, newest first, without merges; all if there is no such tag."""
    earlier = ("git", "tag", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-creatordate", "--list", "v*")
    tags = run(*earlier).splitlines()
    return run("git", "log", "--no-merges", "--format=%s", *([f"{tags[0]}..HEAD"] if tags else [])).splitlines()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a release; 1 if there is an obstacle."""
    parser = argparse.ArgumentParser("make release", description=__doc__)
    parser.add_argument("--to", type=Path, help="an empty folder; default: dist/VERSION")
    parser.add_argument("--home", default=HOME, metavar="URL", help="download address of releases (%(default)s)")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="private key on P-256 (PEM) that signs; default: unsigned"
    )
    parser.add_argument("--without-image", action="store_true", help="leave out the image and its bill of materials")
    chosen = parser.parse_args(arguments)
    try:
        folder = (chosen.to or ROOT / "dist" / versions()).resolve()
        key = Key(chosen.key) if chosen.key else None
        version = release(folder, chosen.home, image=not chosen.without_image, key=key)
    except (ReleaseError, KeyFileError, ImageError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 1e6:9.1f} MB  {path.name}")
    if not chosen.without_image:
        foreign = [name for name in ARCHITECTURES if name != own_architecture()]
        print(f"built and checked file by file, but not run here: the image for {', '.join(foreign)}")
    else:
        print("left out: the image and its bills of materials (--without-image)")
    if key is None:
        print("not signed: --key FILE signs; docs/how-to/verify.md says how to make a key")
    print(f"{folder}: git tag v{version}, push it, and upload these files to that release")
    return 0


if __name__ == "__main__":
    sys.exit(main())

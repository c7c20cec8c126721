"""Builds the image of every component, for one architecture or several: `make image` uses it.

Debian's packages and the pinned wheels are fetched and unpacked into a file system. Nothing of another architecture is
executed, so an image for arm64 is built on amd64 without emulation, and neither root nor Docker is needed. For each
architecture, FOLDER gets an archive for `docker load` and a bill of materials; for several also an OCI layout with all.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.image import debian, elf, layout, materials, packages
from deploy.image.debian import MULTIARCH, PYTHON, USER, Base, ImageError, own_architecture, run
from deploy.image.layout import Image, Layer

ROOT = Path(__file__).parents[2]
SITE = f"opt/packages/lib/python{PYTHON}/site-packages"
SETTINGS = {
    "User": f"{USER}:{USER}",
    "Entrypoint": ["embereye"],
    "Env": [
        "PATH=/opt/embereye/bin:/opt/packages/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *("HOME=/tmp", "USER=embereye", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"),
    ],
}


@dataclass(frozen=True)
class Built:
    """The files of a build, and those of the licences of Debian's packages in the images."""

    files: list[Path]
    copyrights: list[Path]


class Builder:
    """Builds images from the commit that is checked out. `cache` keeps packages, bases and layers."""

    def __init__(self, cache: Path, scratch: Path) -> None:
        self._cache, self._scratch = cache, scratch
        self._requirements = (ROOT / "requirements.txt").read_text()
        self._bases: dict[str, Base] = {}
        seconds = int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
        self.created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
        for name in ("bases", "layers"):
            (cache / name).mkdir(parents=True, exist_ok=True)

    def build(self, tag: str, architecture: str) -> tuple[list[Image], dict[str, Any]]:
        """Build the image `tag`, and TAG-simulate on it. Returns them and the bill of materials of the first."""
        self._base(own_architecture())  # its Python compiles for all
        base = self._base(architecture)
        with step(f"{architecture}: wheels"):
            wheels = packages.fetch_wheels(self._requirements, architecture, self._cache)
        tree = self._scratch / f"packages-{architecture}"
        with step(f"{architecture}: installing them"):
            packages.install_all(wheels, tree, architecture)
        ours = self._project("embereye", ROOT)
        site = tree / SITE
        installed = packages.installed(site, ours / "opt/embereye")
        problems = packages.missing(installed, architecture)
        with step(f"{architecture}: checking every library"):
            problems += elf.faults(tree, architecture, tuple(f"{base.root}/{name}" for name in base.libraries))
            problems += elf.faults(base.root, architecture, base.libraries)
        if problems:
            raise ImageError(f"{architecture}: {'; '.join(problems)}")
        document = materials.fit(materials.pinned(), {each.metadata["Name"]: each.version for each in installed})
        document["components"] += [*materials.bundled(site)]
        document["components"] += materials.debian(base.packages(), "debian-12", architecture)
        system = self._layer(f"{architecture}: layer of the base", base.root, f"base-{base.root.name}")
        key = f"packages-{architecture}-{self._hash(wheels.name)}"
        layers = [system, self._layer(f"{architecture}: layer of the packages", tree, key, lambda: self._compile(tree))]
        layers.append(self._layer(f"{architecture}: layer of the project", ours))
        simulators = self._project("simulate", ROOT / "service/embereye/sim")
        added = [*layers, self._layer(f"{architecture}: layer of the simulators", simulators)]
        return [self._image(tag, architecture, layers), self._image(f"{tag}-simulate", architecture, added)], document

    def copyrights(self, architecture: str) -> list[Path]:
        """The licences of Debian's packages in the base for `architecture`."""
        return sorted((self._base(architecture).root / "usr/share/doc").glob("*/copyright"))

    def _image(self, tag: str, architecture: str, layers: list[Layer]) -> Image:
        labels = {"title": "EmberEye", "version": tag.rpartition(":")[2], "licenses": "Apache-2.0 AND GPL-3.0-or-later"}
        settings = {**SETTINGS, "Labels": {f"org.opencontainers.image.{name}": text for name, text in labels.items()}}
        return layout.build_image(tag, architecture, layers, created=self.created, settings=settings)

    def _base(self, architecture: str) -> Base:
        if architecture not in self._bases:
            self._bases[architecture] = self._make_base(architecture)
        return self._bases[architecture]

    def _make_base(self, architecture: str) -> Base:
        """Unpack and compile the base for `architecture`, unless the cache has it."""
        with step(f"{architecture}: Debian's packages"):
            debs = debian.fetch(architecture, self._cache / f"debian-{architecture}")
        folder = self._cache / f"bases/{architecture}-{self._hash(*(deb.name for deb in debs))}"
        base = Base(folder, architecture)
        if folder.exists():
            return base
        with step(f"{architecture}: base"):
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            debian.unpack(debs, architecture, new)
            library = new / f"usr/lib/python{PYTHON}"
            is_native = architecture == own_architecture()
            (Base(new, architecture) if is_native else self._base(own_architecture())).compile(library, root=new)
            for older in folder.parent.glob(f"{architecture}-*"):
                if older != new:
                    shutil.rmtree(older)
            new.rename(folder)
        return base

    def _project(self, name: str, project: Path) -> Path:
        """Install a project of ours in a separate folder; the same for each architecture."""
        folder = self._scratch / name
        if not folder.exists():
            with step(f"building {name}"), tempfile.TemporaryDirectory() as built:
                packages.install_own(packages.build_wheel(project, Path(built)), folder)
                self._compile(folder)
        return folder

    def _compile(self, tree: Path) -> None:
        """Compile Python files with the base's Python for this machine; the result is the same for every other."""
        self._base(own_architecture()).compile(tree / "opt", root=tree)

    def _layer(self, title: str, tree: Path, key: str = "", prepare: Callable[[], None] = lambda: None) -> Layer:
        """Pack `tree`, prepared, as a layer; the cache retains a layer with a `key`."""
        folder = self._cache / "layers" if key else self._scratch
        path = folder / f"{key or tree.name}.tar.gz"
        if key and (earlier := Layer.load(path)):
            return earlier
        with step(title):
            prepare()
            new = path.with_suffix(".new")
            home = "var/lib/embereye"
            layer = layout.pack_layer(tree, new, owners={home: USER}, private=(home, "root"))
            for older in folder.glob(f"{key.rpartition('-')[0]}-*.tar.gz") if key else ():
                older.unlink()
            new.rename(path)
            layer = Layer(path, layer.digest, layer.content, layer.size, layer.unpacked)
            if key:
                layer.save()
        return layer

    def _hash(self, *parts: str) -> str:
        return hashlib.sha256(b"\0".join([self._code, *map(str.encode, parts)])).hexdigest()[:12]


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a step and the seconds that it took."""
    print(f"{title} … ", end="", file=sys.stderr, flush=True)
    started = time.monotonic()
    yield
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def build(folder: Path, tag: str, architectures: Sequence[str], *, cache: Path) -> Built:
    """Build images into `folder`. Raises ImageError."""
    name, _, version = tag.rpartition("/")[2].partition(":")
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Image] = []
    files = []
    with tempfile.TemporaryDirectory() as scratch:
        builder = Builder(cache, Path(scratch))
        for architecture in architectures:
            images, document = builder.build(tag, architecture)
            files += [
                folder / f"{name}-{version}-image-{architecture}.tar",
                folder / f"{name}-{version}-{architecture}.cdx.json",
            ]
            layout.write_archive(images, files[-2])
            files[-1].write_text(json.dumps(document, indent=2) + "\n")
            made += images
        if len(architectures) > 1:
            files.append(folder / f"{name}-{version}-image-oci.tar")
            layout.write_index(made, files[-1])
    for image in made:
        packed = sum(layer.size for layer in image.layers)
        print(
            f"{image.tag} for {image.architecture}: {image.unpacked / 1e6:.0f} MB, compressed {packed / 1e6:.0f} MB",
            file=sys.stderr,
        )
    return Built(files, builder.copyrights(architectures[0]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build images; 1 if there is an obstacle."""
    version = re.search(r"^appVersion: *(\S+)", (ROOT / "charts/embereye/Chart.yaml").read_text(), re.MULTILINE)
    assert version is not None
    parser = argparse.ArgumentParser("python -m deploy.image", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the folder for the files")
    parser.add_argument("--tag", default=f"embereye:{version[1]}", help="name and tag (%(default)s)")
    parser.add_argument(
        "--arch",
        action="append",
        choices=sorted(MULTIARCH),
        help="an architecture; repeat it for more; default: this machine's",
    )
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".cache/image", help="packages and layers of earlier builds (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    try:
        architectures = chosen.arch or [own_architecture()]
        built = build(chosen.to, chosen.tag, architectures, cache=chosen.cache.resolve())
    except (ImageError, ValueError) as error:
        print(f"\nimage: {error}", file=sys.stderr)
        return 1
    print(*built.files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

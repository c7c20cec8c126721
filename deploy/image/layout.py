"""Writes images: layers, the configuration, and archives that `docker load` and registries take.

Formats: github.com/opencontainers/image-spec, version 1.1; manifest.json is Docker's older list of images.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
TIME = 315532800  # of all files: 1980, because ZIP archives know no earlier year
NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Layer:
    """A compressed layer in `path`, with its digests."""

    path: Path
    digest: str  # SHA-256 of the file
    content: str  # SHA-256 of the uncompressed archive: the "diff id"
    size: int  # bytes of the file
    unpacked: int  # bytes of the uncompressed archive

    def save(self) -> None:
        """Write the digests beside the layer."""
        self.path.with_suffix(".json").write_text(json.dumps({**asdict(self), "path": str(self.path)}))

    @classmethod
    def load(cls, path: Path) -> "Layer | None":
        """Read a saved layer; None if there is none."""
        beside = path.with_suffix(".json")
        return cls(**{**json.loads(beside.read_text()), "path": path}) if beside.exists() and path.exists() else None


class _Digest(io.RawIOBase):
    """A file that hashes and counts what is written through it to `target`."""

    def __init__(self, target: BinaryIO) -> None:
        self._target, self._hash, self.size = target, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self.size += len(data)
        return self._target.write(data)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def pack_layer(root: Path, path: Path, *, owners: Mapping[str, int], private: Iterable[str] = ()) -> Layer:
    """Pack the folder `root` as a layer into the file `path`.

    All files belong to root and have the same time, so that the same content gives the same layer. `owners` maps
    folders to the number of another user, and the folders in `private` are for their owner alone.
    """
    with path.open("wb") as file:
        outer = _Digest(file)
        with gzip.GzipFile(filename="", fileobj=outer, mode="wb", compresslevel=6, mtime=0) as compressed:
            inner = _Digest(compressed)  # type: ignore[arg-type]
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                for each in sorted(root.rglob("*")):
                    name = str(each.relative_to(root))
                    entry = archive.gettarinfo(each, name)
                    entry.uid = entry.gid = owners.get(name, 0)
                    entry.uname = entry.gname = ""
                    entry.mtime = TIME
                    entry.mode = 0o700 if name in private else 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
                    if name in ("tmp", "var/tmp"):
                        entry.mode = 0o1777
                    if entry.isreg():
                        with each.open("rb") as source:
                            archive.addfile(entry, source)
                    else:
                        archive.addfile(entry)
    return Layer(path, outer.digest, inner.digest, outer.size, inner.size)


@dataclass(frozen=True)
class Image:
    """An image for one architecture."""

    tag: str
    architecture: str
    config: bytes
    layers: tuple[Layer, ...]

    @property
    def manifest(self) -> bytes:
        """The manifest, as JSON."""
        layers = [{"mediaType": LAYER, "digest": f"sha256:{each.digest}", "size": each.size} for each in self.layers]
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": describe(CONFIG, self.config),
            "layers": layers,
        }
        return json.dumps(document).encode()

    @property
    def unpacked(self) -> int:
        """Bytes of its uncompressed layers."""
        return sum(layer.unpacked for layer in self.layers)


def build_image(
    tag: str, architecture: str, layers: Sequence[Layer], *, created: str, settings: Mapping[str, Any]
) -> Image:
    """Make an image of `layers`. `settings` is the part `config` of its configuration: user, variables, command."""
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.content}" for layer in layers]},
        "history": [{"created": created, "created_by": "make image"} for _ in layers],
    }
    return Image(tag, architecture, json.dumps(config).encode(), tuple(layers))


def describe(kind: str, content: bytes, **more: Any) -> dict[str, Any]:
    """Describe a blob, as manifests and indexes name them."""
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content), **more}


def write_archive(images: Sequence[Image], path: Path) -> None:
    """Write `images` of one architecture each into an archive for `docker load` and `podman load`."""
    entries = [
        describe(MANIFEST, image.manifest, annotations=_named(image.tag), platform=_platform(image)) for image in images
    ]
    listed = [
        {
            "Config": _blob(hashlib.sha256(image.config).hexdigest()),
            "RepoTags": [image.tag],
            "Layers": [_blob(layer.digest) for layer in image.layers],
        }
        for image in images
    ]
    _write(path, images, entries, {"manifest.json": json.dumps(listed).encode()})


def write_index(images: Sequence[Image], path: Path) -> None:
    """Write `images` as one OCI layout for registries: images with the same tag, one for each architecture, are one."""
    entries, indexes = [], {}
    for tag in dict.fromkeys(image.tag for image in images):
        group = [image for image in images if image.tag == tag]
        manifests = [describe(MANIFEST, image.manifest, platform=_platform(image)) for image in group]
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
        entries.append(describe(INDEX, index, annotations={NAME: tag.rpartition(":")[2]}))
        indexes[_blob(hashlib.sha256(index).hexdigest())] = index
    _write(path, images, entries, indexes)


def _write(path: Path, images: Sequence[Image], entries: list[dict[str, Any]], more: Mapping[str, bytes]) -> None:
    documents = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode(),
        **more,
    }
    for image in images:
        for content in (image.config, image.manifest):
            documents[_blob(hashlib.sha256(content).hexdigest())] = content
    with tarfile.open(path, "w") as archive:
        for name, content in documents.items():
            archive.addfile(_member(name, len(content)), io.BytesIO(content))
        for layer in {layer.digest: layer for image in images for layer in image.layers}.values():
            with layer.path.open("rb") as file:
                archive.addfile(_member(_blob(layer.digest), layer.size), file)


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _named(tag: str) -> dict[str, str]:
    return {NAME: tag.rpartition(":")[2], "io.containerd.image.name": f"docker.io/library/{tag}"}


def _platform(image: Image) -> dict[str, str]:
    return {"architecture": image.architecture, "os": "linux"}


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member

"""A folder that receives evidence, for example a mounted share or a Kubernetes volume.

An object is written as a draft, read back, compared with its SHA-256 and renamed. Its metadata is a hidden JSON file
next to it, written before, so that a listed object always has it.
"""

import contextlib
import json
import os
import shutil
from asyncio import to_thread
from collections.abc import Iterator, Mapping
from pathlib import Path

from embereye.addons.archive.places import PlaceError
from embereye.process.files import sha256_of, sync_folder, write_whole

PIECE = 1024**2  # bytes copied at a time


class Folder:
    """The folder `prefix` in the folder `root`, which must exist: an unmounted share is no place."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root = root
        self._base = root / prefix

    async def put(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """See Place."""
        await to_thread(self.store, name, content, media, metadata)

    def store(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """See Place."""
        with self._translated():
            target = self._base / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(_about(target), json.dumps({**metadata, "media": media}).encode(), private=True)
            draft = target.with_name(f".{target.name}.partial")
            try:
                digest = _write(draft, content)
                if digest != (metadata.get("sha256") or digest):
                    raise OSError(f"{name}: its content changed while it was written")
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(target.parent)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """See Place."""
        with self._translated():
            files = [file for file in (self._base / prefix).rglob("*") if file.is_file()]
            return sorted(
                (str(file.relative_to(self._base)), file.stat().st_size) for file in files if file.name[0] != "."
            )

    def fetch(self, name: str, file: Path) -> dict[str, str]:
        """See Place."""
        with self._translated():
            source = self._base / name
            try:
                about = {str(key): str(value) for key, value in json.loads(_about(source).read_bytes()).items()}
            except (FileNotFoundError, ValueError, AttributeError):  # a person put the file there
                about = {}
            shutil.copyfile(source, file)
            return about

    def delete(self, name: str) -> None:
        """See Place."""
        with self._translated():
            (self._base / name).unlink(missing_ok=True)
            _about(self._base / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        if not self._root.is_dir():
            raise PlaceError(f"the folder {self._root} does not exist, or is not mounted")
        try:
            yield
        except OSError as error:
            raise PlaceError(f"{error.filename or self._root}: {error.strerror or error}") from error


def _about(file: Path) -> Path:
    """The file with the metadata of `file`."""
    return file.with_name(f".{file.name}.json")


def _write(draft: Path, content: bytes | Path) -> str:
    """Write `content`, or the file's, to `draft`; return the SHA-256 of what the disk has then."""
    with open(draft, "wb", opener=_private) as target:
        if isinstance(content, bytes):
            target.write(content)
        else:
            with content.open("rb") as source:
                shutil.copyfileobj(source, target, PIECE)
        target.flush()
        os.fsync(target.fileno())
    return sha256_of(draft)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read: it contains digests of tokens, or pictures of people."""
    return os.open(path, flags, 0o600)

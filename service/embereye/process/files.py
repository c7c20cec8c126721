"""Write files atomically, so that they are complete or absent after any crash."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from embereye.process.lifecycle import UserError


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict(paths: Iterable[Path], bits: int) -> None:
    """Remove the permissions `bits` from those of `paths` that exist and belong to this user."""
    for path in paths:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if mode & bits and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~bits)


def write_whole(path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Replace the file at `path` by `data` atomically: readers see the old content or the new one, never a part.

    Without `durable` a power cut may lose it, but two waits for the disk are saved. Only the owner can read a `private`
    file. OSError if it cannot be written; then the old content remains.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        if private:
            draft.unlink(missing_ok=True)
            draft.touch(0o600)
        draft.write_bytes(data)
        if durable:
            sync_file(draft)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def check_writable(option: str, path: Path) -> None:
    """Raise UserError if `path`, named by `option`, cannot be written. Existing content remains."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise UserError(f"{option} {path}: there is no folder {folder}")
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.resolve().unlink()  # resolved, so that a dangling link itself remains
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written: {error.strerror}") from error

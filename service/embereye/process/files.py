"""Files that are there whole or not at all, whatever happens to the process or the machine."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from embereye.process.lifecycle import UserError


def sync_folder(folder: Path) -> None:
    """Make what was renamed in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make what was written to `path` outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict(paths: Iterable[Path], bits: int) -> None:
    """Take the permissions `bits` from those `paths` that are there and ours."""
    for path in paths:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if mode & bits and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~bits)


def write_whole(path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Put `data` at `path`: readers see the old content or the new one, never a part.

    A power cut may lose it where it is not `durable`, which saves two waits for the disk. What is `private` nobody but
    the owner can read. OSError where it cannot be written; then the old content stays.
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
    """UserError where nothing could be written at `path`, which `option` names, later on; what is there stays."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise UserError(f"{option} {path}: there is no folder {folder}")
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.resolve().unlink()  # a link to what is not there yet stays
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written: {error.strerror}") from error

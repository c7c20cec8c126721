"""Write files atomically, so that they are complete or absent after any crash.

`write_whole` writes a draft next to the file, makes it durable, renames it to the file's name, and makes the folder's
new entry durable. A reader never sees a part. Files are opened without following links, because somebody else may have
put one in their place; `check_owner` refuses folders in which others could do so.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from embereye.process.lifecycle import UserError


@contextlib.contextmanager
def system_errors(problem: str) -> Iterator[None]:
    """Raise a UserError, "PROBLEM: REASON", instead of an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{problem}: {error.strerror or error}") from error


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open the regular file at `path` without following a link there; return its descriptor.

    With O_CREAT, a new file gets `mode`. OSError if another kind of file is there: somebody else may have put a link to
    a file of this user in its place.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def open_appending(path: Path) -> BinaryIO:
    """Open the regular file at `path` to append to it, or create it; a link there is not followed."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "ab")


def write_new(path: Path, data: bytes | bytearray | memoryview, mode: int = 0o600, *, durable: bool = False) -> None:
    """Write `data` to a new file at `path`; OSError if anything is there, also a link.

    If it cannot be written whole, no file remains.
    """
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        try:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise


def check_owner(option: str, folder: Path) -> None:
    """Raise UserError if another user owns the folder that `option` names, or everybody can write it.

    Such a user could put links in the place of its files. Root's folders are accepted from everybody.
    """
    status = folder.stat()
    owner = status.st_uid
    if owner not in {0, os.geteuid()}:
        raise UserError(
            f"{option} {folder}: belongs to another user (id {owner}), who could change its files. "
            "Run this as that user, or choose another folder"
        )
    if status.st_mode & stat.S_IWOTH:
        raise UserError(f"{option} {folder}: every user could change its files. Run `chmod o-w {folder}`")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file's content, in hexadecimal. OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    sync_file(folder, os.O_DIRECTORY)


def sync_file(path: Path, flags: int = 0) -> None:
    """Make the content of `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | flags)
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
        draft.unlink(missing_ok=True)
        write_new(draft, data, 0o600 if private else 0o666, durable=durable)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def check_writable(option: str, path: Path) -> None:
    """Raise UserError if `path`, named by `option`, cannot be written. Existing content remains."""
    folder = path.absolute().parent
    with system_errors(f"{option} {path} cannot be written"):
        if not folder.is_dir():
            raise UserError(f"{option} {path}: there is no folder {folder}")
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.resolve().unlink()  # resolved, so that a dangling link itself remains

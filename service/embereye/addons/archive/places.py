"""A place outside the hub that receives its evidence: an S3 bucket, or a folder such as a mounted share.

Each call is one attempt, and every failure is a PlaceError. An object is complete or absent, and has its SHA-256 in its
metadata.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from embereye.addons.archive.options import OPTION, ArchiveOptions
from embereye.process.extras import needed_by


class PlaceError(Exception):
    """The place cannot be used now; the text says why."""


class ObjectError(PlaceError):
    """One object cannot be read, now or soon; others may be."""


class Place(Protocol):
    """The methods of a place."""

    async def put(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """Store `content`, or the file's, under `name`; PlaceError."""

    # These wait, because the library's asynchronous calls may abort a process that ends soon after them.

    def store(self, name: str, content: bytes | Path, media: str, metadata: Mapping[str, str]) -> None:
        """Do the same as `put`."""

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """The names in the folder `prefix`, ascending, and the sizes in bytes; PlaceError."""

    def fetch(self, name: str, file: Path) -> dict[str, str]:
        """Write the object `name`, which is not empty, to `file`; return its metadata.

        PlaceError, ObjectError; OSError from the file.
        """

    def delete(self, name: str) -> None:
        """Delete the object `name`; PlaceError."""


def check_library(options: ArchiveOptions) -> None:
    """Raise UserError if the library for the place of `options` is missing."""
    if options.folder is None:
        with needed_by(OPTION, "obstore", "s3"):
            import obstore  # noqa: F401


def open_place(options: ArchiveOptions) -> Place:
    """Open the place of `options`; PlaceError if its keys cannot be read."""
    if options.folder is not None:
        from embereye.addons.archive.folder import Folder

        return Folder(options.folder, options.prefix)
    from embereye.addons.archive.bucket import Bucket

    return Bucket(options)

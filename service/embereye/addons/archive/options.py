"""The file of `embereye hub --archive`: the S3 bucket and how to reach it, or the folder."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embereye.process.fields import Fields
from embereye_cli.declared import read_declared

OPTION = "--archive"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[A-Za-z0-9._/-]{0,200}")
REGION = re.compile(r"[a-z0-9-]{1,50}")


@dataclass(frozen=True)
class ArchiveOptions:
    """One bucket, or one folder. Keys are in files, which are read again after each failure."""

    bucket: str = ""
    prefix: str = ""  # of all objects' names
    region: str = "us-east-1"
    endpoint: str = ""  # URL of a service other than Amazon's; '': Amazon's
    credentials: Path | None = (
        None  # folder with access-key-id and secret-access-key; None: as Amazon's tools find them
    )
    timeout: float = 30.0  # seconds for one request
    backup_seconds: float = 0.0  # between two backups of the hub's history; 0: none
    keep: int = 0  # the newest backups that are not deleted; 0: all
    folder: Path | None = None  # instead of a bucket

    @property
    def name(self) -> str:
        """The bucket or the folder, for messages."""
        return self.bucket or str(self.folder)

    @property
    def kind(self) -> str:
        """The kind of place, for messages."""
        return "bucket" if self.bucket else "folder"

    def keys(self) -> dict[str, str]:
        """Read the keys. OSError if they cannot be read."""
        if self.credentials is None:
            return {}
        names = {"access_key_id": "access-key-id", "secret_access_key": "secret-access-key"}
        return {name: (self.credentials / file).read_text(encoding="utf-8").strip() for name, file in names.items()}


def read_archive(path: Path) -> ArchiveOptions:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_archive)


def parse_archive(fields: Fields) -> ArchiveOptions:
    """Read the file's content; DeclaredError."""
    folder, endpoint = fields.file("folder"), fields.text("endpoint", "")
    if folder and "bucket" in fields:
        raise fields.error("folder", "the file names a bucket, too. Remove one of them.")
    if folder and not folder.is_absolute():
        raise fields.wrong("folder", "is not an absolute path")
    parts = urlsplit(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username):
        raise fields.wrong("endpoint", "is not of the form https://HOST:PORT")
    prefix = fields.text("prefix", "", pattern=PREFIX, form="a prefix of letters, digits and . _ / -").strip("/")
    if folder and ".." in prefix.split("/"):
        raise fields.wrong("prefix", "leads out of the folder")
    return ArchiveOptions(
        bucket=fields.text("bucket", "" if folder else ..., pattern=BUCKET, form="the name of a bucket"),
        prefix=prefix,
        region=fields.text("region", "us-east-1", pattern=REGION, form="a region such as eu-central-1"),
        endpoint=endpoint,
        credentials=fields.file("credentials"),
        timeout=fields.seconds("timeoutSeconds", 30.0, 1.0, 600.0),
        backup_seconds=fields.duration("backupEvery", 0.0, 5 * 60.0, 31 * 86_400.0),
        keep=fields.whole("keepBackups", 0, 10_000, 0),
        folder=folder,
    )

"""Fill a hub's database and its clips from the bucket of its archive. Stop the hub first.

The newest backup becomes the database, and every clip of the bucket that fits into --clips the hub's, the newest first.
What happened after the backup is in the bucket's `events/`, not in the database. A hub with a history is not changed.
"""

import asyncio
import gzip
import hashlib
import shutil
import tempfile
import time
import zlib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from google.protobuf import json_format

from embereye.addons.archive.options import OPTION, ArchiveOptions, read_archive
from embereye.hub.clips.store import ClipStore, NoRoomError
from embereye.hub.database import Database
from embereye.hub.databases.schema import table_names
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.databases.transfer import AHEAD, copy_history
from embereye.process.extras import needed_by
from embereye.process.lifecycle import NotFoundError, UnreachableError, UserError
from embereye.process.timing.backoff import Backoff
from embereye.units import counted
from embereye.v1.clips_pb2 import Clip
from embereye_cli.hub_history.places import add_place, closing, find_place, owning, print_copied
from embereye_cli.options import Option
from embereye_cli.values import duration, size

with needed_by(OPTION, "obstore", "s3"):
    from embereye.addons.archive.backups import FOLDER, SUFFIX
    from embereye.addons.archive.bucket import Bucket, BucketError
    from embereye.addons.archive.uploader import DESCRIPTION

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    Option(OPTION, "YAML file that names the bucket", type=Path, metavar="FILE").add_to(parser)
    parser.add_argument("--backup", metavar="NAME", help="a backup's name, as --list prints it; default: the newest")
    parser.add_argument("--list", action="store_true", help="print the bucket's backups, and change nothing")
    parser.add_argument("--clips", type=size, default="5G", help="space for clips, for example 20G (%(default)s)")
    parser.add_argument("--without-clips", action="store_true", help="restore the history alone")
    parser.add_argument("--if-empty", action="store_true", help="do nothing, with exit code 0, if there is a history")
    parser.add_argument("--give-up", type=duration, metavar="DURATION",
                        help="try for this long, such as 2m, then exit with code 0, so that the hub starts and watches "
                        "without its history; default: try once")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Restore everything, or leave the database as it is."""
    if not arguments.archive:
        raise UserError(f"{OPTION} is missing. Name the file that names the bucket.")
    options = read_archive(arguments.archive)
    if arguments.list:
        for name in _backups(_open(options)):
            print(name)
        return 0
    place = find_place(arguments)
    folder = arguments.data or place.folder
    if folder == Path():
        raise UserError("--data is missing. Name the hub's data folder: clips go there.")
    with owning(place) as target:
        if _has_history(target):
            if arguments.if_empty:
                print(f"{target.name} contains a history already: nothing was changed")
                return 0
            raise UserError(f"{target.name} contains a history already. Name an empty place for the restored one.")
        clips = 0 if arguments.without_clips else arguments.clips
        recovery = Recovery(options, target, folder, clips, arguments.backup)
        deadline, backoff = time.monotonic() + (arguments.give_up or 0.0), Backoff(floor=1.0, cap=15.0)
        while True:
            try:
                recovery.run()
            except (UnreachableError, NotFoundError) as error:
                if arguments.give_up is None:
                    raise
                if time.monotonic() < deadline:
                    print(f"{error}. Trying again.", flush=True)
                    time.sleep(backoff.next())
                    continue
                print(f"{error}. The hub starts without its history.")
            return 0


def _has_history(database: Database) -> bool:
    return any(list(database.rows(f"SELECT 1 FROM {name} LIMIT 1")) for name in table_names())


def _open(options: ArchiveOptions) -> Bucket:
    try:
        return Bucket(options)
    except BucketError as error:
        raise UserError(f"bucket {options.bucket}: {error}") from error


def _backups(bucket: Bucket) -> list[str]:
    """The names of all backups, the newest last; UnreachableError."""
    try:
        return [Path(name).name.removesuffix(SUFFIX) for name, _ in bucket.list(FOLDER) if name.endswith(SUFFIX)]
    except BucketError as error:
        raise UnreachableError(f"the bucket cannot be listed: {error}") from error


class Recovery:
    """Restores one hub."""

    def __init__(
        self, options: ArchiveOptions, target: Database, folder: Path, clips_bytes: int, backup: str | None
    ) -> None:
        """`folder` is the hub's data folder; `backup` is a name, None: the newest one's."""
        self._bucket = _open(options)
        self._target = target
        self._folder = folder
        self._clips_bytes = clips_bytes
        self._backup = backup

    def run(self) -> None:
        """Restore the clips, then the history, which marks the end. UnreachableError, NotFoundError, UserError."""
        names = _backups(self._bucket)
        name = self._backup or (names[-1] if names else "")
        if name not in names:
            raise NotFoundError(f"the bucket has no backup {name}" if name else "the bucket has no backup")
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="recover-", dir=self._folder) as made:
            draft = Path(made)
            try:
                history = self._fetch_history(name, draft)
                if self._clips_bytes:
                    asyncio.run(self._restore_clips(draft))
            except BucketError as error:
                raise UnreachableError(f"the bucket cannot be read: {error}") from error
            with closing(SqliteDatabase(history, only_read=True)) as source:
                copied = copy_history(source, self._target, ahead=AHEAD)
        print_copied(copied, self._target.name)
        print(f"restored from the backup {name}")

    def _fetch_history(self, name: str, draft: Path) -> Path:
        packed, history = draft / "history.gz", draft / "history.sqlite"
        about = self._bucket.fetch(f"{FOLDER}/{name}{SUFFIX}", packed)
        with packed.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        try:
            if digest != about.get("sha256", digest):
                raise EOFError("its SHA-256 is another one")
            with gzip.open(packed, "rb") as source, history.open("wb") as target:
                shutil.copyfileobj(source, target, 1024**2)
        except DAMAGED as error:
            raise UserError(f"the backup {name} is damaged: {error}. Name an earlier one with --backup.") from error
        return history

    async def _restore_clips(self, draft: Path) -> None:
        """Restore the newest clips that fit."""
        objects = self._bucket.list("clips")
        clips = ClipStore(self._folder / "clips", capacity=self._clips_bytes)
        await clips.open()
        restored = unknown = size = 0
        try:
            for name, length in sorted(objects, key=lambda entry: entry[0].split("/")[:4], reverse=True):
                size += length
                if size > self._clips_bytes:
                    break
                about = self._bucket.fetch(name, draft / "clip")
                if clip := _described(about.get(DESCRIPTION, "")):
                    answer = (await clips.store([(clip, (draft / "clip").read_bytes())]))[0]
                    restored += answer is None
                    unknown += answer is not None
                else:
                    unknown += 1
        except NoRoomError as error:
            raise UserError(str(error)) from error
        finally:
            await clips.close()
        print(f"{counted(restored, 'clip', 'clips')} restored")
        if unknown:
            print(f"{counted(unknown, 'clip has', 'clips have')} no valid description, and stay in the bucket only")


def _described(description: str) -> Clip | None:
    try:
        return json_format.Parse(description, Clip(), ignore_unknown_fields=True)
    except json_format.ParseError:
        return None

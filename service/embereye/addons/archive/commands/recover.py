"""Fill a hub's database and its clips from the bucket or the folder of its archive. Stop the hub first.

The newest backup becomes the database, and every clip there that fits into --clips the hub's, the newest first.
A damaged backup is passed over for the one before it, unless --backup names it. What happened after the backup is in
`events/` there, not in the database. A hub with a history is not changed.
"""

import asyncio
import calendar
import contextlib
import gzip
import shutil
import sqlite3
import tempfile
import time
import zlib
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf import json_format

from embereye.addons.archive.copies import FOLDER, STAMP, SUFFIX, backup_name, unpack
from embereye.addons.archive.options import OPTION, ArchiveOptions, read_archive
from embereye.addons.archive.places import ObjectError, Place, PlaceError, check_library, open_place
from embereye.addons.archive.uploader import DESCRIPTION
from embereye.hub.clips.store import ClipStore, NoRoomError
from embereye.hub.database import Database, OwnedError
from embereye.hub.databases import schema
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.databases.transfer import AHEAD, copy_history
from embereye.process.files import sha256_of
from embereye.process.lifecycle import CheckFailedError, NotFoundError, UnreachableError, UserError
from embereye.process.timing.backoff import Backoff
from embereye.units import counted
from embereye.v1.clips_pb2 import Clip
from embereye_cli.hub_history.places import Place as DatabasePlace
from embereye_cli.hub_history.places import add_place, closing, find_place, owning, print_copied, reading
from embereye_cli.options import Option
from embereye_cli.values import duration, size

R = TypeVar("R")
UNUSABLE = (ObjectError, EOFError, gzip.BadGzipFile, zlib.error, sqlite3.DatabaseError)
LATE_SECONDS = 1_800.0  # after a backup is due, as for the alert EmberEyeBackupMissing
DRAFT = "recover-"  # begins the name of the folder of a run


class UnusableBackupError(UserError):
    """A backup cannot be read, and fetching it again does not help."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    Option(OPTION, "YAML file that names the bucket or the folder", type=Path, metavar="FILE").add_to(parser)
    parser.add_argument("--backup", metavar="NAME", help="a backup's name, as --list prints it; default: the newest")
    parser.add_argument("--list", action="store_true",
                        help="print the backups there, change nothing; exit code 1: one is missing")  # fmt: skip
    parser.add_argument("--clips", type=size, default="5G", help="space for clips, for example 20G (%(default)s)")
    parser.add_argument("--without-clips", action="store_true", help="restore the history alone")
    parser.add_argument("--if-empty", action="store_true", help="do nothing, with exit code 0, if there is a history")
    parser.add_argument("--give-up", type=duration, metavar="DURATION",
                        help="after a failure, try for this long, such as 2m, then exit with code 0, so that the hub "
                        "starts and watches without its history; default: try once")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Restore everything, or leave the database as it is."""
    if not arguments.archive:
        raise UserError(f"{OPTION} is missing. Name the file that names the bucket or the folder.")
    options = read_archive(arguments.archive)
    source = Source(options, arguments.give_up or 0.0)
    if arguments.list:
        _print_backups(source, options.backup_seconds)
        return 0
    place = find_place(arguments)
    folder = arguments.data or place.folder
    if folder == Path():
        raise UserError("--data is missing. Name the hub's data folder: clips go there.")
    try:
        _recover(source, place, folder, arguments)
    except UserError as error:
        if arguments.give_up is None:
            raise
        print(f"{_plain(error)}. Nothing was restored, and the hub starts.")
    return 0


def _print_backups(source: "Source", interval: float) -> None:
    """Print names and sizes; NotFoundError if there are none, CheckFailedError if the newest is too old."""
    backups = source.backups()
    if not backups:
        raise NotFoundError(f"the {source.kind} has no backup")
    for name, length in backups:
        print(f"{name}  {length / 1e6:9,.1f} MB")
    newest = backups[-1][0]
    with contextlib.suppress(ValueError):  # a person chose the name
        age = time.time() - calendar.timegm(time.strptime(newest, STAMP))
        if interval and age > interval + LATE_SECONDS:
            raise CheckFailedError(f"no backup was made after {newest}, although one is due: see the hub's log")


def _recover(source: "Source", place: DatabasePlace, folder: Path, arguments: Namespace) -> None:
    if arguments.if_empty and _is_filled(place):
        print("there is a history already: nothing was changed")
        return
    with contextlib.ExitStack() as stack:
        try:
            target = _insist(lambda: stack.enter_context(owning(place)), source.patience)
        except OwnedError as error:
            if not arguments.if_empty:
                raise
            print(f"{_plain(error)}: nothing was changed")
            return
        if _has_history(target):
            if arguments.if_empty:
                print(f"{target.name} contains a history already: nothing was changed")
                return
            raise UserError(f"{target.name} contains a history already. Name an empty place for the restored one.")
        clips = 0 if arguments.without_clips else arguments.clips
        Recovery(source, target, folder, clips, arguments.backup).run()


def _insist(call: Callable[[], R], seconds: float) -> R:
    """Call until it succeeds, for `seconds` after its first UserError; an OwnedError is raised at once."""
    deadline, backoff = 0.0, Backoff(floor=1.0, cap=15.0)
    while True:
        try:
            return call()
        except OwnedError:
            raise
        except UserError as error:
            deadline = deadline or time.monotonic() + seconds
            if time.monotonic() >= deadline:
                raise
            print(f"{_plain(error)}. Trying again.", flush=True)
            time.sleep(backoff.next())


def _plain(error: Exception) -> str:
    return str(error).removesuffix(".")


def _is_filled(place: DatabasePlace) -> bool:
    """True if a history can be seen without owning the database, which a replica may do now."""
    try:
        with reading(place) as database:
            return _has_history(database)
    except UserError:  # there is no database, it has no tables, or it cannot be reached now
        return False


def _has_history(database: Database) -> bool:
    return any(list(database.rows(f"SELECT 1 FROM {name} LIMIT 1")) for name in schema.table_names())


class Source:
    """The place of an archive. Each question is asked again for `patience` seconds after it failed first."""

    def __init__(self, options: ArchiveOptions, patience: float) -> None:
        self.patience = patience
        self.kind = options.kind
        self._options = options
        self._place: Place | None = None
        check_library(options)

    def backups(self) -> list[tuple[str, int]]:
        """The names and sizes of all backups, the newest last; UnreachableError."""
        objects = self.ask(lambda place: place.list(FOLDER))
        return [
            (Path(name).name.removesuffix(SUFFIX), length)
            for name, length in objects
            if name.endswith(SUFFIX) and length
        ]

    def ask(self, question: Callable[[Place], R]) -> R:
        """Call `question` with the place, opened again after a failure; UnreachableError, and ObjectError at once."""

        def attempt() -> R:
            try:
                self._place = self._place or open_place(self._options)
                return question(self._place)
            except ObjectError:
                raise
            except PlaceError as error:
                self._place = None
                raise UnreachableError(
                    f"the {self._options.kind} {self._options.name} cannot be read: {error}"
                ) from error

        return _insist(attempt, self.patience)


class Recovery:
    """Restores one hub."""

    def __init__(self, source: Source, target: Database, folder: Path, clips_bytes: int, backup: str | None) -> None:
        """`folder` is the hub's data folder; `backup` is a name, None: the newest one's."""
        self._source = source
        self._target = target
        self._folder = folder
        self._clips_bytes = clips_bytes
        self._backup = backup
        self._stored_ns = 0  # when the lost hub stored the clip that is being restored

    def run(self) -> None:
        """Restore the clips, then the history, which marks the end. UserError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for left in self._folder.glob(f"{DRAFT}*"):  # of a run that was killed
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=DRAFT, dir=self._folder) as made:
                self._restore(Path(made))
        except OSError as error:
            raise UserError(f"{self._folder} cannot be written: {error.strerror or error}") from error

    def _restore(self, draft: Path) -> None:
        name, history = self._fetch_history(draft)
        if self._clips_bytes:
            asyncio.run(self._restore_clips(draft))
        with closing(SqliteDatabase(history, only_read=True)) as source:
            copied = copy_history(source, self._target, ahead=AHEAD)
        print_copied(copied, self._target.name)
        print(f"restored from the backup {name}")

    def _fetch_history(self, draft: Path) -> tuple[str, Path]:
        """Fetch the named backup, or the newest intact one; its name and its database."""
        names = [name for name, _ in self._source.backups()]
        if not names:
            raise NotFoundError(f"the {self._source.kind} has no backup")
        if self._backup:
            if self._backup not in names:
                raise NotFoundError(f"the {self._source.kind} has no backup {self._backup}")
            return self._backup, self._fetch_backup(self._backup, draft)
        for name in reversed(names):
            try:
                return name, self._fetch_backup(name, draft)
            except UnusableBackupError as error:
                print(f"the backup {name} is passed over: {error.__cause__}", flush=True)
        raise UserError(f"the {self._source.kind} has no backup that can be read")

    def _fetch_backup(self, name: str, draft: Path) -> Path:
        packed, history = draft / "history.gz", draft / "history.sqlite"
        try:
            about = self._source.ask(lambda place: place.fetch(backup_name(name), packed))
            digest = sha256_of(packed)
            if digest != about.get("sha256", digest):
                raise EOFError("its SHA-256 is another one")
            unpack(packed, history)
            _migrate(history)
        except UNUSABLE as error:
            raise UnusableBackupError(
                f"the backup {name} cannot be used: {error}. Name an earlier one with --backup."
            ) from error
        packed.unlink()
        return history

    async def _restore_clips(self, draft: Path) -> None:
        """Restore the newest clips that fit.

        UnreachableError, unless the hub starts in any case: it then has its history and fewer clips.
        """
        # Clips keep their times: the hub deletes those stored first, and uploads those stored after the backup.
        clips = ClipStore(self._folder / "clips", capacity=self._clips_bytes, clock=lambda: self._stored_ns)
        await clips.open()
        restored = size = 0
        left = Counter[str]()  # numbers of clips by the reason why they stay there
        try:
            objects = [entry for entry in self._source.ask(lambda place: place.list("clips")) if entry[1]]
            for name, length in sorted(objects, key=lambda entry: entry[0].split("/")[:4], reverse=True):
                size += length
                if size > self._clips_bytes:
                    break
                why = await self._restore_clip(clips, name, draft / "clip")
                restored += not why
                left.update([why] if why else [])
        except (UnreachableError, NoRoomError) as error:
            if isinstance(error, UnreachableError) and not self._source.patience:
                raise
            print(f"{error}: older clips stay in the {self._source.kind} only")
        finally:
            await clips.close()
        print(f"{counted(restored, 'clip', 'clips')} restored")
        for why, number in left.items():
            print(f"{counted(number, 'clip stays', 'clips stay')} in the {self._source.kind} only: {why}")

    async def _restore_clip(self, clips: ClipStore, name: str, draft: Path) -> str:
        """Restore the clip `name`; why it stays there only, or ''. UnreachableError, NoRoomError."""
        try:
            about = self._source.ask(lambda place: place.fetch(name, draft))
        except ObjectError as error:
            return str(error)
        clip = _described(about.get(DESCRIPTION, ""))
        if clip is None:
            return "it has no valid description"
        self._stored_ns = clip.kept_ns or clip.until_ns
        refused = (await clips.store([(clip, draft.read_bytes())]))[0]
        return "it has no valid description" if refused else ""


def _migrate(history: Path) -> None:
    """Bring the database of an older hub to the present tables; sqlite3.DatabaseError if it is none of a hub."""
    with contextlib.closing(sqlite3.connect(history)) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if not version:
            raise sqlite3.DatabaseError("it is not a hub's database")
    if version < schema.VERSION:
        with closing(SqliteDatabase(history)):
            pass


def _described(description: str) -> Clip | None:
    try:
        return json_format.Parse(description, Clip(), ignore_unknown_fields=True)
    except json_format.ParseError:
        return None

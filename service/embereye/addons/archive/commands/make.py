"""Make a backup of a running hub: its history, and with --clips its clips, in a bucket or a folder.

The hub copies its history at one moment and sends it. The copy's checksum and the database in it are checked before it
is stored, and a backup that cannot be stored whole is not listed. Clips that the place has already are not sent again.
`embereye hub recover` restores both. The token must be an admin's.
"""

import base64
import contextlib
import json
import sqlite3
import tempfile
import time
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import json_format

from embereye.addons.archive.backups import MEDIA, prune
from embereye.addons.archive.copies import SUFFIX, backup_name, present_stamp, unpack
from embereye.addons.archive.options import OPTION, read_archive
from embereye.addons.archive.places import Place, PlaceError, check_library, open_place
from embereye.addons.archive.uploader import MEDIA as CLIP_MEDIA
from embereye.addons.archive.uploader import clip_object
from embereye.hub.clips.store import SUFFIXES
from embereye.process.files import sha256_of
from embereye.process.lifecycle import NotFoundError, UnreachableError, UserError
from embereye.units import counted
from embereye.v1.clips_pb2 import Clip
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.options import Option


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_console_options(parser)
    Option(OPTION, "YAML file that names the bucket or the folder", type=Path, metavar="FILE").add_to(parser)
    parser.add_argument("--clips", action="store_true", help="also copy clips that are not there yet")
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write the result to this file, as JSON")


def run(arguments: Namespace) -> int:
    """Make one backup, or fail and leave the earlier ones."""
    if not arguments.archive:
        raise UserError(f"{OPTION} is missing. Name the file that names the bucket or the folder.")
    options = read_archive(arguments.archive)
    check_library(options)
    hub, begun = HttpHub(console_connection(arguments)), time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="backup-") as made:
            place, draft = open_place(options), Path(made)
            name, size = _store_history(hub, place, draft)
            clips = _store_clips(hub, place, draft / "clip") if arguments.clips else 0
            prune(place, options)
    except PlaceError as error:
        raise UnreachableError(f"the {options.kind} {options.name} cannot be used: {error}") from error
    except OSError as error:
        raise UserError(f"the copy cannot be written here: {error.strerror or error}") from error
    seconds = round(time.monotonic() - begun, 1)
    result = json.dumps({"name": name, "bytes": size, "clips": clips, "seconds": seconds})
    print(f"backup {name}: {size / 1e6:,.1f} MB, and {counted(clips, 'new clip', 'new clips')}, in {seconds:,} s")
    if arguments.result:
        with contextlib.suppress(OSError):  # the backup is there
            arguments.result.write_text(result)
    return 0


def _store_history(hub: HttpHub, place: Place, draft: Path) -> tuple[str, int]:
    """Copy the hub's history to `place`; the backup's name and size."""
    packed, name = draft / f"history{SUFFIX}", present_stamp()
    declared = hub.download("/v1/backup/history", packed)
    digest = sha256_of(packed)
    if declared != f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:":
        raise UnreachableError("the copy was damaged on its way from the hub: its SHA-256 is another one")
    _check_history(packed, draft / "history.sqlite")
    place.store(backup_name(name), packed, MEDIA, {"sha256": digest})
    return name, packed.stat().st_size


def _check_history(packed: Path, history: Path) -> None:
    """Raise UserError unless `packed` contains an intact database of a hub."""
    try:
        unpack(packed, history)
        with contextlib.closing(sqlite3.connect(history)) as database:
            answers = [str(row[0]) for row in database.execute("PRAGMA quick_check(1)")]
            version = database.execute("PRAGMA user_version").fetchone()[0]
    except (EOFError, zlib.error, sqlite3.DatabaseError) as error:
        raise UserError(f"the hub's copy cannot be read: {error}") from error
    if answers != ["ok"] or not version:
        raise UserError(f"the hub's copy is not an intact database: {'; '.join(answers)}, version {version}")
    history.unlink()


def _store_clips(hub: HttpHub, place: Place, draft: Path) -> int:
    """Copy the hub's clips to `place` that are not there; their number."""
    present, stored = {name for name, _ in place.list("clips")}, 0
    for clip in _clips(hub):
        name, about = clip_object(clip)
        if name in present:
            continue
        try:
            hub.download(f"/v1/clips/{clip.sha256}.{SUFFIXES[clip.media]}", draft)
        except NotFoundError:  # the hub has just deleted it for its age
            continue
        if sha256_of(draft) != clip.sha256:
            raise UnreachableError(f"clip {clip.sha256[:12]} was damaged on its way from the hub")
        place.store(name, draft, CLIP_MEDIA[clip.media], {**about, "sha256": clip.sha256})
        stored += 1
    return stored


def _clips(hub: HttpHub) -> Iterator[Clip]:
    """Yield all clips of the hub, in the order in which it received them."""
    since, seen = 0, set[str]()
    while True:
        listed = hub.read(f"/v1/backup/clips?since={since}", "clips")["clips"]
        clips = [json_format.ParseDict(entry, Clip(), ignore_unknown_fields=True) for entry in listed]
        new = [clip for clip in clips if clip.sha256 not in seen]
        if not new:
            return
        yield from new
        seen.update(clip.sha256 for clip in new)
        since = clips[-1].kept_ns

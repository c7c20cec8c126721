"""What is kept around an alarm, on a shard's disk until the hub has it: each content beside its description.

Everything here blocks, and belongs to one thread.
"""

import contextlib
import errno
import hashlib
import logging
import shutil
import uuid
from pathlib import Path

from google.protobuf import json_format

from embereye.process.files import sync_file, sync_folder, write_whole
from embereye.v1.clips_pb2 import Clip

logger = logging.getLogger(__name__)

SPOOL_BYTES = 512 * 1024 * 1024  # that wait for the hub; beyond that the oldest are dropped
FREE_BYTES = 64 * 1024 * 1024  # left free on the disk for the spool of evidence, which alarms need
SUFFIXES = {Clip.MEDIA_CLIP: ".mkv", Clip.MEDIA_STILL: ".jpg", Clip.MEDIA_VIDEO: ".mp4", Clip.MEDIA_LINES: ".jsonl"}


def check_room(folder: Path) -> None:
    """OSError where fewer than FREE_BYTES are free on the disk of `folder`."""
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise OSError(errno.ENOSPC, f"less than {FREE_BYTES >> 20} MB are free")


class KeptSpool:
    """The folder `folder`: FINISHED.SUFFIX with its FINISHED.json."""

    def __init__(self, folder: Path, *, capacity: int = SPOOL_BYTES) -> None:
        self._folder = folder
        self._capacity = capacity
        self.dropped = 0  # because there were too many
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._recover()
        except OSError as error:  # all that is added fails then and says why, but the shard goes on watching
            logger.warning("what was left in %s cannot be read: %s", folder, error.strerror)

    def add(self, about: Clip, content: bytes) -> Clip:
        """Keep `content`; returns its description. OSError where it cannot be written."""
        about.bytes, about.sha256 = len(content), hashlib.sha256(content).hexdigest()
        self._make_folder()
        check_room(self._folder)
        draft = self._folder / f"{uuid.uuid4().hex}.draft"
        try:
            draft.write_bytes(content)
            self.keep(draft, about)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return about

    def _make_folder(self) -> None:
        """Where somebody removed it, or it could not be made before."""
        if not self._folder.exists():
            self._folder.mkdir(parents=True, exist_ok=True)

    def keep(self, path: Path, about: Clip) -> None:
        """Keep the file at `path`, which `about` describes, and drop the oldest where there is no room."""
        sync_file(path)
        write_whole(self._folder / f"{about.sha256}.json", text_of(about))
        path.replace(self.path(about))
        sync_folder(self._folder)
        waiting = self.waiting()
        excess = sum(clip.bytes for clip in waiting) - self._capacity
        for clip in waiting[:-1]:
            if excess <= 0:
                break
            excess -= clip.bytes
            self.forget(clip)
            self.dropped += 1

    def path(self, about: Clip) -> Path:
        """The file of a finished clip."""
        return self._folder / f"{about.sha256}{SUFFIXES[about.media]}"

    def waiting(self) -> list[Clip]:
        """Finished clips, in the order in which they ended."""
        found = list[Clip]()
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError):
                if len(path.stem) == 64 and (about := read_clip(path)):
                    found.append(about)
        return sorted(found, key=lambda about: (about.until_ns, about.sha256))

    def forget(self, about: Clip) -> None:
        """Remove a clip that the hub has."""
        self.path(about).unlink(missing_ok=True)
        (self._folder / f"{about.sha256}.json").unlink(missing_ok=True)

    def _recover(self) -> None:
        """Remove what is not whole."""
        for path in list(self._folder.iterdir()):
            if path.with_suffix(".part").exists():
                continue
            try:
                about = read_clip(path) if path.suffix == ".json" else None
            except OSError as error:
                logger.warning("%s, which describes a clip, waits for the next start: %s", path.name, error.strerror)
                continue
            orphan = about is not None and not (about.media in SUFFIXES and self.path(about).exists())
            lonely = path.suffix in SUFFIXES.values() and not path.with_suffix(".json").exists()
            unreadable = path.suffix == ".json" and about is None
            if orphan or lonely or unreadable or path.suffix in {".tmp", ".still", ".draft"}:
                path.unlink(missing_ok=True)


def text_of(about: Clip) -> bytes:
    """The description as it is kept."""
    return json_format.MessageToJson(about).encode()


def read_clip(path: Path) -> Clip | None:
    """The description in the file at `path`; None: there is none. OSError where that cannot be read."""
    try:
        return json_format.Parse(path.read_text(), Clip(), ignore_unknown_fields=True)
    except (FileNotFoundError, ValueError, json_format.ParseError):
        return None

"""The spool of clips, stills and recordings on a shard's disk: each content next to its description.

A clip is stored in this order: its content is made durable, its description is written, the content is renamed to its
SHA-256. At the next start, files without their counterpart are removed. The oldest clips are dropped if all together
are too large, and none is added if the disk is nearly full: alarms need that room more.

Everything here blocks, so it runs on a dedicated thread.
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

SPOOL_BYTES = 512 * 1024 * 1024  # most bytes that wait for the hub; beyond it the oldest are dropped
FREE_BYTES = 64 * 1024 * 1024  # bytes left free for the spool of evidence, which alarms need
SUFFIXES = {Clip.MEDIA_CLIP: ".mkv", Clip.MEDIA_STILL: ".jpg", Clip.MEDIA_VIDEO: ".mp4", Clip.MEDIA_LINES: ".jsonl"}


def check_room(folder: Path) -> None:
    """Raise OSError if fewer than FREE_BYTES are free on the disk of `folder`."""
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise OSError(errno.ENOSPC, f"less than {FREE_BYTES >> 20} MB are free")


class SpoolFolder:
    """A folder with a content SHA256.SUFFIX and its description SHA256.json for each clip."""

    def __init__(self, folder: Path, *, capacity: int = SPOOL_BYTES) -> None:
        self._folder = folder
        self._capacity = capacity
        self.dropped = 0  # clips dropped for lack of room
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._recover()
        except OSError as error:  # `add` will fail with the reason; the shard watches without clips
            logger.warning("the clips in %s cannot be read: %s", folder, error.strerror)

    def add(self, about: Clip, content: bytes) -> Clip:
        """Store `content`; return its completed description. OSError if it cannot be written."""
        about.bytes, about.sha256 = len(content), hashlib.sha256(content).hexdigest()
        self._make_folder()
        check_room(self._folder)
        draft = self._folder / f"{uuid.uuid4().hex}.draft"
        try:
            draft.write_bytes(content)
            self.store(draft, about)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return about

    def _make_folder(self) -> None:
        """Create the folder again if it was removed, or could not be created before."""
        if not self._folder.exists():
            self._folder.mkdir(parents=True, exist_ok=True)

    def store(self, path: Path, about: Clip) -> None:
        """Move the file at `path`, described by `about`, into the spool; drop the oldest clips if there is no room."""
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
        """Finished clips, in the order of their ends."""
        clips = list[Clip]()
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError):
                if len(path.stem) == 64 and (about := read_clip(path)):
                    clips.append(about)
        return sorted(clips, key=lambda about: (about.until_ns, about.sha256))

    def forget(self, about: Clip) -> None:
        """Remove a clip that the hub has."""
        self.path(about).unlink(missing_ok=True)
        (self._folder / f"{about.sha256}.json").unlink(missing_ok=True)

    def _recover(self) -> None:
        """Remove incomplete files."""
        for path in list(self._folder.iterdir()):
            if path.with_suffix(".part").exists():
                continue
            try:
                about = read_clip(path) if path.suffix == ".json" else None
            except OSError as error:
                logger.warning(
                    "clip description %s: unreadable: %s; trying again at the next start", path.name, error.strerror
                )
                continue
            orphan = about is not None and not (about.media in SUFFIXES and self.path(about).exists())
            lonely = path.suffix in SUFFIXES.values() and not path.with_suffix(".json").exists()
            unreadable = path.suffix == ".json" and about is None
            if orphan or lonely or unreadable or path.suffix in {".tmp", ".still", ".draft"}:
                path.unlink(missing_ok=True)


def text_of(about: Clip) -> bytes:
    """The description as JSON."""
    return json_format.MessageToJson(about).encode()


def read_clip(path: Path) -> Clip | None:
    """Read the description in the file at `path`; None if there is no valid one. OSError if it cannot be read."""
    try:
        return json_format.Parse(path.read_text(), Clip(), ignore_unknown_fields=True)
    except (FileNotFoundError, ValueError, json_format.ParseError):
        return None

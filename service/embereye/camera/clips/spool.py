"""Clips and stills on a shard's disk until the hub has them. Clips that a crash cut off are completed later.

A clip in work is RUNNING.part with RUNNING.json; finishing it renames it. All calls block and belong to one thread.
"""

import logging
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from embereye.camera.clips.ring import ClipFrame, ClipPicture, ClipUnit
from embereye.process.files import open_appending, sha256_of, write_whole
from embereye.shard.clips.spool import SPOOL_BYTES, SpoolFolder, check_room, read_clip, text_of
from embereye.units import counted
from embereye.v1.clips_pb2 import Clip
from embereye.wire.matroska import MatroskaError, Muxer, Patch, frames
from embereye.wire.mp4 import Mp4Muxer, complete_size

logger = logging.getLogger(__name__)

CLIP_BYTES = 96 * 1024 * 1024  # largest clip; it ends there
CUT = "cut off: the shard that recorded it stopped"
FULL = "ended early: the clip reached its maximum size"


@dataclass(eq=False)
class Recording:
    """A clip that is being written. `about` is completed when it is finished."""

    path: Path
    about: Clip
    muxer: Muxer | Mp4Muxer
    stepped_ns: int = 0  # added to the frames' monotonic times to get wall-clock times
    size: int = 0
    frames: int = 0
    until_ns: int = 0

    def append(self, frame: ClipPicture) -> bool:
        """Write `frame`; return False if the clip would become too large.

        A picture of another size or kind is left out, and a unit without any slice, because players stop at it. Raises
        OSError if the frame cannot be written or the disk is nearly full.
        """
        muxer = self.muxer
        if (frame.width, frame.height) != (muxer.width, muxer.height):
            return True
        if isinstance(frame, ClipUnit) != isinstance(muxer, Mp4Muxer):
            return True
        if self.size + frame.size > CLIP_BYTES:
            self.about.note = FULL
            return False
        check_room(self.path.parent)
        time_ns = frame.time_ns + self.stepped_ns
        if isinstance(frame, ClipUnit):
            assert isinstance(muxer, Mp4Muxer)
            if not muxer.has_slice(frame.unit.data):
                return True
            self._write(muxer.sample(frame.unit.data, time_ns, key=frame.unit.key))
        elif isinstance(muxer, Muxer):
            if not (data := muxer.frame(frame.jpeg, time_ns)):
                return True
            self._write(data)
        self.frames += 1
        self.until_ns = max(self.until_ns, time_ns)
        return True

    def _write(self, data: bytes) -> None:
        if data:
            with open_appending(self.path) as file:
                file.write(data)
            self.size += len(data)


class ClipSpool(SpoolFolder):
    """A folder of FINISHED.mkv (.mp4, .jpg) with FINISHED.json, and RUNNING.part with RUNNING.json."""

    def __init__(self, folder: Path, *, capacity: int = SPOOL_BYTES) -> None:
        self._cut_off = list[Path]()
        super().__init__(folder, capacity=capacity)

    def begin(self, about: Clip, first: ClipPicture, stepped_ns: int = 0) -> Recording:
        """Begin a clip with the picture `first`. Raises OSError if it cannot be written.

        Clips use wall-clock time, which is `stepped_ns` ahead of the frames' times. A video's clip begins with a key
        frame; raises Mp4Error if that lacks parameters that players need.
        """
        path = self._folder / f"{uuid.uuid4().hex}.part"
        about.from_ns, about.width, about.height = first.time_ns + stepped_ns, first.width, first.height
        muxer: Muxer | Mp4Muxer
        if isinstance(first, ClipUnit):
            about.media = Clip.MEDIA_VIDEO
            muxer = Mp4Muxer(first.unit.encoding, first.width, first.height)
            head = muxer.begin(first.unit.data)
        else:
            about.media = Clip.MEDIA_CLIP
            muxer = Muxer(first.width, first.height, about.device, about.from_ns)
            head = muxer.begin()
        self._make_folder()
        write_whole(path.with_suffix(".json"), text_of(about))
        recording = Recording(path, about, muxer, stepped_ns)
        try:
            path.write_bytes(head)
            recording.size = len(head)
            recording.append(first)
        except OSError:
            self.abandon(recording)
            raise
        return recording

    def finish(self, recording: Recording) -> Clip:
        """Complete `recording` and return the clip's description. Raises OSError if it cannot be written."""
        if isinstance(recording.muxer, Mp4Muxer):
            tail, patches = recording.muxer.finish(), list[Patch]()
        else:
            tail, patches = recording.muxer.finish()
        with recording.path.open("r+b") as file:
            file.seek(0, 2)
            file.write(tail)
            for patch in patches:
                file.seek(patch.offset)
                file.write(patch.data)
        about = recording.about
        about.frames = recording.frames
        about.until_ns = recording.until_ns or about.from_ns
        return self._store_part(recording.path, about)

    def _store_part(self, part: Path, about: Clip) -> Clip:
        about.sha256 = sha256_of(part)
        about.bytes = part.stat().st_size
        self.store(part, about)
        part.with_suffix(".json").unlink(missing_ok=True)
        return about

    def add_still(self, about: Clip, jpeg: bytes) -> Clip:
        """Store an annotated still (JPEG) and return its description. Raises OSError if it cannot be written."""
        about.media, about.frames = Clip.MEDIA_STILL, 1
        return self.add(about, jpeg)

    def abandon(self, recording: Recording) -> None:
        """Remove a recording that cannot be continued."""
        for path in (recording.path, recording.path.with_suffix(".json")):
            path.unlink(missing_ok=True)

    def _recover(self) -> None:
        self._cut_off += self._folder.glob("*.part")
        super()._recover()

    def complete_next(self) -> bool:
        """Complete one clip that a crash had cut off; return False if none is left."""
        if not self._cut_off:
            return False
        part = self._cut_off.pop()
        try:
            self._complete(part)
        except OSError as error:  # without space for clips a shard still has to watch
            logger.warning(
                "clips: %s: a cut-off clip cannot be completed before the next start: %s", part.name, error.strerror
            )
        return True

    def _complete(self, part: Path) -> None:
        """Complete the clip that a crash left in `part`."""
        about = read_clip(part.with_suffix(".json"))
        if about is not None and about.media == Clip.MEDIA_VIDEO and (size := complete_size(part.read_bytes())):
            # Each fragment is complete. The end of the last one was not recorded, but it is no later than the last
            # write.
            about.note, about.until_ns = CUT, max(about.from_ns, part.stat().st_mtime_ns)
            os.truncate(part, size)
            self._store_part(part, about)
            return
        try:
            # Times outside the description's range come from damaged data on disk.
            whole = [still for still in frames(part.read_bytes()) if 0 <= still.time_ns < 1 << 63] if about else []
        except MatroskaError:
            whole = []
        if about is not None and whole:
            about.note = CUT
            pictures = [ClipFrame(still.time_ns, still.jpeg, about.width, about.height) for still in whole]
            recording = self.begin(about, pictures[0])
            try:
                for frame in pictures[1:]:
                    recording.append(frame)
                self.finish(recording)
            except OSError:
                self.abandon(recording)
                raise
            logger.warning("camera %s: recovered a cut-off clip of %s", about.device, counted(len(whole), "frame"))
        part.unlink()
        part.with_suffix(".json").unlink(missing_ok=True)

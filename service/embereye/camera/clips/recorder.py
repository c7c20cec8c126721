"""Recorder of clips and stills, from some seconds before a sign of fire until some seconds after it last grew.

The event loop begins, extends and ends clips, one per camera and kind of sign. A single thread writes the files in the
order of the calls, because disks are slow. If too many bytes wait for the disk, frames are left out of clips, and after
a gap a video resumes at a key frame.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from embereye.camera.clips.ring import ClipFrame, ClipPicture, ClipUnit
from embereye.camera.clips.spool import ClipSpool, Recording
from embereye.camera.clips.stills import annotate_still
from embereye.levels import Kind, Level
from embereye.process.condition import Condition
from embereye.process.timing.clock import stepped_ns
from embereye.units import Box
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.wire.mp4 import Mp4Error

logger = logging.getLogger(__name__)
R = TypeVar("R")

PENDING_BYTES = 16 * 1024 * 1024  # bytes waiting for the disk above which frames are left out and no clip is begun
PENDING_MAX_BYTES = 64 * 1024 * 1024  # bytes above which even stills, which are small, are left out
REMEMBERED = 1_000  # episodes whose recorded level is remembered

Key = tuple[str, Kind]


@dataclass(eq=False)
class _OpenClip:
    episode: str
    ends_ns: int
    video: bool  # it consists of access units, not of pictures
    recording: Recording | None = None  # used by the writing thread only
    over: bool = False
    broken: bool = False  # a frame was left out, and later units of a video may refer to it until the next key frame


class Recorder:
    """Records clips and stills. Call it on the event loop."""

    def __init__(self, folder: Path, finished: Callable[[], None]) -> None:
        """Create a recorder; it calls `finished` on the event loop whenever a clip waits for the hub."""
        self._folder = folder
        self._finished = finished
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clips")
        self._open: dict[Key, _OpenClip] = {}
        self._recorded: dict[str, Level] = {}  # by episode
        self._pending = 0  # bytes
        self.spool: ClipSpool
        self.failing = Condition(logger, begin=logging.ERROR)  # clips cannot be written
        self.pending_bytes = PENDING_BYTES
        self.pending_max_bytes = PENDING_MAX_BYTES
        self.left_out = 0  # frames that the disk was too slow for
        self.made = 0  # clips and stills

    async def start(self) -> None:
        """Open the spool. Clips that a crash cut off are left to `complete_cut_off`."""
        self.spool = await asyncio.get_running_loop().run_in_executor(self._thread, ClipSpool, self._folder)
        self._finished()

    async def complete_cut_off(self) -> None:
        """Complete the clips that a crash cut off, one by one, so that new clips are written in between."""
        while await self.run(ClipSpool.complete_next):
            self._finished()

    def record_report(
        self,
        report: EvidenceItem,
        before: Sequence[ClipPicture],
        *,
        box: Box | None,
        now_ns: int,
        about: Clip,
        after_ns: int,
    ) -> bool:
        """Begin or extend a clip for `report` and make a still. Returns True if a clip was begun or extended.

        Nothing happens if the report is no stronger than an earlier one of its episode. If too many bytes wait for the
        disk, the next report begins the clip instead.

        `before` are the pictures that led to the report; the last one is the report's own. For a video, whose pictures
        are not decoded here, `record_still` makes the still. `about` identifies the clip's device; the clip ends
        `after_ns` after the report.
        """
        kind, level = Kind(report.kind), Level(report.level)
        if level <= self._recorded.get(report.episode, Level.CLEAR) or not before:
            return False
        key = report.device, kind
        clip = self._open.get(key)
        if clip is not None and clip.episode != report.episode:
            clip = None  # that sign has ended; the new one may belong to another alarm
        if clip is None and self._pending > self.pending_bytes:
            return False
        self._recorded[report.episode] = level
        while len(self._recorded) > REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        about.device, about.zone, about.kind, about.episode = report.device, report.zone, report.kind, report.episode
        if isinstance(before[-1], ClipFrame):
            self.record_still(about, before[-1], report, box)
        if clip is not None:
            clip.ends_ns = now_ns + after_ns
            return True
        if key in self._open:
            self._end(key)
        clip = self._open[key] = _OpenClip(report.episode, now_ns + after_ns, isinstance(before[0], ClipUnit))
        size = sum(frame.size for frame in before)
        self._write(partial(self._begin, clip, about, list(before)), size)
        return True

    def is_recording(self, device: str, kind: Kind) -> bool:
        """True if a clip of this kind is open."""
        return (device, kind) in self._open

    def record_still(self, about: Clip, picture: ClipFrame, report: EvidenceItem, box: Box | None) -> None:
        """Make a still of `picture` for `report`."""
        if self._pending > self.pending_max_bytes:
            self.left_out += 1
            return
        self._write(partial(self._write_still, about, picture, report, box), picture.size)

    def record_frame(self, device: str, frame: ClipPicture, now_ns: int) -> None:
        """Add a camera's next picture to its open clips."""
        if not self._open:
            return
        video = isinstance(frame, ClipUnit)
        begins = not isinstance(frame, ClipUnit) or frame.unit.key
        for key, clip in list(self._open.items()):
            if key[0] != device or clip.video != video:
                continue
            if clip.over or now_ns > clip.ends_ns:
                self._end(key)
            elif self._pending > self.pending_bytes or (clip.broken and not begins):
                clip.broken = True
                self.left_out += 1
            else:
                clip.broken = False
                self._write(partial(self._append, clip, frame), frame.size)

    def end_overdue(self, now_ns: int) -> None:
        """End clips that are over even if no picture arrives. Call it about once a second."""
        for key, clip in list(self._open.items()):
            if now_ns > clip.ends_ns:
                self._end(key)

    def end_clips(self, device: str) -> None:
        """End the clips of a camera that another shard owns now."""
        for key in [key for key in self._open if key[0] == device]:
            self._end(key)

    async def flush(self) -> None:
        """End every clip and wait until all are on disk."""
        for key in list(self._open):
            self._end(key)
        await asyncio.get_running_loop().run_in_executor(self._thread, int)

    async def run(self, work: Callable[[ClipSpool], R]) -> R:
        """Return the result of `work(spool)`, run on the writing thread. Cancelling the call does not stop the work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self.spool))

    def close(self) -> None:
        """Release the thread. Clips written so far can be recovered."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _end(self, key: Key) -> None:
        self._write(partial(self._finish, self._open.pop(key)), 0)

    def _write(self, job: Callable[[], Clip | None], size: int) -> None:
        self._pending += size
        future = asyncio.get_running_loop().run_in_executor(self._thread, job)
        future.add_done_callback(partial(self._written, size))

    def _written(self, size: int, future: "asyncio.Future[Clip | None]") -> None:
        self._pending -= size
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            self.failing.fail(why, "clips: %s: cannot be written: %s. Alarms are not affected", self._folder, why)
        elif error is not None:
            logger.error("clips: an error prevented a clip or still", exc_info=error)
        elif (clip := future.result()) is not None:
            self.made += 1
            self._finished()
            if clip.media != Clip.MEDIA_STILL:  # a still is small, so its success says little about the disk
                self.failing.clear("clips: %s: can be written again", self._folder)

    # These run on the writing thread and return a finished clip or still.

    def _begin(self, clip: _OpenClip, about: Clip, before: list[ClipPicture]) -> None:
        try:
            clip.recording = self.spool.begin(about, before[0], stepped_ns())
        except (OSError, Mp4Error):
            clip.over = True
            raise
        for frame in before[1:]:
            self._append(clip, frame)

    def _append(self, clip: _OpenClip, frame: ClipPicture) -> None:
        if clip.over or clip.recording is None:
            return
        try:
            clip.over = not clip.recording.append(frame)
        except OSError:
            self._abandon(clip)
            raise

    def _finish(self, clip: _OpenClip) -> Clip | None:
        if clip.recording is None:
            return None
        try:
            return self.spool.finish(clip.recording)
        except OSError:
            self._abandon(clip)
            raise

    def _abandon(self, clip: _OpenClip) -> None:
        # A clip that cannot be finished only takes disk space that the next one needs.
        assert clip.recording is not None
        clip.over = True
        self.spool.abandon(clip.recording)
        clip.recording = None

    def _write_still(self, about: Clip, frame: ClipFrame, report: EvidenceItem, box: Box | None) -> Clip:
        still = Clip()
        still.CopyFrom(about)
        still.from_ns = still.until_ns = frame.time_ns + stepped_ns()
        jpeg, still.width, still.height = annotate_still(frame.jpeg, report, box, still.from_ns)
        return self.spool.add_still(still, jpeg)

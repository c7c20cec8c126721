"""Records clips and stills: from some seconds before a sign of fire to some seconds after it last grew."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from embereye.camera.clips.ring import Kept, KeptFrame, KeptUnit
from embereye.camera.clips.spool import ClipSpool, Recording
from embereye.camera.clips.stills import annotate_still
from embereye.levels import Kind, Level
from embereye.process.timing.clock import stepped_ns
from embereye.units import Box
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.wire.mp4 import Mp4Error

logger = logging.getLogger(__name__)
R = TypeVar("R")

PENDING_BYTES = 16 * 1024 * 1024  # waiting for the disk, above which pictures are left out and no clip is begun
PENDING_MOST = 64 * 1024 * 1024  # likewise, before a still is left out, which is small
REMEMBERED = 1_000  # episodes whose recorded level is remembered

Key = tuple[str, Kind]


@dataclass(eq=False)
class _OpenClip:
    episode: str
    ends_ns: int
    video: bool  # it is made of access units, and has no room for pictures
    recording: Recording | None = None  # the writing thread's own
    over: bool = False
    broken: bool = False  # a picture was left out, to which those of a video refer until the next key frame


class Recorder:
    """Called on the event loop. Disks are slow, so a thread of its own writes the files, in the order of the calls."""

    def __init__(self, folder: Path, finished: Callable[[], None]) -> None:
        """`finished` is called on the event loop whenever a clip waits for the hub."""
        self._folder = folder
        self._finished = finished
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clips")
        self._open: dict[Key, _OpenClip] = {}
        self._recorded: dict[str, Level] = {}  # by episode
        self._pending = 0  # bytes
        self.spool: ClipSpool
        self.failing = ""  # why clips cannot be written; empty: they can
        self.left_out = 0  # frames that the disk was too slow for
        self.made = 0  # clips and stills

    async def start(self) -> None:
        """Open the spool; `complete_cut_off` is for what a crash left there."""
        self.spool = await asyncio.get_running_loop().run_in_executor(self._thread, ClipSpool, self._folder)
        self._finished()

    async def complete_cut_off(self) -> None:
        """Complete the clips that a crash cut off, one by one: what is recorded now is written in between."""
        while await self.run(ClipSpool.complete_next):
            self._finished()

    def record_report(
        self,
        report: EvidenceItem,
        before: Sequence[Kept],
        *,
        box: Box | None,
        now_ns: int,
        about: Clip,
        after_ns: int,
    ) -> bool:
        """Begin or prolong a clip for `report`, and make a still.

        Nothing changes where the report is no stronger than an earlier one of its episode, or where too much waits for
        the disk: then the next report begins the clip. `before` are the pictures that led to it, the last one its own;
        of a video, whose pictures are not decoded here, the still is made by `record_still`. `about` says whose clip it
        is; the clip ends `after_ns` after the report. Returns whether anything was begun or prolonged.
        """
        kind, level = Kind(report.kind), Level(report.level)
        if level <= self._recorded.get(report.episode, Level.CLEAR) or not before:
            return False
        key = report.device, kind
        clip = self._open.get(key)
        if clip is not None and clip.episode != report.episode:
            clip = None  # that sign is over, and may be of another alarm
        if clip is None and self._pending > PENDING_BYTES:
            return False
        self._recorded[report.episode] = level
        while len(self._recorded) > REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        about.device, about.zone, about.kind, about.episode = report.device, report.zone, report.kind, report.episode
        if isinstance(before[-1], KeptFrame):
            self.record_still(about, before[-1], report, box)
        if clip is not None:
            clip.ends_ns = now_ns + after_ns
            return True
        if key in self._open:
            self._end(key)
        clip = self._open[key] = _OpenClip(report.episode, now_ns + after_ns, isinstance(before[0], KeptUnit))
        size = sum(frame.size for frame in before)
        self._write(partial(self._begin, clip, about, list(before)), size)
        return True

    def record_still(self, about: Clip, picture: KeptFrame, report: EvidenceItem, box: Box | None) -> None:
        """Make a still of `picture` for `report`."""
        if self._pending > PENDING_MOST:
            self.left_out += 1
            return
        self._write(partial(self._still, about, picture, report, box), picture.size)

    def record_frame(self, device: str, frame: Kept, now_ns: int) -> None:
        """Add a camera's next picture to its open clips."""
        if not self._open:
            return
        video = isinstance(frame, KeptUnit)
        begins = not isinstance(frame, KeptUnit) or frame.unit.key
        for key, clip in list(self._open.items()):
            if key[0] != device or clip.video != video:
                continue
            if clip.over or now_ns > clip.ends_ns:
                self._end(key)
            elif self._pending > PENDING_BYTES or (clip.broken and not begins):
                clip.broken = True
                self.left_out += 1
            else:
                clip.broken = False
                self._write(partial(self._append, clip, frame), frame.size)

    def end_overdue(self, now_ns: int) -> None:
        """End clips that are over although no picture comes any more; call it every second or so."""
        for key, clip in list(self._open.items()):
            if now_ns > clip.ends_ns:
                self._end(key)

    def end_clips(self, device: str) -> None:
        """End the clips of a camera that another shard owns now."""
        for key in [key for key in self._open if key[0] == device]:
            self._end(key)

    async def flush(self) -> None:
        """End every clip and wait until all are on the disk."""
        for key in list(self._open):
            self._end(key)
        await asyncio.get_running_loop().run_in_executor(self._thread, int)

    async def run(self, work: Callable[[ClipSpool], R]) -> R:
        """The result of `work(spool)`, run on the spool's own thread; cancelled, the work is done all the same."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self.spool))

    def close(self) -> None:
        """Release the thread; what is written by now can be recovered."""
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
            self._set_failing(error.strerror or str(error))
        elif error is not None:
            logger.error("a clip could not be made", exc_info=error)
        elif (clip := future.result()) is not None:
            self.made += 1
            self._finished()
            if clip.media != Clip.MEDIA_STILL:  # a still is small: that it fits says little about the disk
                self._set_failing("")

    def _set_failing(self, failing: str) -> None:
        if failing == self.failing:
            return
        self.failing = failing
        if failing:
            logger.error("clips cannot be written to %s: %s; alarms are not affected", self._folder, failing)
        else:
            logger.warning("clips can be written to %s again", self._folder)

    # On the thread; what they return is a finished clip or still

    def _begin(self, clip: _OpenClip, about: Clip, before: list[Kept]) -> None:
        try:
            clip.recording = self.spool.begin(about, before[0], stepped_ns())
        except (OSError, Mp4Error):
            clip.over = True
            raise
        for frame in before[1:]:
            self._append(clip, frame)

    def _append(self, clip: _OpenClip, frame: Kept) -> None:
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
        # A clip that cannot be finished only takes the room that the next one needs.
        assert clip.recording is not None
        clip.over = True
        self.spool.abandon(clip.recording)
        clip.recording = None

    def _still(self, about: Clip, frame: KeptFrame, report: EvidenceItem, box: Box | None) -> Clip:
        still = Clip()
        still.CopyFrom(about)
        still.from_ns = still.until_ns = frame.time_ns + stepped_ns()
        jpeg, still.width, still.height = annotate_still(frame.jpeg, report, box, still.from_ns)
        return self.spool.add_still(still, jpeg)

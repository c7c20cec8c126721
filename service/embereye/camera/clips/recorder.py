"""Which clips and stills are made: from some seconds before a sign of fire to some seconds after it grew."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from embereye.camera.clips.ring import Kept
from embereye.camera.clips.spool import ClipSpool, Recording
from embereye.camera.clips.stills import annotate
from embereye.levels import Kind, Level
from embereye.units import Box
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem

logger = logging.getLogger(__name__)
R = TypeVar("R")

PENDING_BYTES = 16 * 1024 * 1024  # that wait for the disk; what comes on top is left out of its clip
REMEMBERED = 1_000  # episodes whose level is known to be recorded already

Key = tuple[str, Kind]


@dataclass(eq=False)
class _Running:
    episode: str
    level: Level
    ends_ns: int
    recording: Recording | None = None  # the writing thread's own
    over: bool = False


class Recorder:
    """Called on the event loop; disks are slow, so that files are written by a thread of its own."""

    def __init__(self, folder: Path, finished: Callable[[], None]) -> None:
        """`finished` is called on the event loop whenever a clip waits for the hub."""
        self._folder = folder
        self._finished = finished
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clips")
        self._running: dict[Key, _Running] = {}
        self._recorded: dict[str, Level] = {}  # by episode
        self._pending = 0  # bytes
        self.spool: ClipSpool
        self.failing = ""  # why clips cannot be written; empty: they can
        self.left_out = 0  # frames that the disk was too slow for
        self.made = 0  # clips and stills

    async def start(self) -> None:
        """Open the spool; what a crash left there is recovered."""
        self.spool = await asyncio.get_running_loop().run_in_executor(self._thread, ClipSpool, self._folder)
        self._finished()

    def sign(
        self, report: EvidenceItem, before: Sequence[Kept], *, box: Box | None, now_ns: int, about: Clip, after_ns: int
    ) -> None:
        """Learn of a report; `before` are the frames that led to it, the last one its own. `about` says whose it is."""
        kind, level = Kind(report.kind), Level(report.level)
        if level <= self._recorded.get(report.episode, Level.CLEAR) or not before:
            return
        self._recorded[report.episode] = level
        while len(self._recorded) > REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        about.device, about.zone, about.kind, about.episode = report.device, report.zone, report.kind, report.episode
        self._write(partial(self._still, about, before[-1], report, box), len(before[-1].jpeg))
        running = self._running.get((report.device, kind))
        if running is not None:
            running.level, running.ends_ns = level, now_ns + after_ns
            return
        running = self._running[report.device, kind] = _Running(report.episode, level, now_ns + after_ns)
        size = sum(len(frame.jpeg) for frame in before)
        self._write(partial(self._begin, running, about, list(before)), size)

    def frame(self, device: str, frame: Kept, now_ns: int) -> None:
        """Learn of a camera's next frame."""
        if not self._running:
            return
        for key, running in list(self._running.items()):
            if key[0] != device:
                continue
            if running.over or now_ns > running.ends_ns:
                self._end(key)
            elif self._pending > PENDING_BYTES:
                self.left_out += 1
            else:
                self._write(partial(self._append, running, frame), len(frame.jpeg))

    def tick(self, now_ns: int) -> None:
        """End what is over although no frame comes any more; call it every second or so."""
        for key, running in list(self._running.items()):
            if now_ns > running.ends_ns:
                self._end(key)

    def forget(self, device: str) -> None:
        """End the clips of a camera that is another shard's now."""
        for key in [key for key in self._running if key[0] == device]:
            self._end(key)

    async def flush(self) -> None:
        """End every clip and wait until it is on the disk."""
        for key in list(self._running):
            self._end(key)
        await asyncio.get_running_loop().run_in_executor(self._thread, int)

    async def run(self, work: Callable[[ClipSpool], R]) -> R:
        """`work(spool)` in the spool's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self.spool))

    def close(self) -> None:
        """Let go of the thread; what is written by now can be recovered."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _end(self, key: Key) -> None:
        self._write(partial(self._finish, self._running.pop(key)), 0)

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
            self._tell(error.strerror or str(error))
        elif error is not None:
            logger.error("a clip could not be made", exc_info=error)
        elif (clip := future.result()) is not None:
            self.made += 1
            self._finished()
            if clip.media == Clip.MEDIA_CLIP:  # a still is small: it says little of the room there is
                self._tell("")

    def _tell(self, failing: str) -> None:
        if failing == self.failing:
            return
        self.failing = failing
        if failing:
            logger.error("clips cannot be written to %s: %s; alarms are not affected", self._folder, failing)
        else:
            logger.warning("clips can be written to %s again", self._folder)

    # On the thread; what they return is a clip or a still that is whole

    def _begin(self, running: _Running, about: Clip, before: list[Kept]) -> None:
        try:
            running.recording = self.spool.begin(about, before[0])
        except OSError:
            running.over = True
            raise
        for frame in before[1:]:
            self._append(running, frame)

    def _append(self, running: _Running, frame: Kept) -> None:
        if running.over or running.recording is None:
            return
        try:
            running.over = not running.recording.append(frame)
        except OSError:
            self._give_up(running)
            raise

    def _finish(self, running: _Running) -> Clip | None:
        if running.recording is None:
            return None
        try:
            return self.spool.finish(running.recording)
        except OSError:
            self._give_up(running)
            raise

    def _give_up(self, running: _Running) -> None:
        # What cannot be finished only takes the room that the next one needs.
        assert running.recording is not None
        running.over = True
        self.spool.abandon(running.recording)
        running.recording = None

    def _still(self, about: Clip, frame: Kept, report: EvidenceItem, box: Box | None) -> Clip:
        still = Clip()
        still.CopyFrom(about)
        still.from_ns = still.until_ns = frame.time_ns
        jpeg, still.width, still.height = annotate(frame.jpeg, report, box, frame.time_ns)
        return self.spool.add_still(still, jpeg)

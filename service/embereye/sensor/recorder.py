"""Record the data of sensors around their signs, and deliver the recordings to the hub.

Each device's recent data is in memory anyway (`device/recent.py`). A sign that grows opens a recording, which only
gives its device more memory. When the recording ends, its span of time is cut from the recent data; a thread writes it
to a spool on the disk, from where it is delivered.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from prometheus_client.core import Metric

from embereye.levels import Kind, Level
from embereye.process.condition import Condition
from embereye.process.telemetry.metric import counter, gauge
from embereye.process.timing.clock import stepped_ns
from embereye.sensor.device.recent import Piece, RecentData
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.recording import Judged, write_recording
from embereye.shard.candidate.comparison import Difference
from embereye.shard.clips.delivery import Delivery
from embereye.shard.clips.spool import SpoolFolder
from embereye.shard.service import ShardContext
from embereye.units import HOUR, MIB, SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device

logger = logging.getLogger(__name__)
R = TypeVar("R")

RECENT_BYTES = 32 * MIB  # of all devices of a shard: 6 s of 1,000 devices with ten lines a second
DEVICE_BYTES = MIB // 4  # of one device at most: half a minute of ten lines a second, 19 s of 4 frames a second
RECORDED_BYTES = MIB  # of one device during a recording
MAX_RECORDED = 32  # devices that get this memory at the same time; others have their usual share
SPOOL_BYTES = 64 * MIB  # of recordings that wait for the hub
BEFORE_NS = 60 * SECOND  # recorded before a sign began
AFTER_NS = 10 * SECOND  # recorded after the sign last grew
LONGEST_NS = 60 * SECOND  # most that is recorded after the sign began
RETAINED_NS = BEFORE_NS + LONGEST_NS + 30 * SECOND  # older data is needed by no recording
TIDY_CALLS = 60  # calls of `end_overdue` in which the old data of every device is dropped
MAX_PER_HOUR = 12  # recordings of one device, so that a flickering sign leaves room for others
MAX_DIFFERING_PER_HOUR = 4  # recordings of one device for a candidate
MAX_EPISODES = 1_000  # episodes whose recorded level is remembered

MADE = counter("embereye_sensor_recordings_made_total", "Recordings of sensors' data around a sign.")
LEFT_OUT = counter(
    "embereye_sensor_recordings_left_out_total",
    "Signs that were not recorded because their device had enough recordings within an hour.",
)
DELIVERED = counter("embereye_sensor_recordings_delivered_total", "Recordings delivered to the hub.")
WAITING = gauge("embereye_sensor_recordings_waiting", "Recordings waiting for the hub.")
FAILING = gauge("embereye_sensor_recordings_failing", "1 while no recording can be written.")


@dataclass(eq=False)
class _Recording:
    """An open recording of one kind of sign at one device."""

    about: Clip
    declared: Device
    settings: SensorSettings
    replaced: tuple[int, ...]
    recent: RecentData
    level: Level
    began_ns: int
    ends_ns: int


class LineRecorder:
    """Called on the event loop; a dedicated thread writes files. Create it with `start`."""

    def __init__(self, folder: Path, context: ShardContext) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lines")
        self._open: dict[tuple[str, Kind], _Recording] = {}
        self._recorded: dict[str, Level] = {}  # by episode
        self._begun: dict[str, deque[int]] = {}  # by device: starts of its latest recordings
        self._differing: dict[str, deque[int]] = {}  # the same, for what only a candidate found
        self._delivery = Delivery(context.links, self)
        self._spool: SpoolFolder
        self._recent: Sequence[RecentData] = ()
        self._tidied = 0  # number of them that are tidied in the present round
        self.share = DEVICE_BYTES  # bytes of a device without a recording
        self.failing = Condition(logger, begin=logging.ERROR)  # recordings cannot be written
        self.made = 0
        self.left_out = 0  # signs beyond MAX_PER_HOUR

    @classmethod
    async def start(cls, context: ShardContext) -> "LineRecorder":
        """Open the spool, and deliver its recordings and later ones to the hub."""
        options = context.options
        assert options.data
        recorder = cls(options.data / f"{options.shard}.lines", context)
        opening = partial(SpoolFolder, recorder._folder, capacity=SPOOL_BYTES)
        recorder._spool = await asyncio.get_running_loop().run_in_executor(recorder._thread, opening)
        recorder._delivery.wake()
        context.tasks.start(recorder._delivery.run(), name="deliver-lines")
        return recorder

    def share_among(self, devices: Sequence[RecentData]) -> None:
        """Divide the memory for recent data equally among all `devices`."""
        self._recent, self._tidied = devices, 0
        self.share = min(DEVICE_BYTES, RECENT_BYTES // max(1, len(devices)))
        recorded = {id(recording.recent) for recording in self._open.values()}
        for recent in devices:
            if id(recent) not in recorded:
                recent.limit = self.share

    def note_report(self, report: EvidenceItem, device: SensorDevice, settings: SensorSettings, now_ns: int) -> None:
        """Start or extend a recording if `report` is stronger than the earlier ones of its episode."""
        key, level = (report.device, Kind(report.kind)), Level(report.level)
        if level <= self._recorded.get(report.episode, Level.CLEAR):
            return  # it merely continues: the data that led to this level is already recorded
        self._recorded[report.episode] = level
        while len(self._recorded) > MAX_EPISODES:
            del self._recorded[next(iter(self._recorded))]
        if (known := self._open.get(key)) is not None and known.about.episode == report.episode:
            known.level = level
            known.ends_ns = min(now_ns + AFTER_NS, known.began_ns + LONGEST_NS)
            return
        if known is not None:
            self._end(key)
        begun = self._begun.setdefault(report.device, deque(maxlen=MAX_PER_HOUR))
        if len(begun) == MAX_PER_HOUR and now_ns - begun[0] < HOUR:
            self.left_out += 1
            return
        begun.append(now_ns)
        about = Clip(
            media=Clip.MEDIA_LINES, fleet=report.fleet, device=report.device, zone=report.zone, kind=report.kind,
            episode=report.episode,
        )  # fmt: skip
        copied = SensorSettings()
        copied.CopyFrom(settings)
        recent = device.arrivals.recent
        self._open[key] = _Recording(
            about, device.spec, copied, tuple(sorted(device.frames.replaced)), recent, level, now_ns, now_ns + AFTER_NS
        )
        if len(self._open) <= MAX_RECORDED:
            recent.limit = RECORDED_BYTES

    def record_difference(
        self, difference: Difference, device: SensorDevice, settings: SensorSettings, fleet: str, now_ns: int
    ) -> None:
        """Record the data around what a candidate with `settings` found alone. What was reported is recorded anyway."""
        if difference.which != "candidate":
            return
        begun = self._differing.setdefault(difference.device, deque(maxlen=MAX_DIFFERING_PER_HOUR))
        if len(begun) == MAX_DIFFERING_PER_HOUR and now_ns - begun[0] < HOUR:
            return
        begun.append(now_ns)
        about = Clip(
            media=Clip.MEDIA_LINES, fleet=fleet, device=difference.device, zone=difference.zone,
            kind=difference.kind.wire, episode=difference.episode,
        )  # fmt: skip
        replaced = tuple(sorted(device.frames.replaced))
        recent = device.arrivals.recent
        ended = _Recording(about, device.spec, settings, replaced, recent, difference.level, difference.at_ns, now_ns)
        self._cut(ended)

    def end_overdue(self, now_ns: int) -> None:
        """End recordings that are due, and drop data that no recording needs. Call it about every second."""
        for key, recording in list(self._open.items()):
            if now_ns >= recording.ends_ns:
                self._end(key)
        first = self._tidied if self._tidied < len(self._recent) else 0
        self._tidied = first + len(self._recent) // TIDY_CALLS + 1
        for recent in self._recent[first : self._tidied]:
            recent.expire(now_ns - RETAINED_NS)

    def end(self, devices: Collection[str]) -> None:
        """End the recordings of devices that this shard no longer owns."""
        for key in [key for key in self._open if key[0] in devices]:
            self._end(key)
        for device in devices:
            self._begun.pop(device, None)
            self._differing.pop(device, None)

    def _end(self, key: tuple[str, Kind]) -> None:
        recording = self._open.pop(key)
        self._cut(recording)
        if not any(device == key[0] for device, _ in self._open):
            recording.recent.limit = self.share

    def _cut(self, recording: _Recording) -> None:
        """Write what was recorded."""
        eeprom, pieces = recording.recent.cut(recording.began_ns - BEFORE_NS)
        judged = Judged(recording.declared, recording.settings, recording.level, eeprom, recording.replaced)
        job = partial(self._write, recording.about, judged, pieces, stepped_ns())
        future = asyncio.get_running_loop().run_in_executor(self._thread, job)
        future.add_done_callback(self._written)

    def _written(self, future: "asyncio.Future[bool]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            sentence = "recordings cannot be written to %s: %s; alarms are not affected"
            self.failing.fail(why, sentence, self._folder, why)
        elif error is not None:
            logger.error("a recording could not be written", exc_info=error)
        elif future.result():
            self.made += 1
            self.failing.clear("recordings can be written to %s again", self._folder)
            self._delivery.wake()

    async def run(self, work: Callable[[SpoolFolder], R]) -> R:
        """Run `work(spool)` on the spool's thread and return its result. Cancelling this does not stop the work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._spool))

    async def drain(self, seconds: float) -> None:
        """End every recording, and deliver them for up to `seconds`; the rest waits on the disk."""
        deadline = time.monotonic() + seconds
        for key in list(self._open):
            self._end(key)
        await asyncio.get_running_loop().run_in_executor(self._thread, int)
        await asyncio.sleep(0)  # let the callbacks of the writes run
        while self._delivery.waiting and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Stop the thread that writes."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def metrics(self) -> Iterator[Metric]:
        """Counters and gauges, read at scrape time."""
        yield MADE.value(self.made)
        yield LEFT_OUT.value(self.left_out)
        yield DELIVERED.value(self._delivery.delivered)
        yield WAITING.value(self._delivery.waiting)
        yield FAILING.value(bool(self.failing))

    # Runs on the thread

    def _write(self, about: Clip, judged: Judged, pieces: list[Piece], stepped: int) -> bool:
        if not pieces:
            return False
        about.from_ns, about.until_ns = pieces[0].time_ns + stepped, pieces[-1].time_ns + stepped
        about.frames = len(pieces)
        self._spool.add(about, write_recording(judged, pieces))
        return True

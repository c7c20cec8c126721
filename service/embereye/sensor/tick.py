"""The tick: parse and analyse what text devices sent since the last one, together, in bounded time and memory.

Bytes wait in their session, at most a few reads of them. A session with waiting bytes is queued once, so a flooding
device gets one turn for each turn of another device. A tick parses the queued sessions in batches. Each session hands
its messages back (`add_reading`, `add_frame`), and `analyse_collected` analyses them all together: first it compares
all readings with their devices' bands, because nearly all are quiet. A tick works for at most `BUDGET` seconds; then
the event loop runs other work, and the rest follows in the next tick.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import BandTable
from embereye.detect.thermal.batch import temperatures
from embereye.detect.thermal.heat import Extreme, extremes
from embereye.detect.thermal.mlx90640 import FRAME_WORDS, NOT_MEASURED, PIXELS, unmeasured, words_of
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.timing.clock import now_ns
from embereye.sensor.archive import Archive
from embereye.sensor.candidate import SensorCandidate
from embereye.sensor.device.arrivals import Row
from embereye.sensor.device.recent import PieceKind
from embereye.sensor.device.sensor import COMPACTED, SensorDevice
from embereye.sensor.live import LiveThermal
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND
from embereye.v1.shard_pb2 import SensorSettings
from embereye.wire.device.messages import Message
from embereye.wire.device.reader import LineReader, Rows, read_together
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
UNASSIGNED_WINDOW = 0.05  # seconds between ticks before the first assignment: only devices' names are needed then
PACKET_BYTES = 48  # of a typical line; the number of waiting packets is estimated from their bytes
BATCH_BYTES = 512 * 1024  # parsed at a time
SOON_BYTES = 256 * 1024  # waiting bytes that start a tick early: as many frames as are best analysed together
BUDGET = 0.02  # seconds of work before the event loop has its turn
FRAMES_BUDGET = 0.04  # seconds of work on frames in a batch; frames beyond it are shed
FRAME_COST = 40e-6  # seconds per frame, until it has been measured
QUIET_ROWS = 32  # newest quiet readings of a batch that are retained for a recording
OVERFLOW = "overflow"
ALL_FOUR = 0x01010101  # four booleans that are all true
FRAME_BYTES = 2 * FRAME_WORDS


class Source(Protocol):
    """A session with waiting bytes."""

    queued: bool
    reader: LineReader

    def resume_reading(self) -> None:
        """Resume reading: the waiting bytes are being analysed."""

    def handle_lines(self, items: Sequence[Message | Rows], now_ns: int) -> None:
        """Route the parsed messages to their devices."""


@dataclass(slots=True)
class _Frame:
    device: SensorDevice
    words: bytes
    at_ns: int


class _Limits(NamedTuple):
    window: float = UNASSIGNED_WINDOW  # seconds between ticks
    capacity: int = 0  # packets of one device in one tick
    compact: bool = True  # compact the surplus; else drop it
    soon_bytes: int = SOON_BYTES  # waiting bytes that start a tick early


class TickBatcher:
    """Queues sessions, ticks, and hands signs to `observe`."""

    def __init__(self, bands: BandTable, observe: Callable[[list[Sign], int], None]) -> None:
        self.archive: Archive | None = None
        self.candidate: SensorCandidate | None = None
        self.live = LiveThermal()
        self._bands = bands
        self._observe = observe
        self._queue: deque[Source] = deque()
        self._handle: asyncio.Handle | None = None
        self._soon = False
        self._since = 0.0  # when the first source was queued, monotonic seconds
        self._rows: dict[SensorDevice, list[Row]] = {}  # single readings that are not in `_blocks` yet
        self._blocks: dict[SensorDevice, list[NDArray[np.float64]]] = {}  # (n, 4) each
        self._frames: list[_Frame] = []
        self._frame_cost = FRAME_COST
        self.waiting = 0  # bytes
        self.analysed = 0  # packets
        self.offered = 0  # packets
        self.waited = 0.0  # seconds that the first packet of the present tick has waited
        self.waits = LatencyHistogram()  # from the arrival of a tick's first packet until the tick
        self.works = LatencyHistogram()  # duration of ticks
        self._limits = _Limits()

    def configure(self, settings: SensorSettings) -> None:
        """Use a fleet's complete settings from now on."""
        compact = settings.overflow == SensorSettings.OVERFLOW_COMPACT
        soon = min(SOON_BYTES, settings.max_items * PACKET_BYTES * 2)
        self._limits = _Limits(settings.window_ns / SECOND, settings.queue_capacity, compact, soon)

    @property
    def depth(self) -> int:
        """Packets waiting, estimated from their bytes."""
        return -(-self.waiting // PACKET_BYTES)

    def oldest_age_ns(self) -> int:
        """The age of the packet that has waited longest."""
        return int((time.monotonic() - self._since) * 1e9) if self._queue else 0

    def add(self, source: Source, size: int) -> None:
        """Queue `source`, in which `size` more bytes wait."""
        self.waiting += size
        if not source.queued:
            source.queued = True
            if not self._queue:
                self._since = time.monotonic()
            self._queue.append(source)
        if self.waiting >= self._limits.soon_bytes:
            self._tick_soon()
        elif self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._limits.window, self._tick)

    def expedite(self, source: Source) -> None:
        """Start a tick now, with `source` first."""
        if source.queued and self._queue[0] is not source:
            self._queue.remove(source)
            self._queue.appendleft(source)
        self._tick_soon()

    def _tick_soon(self) -> None:
        if self._soon:
            return
        self._soon = True
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self._handle, self._soon = None, False
        self.flush(time.monotonic() + BUDGET)
        if self._queue:
            self._tick_soon()

    def flush(self, until: float = float("inf")) -> None:
        """Analyse the queued sources; stop after the batch in which `until` (monotonic seconds) passed."""
        started = time.monotonic()
        if self._queue:
            self.waited = started - self._since
            self.waits.observe(self.waited)
        self._work_off(until)
        self.works.observe(time.monotonic() - started)

    def _work_off(self, until: float) -> None:
        while self._queue:
            batch: list[Source] = []
            size = 0
            while self._queue and size < BATCH_BYTES:
                source = self._queue.popleft()
                source.queued = False
                size += source.reader.waiting
                batch.append(source)
            self.waiting -= size
            self._process(batch)
            self._since = time.monotonic()
            if self._since >= until:
                return

    def _process(self, batch: Sequence[Source]) -> None:
        now = now_ns()
        try:
            for source, items in zip(batch, read_together([source.reader for source in batch]), strict=True):
                try:
                    source.handle_lines(items, now)
                except Exception:
                    logger.exception("a device's messages could not be handled")
            self.analyse_collected(now)
        finally:
            # Last, because a relayed connection delivers its waiting lines at once; they wait for the next batch.
            for source in batch:
                source.resume_reading()

    def add_reading(self, device: SensorDevice, row: Row) -> None:
        """Collect a reading for this tick's analysis."""
        self._rows.setdefault(device, []).append(row)

    def add_rows(self, device: SensorDevice, rows: NDArray[np.float64]) -> None:
        """Collect readings (n, 4) for this tick's analysis."""
        blocks = self._blocks.setdefault(device, [])
        if earlier := self._rows.pop(device, None):
            blocks.append(np.array(earlier, np.float64))
        blocks.append(rows)

    def analyse_rows(self, device: SensorDevice, rows: NDArray[np.float64], now_ns: int) -> None:
        """Analyse readings (n, 4) of a gRPC batch at once."""
        self.waited = 0.0
        self.offered += len(rows)
        self.analysed += len(rows)
        if self.archive is not None:
            self.archive.add(device.spec.id, rows, now_ns)
        signs = device.analyse_readings(rows, now_ns)
        # Of quiet readings only the newest: all of them would push out the ones that changed a level.
        device.arrivals.recent.add_rows(rows if signs else rows[-QUIET_ROWS:], now_ns)
        self._observe(signs, now_ns)
        if self.candidate is not None:
            self.candidate.add_rows([device], [rows], now_ns)

    def add_frame(self, device: SensorDevice, words: bytes, at_ns: int) -> None:
        """Collect a frame for this tick's analysis."""
        self._frames.append(_Frame(device, words, at_ns))

    def calibrate(self, device: SensorDevice, words: bytes, now_ns: int) -> None:
        """Use a device's EEPROM from now on. Call `analyse_collected` first: earlier frames need the earlier one."""
        self.offered += 1
        accepted = device.calibrate(words, now_ns)
        self.analysed += accepted
        if accepted:
            device.arrivals.recent.add(PieceKind.EEPROM, words, now_ns)

    def analyse_collected(self, now_ns: int) -> None:
        """Analyse the collected readings and frames."""
        for device, rows in self._rows.items():
            self._blocks.setdefault(device, []).append(np.array(rows, np.float64))
        self._rows.clear()
        if self._blocks:
            blocks, self._blocks = self._blocks, {}
            joined = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in blocks.values()]
            self._analyse(list(blocks), joined, now_ns)
        if self._frames:
            frames, self._frames = self._frames, []
            self._analyse_frames(frames)

    def _analyse(self, devices: list[SensorDevice], blocks: list[NDArray[np.float64]], now_ns: int) -> None:
        """Analyse one block (n, 4) of readings for each device."""
        counts = np.array([len(block) for block in blocks])
        values = np.concatenate(blocks)
        slots = np.repeat(np.array([device.readings.slot for device in devices]), counts)
        within = (values >= self._bands.low[slots]) & (values < self._bands.high[slots])
        inside = within.view(np.uint32)[:, 0] == ALL_FOUR
        ends = np.cumsum(counts)
        quiet = np.logical_and.reduceat(inside, ends - counts).tolist()
        lasts = values[ends - 1].tolist()
        self.offered += len(values)
        self.analysed += len(values)
        if self.archive is not None:
            for device, block in zip(devices, blocks, strict=True):
                if not is_canary(device.spec.id):
                    self.archive.add(device.spec.id, block, now_ns)
        for device, block, unchanged, last in zip(devices, blocks, quiet, lasts, strict=True):
            is_quiet = unchanged and not device.readings.attentive
            device.arrivals.recent.add_rows(block[-QUIET_ROWS:] if is_quiet else block, now_ns)
            if is_quiet:
                device.arrivals.count_quiet_rows(len(block), last, now_ns)
                continue
            try:
                rows = self._bounded(device, block, now_ns)
                self._observe(device.analyse_readings(rows, now_ns), now_ns)
            except Exception:
                logger.exception("device %s: readings could not be analysed", device.spec.id)
        if self.candidate is not None:
            self.candidate.add_rows(devices, blocks, now_ns)

    def _bounded(self, device: SensorDevice, rows: NDArray[np.float64], now_ns: int) -> NDArray[np.float64]:
        """The newest rows, at most a queue's capacity; earlier ones are compacted or shed."""
        surplus = len(rows) - self._limits.capacity
        if surplus <= 0:
            return rows
        if self._limits.compact:
            self._observe(device.compact_readings(rows[:surplus], now_ns), now_ns)
        else:
            device.arrivals.shed(OVERFLOW, surplus)
        return rows[surplus:]

    def _analyse_frames(self, frames: list[_Frame]) -> None:
        started = time.perf_counter()
        self.offered += len(frames)
        by_device: dict[SensorDevice, list[_Frame]] = {}
        for frame in frames:
            by_device.setdefault(frame.device, []).append(frame)
        self._shed_frames(by_device, len(frames))
        runs = [
            (device.frames.calibration, _words_of(queued), device.emissivity)
            for device, queued in by_device.items()
            if device.frames.calibration is not None and all(len(frame.words) == FRAME_BYTES for frame in queued)
        ]
        pictures = temperatures(runs)
        measured = iter(zip(pictures, extremes(pictures), strict=True))
        for device, queued in by_device.items():
            calibrated = device.frames.calibration is not None and all(
                len(frame.words) == FRAME_BYTES for frame in queued
            )
            for frame in queued:
                picture, extreme = next(measured) if calibrated else self._measure(frame)
                device.arrivals.recent.add(PieceKind.FRAME, frame.words, frame.at_ns)
                try:
                    if self.archive is not None:
                        self.archive.add_frame(device.spec.id, frame.words, picture, frame.at_ns)
                    if signs := device.analyse_frame(frame.words, picture, extreme, frame.at_ns):
                        self._observe(signs, frame.at_ns)
                    self.live.offer(device.spec.id, device.frames.picture, frame.at_ns)
                    if self.candidate is not None:
                        self.candidate.add_frame(device, frame.words, picture, extreme, frame.at_ns)
                except Exception:
                    logger.exception("device %s: a frame could not be analysed", device.spec.id)
        done = sum(map(len, by_device.values()))
        self.analysed += done
        self._frame_cost += 0.1 * ((time.perf_counter() - started) / done - self._frame_cost)

    @staticmethod
    def _measure(frame: _Frame) -> tuple[NDArray[np.float32] | None, Extreme | None]:
        device = frame.device
        if device.frames.calibration is None or len(frame.words) != FRAME_BYTES:
            return None, None
        celsius = device.frames.calibration.temperatures(_words_of([frame]), device.emissivity)
        return celsius[0], extremes(celsius)[0]

    def _shed_frames(self, by_device: dict[SensorDevice, list[_Frame]], total: int) -> None:
        """Leave each device its fair share of the frames that can be analysed in time; shed or compact the rest."""
        affordable = max(len(by_device), int(FRAMES_BUDGET / self._frame_cost))
        share = self._limits.capacity
        if total > affordable:
            share = min(share, _fair_share([len(queued) for queued in by_device.values()], affordable))
        for device, queued in by_device.items():
            surplus = len(queued) - share
            if surplus <= 0:
                continue
            if self._limits.compact:
                queued[surplus] = _hottest(queued[: surplus + 1])
                device.arrivals.shed(COMPACTED, surplus)
            else:
                device.arrivals.shed(OVERFLOW, surplus)
            del queued[:surplus]


def _fair_share(counts: list[int], affordable: int) -> int:
    """The largest share (at least 1) so that `counts`, each limited to it, add up to at most `affordable`."""
    left = affordable
    for position, count in enumerate(sorted(counts)):
        share = left // (len(counts) - position)
        if count > share:
            return max(share, 1)
        left -= count
    return max(counts)


def _hottest(frames: list[_Frame]) -> _Frame:
    """A summary of many frames: the highest value of each pixel, everything else from the last frame."""
    last = frames[-1]
    words = words_of(last.words)
    highest = words[:PIXELS].view(np.int16)
    for frame in frames[:-1]:
        pixels = words_of(frame.words)[:PIXELS]
        if (pixels == NOT_MEASURED).any():  # rows without a measurement must not count as the hottest
            pixels = np.where(unmeasured(pixels), highest.view(np.uint16), pixels)
        np.maximum(highest, pixels.view(np.int16), out=highest)
    return _Frame(last.device, words.astype(">u2").tobytes(), last.at_ns)


def _words_of(frames: list[_Frame]) -> NDArray[np.uint16]:
    """The words (n, 834) of frames in the long form."""
    return words_of(b"".join([frame.words for frame in frames])).reshape(len(frames), FRAME_WORDS)

"""A candidate in a sensor shard: other thresholds that judge the same readings and frames silently.

For each device there is a second `SensorDevice` with the candidate's settings. It gets the data after the settings in
force have judged it: parsed, and frames as temperatures. The data waits in a queue that is worked off while no other
work of the shard waits. If the queue is full, its oldest data is left out: the candidate does not see it, and it is
counted. The signs of both sides go to a `Comparison`.

Lines that change nothing are counted without being parsed, so such a line must be quiet for both sides.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import NOWHERE, BandTable
from embereye.detect.thermal.heat import Extreme
from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.candidate.comparison import Comparison, Difference
from embereye.shard.candidate.counts import CandidateCounts
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Candidate, SensorSettings
from embereye.wire.readings.quantity import Report

logger = logging.getLogger(__name__)
QUEUED = 20_000  # readings and frames that wait at most; a frame counts as FRAME_WEIGHT
FRAME_WEIGHT = 50  # a frame costs about as much as 50 readings
BUDGET = 0.005  # seconds of work before the event loop has its turn
DELAY, BUSY_DELAY = 0.01, 0.1  # seconds until the queue is worked off; while other work waits
BUSY_NS = SECOND // 10  # age of data that waits for the settings in force, from which the candidate waits
NO_LINES = (NOWHERE, NOWHERE, NOWHERE, NOWHERE)


@dataclass(frozen=True)
class _Rows:
    devices: Sequence[SensorDevice]
    blocks: Sequence[NDArray[np.float64]]  # (n, 4) for each device
    now_ns: int

    @property
    def weight(self) -> int:
        return sum(map(len, self.blocks))


@dataclass(frozen=True)
class _Frame:
    device: SensorDevice
    words: bytes
    celsius: NDArray[np.float32] | None
    extreme: Extreme | None
    now_ns: int

    weight = FRAME_WEIGHT

    @property
    def devices(self) -> Sequence[SensorDevice]:
        return (self.device,)


class SensorCandidate:
    """Judges the data of a shard's devices by other settings. For one event loop."""

    def __init__(self, candidate: Candidate, waiting_ns: Callable[[], int] = lambda: 0) -> None:
        """`waiting_ns` is the age of the data that waits for the settings in force."""
        self.declared = candidate
        self.counts = CandidateCounts()
        self.settings = SensorSettings()
        self.settings.CopyFrom(candidate.sensor)
        self._waiting_ns = waiting_ns
        self._bands = BandTable()
        self._shadows: dict[str, SensorDevice] = {}
        self._comparison = Comparison()
        self._queue = deque[_Rows | _Frame]()
        self._queued = 0  # weight
        self._handle: asyncio.Handle | None = None

    def watch(self, devices: Mapping[str, SensorDevice]) -> None:
        """Judge exactly these devices from now on."""
        for name in self._shadows.keys() - devices.keys():
            self._shadows.pop(name).release()
            self._comparison.forget(name)
        for name, device in devices.items():
            shadow = self._shadows.get(name)
            if shadow is None:
                shadow = self._shadows[name] = SensorDevice(device.spec, self.settings, self._bands)
                shadow.frames.learn_from(device.frames)
            else:
                shadow.configure(device.spec, self.settings)
            self._narrow(device, shadow)

    def close(self, devices: Iterable[SensorDevice]) -> None:
        """Judge nothing more."""
        for device in devices:
            device.readings.narrow_quiet_lines(None)
        if self._handle is not None:
            self._handle.cancel()
        self._queue.clear()
        self._shadows.clear()

    # Data, after the settings in force have judged it

    def add_rows(self, devices: Sequence[SensorDevice], blocks: Sequence[NDArray[np.float64]], now_ns: int) -> None:
        """Queue one block (n, 4) of readings for each device."""
        self._add(_Rows(devices, blocks, now_ns))

    def add_frame(
        self, device: SensorDevice, words: bytes, celsius: NDArray[np.float32] | None, extreme: Extreme | None,
        now_ns: int,
    ) -> None:  # fmt: skip
        """Queue a frame, with its temperatures if it is calibrated."""
        self._add(_Frame(device, words, celsius, extreme, now_ns))

    def analyse_report(self, device: str, report: Report, heard_ns: int, now_ns: int) -> None:
        """Judge what a message says of a device."""
        if shadow := self._shadows.get(device):
            self._note(shadow.analyse_report(report, heard_ns, now_ns), now_ns)

    def repeat_signs(self, now_ns: int) -> None:
        """Renew the signs of devices that report states, as the shard does for those in force."""
        for shadow in self._shadows.values():
            if shadow.states.values and shadow.levels.is_open():
                self._note(shadow.states.repeat(now_ns), now_ns)

    def note_in_force(self, sign: Sign, now_ns: int, episode: str) -> None:
        """Note a sign of the settings in force; `episode` is that of its report, if it was reported."""
        if sign.device in self._shadows:
            self._comparison.note("inForce", sign, now_ns, episode)

    def differences(self, now_ns: int) -> list[Difference]:
        """Return the differences that are certain now. Call it about every second."""
        # What waits may still bring the sign that is missing.
        return self._comparison.due(min(now_ns, self._queue[0].now_ns) if self._queue else now_ns)

    def work(self, until: float = float("inf")) -> None:
        """Judge the queued data until `until` (monotonic seconds)."""
        began = time.thread_time()
        while self._queue:
            job = self._queue.popleft()
            self._queued -= job.weight
            try:
                self._judge(job)
            except Exception:
                logger.exception("candidate %s: data could not be judged", self.declared.name)
                self._leave_out(job)
            if time.monotonic() >= until:
                break
        self.counts.cpu_seconds += time.thread_time() - began

    def _add(self, job: _Rows | _Frame) -> None:
        self._queue.append(job)
        self._queued += job.weight
        while self._queued > QUEUED:
            oldest = self._queue.popleft()
            self._queued -= oldest.weight
            self._leave_out(oldest)
        if self._handle is None and self._queue:
            self._handle = asyncio.get_running_loop().call_later(DELAY, self._work_a_while)

    def _work_a_while(self) -> None:
        self._handle = None
        busy = self._waiting_ns() > BUSY_NS
        if not busy:
            self.work(time.monotonic() + BUDGET)
        if self._queue:
            delay = BUSY_DELAY if busy else 0.0
            self._handle = asyncio.get_running_loop().call_later(delay, self._work_a_while)

    def _leave_out(self, job: _Rows | _Frame) -> None:
        for device in job.devices:
            self._comparison.note_unseen(device.spec.id, job.now_ns)
        self.counts.unseen += 1 if isinstance(job, _Frame) else job.weight

    def _judge(self, job: _Rows | _Frame) -> None:
        if isinstance(job, _Rows):
            self._judge_rows(job)
        elif shadow := self._shadows.get(job.device.spec.id):
            self.counts.seen += 1
            shadow.frames.follow(job.device.frames)
            self._note(shadow.analyse_frame(job.words, job.celsius, job.extreme, job.now_ns), job.now_ns)

    def _judge_rows(self, job: _Rows) -> None:
        judged = [
            (device, shadow, block)
            for device, block in zip(job.devices, job.blocks, strict=True)
            if (shadow := self._shadows.get(device.spec.id)) is not None
        ]
        if not judged:
            return
        counts = np.array([len(block) for _, _, block in judged])
        values = np.concatenate([block for _, _, block in judged])
        slots = np.repeat(np.array([shadow.readings.slot for _, shadow, _ in judged]), counts)
        inside = ((values >= self._bands.low[slots]) & (values < self._bands.high[slots])).all(axis=1)
        quiet = np.logical_and.reduceat(inside, np.cumsum(counts) - counts).tolist()
        self.counts.seen += len(values)
        for (device, shadow, block), unchanged in zip(judged, quiet, strict=True):
            if unchanged and not shadow.readings.attentive:
                continue
            self._note(shadow.analyse_readings(block, job.now_ns), job.now_ns)
            self._narrow(device, shadow)

    @staticmethod
    def _narrow(device: SensorDevice, shadow: SensorDevice) -> None:
        device.readings.narrow_quiet_lines(NO_LINES if shadow.readings.attentive else shadow.readings.bands)

    def _note(self, signs: Iterable[Sign], now_ns: int) -> None:
        for sign in signs:
            self._comparison.note("candidate", sign, now_ns)

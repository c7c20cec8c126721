"""Replay the recording of a sensor in this version, as its shard would analyse it, and collect its reports.

`show` passes each `Moment` of a recording, as one tick, to a shard's `SensorDevice` and `TickBatcher`, with the
recorded time as their clock. The calibration and the replaced pixels of the recording are restored before the first
moment.
"""

from dataclasses import dataclass, field

from embereye.detect.sensing.bands import BandTable
from embereye.levels import Kind, Level
from embereye.sensor.device.arrivals import row_of
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.recording import Judged, Moment
from embereye.sensor.tick import TickBatcher
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.wire.device.messages import Eeprom, FrameWords, SensorReading
from embereye.wire.device.reader import LineReader


@dataclass
class LineReplay:
    """One device, with the recording's time instead of the clock's."""

    judged: Judged
    reports: list[EvidenceItem] = field(default_factory=list, init=False)
    readings: int = field(default=0, init=False)
    frames: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        bands = BandTable()
        self._episodes = Episodes("")
        self._device = SensorDevice(self.judged.device, self.judged.settings, bands)
        self._batcher = TickBatcher(bands, self._observe)
        self._batcher.configure(self.judged.settings)
        self._reader = LineReader()
        self._began = False

    def _observe(self, signs: list[Sign], now_ns: int) -> None:
        for sign in signs:
            if report := self._episodes.observe(sign, now_ns):
                self.reports.append(report)

    def show(self, moment: Moment) -> None:
        """Analyse the lines of one moment, in a tick."""
        device, batcher, now_ns = self._device, self._batcher, moment.time_ns
        if not self._began:
            self._began = True
            if self.judged.eeprom:
                batcher.calibrate(device, self.judged.eeprom, now_ns)
                device.frames.replace(frozenset(self.judged.replaced))
        for message in self._reader.feed(moment.text):
            match message:
                case SensorReading():
                    self.readings += 1
                    batcher.add_reading(device, row_of(message))
                case FrameWords(words=words):
                    self.frames += 1
                    batcher.add_frame(device, words, now_ns)
                case Eeprom(words=words):
                    batcher.analyse_collected(now_ns)
                    batcher.calibrate(device, words, now_ns)
        batcher.analyse_collected(now_ns)

    def level(self, kind: Kind) -> Level:
        """The highest level that was reported of `kind`."""
        return max((Level(report.level) for report in self.reports if Kind(report.kind) is kind), default=Level.CLEAR)

"""One sensor: what arrives from it (`arrivals`), what is analysed of that (`readings`, `frames`), and what it means."""

import logging

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import BandTable
from embereye.detect.sensing.calibration import settings_of
from embereye.detect.sensing.health import SensorHealth
from embereye.detect.thermal.heat import Extreme
from embereye.sensor.device.arrivals import Arrivals, Row
from embereye.sensor.device.frames import FrameAnalysis
from embereye.sensor.device.levels import CLEAR, HEAT, Levels
from embereye.sensor.device.readings import ReadingAnalysis
from embereye.shard.evidence.episodes import Sign
from embereye.v1.ingest_pb2 import Watermark
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device

logger = logging.getLogger(__name__)
COMPACTED = "compacted"  # why readings were shed: a summary was analysed in their place
BAD_CALIBRATION = "bad calibration"
FRAMES = "frames"  # the key of a thermal sensor's fault


class SensorDevice:
    """State of one sensor. All of it is lost with the shard; the device sends its calibration again when asked."""

    def __init__(self, spec: Device, settings: SensorSettings, bands: BandTable) -> None:
        own = settings_of(spec, settings)
        self.spec = spec
        self.arrivals = Arrivals()
        self.levels = Levels(spec)
        self.readings = ReadingAnalysis(own, bands, self.levels)
        self.frames = FrameAnalysis(spec.id, own.heat)
        self.emissivity = own.emissivity  # of what it looks at, 0..1
        self.faults: dict[str, str] = {}  # "smoke", "flame", "gas" or FRAMES → why its readings are none
        self._health = SensorHealth()
        self._inspected_ns = 0  # when that was heard which was inspected last

    def configure(self, spec: Device, settings: SensorSettings) -> None:
        """Hold what comes next against a changed declaration or changed settings; what was learnt stays."""
        own = settings_of(spec, settings)
        self.spec = spec
        self.levels.configure(spec)
        self.readings.configure(own)
        self.frames.configure(own.heat)
        self.emissivity = own.emissivity

    def release(self) -> None:
        """Give back what it holds of its shard: it belongs to another one, or to nobody."""
        self.readings.release()

    def count_quiet_rows(self, count: int, last: Row, now_ns: int) -> None:
        """Book `count` readings that change nothing, of which `last` is the latest."""
        self.arrivals.count_quiet_rows(count, last, now_ns)

    def analyse_readings(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Book and analyse readings (n, 4), in order; the signs they show, the clear ones of open signs too."""
        arrivals = self.arrivals
        arrivals.count_offered(len(rows), now_ns)
        signs, compacted = self.readings.analyse(rows, now_ns)
        arrivals.count_analysed(len(rows) - compacted, now_ns)
        if compacted:
            arrivals.ledger.shed[COMPACTED] += compacted
        arrivals.remember(rows, now_ns)
        self._note_blindness()
        return signs

    def compact_readings(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Book readings (n, 4) as shed and analyse what stands for them; the signs that shows."""
        arrivals = self.arrivals
        arrivals.count_offered(len(rows), now_ns)
        arrivals.ledger.shed[COMPACTED] += len(rows)
        signs = self.readings.analyse_summary(rows, now_ns)
        arrivals.remember(rows, now_ns)
        self._note_blindness()
        return signs

    def analyse_frame(
        self, words: bytes, celsius: NDArray[np.float32] | None, extreme: Extreme | None, now_ns: int
    ) -> list[Sign]:
        """Book and analyse a frame. Where it is calibrated, `celsius` (24, 32) and their `extreme` are given."""
        self.arrivals.count_offered(1, now_ns)
        found = self.frames.analyse(words, celsius, extreme, now_ns)
        self.arrivals.count_analysed(1, now_ns)
        signs = self.levels.assess(HEAT, found, now_ns, relative=found.relative)
        self._note_blindness()
        return signs

    def calibrate(self, words: bytes, now_ns: int) -> bool:
        """Book an EEPROM and use it from now on; False where it is refused: the old one stays."""
        self.arrivals.count_offered(1, now_ns)
        try:
            self.frames.calibrate(words)
        except ValueError as error:
            self.arrivals.ledger.rejected[BAD_CALIBRATION] += 1
            logger.warning("device %s: calibration refused: %s", self.spec.id, error)
            return False
        self.arrivals.count_analysed(1, now_ns)
        return True

    def watermark(self) -> Watermark:
        """Up to where everything of its gRPC sender is accounted for; epoch 0: it had none."""
        return Watermark(device=self.spec.id, epoch=self.arrivals.epoch, sequence=self.arrivals.sequence)

    def inspect_sensors(self, now_ns: int) -> None:
        """Find out, every few seconds, whether its sensors work, where it has said something since the last time.

        That another one is faulty is logged once.
        """
        arrivals = self.arrivals
        heard_ns = arrivals.watch.heard_ns
        if heard_ns == self._inspected_ns:
            return
        self._inspected_ns = heard_ns
        faults = self._health.inspect_row(
            arrivals.row,
            now_ns,
            full_scale=self.readings.thresholds.full_scale,
            omitted=arrivals.long_omitted(),
            alarmed=self.readings.attentive,
        )
        if fault := self.frames.inspect(now_ns, quiet=self.levels.held(HEAT) <= CLEAR):
            faults[FRAMES] = fault
        if faults != self.faults:
            news = faults.keys() != self.faults.keys()  # the sentences count seconds
            self.faults = faults
            if faults and news:
                logger.warning("device %s: %s", self.spec.id, "; ".join(faults.values()))
            self._note_blindness()

    def _note_blindness(self) -> None:
        blind = self.levels.blind
        if blind or self.faults or not self.arrivals.seeing:  # nearly always nothing: this runs for every frame
            self.arrivals.watch.blind = "; ".join((*blind.values(), *self.faults.values()))

    def covered(self, now_ns: int, deadline_ns: int) -> bool:
        """Whether it was heard and analysed in time, and can see."""
        arrivals = self.arrivals
        if now_ns - arrivals.quiet_ns <= deadline_ns and arrivals.seeing:
            return True  # without booking: this is asked four times a second
        return not arrivals.watch.reason(now_ns, deadline_ns)

    def reason(self, now_ns: int, deadline_ns: int) -> str:
        """Why it is not covered, or ''."""
        return self.arrivals.watch.reason(now_ns, deadline_ns) if self.spec.zone else "not declared in this fleet"

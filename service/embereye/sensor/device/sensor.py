"""One sensor: its arrivals, the analysis of its readings and frames, the levels in force, and its health.

`ReadingAnalysis` and `FrameAnalysis` assess the data, `Levels` makes signs of it, and `Arrivals` counts all of it. The
tick passes readings and frames here and gets the signs; quiet lines go to `arrivals` alone. Everything is counted as
offered, and then as analysed, shed, rejected or duplicate. The shard calls `inspect_sensors` every few seconds. A blind
or faulty sensor is reported as not covered.
"""

import logging

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import BandTable
from embereye.detect.sensing.calibration import settings_of
from embereye.detect.sensing.health import SensorHealth
from embereye.detect.thermal.heat import Extreme
from embereye.sensor.device.arrivals import Arrivals
from embereye.sensor.device.frames import FrameAnalysis
from embereye.sensor.device.levels import CLEAR, HEAT, Levels
from embereye.sensor.device.readings import ReadingAnalysis
from embereye.sensor.device.states import StateAnalysis
from embereye.shard.counts import CountedSpan
from embereye.shard.evidence.episodes import Sign
from embereye.v1.ingest_pb2 import Watermark
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.quantity import Report
from embereye.wire.readings.source import parse_source

logger = logging.getLogger(__name__)
COMPACTED = "compacted"  # the reason for shed readings if their summary was analysed
BAD_CALIBRATION = "bad calibration"
FRAMES = "frames"  # the key of a thermal sensor's fault


class SensorDevice:
    """The state of one sensor. All of it is lost with the shard; the device sends its calibration again on request."""

    def __init__(self, spec: Device, settings: SensorSettings, bands: BandTable) -> None:
        device_settings = settings_of(spec, settings)
        self.spec = spec
        self.arrivals = Arrivals()
        self.span = CountedSpan()  # since its last margin
        self.levels = Levels(spec)
        self.readings = ReadingAnalysis(device_settings, bands, self.levels)
        self.frames = FrameAnalysis(spec.id, device_settings.heat, spec.areas)
        self.emissivity = device_settings.emissivity  # of the observed surface, 0..1
        self.states = StateAnalysis(device_settings, self.levels)
        self.link_problem = ""  # why nothing of it can be heard now; empty: it can
        self.faults: dict[str, str] = {}  # "smoke", "flame", "gas" or FRAMES → why its values cannot be trusted
        self._link_lost_ns = 0  # since when it cannot be heard
        self.deadline_ns = _deadline_of(spec)  # longest time between two check-ins; 0: it does not sleep
        self._health = SensorHealth()
        self._inspected_ns = 0  # arrival of the data that was inspected last

    def configure(self, spec: Device, settings: SensorSettings) -> None:
        """Use a changed declaration or changed settings from now on; learnt values remain."""
        device_settings = settings_of(spec, settings)
        self.spec = spec
        self.levels.configure(spec)
        self.readings.configure(device_settings)
        self.frames.configure(device_settings.heat, spec.areas)
        self.states.configure(device_settings)
        self.deadline_ns = _deadline_of(spec)
        self.emissivity = device_settings.emissivity

    def release(self) -> None:
        """Release its row in the shard's band table. Call it once, when the shard no longer owns the device."""
        self.readings.release()

    def analyse_readings(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Count and analyse readings (n, 4), in order; return their signs, also the clear ones of open signs."""
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
        """Count readings (n, 4) as shed and analyse their summary; return its signs."""
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
        """Count and analyse a frame. If it is calibrated, `celsius` (24, 32) and their `extreme` are given."""
        self.arrivals.count_offered(1, now_ns)
        assessment = self.frames.analyse(words, celsius, extreme, now_ns)
        self.arrivals.count_analysed(1, now_ns)
        signs = self.levels.assess(HEAT, assessment, now_ns, relative=assessment.relative)
        self._note_blindness()
        return signs

    def analyse_report(self, report: Report, heard_ns: int, now_ns: int) -> list[Sign]:
        """Count and analyse what a message says of it; `heard_ns` is when it checked in, 0: the message is no check-in.

        The watch never goes back: a stored check-in may be older than the latest one.
        """
        arrivals = self.arrivals
        arrivals.ledger.offered += 1
        arrivals.ledger.analysed += 1
        watch = arrivals.watch
        watch.heard_ns = watch.analysed_ns = max(watch.heard_ns, heard_ns)
        signs = self.states.analyse(report.readings, now_ns)
        watch.blind = "; ".join(self.states.faults.values())
        return signs

    def note_link(self, problem: str, now_ns: int) -> None:
        """Note why nothing of it can be heard now; '': it can."""
        if not problem:
            self._link_lost_ns = 0
        elif not self._link_lost_ns:
            self._link_lost_ns = now_ns
        self.link_problem = problem

    def calibrate(self, words: bytes, now_ns: int) -> bool:
        """Count an EEPROM and use it from now on; False if it is invalid: the old one remains in use."""
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
        """The watermark of its gRPC sender; epoch 0 if it never had one."""
        return Watermark(device=self.spec.id, epoch=self.arrivals.epoch, sequence=self.arrivals.sequence)

    def inspect_sensors(self, now_ns: int) -> None:
        """Check whether its sensors work, if data arrived since the last check. Call it every few seconds.

        A change in the set of faulty sensors is logged.
        """
        arrivals = self.arrivals
        heard_ns = arrivals.watch.heard_ns
        if heard_ns == self._inspected_ns:
            return
        if self._inspected_ns:
            self.frames.note_gap(heard_ns - self._inspected_ns, heard_ns)
        self._inspected_ns = heard_ns
        faults = self._health.inspect_row(
            arrivals.row,
            now_ns,
            full_scale=self.readings.thresholds.full_scale,
            omitted=arrivals.long_omitted(),
            alarmed=self.readings.attentive,
        )
        if fault := self.frames.inspect(now_ns, quiet=self.levels.in_force(HEAT) <= CLEAR):
            faults[FRAMES] = fault
        if faults != self.faults:
            is_new = faults.keys() != self.faults.keys()  # the sentences change every second
            self.faults = faults
            if faults and is_new:
                logger.warning("device %s: %s", self.spec.id, "; ".join(faults.values()))
            self._note_blindness()

    def _note_blindness(self) -> None:
        blind = self.levels.blind
        if blind or self.faults or not self.arrivals.is_seeing:  # rarely true; this runs for every frame
            # Detection and inspection may give the same reason for the same frame.
            self.arrivals.watch.blind = "; ".join(dict.fromkeys((*blind.values(), *self.faults.values())))

    def is_covered(self, now_ns: int, deadline_ns: int) -> bool:
        """True if it was heard and analysed within the deadline, and is not blind."""
        arrivals = self.arrivals
        if now_ns - arrivals.quiet_ns <= deadline_ns and arrivals.is_seeing:
            return True  # the fast path, which leaves quiet lines uncounted: this runs four times a second
        return not self._why_uncovered(now_ns, deadline_ns)

    def _why_uncovered(self, now_ns: int, deadline_ns: int) -> str:
        if self._link_lost_ns and now_ns - self._link_lost_ns > deadline_ns:
            return self.link_problem
        return self.arrivals.watch.reason(now_ns, self.deadline_ns or deadline_ns, sleeps=bool(self.deadline_ns))

    def reason(self, now_ns: int, deadline_ns: int) -> str:
        """The reason why it is not covered, or ''."""
        return self._why_uncovered(now_ns, deadline_ns) if self.spec.zone else "not declared in this fleet"


def _deadline_of(spec: Device) -> int:
    """The deadline that the device's source declares; 0 if it has none, or cannot be read."""
    try:
        return parse_source(spec.source).deadline_ns if spec.source else 0
    except ValueError:
        return 0

"""One sensor as its shard knows it: ledger, watch, calibration, detectors, latest measurements."""

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from embereye.sensor.thresholds import Assessment, assess_flame, assess_gas, assess_smoke
from embereye.shard.coverage import Watch
from embereye.shard.episodes import Sign
from embereye.shard.ledger import Ledger
from embereye.thermal.heat import HeatAssessment, HeatWatch
from embereye.thermal.mlx90640 import PIXELS, Calibration, words_of
from embereye.v1.evidence_pb2 import DeviceStatus, ThermalPicture
from embereye.v1.ingest_pb2 import DeviceBatch
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device, Kind, Level, Sense, Term
from embereye.wire.device import PIXEL_WORDS, RAM_WORDS, Eeprom, FrameWords, SensorReading

logger = logging.getLogger(__name__)
Channel = Literal["smoke_adc", "flame_adc", "gas_adc", "flame_detected"]
CHANNELS: tuple[Channel, ...] = ("smoke_adc", "flame_adc", "gas_adc", "flame_detected")
Message = SensorReading | FrameWords | Eeprom


class SensorDevice:
    """State of one sensor. All of it is lost with the shard; the device sends its calibration again when asked."""

    def __init__(self, spec: Device, settings: SensorSettings) -> None:
        self.spec = spec
        self.ledger = Ledger()
        self.watch = Watch()
        self.calibration: Calibration | None = None
        self.wants_calibration = False
        self.request: Callable[[str], None] | None = None  # sends a bare word to the device, if it is a text device
        self.epoch = 0  # of the gRPC sender
        self.sequence = 0  # up to here everything of this epoch is accounted for
        self._settings = settings
        self._heat = HeatWatch(settings.heat)
        self._held: dict[Kind.ValueType, Level.ValueType] = {}  # level in force
        self._blind: dict[Kind.ValueType, str] = {}  # why a sense says nothing
        self._latest: dict[str, Term] = {}
        self._picture: NDArray[np.float32] | None = None  # the latest frame: °C, or counts above their median
        self._relative = False

    def configure(self, spec: Device, settings: SensorSettings) -> None:
        """Take a changed declaration or changed settings; what was learnt stays."""
        self.spec = spec
        self._heat.configure(settings.heat)
        self._settings = settings

    def analyse(self, message: Message, now_ns: int) -> list[Sign]:
        """What `message`, heard at `now_ns`, shows; the clear signs too. Books it in the ledger as offered before."""
        self.watch.heard_ns = now_ns
        match message:
            case SensorReading():
                signs = self._reading(message)
            case FrameWords(words=words):
                signs = self._frame(words, now_ns)
            case Eeprom(words=words):
                if not self._calibrate(words):
                    return []
                signs = []
        self.ledger.analysed += 1
        self.watch.analysed_ns = now_ns
        return signs

    def unpack(self, batch: DeviceBatch, now_ns: int) -> Iterator[Message]:
        """The new messages of a gRPC batch in order of sequence; what was taken before is booked as duplicate."""
        if batch.epoch < self.epoch:
            count = len(batch.readings) + len(batch.frames) + len(batch.columns.time_ns)
            self.ledger.offered += count
            self.ledger.rejected["older epoch"] += count
            return
        if batch.epoch > self.epoch:
            self.epoch, self.sequence = batch.epoch, 0
        if batch.calibration:
            self.ledger.offered += 1
            yield Eeprom(None, batch.calibration)
        for sequence, message in sorted(_numbered(batch), key=lambda pair: pair[0]):
            self.ledger.offered += 1
            if sequence <= self.sequence:
                self.ledger.duplicate += 1
                continue
            self.sequence = sequence
            if isinstance(message, FrameWords) and len(message.words) not in {PIXEL_WORDS * 2, RAM_WORDS * 2}:
                self.ledger.rejected["bad frame"] += 1
                continue
            yield message

    def status(self, now_ns: int, deadline_ns: int) -> DeviceStatus:
        """The device as the hub and the operator are told."""
        declared = bool(self.spec.zone)
        reason = self.watch.reason(now_ns, deadline_ns) if declared else "not declared in this fleet"
        status = DeviceStatus(
            id=self.spec.id,
            zone=self.spec.zone,
            covered=not reason,
            reason=reason,
            heard_ns=self.watch.heard_ns,
            analysed_ns=self.watch.analysed_ns,
            ledger=self.ledger.message(),
            latest=self._latest.values(),
            state=self._state(now_ns, deadline_ns),
        )
        if self._picture is not None:
            picture = ThermalPicture(celsius=self._picture.ravel().tolist(), relative=self._relative)
            status.thermal.CopyFrom(picture)
        return status

    def _state(self, now_ns: int, deadline_ns: int) -> str:
        if not self.watch.heard_ns:
            return "waiting"
        if now_ns - self.watch.heard_ns > deadline_ns:
            return "silent"
        if self._picture is None:
            return "streaming"
        return "streaming, calibrated" if self.calibration else "streaming, uncalibrated"

    def _reading(self, reading: SensorReading) -> list[Sign]:
        settings, signs = self._settings, []
        if reading.smoke_adc is not None:
            found = assess_smoke(reading.smoke_adc, settings.smoke, self._level(Kind.KIND_SMOKE))
            signs += self._signs(Kind.KIND_SMOKE, found)
        if reading.gas_adc is not None:
            found = assess_gas(reading.gas_adc, settings.gas, self._level(Kind.KIND_GAS))
            signs += self._signs(Kind.KIND_GAS, found)
        if reading.flame_adc is not None or reading.flame_detected is not None:
            held = self._level(Kind.KIND_FLAME)
            found = assess_flame(reading.flame_adc, reading.flame_detected, settings.flame, held)
            signs += self._signs(Kind.KIND_FLAME, found)
        return signs

    def _frame(self, words: bytes, now_ns: int) -> list[Sign]:
        frame = words_of(words)
        if self.calibration is None or len(frame) != RAM_WORDS:
            # Only the long form can be calibrated; the short one never carries what a calibration needs.
            self.wants_calibration = self.calibration is None and len(frame) == RAM_WORDS
            found = self._heat.observe_words(frame[:PIXELS], now_ns)
            counts = frame[:PIXELS].view(np.int16).astype(np.float32)
            self._picture, self._relative = counts - np.median(counts), True
            return self._signs(Kind.KIND_HEAT, found)
        emissivity = self._settings.emissivity or 0.95
        celsius = self.calibration.temperatures(frame[None], emissivity=emissivity)[0]
        if np.isfinite(celsius).any():
            self._note("temperature.max", float(np.nanmax(celsius)), "°C")
            self._note("temperature.mean", float(np.nanmean(celsius)), "°C")
            self._picture, self._relative = celsius, False
        return self._signs(Kind.KIND_HEAT, self._heat.observe(celsius, now_ns))

    def _calibrate(self, words: bytes) -> bool:
        try:
            self.calibration = Calibration.from_eeprom(words)
        except ValueError as error:
            self.ledger.rejected["bad calibration"] += 1
            logger.warning("device %s: calibration refused: %s", self.spec.id, error)
            return False
        self.wants_calibration = False
        self._latest.pop("counts.rise", None)
        return True

    def _signs(self, kind: Kind.ValueType, found: Assessment | HeatAssessment) -> list[Sign]:
        if found.blind:
            self._blind[kind] = found.blind
        else:
            self._blind.pop(kind, None)
        self.watch.blind = "; ".join(self._blind.values())
        if found.level == Level.LEVEL_UNSPECIFIED:
            return []  # it cannot tell: that is neither a sign nor its end
        self._held[kind] = found.level
        for term in found.terms:
            self._note(term.name, term.value, term.unit)
        relative = isinstance(found, HeatAssessment) and found.relative
        return [
            Sign(
                device=self.spec.id,
                zone=self.spec.zone,
                kind=kind,
                sense=Sense.SENSE_SENSOR,
                level=found.level,
                score=found.score,
                why=found.terms,
                relative=relative,
                note=found.note,
            )
        ]

    def _level(self, kind: Kind.ValueType) -> Level.ValueType:
        return self._held.get(kind, Level.LEVEL_CLEAR)

    def _note(self, name: str, value: float, unit: str) -> None:
        self._latest[name] = Term(name=name, value=value, unit=unit)


def _numbered(batch: DeviceBatch) -> Iterator[tuple[int, Message]]:
    """Every message of a gRPC batch with its sequence; a column that is too short has no more values."""
    for reading in batch.readings:
        values: dict[str, Any] = {name: getattr(reading, name) for name in CHANNELS if reading.HasField(name)}
        yield reading.sequence, SensorReading(None, **values)
    columns = batch.columns
    given = {name: column for name in CHANNELS if (column := getattr(columns, name))}
    for row in range(len(columns.time_ns)):
        values = {
            name: column[row] for name, column in given.items() if row < len(column) and not math.isnan(column[row])
        }
        if "flame_detected" in values:
            values["flame_detected"] = bool(values["flame_detected"])
        yield columns.first_sequence + row, SensorReading(None, **values)
    for frame in batch.frames:
        yield frame.sequence, FrameWords(None, frame.words)

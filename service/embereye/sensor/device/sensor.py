"""One sensor as its shard knows it: ledger, watch, calibration, detectors, latest measurements."""

import logging
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import NOWHERE, BandTable, Limits
from embereye.detect.sensing.calibration import active_low, emissivity_of, full_scale_of, settings_of
from embereye.detect.sensing.compaction import Summary, summarize
from embereye.detect.sensing.health import Health
from embereye.detect.sensing.thresholds import (
    Assessment,
    assess_flame,
    assess_gas,
    assess_smoke,
    percent,
    ppm,
    sensor_kohm,
)
from embereye.detect.thermal.health import LIMIT, PixelWatch, doubt
from embereye.detect.thermal.heat import Extreme, HeatAssessment, HeatWatch
from embereye.detect.thermal.mlx90640 import COLUMNS, FRAME_WORDS, PIXELS, Calibration, words_of
from embereye.detect.thermal.spot import SpotWatch, hot_spot
from embereye.levels import Kind, Level, Sense
from embereye.shard.coverage import Watch
from embereye.shard.episodes import HOLD_NS, Sign
from embereye.shard.ledger import Ledger
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import DeviceStatus, ThermalPicture
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device, Term
from embereye.wire.device.rows import calm_reading

logger = logging.getLogger(__name__)
# Looked up once: an enum's name costs more than the comparison it is for.
UNKNOWN, CLEAR = Level.UNSPECIFIED, Level.CLEAR
HEAT, SMOKE, GAS, FLAME = Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME
SENSOR = Sense.SENSOR
KINDS = {"smoke": SMOKE, "flame": FLAME, "gas": GAS}
Row = Sequence[float]  # smoke, flame, gas in ADC counts, digital flame as 0 or 1; NaN: not said
# Level changes looked at one by one in a batch of one device. What goes up and down more often than that within a
# window is no fire but a fault, or worse, and must not take the time of the other devices.
TRANSITIONS = 32
COMPACTED = "compacted"
# Frames that stop, or are the same over and over, while everything else goes on. A device that sends them only when it
# is asked sends few, or rarely: it is given as many times its usual interval.
FRAMES_LOST_NS = 30 * SECOND
FRAMES_LOST_INTERVALS = 10
FRAMES_KNOWN = 20  # sent, before anything is expected of those to come
CHANNELS = {SMOKE: (0, "smoke"), FLAME: (1, "flame"), GAS: (2, "gas")}  # kind → its column in a row, its name
STARTLE_COUNTS = 40  # a pixel that rose by so many raw counts, some 4 K, is looked at without waiting for the tick


def _never(text: bytes, start: int = 0, /) -> re.Match[bytes] | None:
    """Match nothing."""
    return None


class SensorDevice:
    """State of one sensor. All of it is lost with the shard; the device sends its calibration again when asked."""

    def __init__(self, spec: Device, settings: SensorSettings, bands: BandTable) -> None:
        self.spec = spec
        self._ledger = Ledger()
        self._watch = Watch()
        self.singles = 0  # readings that needed no tick
        self._booked = 0  # of them
        self._single: re.Match[bytes] | None = None  # the last of them
        self._single_ns = 0  # when it was heard
        self.calibration: Calibration | None = None
        self.wants_calibration = False
        self.request: Callable[[str], None] | None = None  # sends a bare word to the device, if it is a text device
        self.speaker: object | None = None  # the session that speaks for it
        self.epoch = 0  # of the gRPC sender
        self.sequence = 0  # up to here everything of this epoch is accounted for
        self.slot = bands.allocate()
        self.bands = (NOWHERE, NOWHERE, NOWHERE, NOWHERE)
        self._calm: Callable[[bytes, int], re.Match[bytes] | None] = _never  # matches a line that changes nothing
        self.attentive = False  # a sign is open: batches must tell how it goes on
        self._table = bands
        self._set(settings_of(spec, settings))
        self._heat = HeatWatch(settings.heat)
        self._spot = SpotWatch()
        self._health = Health()
        self._omitted: dict[int, int] = {}  # channel → since when it has not been said
        self._pixels: PixelWatch | None = None  # once it sends frames
        self._frames = 0
        self._frame_ns = 0  # when the latest was heard
        self._fresh_ns = 0  # when one was heard that differs from the one before
        self._interval_ns = 0.0  # usually between two
        self._looked_ns = 0  # at the pixels, `_frame_ns` then
        self._faults: dict[str, str] = {}  # why a sensor's readings are none
        self._held: dict[Kind, Level] = {}  # level in force
        self._blind: dict[Kind, str] = {}  # why a sense says nothing
        self._shown: dict[Kind, int] = {}  # kinds with an open sign, and when it was last seen
        self._row: Row = (math.nan,) * 4  # the latest reading
        self._digital = False
        self._found: HeatAssessment | None = None  # of the latest frame
        self._picture: NDArray[np.float32] | None = None  # the latest frame: °C, or counts above their median
        self._relative = False
        self._words = b""  # of the latest frame
        self._set_bands()

    @property
    def ledger(self) -> Ledger:
        """What became of everything it offered."""
        if self.singles != self._booked:
            self._book()
        return self._ledger

    @property
    def watch(self) -> Watch:
        """When it was heard and analysed."""
        if self.singles != self._booked:
            self._book()
        return self._watch

    def _book(self) -> None:
        count = self.singles - self._booked
        self._ledger.offered += count
        self._ledger.analysed += count
        self._booked = self.singles
        if self._single is not None:
            smoke, flame, gas, digital = map(float, self._single.groups())
            self._row = (smoke, flame, gas, float(digital != 0))
        self._watch.heard_ns = self._watch.analysed_ns = self._single_ns

    def resume(self, epoch: int, sequence: int) -> None:
        """Go on after what another shard has taken of a gRPC sender."""
        self.epoch, self.sequence = max((self.epoch, self.sequence), (epoch, sequence))

    def configure(self, spec: Device, settings: SensorSettings) -> None:
        """Take a changed declaration or changed settings; what was learnt stays."""
        self.spec = spec
        self._heat.configure(settings.heat)
        self._set(settings_of(spec, settings))
        self._set_bands()

    def _set(self, settings: SensorSettings) -> None:
        self._settings = settings
        self._limits = Limits(settings)
        self._full_scale = full_scale_of(settings)
        self._active_low = active_low(settings)
        self.emissivity = emissivity_of(settings)  # of what it looks at, 0..1

    def release(self) -> None:
        """Forget the device: it belongs to another shard, or to nobody."""
        self._table.release(self.slot)

    def single(self, text: bytes, start: int, now_ns: int) -> bool:
        """Take the one usual line in `text`, whose values start at `start`, if it changes nothing; False: not taken.

        Nearly everything that a fleet sends goes through here, one packet at a time: it touches as little as it can.
        """
        calm = self._calm
        match = calm(text, start)
        if match is None:
            return False
        self._single = match
        self.singles += 1
        self._single_ns = now_ns
        return True

    def outside(self, row: Row) -> bool:
        """Whether a value that the reading gives may change a level."""
        return any(value < low or value >= high for value, (low, high) in zip(row, self.bands, strict=True))

    def quiet(self, rows: int, last: Row, now_ns: int) -> None:
        """Book `rows` readings that change nothing; `last` is the last of them."""
        self.ledger.offered += rows
        self.ledger.analysed += rows
        self.watch.heard_ns = self.watch.analysed_ns = now_ns
        self._row = last
        if self._omitted:
            self._omitted.clear()

    def readings(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Analyse readings (n, 4) in order, and book them; the signs they show, the clear ones of open signs too.

        Levels are those that one reading after the other would have led to, as long as they change no more often than
        TRANSITIONS; what is left then is compacted.
        """
        count = len(rows)
        self.ledger.offered += count
        self.watch.heard_ns = self.watch.analysed_ns = now_ns
        signs: list[Sign] = []
        start, looked = 0, -1
        for _ in range(TRANSITIONS):
            start = self._next_outside(rows, start)
            if start >= count:
                break
            signs += self._reading(rows[start].tolist(), now_ns)
            looked = start
            start += 1
        else:
            rest = rows[start:]
            if len(rest) > 3:  # a summary has as many rows
                self.ledger.shed[COMPACTED] += len(rest)
                count -= len(rest)
                signs += self._summary(rest, now_ns)
            else:
                signs += [sign for row in rest.tolist() for sign in self._reading(row, now_ns)]
            looked = len(rows) - 1
        if self.attentive and looked != len(rows) - 1:
            signs += self._reading(rows[-1].tolist(), now_ns)
        self.ledger.analysed += count
        self._remember(rows, now_ns)
        return signs

    def compact(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Analyse what stands for readings (n, 4) that are given up, and book them as shed; the signs it shows."""
        self.shed(COMPACTED, len(rows))
        self.watch.heard_ns = now_ns
        signs = self._summary(rows, now_ns)
        self._remember(rows, now_ns)
        return signs

    def _summary(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        found = summarize(rows, self._full_scale)
        signs = [sign for row in found.rows.tolist() for sign in self._reading(row, now_ns)]
        return [_explained(sign, found) for sign in signs]

    def _next_outside(self, rows: NDArray[np.float64], start: int) -> int:
        """The first row from `start` on that may change a level."""
        low, high = self._table.low[self.slot], self._table.high[self.slot]
        part = rows[start:]
        outside = part < low
        outside |= part >= high
        if self._digital or self._held.get(FLAME, CLEAR) > CLEAR:
            outside[:, 1] |= np.isnan(part[:, 1])  # the two flame outputs are understood together
            outside[:, 3] |= np.isnan(part[:, 3])
        if not np.count_nonzero(outside):  # any() costs three times as much
            return len(rows)
        return start + int(outside.argmax() // outside.shape[1])

    def _remember(self, rows: NDArray[np.float64], now_ns: int) -> None:
        last: list[float] = rows[-1].tolist()
        for column, value in enumerate(last):
            if not math.isnan(value):
                self._omitted.pop(column, None)
            elif len(said := np.flatnonzero(~np.isnan(rows[:, column]))):
                last[column] = float(rows[said[-1], column])
                self._omitted.pop(column, None)
            else:
                last[column] = self._row[column]
                self._omitted.setdefault(column, now_ns)
        self._row = last

    def startled(self, words: bytes) -> bool:
        """Whether a frame differs so much from the one before that it must not wait."""
        if not self._words:
            return True
        before, pixels = (np.frombuffer(each, ">i2", PIXELS).astype(np.int32) for each in (self._words, words))
        return int((pixels - before).max()) > STARTLE_COUNTS

    def frame(
        self,
        words: bytes,
        celsius: NDArray[np.float32] | None,
        extreme: Extreme | None,
        now_ns: int,
    ) -> list[Sign]:
        """Analyse a frame, and book it. Where it is calibrated, `celsius` (24, 32) and their `extreme` are given."""
        self.ledger.offered += 1
        self.ledger.analysed += 1
        self.watch.heard_ns = self.watch.analysed_ns = now_ns
        if words != self._words:
            self._fresh_ns = now_ns
        self._words = words
        if self._frames:
            self._interval_ns += (now_ns - self._frame_ns - self._interval_ns) / 8
        self._frames += 1
        self._frame_ns = now_ns
        if celsius is None or extreme is None:
            # Only the long form can be calibrated; the short one never carries what a calibration needs.
            self.wants_calibration = self.calibration is None and len(words) == 2 * FRAME_WORDS
            pixels = words_of(words)[:PIXELS]
            self._found = self._heat.observe_words(pixels, now_ns, self._pixels.deviating if self._pixels else ())
            self._picture, self._relative = pixels.view(np.int16).astype(np.float32), True
        else:
            self._found = self._with_spot(self._heat.observe_extreme(celsius, extreme, now_ns), celsius, now_ns)
            if self._found.hottest is not None:
                self._picture, self._relative = celsius, False
            elif self.calibration is not None:
                why = doubt(self.calibration, words_of(words))
                self._found = self._found._replace(blind=why or self._found.blind)
        return self._signs(HEAT, self._found, now_ns)

    def _with_spot(self, found: HeatAssessment, celsius: NDArray[np.float32], now_ns: int) -> HeatAssessment:
        """`found` with where the heat is and how it grows, once there is any."""
        spot = hot_spot(celsius) if found.level > CLEAR else None
        if spot is None:
            self._spot.forget()
            return found
        growth = self._spot.growth(spot, now_ns)
        terms = (("spot.row", spot.row), ("spot.column", spot.column), ("spot.pixels", float(spot.pixels)))
        measured = (*found.measured, *((name, value, 0.0, "1") for name, value in terms))
        return found._replace(measured=(*measured, ("spot.growth", growth, 0.0, "1/min")))

    def look(self, now_ns: int) -> None:
        """Look, every few seconds, whether its sensors work."""
        if now_ns - self.watch.heard_ns > 2 * SECOND:
            return
        if self._omitted and self._single_ns > max(self._omitted.values()):
            self._omitted.clear()
        faults = self._health.look(
            self._row, now_ns, full_scale=self._full_scale, omitted=self._omitted, alarmed=self.attentive
        )
        if self._frames >= FRAMES_KNOWN:
            faults |= self._look_at_frames(now_ns)
        if faults != self._faults:
            self._faults = faults
            if faults:
                logger.warning("device %s: %s", self.spec.id, "; ".join(faults.values()))
            self._see()

    def _look_at_frames(self, now_ns: int) -> dict[str, str]:
        patience_ns = max(FRAMES_LOST_NS, FRAMES_LOST_INTERVALS * self._interval_ns)
        if (gone_ns := now_ns - self._frame_ns) > patience_ns:
            return {"frames": f"its thermal frames stopped {gone_ns / SECOND:.0f} s ago"}
        if (same_ns := now_ns - self._fresh_ns) > patience_ns:
            return {"frames": f"its thermal picture is frozen: the same words for {same_ns / SECOND:.0f} s"}
        pixels = self._pixels = self._pixels or PixelWatch()
        words = words_of(self._words)
        if self._frame_ns != self._looked_ns and len(words) >= PIXELS:
            self._looked_ns = self._frame_ns
            before = pixels.deviating
            pixels.look(words[:PIXELS], calm=self._level(HEAT) <= CLEAR)
            if pixels.deviating != before:
                self._replace_pixels(pixels.deviating)
        bad = len(pixels.deviating) + (len(self.calibration.bad_pixels) if self.calibration else 0)
        if bad > LIMIT:
            return {"frames": f"{bad} of {PIXELS} thermal pixels are broken, stuck or noisy; {LIMIT} is the most"}
        if self.calibration is not None and len(words) == FRAME_WORDS and (why := doubt(self.calibration, words)):
            return {"frames": why}
        return {}

    def _replace_pixels(self, deviating: frozenset[int]) -> None:
        logger.warning(
            "device %s: %d thermal pixels are stuck or noisy and are replaced by their neighbours: %s",
            self.spec.id,
            len(deviating),
            ", ".join(f"row {pixel // COLUMNS} column {pixel % COLUMNS}" for pixel in sorted(deviating)[:8]) or "none",
        )
        if self.calibration is not None:
            self.calibration = self.calibration.replacing(deviating)

    def _see(self) -> None:
        self._watch.blind = "; ".join((*self._blind.values(), *self._faults.values()))

    def calibrate(self, words: bytes, now_ns: int) -> bool:
        """Take a calibration EEPROM, and book it; False where it is refused."""
        self.ledger.offered += 1
        self.watch.heard_ns = now_ns
        try:
            calibration = Calibration.from_eeprom(words)
            self.calibration = calibration.replacing(self._pixels.deviating) if self._pixels else calibration
        except ValueError as error:
            self.ledger.rejected["bad calibration"] += 1
            self.wants_calibration = self.calibration is None
            logger.warning("device %s: calibration refused: %s", self.spec.id, error)
            return False
        self.ledger.analysed += 1
        self.watch.analysed_ns = now_ns
        self.wants_calibration = False
        return True

    def covered(self, now_ns: int, deadline_ns: int) -> bool:
        """Whether it was heard and analysed in time, and can see."""
        if now_ns - self._single_ns <= deadline_ns and not self._watch.blind:
            return True
        return not self.watch.reason(now_ns, deadline_ns)

    def refuse(self, reason: str, count: int = 1) -> None:
        """Book what cannot be analysed."""
        self.ledger.offered += count
        self.ledger.rejected[reason] += count

    def shed(self, reason: str, count: int = 1) -> None:
        """Book what was given up."""
        self.ledger.offered += count
        self.ledger.shed[reason] += count

    def reason(self, now_ns: int, deadline_ns: int) -> str:
        """Why it is not covered, or ''."""
        return self.watch.reason(now_ns, deadline_ns) if self.spec.zone else "not declared in this fleet"

    def status(self, now_ns: int, deadline_ns: int) -> DeviceStatus:
        """The device as the hub and the operator are told."""
        reason = self.reason(now_ns, deadline_ns)
        status = DeviceStatus(
            id=self.spec.id,
            zone=self.spec.zone,
            covered=not reason,
            reason=reason,
            heard_ns=self.watch.heard_ns,
            analysed_ns=self.watch.analysed_ns,
            ledger=self.ledger.message(),
            latest=[Term(name=name, value=value, unit=unit) for name, value, unit in self.latest()],
            state=self._state(now_ns, deadline_ns),
        )
        if self._picture is not None:
            picture = self._picture - np.median(self._picture) if self._relative else self._picture
            status.thermal.CopyFrom(ThermalPicture(celsius=picture.ravel().tolist(), relative=self._relative))
        return status

    def latest(self) -> list[tuple[str, float, str]]:
        """The latest measurements: name, value, unit."""
        if self.singles != self._booked:
            self._book()
        smoke, flame, gas, digital = self._row
        full_scale, limits = self._full_scale, self._settings.gas
        found: list[tuple[str, float, str]] = []
        silent = {*self._blind, *(KINDS[name] for name in self._faults if name in KINDS)}
        if not math.isnan(smoke) and SMOKE not in silent:
            found.append(("smoke", float(percent(smoke, full_scale)), "%"))
        if not math.isnan(flame) and FLAME not in silent:
            found.append(("flame", float(percent(flame, full_scale)), "%"))
        if not math.isnan(digital):
            found.append(("flame.digital", float((digital != 0) != self._active_low), "1"))
        if not math.isnan(gas) and GAS not in silent:
            found.append(("gas", float(ppm(gas, limits, full_scale)), "ppm"))
            found.append(("gas.resistance", float(sensor_kohm(gas, limits, full_scale)), "kOhm"))
        if self._pixels is not None and self._pixels.deviating:
            found.append(("pixels.replaced", float(len(self._pixels.deviating)), "1"))
        if self._found is not None and "frames" not in self._faults:
            found += [(name, value, unit) for name, value, _, unit in self._found.measured]
            if not self._relative and self._picture is not None:
                found.append(("temperature.mean", float(np.nanmean(self._picture)), "°C"))
        return found

    def _state(self, now_ns: int, deadline_ns: int) -> str:
        if not self.watch.heard_ns:
            return "waiting"
        if now_ns - self.watch.heard_ns > deadline_ns:
            return "silent"
        if self._picture is None:
            return "streaming"
        return "streaming, calibrated" if self.calibration else "streaming, uncalibrated"

    def _reading(self, row: Row, now_ns: int) -> list[Sign]:
        settings, signs = self._settings, []
        smoke, flame, gas, digital = row
        if not math.isnan(smoke):
            found = assess_smoke(smoke, settings.smoke, self._level(SMOKE), self._full_scale)
            signs += self._signs(SMOKE, found, now_ns)
        if not math.isnan(gas):
            found = assess_gas(gas, settings.gas, self._level(GAS), self._full_scale)
            signs += self._signs(GAS, found, now_ns)
        analog = None if math.isnan(flame) else flame
        detected = None if math.isnan(digital) else (digital != 0) != self._active_low
        if analog is not None or detected is not None:
            found = assess_flame(analog, detected, settings.flame, self._level(FLAME), self._full_scale)
            signs += self._signs(FLAME, found, now_ns)
            self._digital = bool(detected)
        self._set_bands()
        return signs

    def _set_bands(self) -> None:
        limits, blind = self._limits, self._blind
        self.bands = (
            NOWHERE if SMOKE in blind else limits.smoke(self._level(SMOKE)),
            NOWHERE if FLAME in blind else limits.flame(self._level(FLAME), digital=self._digital),
            NOWHERE if GAS in blind else limits.gas(self._level(GAS)),
            (0.5, math.inf) if self._digital != self._active_low else (-0.5, 0.5),
        )
        self._table.set(self.slot, self.bands)
        self.attentive = any(kind != HEAT for kind in self._shown)
        self._calm = _never if self.attentive else calm_reading(self.bands).fullmatch

    def _signs(self, kind: Kind, found: Assessment | HeatAssessment, now_ns: int) -> list[Sign]:
        if found.blind != self._blind.get(kind, ""):
            if found.blind:
                self._blind[kind] = found.blind
            else:
                self._blind.pop(kind, None)
            self._see()
        if found.level == UNKNOWN:
            return []  # it cannot tell: that is neither a sign nor its end
        self._held[kind] = found.level
        if found.level > CLEAR:
            self._shown[kind] = now_ns
        elif kind not in self._shown:
            return []
        elif now_ns - self._shown[kind] >= HOLD_NS:
            del self._shown[kind]
        return [
            Sign(
                device=self.spec.id,
                zone=self.spec.zone,
                kind=kind,
                sense=SENSOR,
                level=found.level,
                score=found.score,
                why=found.terms,
                relative=isinstance(found, HeatAssessment) and found.relative,
                note=found.note,
            )
        ]

    def _level(self, kind: Kind) -> Level:
        return self._held.get(kind, CLEAR)


def _explained(sign: Sign, found: Summary) -> Sign:
    """`sign` with what it was made from: one look at what stands for many readings."""
    column, name = CHANNELS[sign.kind]
    terms = [
        Term(name=f"{name}.{what}", value=values[column], unit="counts")
        for what, values in (("lowest", found.lowest), ("highest", found.highest), ("last", found.last))
    ]
    terms.append(Term(name=f"{name}.slope", value=found.slope[column], unit="counts/reading"))
    terms = [term for term in terms if not math.isnan(term.value)]
    note = f"{found.readings} readings came faster than they could be analysed one by one: compacted"
    return replace(sign, why=(*sign.why, *terms), note="; ".join(filter(None, (sign.note, note))))

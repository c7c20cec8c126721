"""Analysis of one sensor's readings: smoke, gas and flame against their thresholds.

From the thresholds and the levels in force follows a band for each channel: a reading inside all bands changes nothing
(it is quiet). The bands are in a table shared by all devices, so that the tick tests many readings at once, and in a
regular expression (`quiet_line`) that recognises quiet lines without parsing. Only readings outside are assessed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.bands import NOWHERE, Band, Bands, BandTable
from embereye.detect.sensing.compaction import Summary, summarize
from embereye.detect.sensing.thresholds import Thresholds
from embereye.sensor.device.arrivals import NAN, Row
from embereye.sensor.device.levels import CLEAR, FLAME, GAS, SMOKE, Levels
from embereye.shard.evidence.episodes import Sign
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Term
from embereye.wire.device.quiet import quiet_reading
from embereye.wire.device.reader import Quiet

# Changes of level that are analysed one by one in one device's batch. More within a tick are a fault or an attack, not
# a fire, and must not take the other devices' time.
TRANSITIONS = 32
SUMMARY_ROWS = 3  # rows of a summary; so few readings are not summarised
CHANNELS = {SMOKE: (0, "smoke"), FLAME: (1, "flame"), GAS: (2, "gas")}  # kind → its column in a row, its name
FourBands = tuple[Band, Band, Band, Band]  # of smoke, flame, gas and digital flame
DIGITAL_OFF, DIGITAL_ON = (-0.5, 0.5), (0.5, math.inf)  # bands of an output that is 0 or 1


def _never(text: bytes, start: int = 0, /) -> re.Match[bytes] | None:
    return None


class ClearBands:
    """The bands of a device whose levels are all clear, by the fleet's settings."""

    def __init__(self, settings: SensorSettings) -> None:
        thresholds = Thresholds(settings)
        derived = Bands(thresholds)
        self._bands = (
            derived.smoke(CLEAR),
            derived.flame(CLEAR, digital=False),
            derived.gas(CLEAR),
            DIGITAL_ON if thresholds.active_low else DIGITAL_OFF,
        )
        self.quiet_line: Quiet = quiet_reading(self._bands).match  # matches a quiet line

    def may_change(self, row: Row) -> bool:
        """True if a value of the reading may start a sign."""
        return _is_outside(row, self._bands)


def _is_outside(row: Row, bands: FourBands) -> bool:
    return any(value < low or value >= high for value, (low, high) in zip(row, bands, strict=True))


class ReadingAnalysis:
    """The levels of smoke, gas and flame at one sensor, and the bands within which readings change none of them."""

    def __init__(self, settings: SensorSettings, table: BandTable, levels: Levels) -> None:
        self.slot = table.allocate()  # its row in the table
        self.quiet_line: Quiet = _never  # matches a quiet line
        self.attentive = False  # a sign is open: every batch has to be assessed
        self._table = table
        self._levels = levels
        self._digital = False  # the digital output reports flame
        self.bands: FourBands = (NOWHERE, NOWHERE, NOWHERE, NOWHERE)  # readings inside all of them change no level
        self._others: FourBands | None = None  # those of a candidate
        self.configure(settings)

    def configure(self, settings: SensorSettings) -> None:
        """Use the device's changed settings from now on."""
        self.thresholds = Thresholds(settings)
        self._derived = Bands(self.thresholds)
        self._set_bands()

    def release(self) -> None:
        """Release the row in the table."""
        self._table.release(self.slot)

    def may_change(self, row: Row) -> bool:
        """True if a value of the reading may change a level."""
        return _is_outside(row, self.bands)

    def analyse(self, rows: NDArray[np.float64], now_ns: int) -> tuple[list[Sign], int]:
        """Analyse readings (n, 4); return their signs, in order, and the number of readings that were compacted.

        The levels are the same as if the readings were assessed one by one. After TRANSITIONS changes of level, the
        remaining readings are compacted.
        """
        signs: list[Sign] = []
        start, compacted = 0, 0
        assessed: list[int] = []
        for _ in range(TRANSITIONS):
            start = self._next_outside(rows, start)
            if start >= len(rows):
                break
            signs += self._assess_row(rows[start].tolist(), now_ns)
            assessed.append(start)
            start += 1
        else:
            rest = rows[start:]
            if len(rest) > SUMMARY_ROWS:
                compacted = len(rest)
                signs += self.analyse_summary(rest, now_ns)
            else:
                signs += [sign for row in rest.tolist() for sign in self._assess_row(row, now_ns)]
            return signs, compacted
        if self.attentive:
            signs += self._assess_row(_not_assessed(rows, assessed), now_ns)
        return signs, compacted

    def analyse_summary(self, rows: NDArray[np.float64], now_ns: int) -> list[Sign]:
        """Analyse a summary of readings (n, 4) in their place; return its signs."""
        summary = summarize(rows, self.thresholds.full_scale)
        rows = summary.rows(active_low=self.thresholds.active_low).tolist()
        signs = [sign for row in rows for sign in self._assess_row(row, now_ns)]
        return [_explained(sign, summary) for sign in signs]

    def _next_outside(self, rows: NDArray[np.float64], start: int) -> int:
        """The index of the first row from `start` on that may change a level; len(rows) if there is none."""
        low, high = self._table.low[self.slot], self._table.high[self.slot]
        part = rows[start:]
        outside = part < low
        outside |= part >= high
        if self._digital or self._levels.in_force(FLAME) > CLEAR:
            outside[:, 1] |= np.isnan(part[:, 1])  # the two flame outputs are assessed together
            outside[:, 3] |= np.isnan(part[:, 3])
        if not np.count_nonzero(outside):  # any() costs three times as much
            return len(rows)
        return start + int(outside.argmax() // outside.shape[1])

    def _assess_row(self, row: Row, now_ns: int) -> list[Sign]:
        thresholds, levels, signs = self.thresholds, self._levels, []
        smoke, flame, gas, digital = row
        if not math.isnan(smoke):
            signs += levels.assess(SMOKE, thresholds.assess_smoke(smoke, levels.in_force(SMOKE)), now_ns)
        if not math.isnan(gas):
            signs += levels.assess(GAS, thresholds.assess_gas(gas, levels.in_force(GAS)), now_ns)
        analog = None if math.isnan(flame) else flame
        detected = None if math.isnan(digital) else (digital != 0) != thresholds.active_low
        if analog is not None or detected is not None:
            assessment = thresholds.assess_flame(analog, detected, levels.in_force(FLAME))
            signs += levels.assess(FLAME, assessment, now_ns)
            self._digital = bool(detected)
        self._set_bands()
        return signs

    def _set_bands(self) -> None:
        derived, levels, blind = self._derived, self._levels, self._levels.blind
        self.bands = (
            NOWHERE if SMOKE in blind else derived.smoke(levels.in_force(SMOKE)),
            NOWHERE if FLAME in blind else derived.flame(levels.in_force(FLAME), digital=self._digital),
            NOWHERE if GAS in blind else derived.gas(levels.in_force(GAS)),
            DIGITAL_ON if self._digital != self.thresholds.active_low else DIGITAL_OFF,
        )
        self._table.set(self.slot, self.bands)
        self.attentive = levels.is_open_besides_heat()
        self._set_quiet_line()

    def narrow_quiet_lines(self, others: FourBands | None) -> None:
        """Let `quiet_line` match only lines that are inside `others`, too; None: only its own bands count."""
        if others != self._others:
            self._others = others
            self._set_quiet_line()

    def _set_quiet_line(self) -> None:
        bands = self.bands
        if self._others is not None:
            smoke, flame, gas, digital = (
                (max(low, other_low), min(high, other_high))
                for (low, high), (other_low, other_high) in zip(bands, self._others, strict=True)
            )
            bands = (smoke, flame, gas, digital)
        self.quiet_line = _never if self.attentive else quiet_reading(bands).match


def _not_assessed(rows: NDArray[np.float64], assessed: Sequence[int]) -> Row:
    """The last value of each channel of readings (n, 4); NaN if it is in an `assessed` row.

    Both flame outputs are from the last row that has either of them, because they are assessed together.
    """
    last: list[float] = rows[-1].tolist()
    if len(rows) - 1 not in assessed and not any(map(math.isnan, last)):
        return last  # the common case; the rest takes 15 µs
    present = ~np.isnan(rows)
    present[:, 1] = present[:, 3] = present[:, 1] | present[:, 3]
    places = (len(rows) - 1 - present[::-1].argmax(axis=0)).tolist()
    return [NAN if place in assessed else float(rows[place, column]) for column, place in enumerate(places)]


def _explained(sign: Sign, summary: Summary) -> Sign:
    """Add the summary that led to `sign` to its terms and note."""
    column, name = CHANNELS[sign.kind]
    terms = [
        Term(name=f"{name}.{statistic}", value=values[column], unit="counts")
        for statistic, values in (("lowest", summary.lowest), ("highest", summary.highest), ("last", summary.last))
    ]
    terms.append(Term(name=f"{name}.slope", value=summary.slope[column], unit="counts/reading"))
    terms = [term for term in terms if not math.isnan(term.value)]
    note = f"{summary.readings} readings arrived faster than they could be analysed one by one: compacted"
    return replace(sign, why=(*sign.why, *terms), note="; ".join(filter(None, (sign.note, note))))

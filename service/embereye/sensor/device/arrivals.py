"""The arrivals of one sensor: times, counts, the gRPC watermark, and the session that speaks for it.

A line that changes no level is only counted. It reaches ledger, watch and latest reading when one of these is read. All
other readings and frames are entered at once.
"""

import math
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from embereye.sensor.device.recent import SHORT_BYTES, PieceKind, RecentData
from embereye.shard.coverage import Watch
from embereye.shard.ledger import Ledger
from embereye.units import MINUTE
from embereye.wire.device.messages import SensorReading

NAN = math.nan
RIVAL_NS = MINUTE  # nanoseconds for which the status mentions a refused rival
Row = Sequence[float]  # smoke, flame, gas in ADC counts, digital flame as 0 or 1; NaN: missing


def row_of(reading: SensorReading) -> Row:
    """Convert a reading to a row."""
    smoke, flame, gas, digital = reading.smoke_adc, reading.flame_adc, reading.gas_adc, reading.flame_detected
    return (
        NAN if smoke is None else smoke,
        NAN if flame is None else flame,
        NAN if gas is None else gas,
        NAN if digital is None else float(digital),
    )


class Speaker(Protocol):
    """The text session that speaks for the sensor."""

    def command(self, word: str) -> None:
        """Send a bare command to the device, unless it has left too many unread."""


class Arrivals:
    """Counts everything that one sensor sends. Times are nanoseconds since the Unix epoch.

    Nearly all lines are quiet. They are only counted, and the latest is retained. They are entered into ledger, watch
    and latest reading when one of these is read. To enter each line at once would cost three times as much.
    """

    __slots__ = (
        "_booked",
        "_ledger",
        "_quiet_line",
        "_row",
        "_watch",
        "epoch",
        "omitted",
        "quiet_lines",
        "quiet_ns",
        "recent",
        "rival",
        "rival_ns",
        "sequence",
        "speaker",
    )

    def __init__(self) -> None:
        self.speaker: Speaker | None = None
        self.epoch = 0  # epoch of the gRPC sender
        self.sequence = 0  # watermark: everything of this epoch up to here is accounted for
        self.quiet_lines = 0  # lines that changed no level and needed no tick
        self.quiet_ns = 0  # when the latest of them arrived
        self.omitted: dict[int, int] = {}  # column of a row → since when readings omit it
        self.recent = RecentData()  # recent data, for recordings of alarms
        self.rival = ""  # a refused address that sends as this sensor
        self.rival_ns = 0  # when it did so last
        self._ledger = Ledger()
        self._watch = Watch()
        self._row: Row = (math.nan,) * 4
        self._booked = 0  # quiet lines that are in the ledger
        self._quiet_line: re.Match[bytes] | None = None  # the latest quiet line

    @property
    def ledger(self) -> Ledger:
        """The ledger of everything that was offered."""
        self._book()
        return self._ledger

    @property
    def watch(self) -> Watch:
        """The times at which it was last heard and analysed, and the reason if it is blind."""
        self._book()
        return self._watch

    @property
    def row(self) -> Row:
        """The latest value of each channel."""
        self._book()
        return self._row

    @property
    def is_seeing(self) -> bool:
        """True unless the sensor is blind."""
        return not self._watch.blind

    def count_quiet_lines(self, lines: list[re.Match[bytes]], now_ns: int) -> None:
        """Count quiet lines, at least one: the matches of `wire.device.quiet.quiet_reading`."""
        self._quiet_line = lines[-1]
        self.quiet_lines += len(lines)
        self.quiet_ns = now_ns
        if len(text := lines[0].string) <= SHORT_BYTES:
            self.recent.short.append((now_ns, text))
        else:
            self.recent.add(PieceKind.LINES, text, now_ns)

    def _book(self) -> None:
        count = self.quiet_lines - self._booked
        if not count:
            return
        self._booked = self.quiet_lines
        self._ledger.offered += count
        self._ledger.analysed += count
        self._watch.heard_ns = self._watch.analysed_ns = self.quiet_ns
        assert self._quiet_line is not None
        smoke, flame, gas, digital = map(float, self._quiet_line.groups())
        self._row = (smoke, flame, gas, float(digital != 0))

    def count_quiet_rows(self, count: int, last: Row, now_ns: int) -> None:
        """Count `count` complete quiet readings, the latest of which is `last`."""
        self.count_offered(count, now_ns)
        self.count_analysed(count, now_ns)
        self._row = last
        if self.omitted:
            self.omitted.clear()

    def count_offered(self, count: int, now_ns: int) -> None:
        """Count `count` arrivals, and note the time."""
        self.ledger.offered += count
        self._watch.heard_ns = now_ns

    def count_analysed(self, count: int, now_ns: int) -> None:
        """Count `count` of the offered items as analysed, and note the time."""
        self._ledger.analysed += count
        self._watch.analysed_ns = now_ns

    def remember(self, rows: NDArray[np.float64], now_ns: int) -> None:
        """Store the latest value of each channel of readings (n, 4), and note the channels that they omit."""
        last: list[float] = rows[-1].tolist()
        for column, value in enumerate(last):
            if not math.isnan(value):
                self.omitted.pop(column, None)
            elif len(present := np.flatnonzero(~np.isnan(rows[:, column]))):
                last[column] = float(rows[present[-1], column])
                self.omitted.pop(column, None)
            else:
                last[column] = self._row[column]
                self.omitted.setdefault(column, now_ns)
        self._row = last

    def long_omitted(self) -> dict[int, int]:
        """The columns that readings omit → since when. A later quiet line has all columns and clears them."""
        if self.omitted and self.quiet_ns > max(self.omitted.values()):
            self.omitted.clear()
        return self.omitted

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count `count` items that cannot be analysed as rejected."""
        ledger = self.ledger
        ledger.offered += count
        ledger.rejected[reason] += count

    def note_rival(self, address: str, now_ns: int) -> bool:
        """Note that `address` sends as this sensor and is refused. True if that was not noted recently."""
        is_new = address != self.rival or now_ns - self.rival_ns > RIVAL_NS
        self.rival, self.rival_ns = address, now_ns
        return is_new

    def count_duplicates(self, count: int) -> None:
        """Count `count` items that arrived before as duplicates."""
        ledger = self.ledger
        ledger.offered += count
        ledger.duplicate += count

    def shed(self, reason: str, count: int = 1) -> None:
        """Count `count` items as shed."""
        ledger = self.ledger
        ledger.offered += count
        ledger.shed[reason] += count

    def resume(self, epoch: int, sequence: int) -> None:
        """Continue after the watermark of another shard, unless the own one is later."""
        self.epoch, self.sequence = max((self.epoch, self.sequence), (epoch, sequence))

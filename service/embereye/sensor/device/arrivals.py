"""What arrives from one sensor: when, how much, up to which sequence, and from whom."""

import math
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from embereye.sensor.device.recent import SHORT_BYTES, RecentData, What
from embereye.shard.coverage import Watch
from embereye.shard.ledger import Ledger
from embereye.units import MINUTE
from embereye.wire.device.messages import SensorReading

NAN = math.nan
RIVAL_NS = MINUTE  # nanoseconds that a claim of another address is told
Row = Sequence[float]  # smoke, flame, gas in ADC counts, digital flame as 0 or 1; NaN: not said


def row_of(reading: SensorReading) -> Row:
    """What a line says, as a row."""
    smoke, flame, gas, digital = reading.smoke_adc, reading.flame_adc, reading.gas_adc, reading.flame_detected
    return (
        NAN if smoke is None else smoke,
        NAN if flame is None else flame,
        NAN if gas is None else gas,
        NAN if digital is None else float(digital),
    )


class Speaker(Protocol):
    """The text session whose lines are the sensor's."""

    def command(self, word: str) -> None:
        """Send a bare command to the device; nothing happens where it reads none."""
        ...


class Arrivals:
    """Books everything that one sensor sends. Times are nanoseconds since the Unix epoch.

    A quiet line, which is nearly every line, is only counted and kept as it is; it is booked when somebody asks for
    the ledger, the watch or the latest reading. To book each at once costs three times as much.
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
        self.epoch = 0  # of the gRPC sender
        self.sequence = 0  # up to here everything of this epoch is accounted for
        self.quiet_lines = 0  # lines that changed nothing and needed no tick
        self.quiet_ns = 0  # when the latest of them was heard
        self.omitted: dict[int, int] = {}  # column of a row → since when readings leave it out
        self.recent = RecentData()  # what an alarm can be replayed from
        self.rival = ""  # an address that claimed to be the sensor while it was heard from another one
        self.rival_ns = 0  # when it did so last
        self._ledger = Ledger()
        self._watch = Watch()
        self._row: Row = (math.nan,) * 4
        self._booked = 0  # of quiet_lines
        self._quiet_line: re.Match[bytes] | None = None  # the latest

    @property
    def ledger(self) -> Ledger:
        """What became of everything that was offered."""
        self._book()
        return self._ledger

    @property
    def watch(self) -> Watch:
        """When it was heard and analysed, and why it cannot see."""
        self._book()
        return self._watch

    @property
    def row(self) -> Row:
        """The latest value of each channel."""
        self._book()
        return self._row

    @property
    def seeing(self) -> bool:
        """Whether nothing keeps it from seeing."""
        return not self._watch.blind

    def count_quiet_lines(self, lines: list[re.Match[bytes]], now_ns: int) -> None:
        """Count lines that change nothing, at least one: the matches of `wire.device.quiet.quiet_reading`."""
        self._quiet_line = lines[-1]
        self.quiet_lines += len(lines)
        self.quiet_ns = now_ns
        if len(text := lines[0].string) <= SHORT_BYTES:
            self.recent.short.append((now_ns, text))
        else:
            self.recent.add(What.LINES, text, now_ns)

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
        """Book `count` complete readings that change nothing; `last` is the latest of them."""
        self.count_offered(count, now_ns)
        self.count_analysed(count, now_ns)
        self._row = last
        if self.omitted:
            self.omitted.clear()

    def count_offered(self, count: int, now_ns: int) -> None:
        """Book what arrived and is analysed now."""
        self.ledger.offered += count
        self._watch.heard_ns = now_ns

    def count_analysed(self, count: int, now_ns: int) -> None:
        """Book what was analysed of what was offered."""
        self._ledger.analysed += count
        self._watch.analysed_ns = now_ns

    def remember(self, rows: NDArray[np.float64], now_ns: int) -> None:
        """Keep the latest value of each channel of readings (n, 4), and which of them they leave out."""
        last: list[float] = rows[-1].tolist()
        for column, value in enumerate(last):
            if not math.isnan(value):
                self.omitted.pop(column, None)
            elif len(said := np.flatnonzero(~np.isnan(rows[:, column]))):
                last[column] = float(rows[said[-1], column])
                self.omitted.pop(column, None)
            else:
                last[column] = self._row[column]
                self.omitted.setdefault(column, now_ns)
        self._row = last

    def long_omitted(self) -> dict[int, int]:
        """Columns that readings leave out → since when; a quiet line, which has them all, ends that."""
        if self.omitted and self.quiet_ns > max(self.omitted.values()):
            self.omitted.clear()
        return self.omitted

    def refuse(self, reason: str, count: int = 1) -> None:
        """Book what cannot be analysed."""
        ledger = self.ledger
        ledger.offered += count
        ledger.rejected[reason] += count

    def note_rival(self, address: str, now_ns: int) -> bool:
        """Remember that `address` claims to be the sensor, which is heard from another one; whether that is news."""
        news = address != self.rival or now_ns - self.rival_ns > RIVAL_NS
        self.rival, self.rival_ns = address, now_ns
        return news

    def count_duplicates(self, count: int) -> None:
        """Book what was accounted for before and came again."""
        ledger = self.ledger
        ledger.offered += count
        ledger.duplicate += count

    def shed(self, reason: str, count: int = 1) -> None:
        """Book what was given up."""
        ledger = self.ledger
        ledger.offered += count
        ledger.shed[reason] += count

    def resume(self, epoch: int, sequence: int) -> None:
        """Go on after what another shard has accounted for of a gRPC sender."""
        self.epoch, self.sequence = max((self.epoch, self.sequence), (epoch, sequence))

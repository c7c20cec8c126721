"""The last hour and the last day of a device's measurements, in memory, for people who look at the device.

`Measured` has slots for the parts of the hour and of the day and, per quantity, the highest value of each slot. A
device reports every second, so it is sampled only every SAMPLE: 10,000 devices cost little time and some 40 MB.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from embereye.units import MINUTE, SECOND
from embereye.v1.types_pb2 import Term

SLOT = 30 * SECOND
SLOTS = 120  # an hour
DAY_SLOT = 15 * MINUTE
DAY_SLOTS = 96  # a day
SAMPLE = 5 * SECOND
MOST = 4  # quantities of one device
UNITS = ("°C", "%", "ppm", "1/s")  # quantities with other units are about the analysis


@dataclass(frozen=True)
class Series:
    """One quantity over the last hour or day."""

    name: str
    unit: str
    values: tuple[float | None, ...]  # the highest value of each slot, the newest last; None: nothing was reported


@dataclass(slots=True)
class _Span:
    """The highest values of the last `slots` times of `slot` nanoseconds."""

    slot: int
    slots: int
    _newest: int = 0  # number of the newest slot since the clock's epoch
    _values: dict[tuple[str, str], "array[float]"] = field(default_factory=dict)  # by name and unit

    def note(self, terms: Iterable[Term], now: int) -> None:
        self._advance(now // self.slot)
        for term in terms:
            values = self._values.get((term.name, term.unit)) or self._begin(term)
            if values and math.isfinite(term.value) and not values[-1] >= term.value:  # the slot may be empty (NaN)
                values[-1] = term.value

    def series(self, now: int) -> Iterator[Series]:
        self._advance(now // self.slot)
        for (name, unit), values in self._values.items():
            yield Series(name, unit, tuple(None if math.isnan(value) else round(value, 3) for value in values))

    def _begin(self, term: Term) -> "array[float] | None":
        if term.unit not in UNITS or term.name.endswith(".target") or len(self._values) >= MOST:
            return None
        return self._values.setdefault((term.name, term.unit), array("f", [math.nan] * self.slots))

    def _advance(self, slot: int) -> None:
        passed = min(max(0, slot - self._newest), self.slots)
        if passed:
            self._newest = slot
            for values in self._values.values():
                del values[:passed]
                values.extend([math.nan] * passed)


@dataclass(slots=True)
class Measured:
    """The measurements of one device. Times are nanoseconds on a clock that is never set back."""

    _due: int = 0
    hour: _Span = field(default_factory=lambda: _Span(SLOT, SLOTS))
    day: _Span = field(default_factory=lambda: _Span(DAY_SLOT, DAY_SLOTS))

    def note(self, terms: Sequence[Term], now: int) -> None:
        """Note the device's latest values, unless some were noted a moment ago."""
        if now < self._due:
            return
        self._due = now + SAMPLE
        self.hour.note(terms, now)
        self.day.note(terms, now)

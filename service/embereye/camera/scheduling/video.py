"""The access units of one video camera that have to be decoded, in order, for its next picture.

Pictures refer to each other, so a shed frame may still have to be decoded, together with the next analysed one.
Everything since the latest key frame is retained for a decoder that has to start again.

`PictureGroup` stores the units since a key frame and how many of them a decoder has received. `VideoFlow` measures
arrivals and costs. From these it chooses under overload which pictures are decoded: all, those that others refer to, or
key frames only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from embereye.units import SECOND

MAX_UNSENT = 32  # units that wait for the next frame; the one after them is analysed even above the rate
UNSENT_BYTES = 2 * 1024 * 1024
# units since a key frame that are retained for another decoder; beyond that it waits for the next one
MAX_REPLAYED = 96
REPLAYED_BYTES = 2 * 1024 * 1024
# Bytes of the units that go out with one frame; with 1 MB of joined frames they fit into a decoder's slot. More waits
# only if nothing was decoded for seconds; then the camera waits for the next key frame.
SENT_BYTES = 7 * 1024 * 1024
SENT_UNITS = 768  # the same for their number; with joined frames they fit into a decoder's message


class Depth(IntEnum):
    """The pictures of a camera that are decoded."""

    ALL = 0
    REFERENCES = 1  # pictures that others refer to
    KEYS = 2  # pictures that refer to no other


class CodedUnit(NamedTuple):
    """One access unit and the number that identifies its decoded picture."""

    data: bytes
    number: int
    key: bool = False


@dataclass(eq=False)
class PictureGroup:
    """A key frame and the units after it, without those that no other refers to."""

    given_up: bool = False  # it cannot be decoded, and waiting frames of it are dropped
    is_retained: bool = False  # its camera is calm: all units may be needed again
    _units: list[CodedUnit] = field(default_factory=list)
    _dropped: int = 0  # units removed from the front of `_units`
    _sent: int = 0  # units that a decoder has received
    _bytes: int = 0  # of the retained units

    def __len__(self) -> int:
        return self._dropped + len(self._units)

    def add(self, unit: CodedUnit) -> None:
        """Append the next unit in decoding order."""
        if self.given_up:
            return
        self._units.append(unit)
        self._bytes += len(unit.data)
        if not self.is_retained and (len(self._units) > MAX_REPLAYED or self._bytes > REPLAYED_BYTES):
            self._drop(self._sent)
        if self._bytes > SENT_BYTES:
            self.give_up()

    def give_up(self) -> None:
        """Drop the units: they will never be decoded."""
        self.given_up, self._bytes = True, 0
        self._units.clear()

    def _drop(self, until: int) -> None:
        gone = self._units[: until - self._dropped]
        del self._units[: len(gone)]
        self._dropped += len(gone)
        self._bytes -= sum(len(unit.data) for unit in gone)

    @property
    def is_full(self) -> bool:
        """True if so many units wait that they have to be decoded now."""
        unsent = self._units[max(0, self._sent - self._dropped) :]
        return len(unsent) >= MAX_UNSENT or sum(len(unit.data) for unit in unsent) > UNSENT_BYTES

    @property
    def is_sent(self) -> bool:
        """True if a decoder has received its key frame."""
        return self._sent > 0

    def unsent(self, until: int) -> Sequence[CodedUnit] | None:
        """Return the unsent units before position `until` and mark them as sent; None if some are lost."""
        if self._sent < self._dropped:
            return None
        units = self._units[self._sent - self._dropped : max(0, until - self._dropped)]
        self._sent = max(self._sent, until)
        return units

    def rewind(self) -> None:
        """Mark all units as unsent: the decoder lost its context."""
        self._sent = 0


WINDOW_NS = 5 * SECOND  # over which arriving pictures are counted
COST_SHARE = 0.1  # weight of one turn in the smoothed cost of a unit
ROTATION_SECONDS = 120.0  # in which each camera gets its share of full decoding, if not all can have it at once


@dataclass
class VideoFlow:
    """One video's arrival rates and decoding costs. Times are nanoseconds of a monotonic clock."""

    unit_seconds: float = 0.0  # of a decoder for one unit, smoothed; 0: not known yet
    key_seconds: float = 0.0  # the same for a key frame
    analysis_seconds: float = 0.0  # for analysing a decoded picture, smoothed
    _began_ns: int = 0
    _counts: list[int] = field(default_factory=lambda: [0, 0, 0])  # units, references and key frames since then
    _rates: tuple[float, float, float] = (0.0, 0.0, 0.0)  # the same per second, in the previous window

    def record_arrival(self, *, key: bool, reference: bool, now_ns: int) -> None:
        """Count a unit that arrived at `now_ns`."""
        passed = now_ns - self._began_ns
        if not 0 <= passed < WINDOW_NS:
            known = 0 < passed < 3 * WINDOW_NS
            self._rates = tuple(count * SECOND / passed for count in self._counts) if known else (0.0, 0.0, 0.0)  # type: ignore[assignment]
            self._began_ns, self._counts = now_ns, [0, 0, 0]
        for place, counts in enumerate((True, reference or key, key)):
            self._counts[place] += counts

    def record_turn(self, units: Sequence[CodedUnit], seconds: float, analysis: float = 0.0) -> None:
        """Record that `units` were decoded in `seconds` and the last one's picture analysed in `analysis` seconds."""
        self.analysis_seconds += (analysis - self.analysis_seconds) * (COST_SHARE if self.analysis_seconds else 1.0)
        per_unit = seconds / max(1, len(units))
        if len(units) == 1 and units[0].key:
            self.key_seconds += (per_unit - self.key_seconds) * (COST_SHARE if self.key_seconds else 1.0)
        else:
            self.unit_seconds += (per_unit - self.unit_seconds) * (COST_SHARE if self.unit_seconds else 1.0)

    @property
    def is_known(self) -> bool:
        """True if enough has arrived to estimate its demand."""
        return self._rates[0] > 0 and self.cost > 0

    @property
    def _decoding(self) -> float:
        """Seconds for decoding one unit."""
        return self.unit_seconds or self.key_seconds

    @property
    def cost(self) -> float:
        """Seconds for decoding one unit and analysing its picture."""
        return self._decoding + self.analysis_seconds

    @property
    def rate(self) -> float:
        """Units per second."""
        return self._rates[0]

    @property
    def key_rate(self) -> float:
        """Key frames per second."""
        return self._rates[2]

    def work(self, depth: Depth, analyses: float = math.inf) -> float:
        """Seconds per second for decoding to `depth` and analysing `analyses` pictures/s, or all of them."""
        units = self._rates[depth]
        per_unit = self.key_seconds or self._decoding if depth is Depth.KEYS else self._decoding
        return units * per_unit + min(units, analyses) * self.analysis_seconds

    def depth(self, seconds: float, phase: float, least: float = math.inf) -> Depth:
        """Choose the depth to decode to if `seconds` per second are the camera's share.

        Analysed pictures are reduced first, down to `least` per second (infinite: all are analysed). A group is decoded
        as a whole or not at all, so cameras that get less take turns: a camera is decoded further while its `phase`
        (0..1) is below its share.
        """
        if not self.is_known or seconds >= self.work(Depth.ALL, least):
            return Depth.ALL
        keys, more = self.work(Depth.KEYS), self.work(Depth.REFERENCES, least)
        return Depth.REFERENCES if seconds >= more or phase * (more - keys) < seconds - keys else Depth.KEYS

    def analysis_rate(self, seconds: float, depth: Depth) -> float:
        """Pictures/s to analyse if `seconds` per second are its share and it is decoded to `depth`."""
        if not self.is_known or not self.analysis_seconds or depth is Depth.KEYS:
            return math.inf
        return max(0.0, seconds - self._rates[depth] * self._decoding) / self.analysis_seconds

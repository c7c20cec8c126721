"""The access units of one video camera that have to be decoded, in order, to see its next picture.

Pictures refer to each other, so a frame that is shed may still have to be decoded: with the next frame that is
analysed. Everything since the latest key frame is kept for a decoder that has to begin anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from embereye.units import SECOND

UNSENT_MOST = 32  # units that wait to be decoded with the next frame; the one behind them is analysed whatever the rate
UNSENT_BYTES = 2 * 1024 * 1024
REPLAYED_MOST = 96  # units since a key frame that are kept for another decoder; behind that it waits for the next one
REPLAYED_BYTES = 2 * 1024 * 1024
# Of the units that come with one frame: with what is joined to it (1 MB) they fit into a decoder's slot. More waits
# only where nothing was decoded for seconds; then the next key frame is waited for.
SENT_BYTES = 7 * 1024 * 1024


class Depth(IntEnum):
    """Which of a camera's pictures are decoded."""

    ALL = 0
    REFERENCES = 1  # those that others refer to
    KEYS = 2  # those that refer to no other


@dataclass(frozen=True, slots=True)
class CodedUnit:
    """One access unit, and the number that its decoded picture is known by."""

    data: bytes
    number: int
    key: bool = False


@dataclass(eq=False)
class PictureGroup:
    """A key frame and the access units since, less those to which no other refers."""

    given_up: bool = False  # it cannot be decoded: frames of it that still wait are not to be tried
    _units: list[CodedUnit] = field(default_factory=list)
    _dropped: int = 0  # units before those that are kept
    _sent: int = 0  # units that a decoder has
    _bytes: int = 0  # of the units that are kept

    def __len__(self) -> int:
        return self._dropped + len(self._units)

    def add(self, unit: CodedUnit) -> None:
        """Add the next unit in decoding order."""
        if self.given_up:
            return
        self._units.append(unit)
        self._bytes += len(unit.data)
        if len(self._units) > REPLAYED_MOST or self._bytes > REPLAYED_BYTES:
            self._drop(self._sent)
        if self._bytes > SENT_BYTES:
            self.give_up()

    def give_up(self) -> None:
        """Forget the units: nothing of them will be decoded any more."""
        self.given_up, self._bytes = True, 0
        self._units.clear()

    def _drop(self, until: int) -> None:
        gone = self._units[: until - self._dropped]
        del self._units[: len(gone)]
        self._dropped += len(gone)
        self._bytes -= sum(len(unit.data) for unit in gone)

    @property
    def full(self) -> bool:
        """Whether so much waits that it has to be decoded now."""
        unsent = self._units[max(0, self._sent - self._dropped) :]
        return len(unsent) >= UNSENT_MOST or sum(len(unit.data) for unit in unsent) > UNSENT_BYTES

    def unsent(self, until: int) -> Sequence[CodedUnit] | None:
        """The units up to number `until` of them that the decoder has not got, which it gets now; None: too old."""
        if self._sent < self._dropped:
            return None
        units = self._units[self._sent - self._dropped : max(0, until - self._dropped)]
        self._sent = max(self._sent, until)
        return units

    def rewind(self) -> None:
        """Begin anew: the decoder that had some of them has lost them."""
        self._sent = 0


WINDOW_NS = 5 * SECOND  # over which the pictures that come are counted, and the same before it
COST_SHARE = 0.1  # weight of a turn in the mean of what a unit costs
ROTATION_SECONDS = 120.0  # in which each camera has its share of being decoded in full, where not all can be


@dataclass
class VideoFlow:
    """What comes of one video and what decoding it costs. Times are nanoseconds of any clock that does not go back."""

    unit_seconds: float = 0.0  # of a decoder for one unit, smoothed; 0: not known yet
    key_seconds: float = 0.0  # the same for a key frame alone
    look_seconds: float = 0.0  # for looking at a picture once it is decoded, smoothed
    _began_ns: int = 0
    _counts: list[int] = field(default_factory=lambda: [0, 0, 0])  # units, references and keys since then
    _rates: tuple[float, float, float] = (0.0, 0.0, 0.0)  # the same, per second, in the window before

    def record_arrival(self, *, key: bool, reference: bool, now_ns: int) -> None:
        """Count a unit that came at `now_ns`."""
        passed = now_ns - self._began_ns
        if not 0 <= passed < WINDOW_NS:
            known = 0 < passed < 3 * WINDOW_NS
            self._rates = tuple(count * SECOND / passed for count in self._counts) if known else (0.0, 0.0, 0.0)  # type: ignore[assignment]
            self._began_ns, self._counts = now_ns, [0, 0, 0]
        for place, counts in enumerate((True, reference or key, key)):
            self._counts[place] += counts

    def record_turn(self, units: Sequence[CodedUnit], seconds: float, look: float = 0.0) -> None:
        """Record that `units` were decoded in `seconds`, and the last of them looked at in `look` seconds."""
        self.look_seconds += (look - self.look_seconds) * (COST_SHARE if self.look_seconds else 1.0)
        each = seconds / max(1, len(units))
        if len(units) == 1 and units[0].key:
            self.key_seconds += (each - self.key_seconds) * (COST_SHARE if self.key_seconds else 1.0)
        else:
            self.unit_seconds += (each - self.unit_seconds) * (COST_SHARE if self.unit_seconds else 1.0)

    @property
    def known(self) -> bool:
        """Whether enough has come to say what it needs."""
        return self._rates[0] > 0 and self.cost > 0

    @property
    def _decoding(self) -> float:
        """Seconds for decoding one unit."""
        return self.unit_seconds or self.key_seconds

    @property
    def cost(self) -> float:
        """Seconds for one unit that is decoded and looked at."""
        return self._decoding + self.look_seconds

    @property
    def rate(self) -> float:
        """Units per second."""
        return self._rates[0]

    @property
    def key_rate(self) -> float:
        """Key frames per second."""
        return self._rates[2]

    def work(self, depth: Depth, looks: float = math.inf) -> float:
        """Seconds per second that it takes to decode to `depth`, and to look at `looks` pictures/s, or all of them."""
        units = self._rates[depth]
        each = self.key_seconds or self._decoding if depth is Depth.KEYS else self._decoding
        return units * each + min(units, looks) * self.look_seconds

    def depth(self, seconds: float, phase: float, least: float = math.inf) -> Depth:
        """To which depth to decode where `seconds` per second are its share.

        First as many pictures are looked at as there is time for, but no fewer than `least` per second (infinite:
        all of them). A group is decoded as a whole or not at all, so of cameras that are shorter each is decoded in
        full for a part of the time: those whose `phase` (0..1) is below their share of it.
        """
        if not self.known or seconds >= self.work(Depth.ALL, least):
            return Depth.ALL
        keys, more = self.work(Depth.KEYS), self.work(Depth.REFERENCES, least)
        return Depth.REFERENCES if seconds >= more or phase * (more - keys) < seconds - keys else Depth.KEYS

    def looks(self, seconds: float, depth: Depth) -> float:
        """Pictures/s to look at where `seconds` per second are its share and it is decoded to `depth`."""
        if not self.known or not self.look_seconds or depth is Depth.KEYS:
            return math.inf
        return max(0.0, seconds - self._rates[depth] * self._decoding) / self.look_seconds

"""The access units of one video camera that have to be decoded, in order, to see its next picture.

Pictures refer to each other, so a frame that is shed may still have to be decoded: with the next frame that is
analysed. Everything since the latest key frame is kept for a decoder that has to begin anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

UNSENT_MOST = 32  # units that wait to be decoded with the next frame; the one behind them is analysed whatever the rate
UNSENT_BYTES = 2 * 1024 * 1024
REPLAYED_MOST = 96  # units since a key frame that are kept for another decoder; behind that it waits for the next one
REPLAYED_BYTES = 2 * 1024 * 1024


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

    _units: list[CodedUnit] = field(default_factory=list)
    _dropped: int = 0  # units before those that are kept
    _sent: int = 0  # units that a decoder has
    _bytes: int = 0  # of the units that are kept

    def __len__(self) -> int:
        return self._dropped + len(self._units)

    def add(self, unit: CodedUnit) -> None:
        """Add the next unit in decoding order."""
        self._units.append(unit)
        self._bytes += len(unit.data)
        if len(self._units) > REPLAYED_MOST or self._bytes > REPLAYED_BYTES:
            self._drop(self._sent)

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

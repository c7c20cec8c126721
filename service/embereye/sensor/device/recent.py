"""The last seconds of what one sensor sent, as compactly as it came: what an alarm is replayed from (pure)."""

import struct
from collections import deque
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEAD = struct.Struct("<qIB")  # when, nanoseconds of the timeline; how many bytes follow; what they are
ROW_BYTES = 32
SHORT_BYTES = 128  # of text; a line of a usual sensor has some 45
SHORT_COST = 256  # bytes of memory for such a text, with what it takes to keep it
SPARE = 4  # a fourth of the limit is freed at a time: what is at the front is not looked for with every line


class What(IntEnum):
    """What is kept in one piece."""

    LINES = 0  # text, as the device sent it
    ROWS = 1  # readings (n, 4), float64
    FRAME = 2  # its words
    EEPROM = 3  # its words


class Piece(NamedTuple):
    """What came at one moment."""

    time_ns: int
    what: What
    data: bytes


class RecentData:
    """One sensor's newest data, `limit` bytes of it; 0: nothing is kept.

    Nearly all that comes is short lines, for each of which this is run: appending one takes 0.1 µs, packing it 0.6.
    They are kept apart therefore, as many as have room in half of the limit.
    """

    __slots__ = ("_data", "_eeprom", "_limit", "short")

    def __init__(self) -> None:
        self.short: deque[tuple[int, bytes]] = deque(maxlen=0)  # when, and text of at most SHORT_BYTES
        self._limit = 0
        self._data = bytearray()
        self._eeprom = b""  # the calibration in use before what is kept

    @property
    def limit(self) -> int:
        """Bytes."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self.short = deque(self.short, maxlen=limit // 2 // SHORT_COST)
        if len(self._data) > limit // 2:
            self._trim()

    def add(self, what: What, data: bytes, now_ns: int) -> None:
        """Keep `data`; let go of the oldest where there is no room for both."""
        kept = self._data
        kept += HEAD.pack(now_ns, len(data), what)
        kept += data
        if len(kept) > self._limit // 2:
            self._trim()

    def add_rows(self, rows: NDArray[np.float64], now_ns: int) -> None:
        """The same for readings (n, 4), of which no more are copied than there is room for."""
        self.add(What.ROWS, rows[-(self._limit // 2 // ROW_BYTES + 1) :].tobytes(), now_ns)

    def expire(self, before_ns: int) -> None:
        """Let go of what came before `before_ns`."""
        while self.short and self.short[0][0] < before_ns:
            self.short.popleft()
        if self._data and HEAD.unpack_from(self._data)[0] < before_ns:
            self._trim(before_ns)

    def _trim(self, before_ns: int = 0) -> None:
        kept, start, most = self._data, 0, len(self._data)
        if most > self._limit // 2:
            most = self._limit // 2 * (SPARE - 1) // SPARE
        while start < len(kept):
            time_ns, size, what = HEAD.unpack_from(kept, start)
            if len(kept) - start <= most and time_ns >= before_ns:
                break
            start += HEAD.size
            if what == What.EEPROM:
                self._eeprom = bytes(kept[start : start + size])
            start += size
        del kept[:start]

    def cut(self, from_ns: int) -> tuple[bytes, list[Piece]]:
        """What is kept from `from_ns` on, oldest first, and the EEPROM in use before it; b"": there was none."""
        kept, start, eeprom = bytes(self._data), 0, self._eeprom
        pieces = [Piece(time_ns, What.LINES, text) for time_ns, text in self.short if time_ns >= from_ns]
        while start < len(kept):
            time_ns, size, what = HEAD.unpack_from(kept, start)
            start += HEAD.size
            data = kept[start : start + size]
            start += size
            if time_ns >= from_ns:
                pieces.append(Piece(time_ns, What(what), data))
            elif what == What.EEPROM:
                eeprom = data
        pieces.sort(key=lambda piece: piece.time_ns)
        return eeprom, pieces

    def __len__(self) -> int:
        return len(self._data) + len(self.short) * SHORT_COST

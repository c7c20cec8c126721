"""The recent data of one sensor, stored compactly, from which a recording of an alarm is cut. Pure.

Data is appended as it arrives: short lines, which are most of it, to a deque, and all other pieces to one byte array.
The oldest data is dropped when there is too much; the last calibration among it is remembered, because later frames
need it. `cut` returns the pieces of a span in the order of their times. `LineRecorder` sets the limit, more during a
recording.
"""

import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEAD = struct.Struct("<qIB")  # time in nanoseconds of the timeline, number of bytes that follow, kind of piece
ROW_BYTES = 32
SHORT_BYTES = 128  # most bytes of a short text; a usual sensor's line has about 45
SHORT_COST = 256  # bytes of memory for a short text, with overhead
SPARE = 4  # a fourth of the limit is freed at a time, so that trimming is rare


class PieceKind(IntEnum):
    """The content of a piece."""

    LINES = 0  # text from the device
    ROWS = 1  # readings (n, 4), float64
    FRAME = 2  # a frame's words
    EEPROM = 3  # an EEPROM's words


class Piece(NamedTuple):
    """The data that arrived at one moment."""

    time_ns: int
    kind: PieceKind
    data: bytes


class RecentData:
    """The newest `limit` bytes of one sensor's data; 0: none.

    Half of the limit is for short lines, which are most of the data. They are stored in a deque (0.1 µs each), all
    other pieces in one byte array (0.6 µs each).
    """

    __slots__ = ("_data", "_eeprom", "_limit", "short")

    def __init__(self) -> None:
        self.short: deque[tuple[int, bytes]] = deque(maxlen=0)  # time, and text of at most SHORT_BYTES
        self._limit = 0
        self._data = bytearray()
        self._eeprom = b""  # the calibration in use before the oldest piece

    @property
    def limit(self) -> int:
        """The limit in bytes."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self.short = deque(self.short, maxlen=limit // 2 // SHORT_COST)
        if len(self._data) > limit // 2:
            self._trim()

    def add(self, kind: PieceKind, data: bytes, now_ns: int) -> None:
        """Store `data`; drop the oldest pieces if there is no room for it."""
        self._data += HEAD.pack(now_ns, len(data), kind)
        self._data += data
        if len(self._data) > self._limit // 2:
            self._trim()

    def add_rows(self, rows: NDArray[np.float64], now_ns: int) -> None:
        """Store the newest of readings (n, 4), at most as many as there is room for."""
        self.add(PieceKind.ROWS, rows[-(self._limit // 2 // ROW_BYTES + 1) :].tobytes(), now_ns)

    def expire(self, before_ns: int) -> None:
        """Drop the data from before `before_ns`."""
        while self.short and self.short[0][0] < before_ns:
            self.short.popleft()
        if self._data and HEAD.unpack_from(self._data)[0] < before_ns:
            self._trim(before_ns)

    def _trim(self, before_ns: int = 0) -> None:
        data, start, most = self._data, 0, len(self._data)
        if most > self._limit // 2:
            most = self._limit // 2 * (SPARE - 1) // SPARE
        while start < len(data):
            time_ns, size, kind = HEAD.unpack_from(data, start)
            if len(data) - start <= most and time_ns >= before_ns:
                break
            start += HEAD.size
            if kind == PieceKind.EEPROM:
                self._eeprom = bytes(data[start : start + size])
            start += size
        del data[:start]

    def cut(self, from_ns: int) -> tuple[bytes, list[Piece]]:
        """The EEPROM in use at `from_ns` (b"": none), and the pieces since then, oldest first."""
        packed, start, eeprom = bytes(self._data), 0, self._eeprom
        pieces = [Piece(time_ns, PieceKind.LINES, text) for time_ns, text in self.short if time_ns >= from_ns]
        while start < len(packed):
            time_ns, size, kind = HEAD.unpack_from(packed, start)
            start += HEAD.size
            data = packed[start : start + size]
            start += size
            if time_ns >= from_ns:
                pieces.append(Piece(time_ns, PieceKind(kind), data))
            elif kind == PieceKind.EEPROM:
                eeprom = data
        pieces.sort(key=lambda piece: piece.time_ns)
        return eeprom, pieces

    def newest(self, from_ns: int) -> Iterator[Piece]:
        """Yield the readings since `from_ns` that are not in `short`, oldest first. Add nothing meanwhile."""
        start, data = 0, self._data
        while start < len(data):
            time_ns, size, kind = HEAD.unpack_from(data, start)
            start += HEAD.size
            if time_ns >= from_ns and kind in {PieceKind.LINES, PieceKind.ROWS}:
                yield Piece(time_ns, PieceKind(kind), bytes(data[start : start + size]))
            start += size

    def __len__(self) -> int:
        return len(self._data) + len(self.short) * SHORT_COST

"""Read RTP/JPEG's headers (RFC 2435, 3.1), which precede the part of the scan in a packet's payload."""

import struct
from dataclasses import dataclass

from embereye.units import counted
from embereye.wire.jpeg.header import JpegError
from embereye.wire.jpeg.tables import EXTRA_FIELD, quantization_segment

PAYLOAD_TYPE = 26  # statically assigned (RFC 3551)
MAIN = struct.Struct(">II")  # type-specific and offset, then type, Q, width, height
RESTART = struct.Struct(">HH")  # restart interval in MCUs, restart count
TABLES = struct.Struct(">BBH")  # must be zero, precision, bytes of the tables
OFFSET = 0xFF_FFFF  # in MAIN's first word
FIRST, LAST = 0x8000, 0x4000  # in the restart count: this packet starts, ends a chunk of whole intervals
WHOLE_FRAME = 0x3FFF  # restart count without the place of an interval


@dataclass(frozen=True, slots=True)
class PayloadHeader:
    """The header before the part of the scan in a packet."""

    offset: int  # of the part, bytes into the scan
    key: int  # type, Q, width and height, as on the wire
    interval: int  # restart interval in MCUs; 0: not stated
    count: int  # restart count; 0: not stated
    tables: bytes  # DQT segments; empty: this packet has none
    size: int  # bytes of the header, tables included

    @property
    def quality(self) -> int:
        """Q: 1 to 99 for computed tables, 128 to 255 for transmitted tables."""
        return self.key >> 16 & 0xFF


class PayloadError(ValueError):
    """The bytes are not a payload in the expected format."""


def read_payload_header(payload: memoryview) -> PayloadHeader:
    """Parse the header of `payload`; PayloadError if it is malformed, JpegError if its tables are incomplete."""
    if len(payload) < MAIN.size:
        raise PayloadError(f"{counted(len(payload), 'byte')} of payload; a JPEG header has {MAIN.size}")
    place, key = MAIN.unpack_from(payload)
    offset, kind, quality = place & OFFSET, key >> 24, key >> 16 & 0xFF
    if kind & ~EXTRA_FIELD not in (0, 1):
        raise PayloadError(f"type {kind} is not one of 0, 1, 64, 65")
    if quality == 0 or 99 < quality < 128:
        raise PayloadError(f"Q {quality} is reserved")
    start, interval, count = MAIN.size, 0, 0
    if kind & EXTRA_FIELD:
        if len(payload) < start + RESTART.size:
            raise PayloadError("a truncated restart header")
        interval, count = RESTART.unpack_from(payload, start)
        start += RESTART.size
    tables = b""
    if quality >= 128 and offset == 0:
        start, tables = _read_tables(payload, start)
    return PayloadHeader(offset, key, interval, count, tables, start)


def _read_tables(payload: memoryview, start: int) -> tuple[int, bytes]:
    """The offset behind the quantization tables at `start`, and their DQT segments; b"": use those sent before."""
    if len(payload) < start + TABLES.size:
        raise JpegError("truncated", "its quantization tables are truncated")
    _, precision, length = TABLES.unpack_from(payload, start)
    start += TABLES.size
    if not length:
        return start, b""
    if len(payload) < start + length:
        raise JpegError("truncated", "its quantization tables are truncated")
    return start + length, quantization_segment(bytes(payload[start : start + length]), precision)

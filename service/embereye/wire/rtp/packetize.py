"""Cut pictures into packets: the sending side of RTP/JPEG (RFC 2435) and of its RTCP reports.

Simulators and benchmarks send with it. `read_scan` parses a JPEG into what the packets' headers can state, and refuses
the rest. A `Packetizer` then fills one array with all packets of the picture, a row for each: the headers column by
column, and the scan behind them. It numbers the packets of one sender and counts them for its reports.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from embereye.wire.jpeg.header import EOI, SOI, JpegError
from embereye.wire.jpeg.tables import EXTRA_FIELD, HUFFMAN, quantization
from embereye.wire.rtp.packet import FIXED, SENDER_REPORT
from embereye.wire.rtp.payload_header import FIRST, LAST, MAIN, PAYLOAD_TYPE, RESTART, TABLES, WHOLE_FRAME

MAX_PAYLOAD = 1400  # bytes of RTP payload; with all headers, tunnels included, below the 1,500 of an Ethernet frame
IN_BAND = 255  # the Q of tables sent with every picture
_HEADERS = FIXED.size + MAIN.size  # bytes: RTP's and RTP/JPEG's main header
_SAMPLING = {0x21: 0, 0x22: 1}
_HUFFMAN = {table[2:] for table in HUFFMAN.split(b"\xff\xc4")[1:]}


@dataclass(frozen=True, slots=True)
class Scan:
    """A picture as RTP/JPEG describes it, and its scan data."""

    type: int  # with EXTRA_FIELD if there are restart intervals
    width: int  # pixels
    height: int  # pixels
    interval: int  # restart interval in MCUs, 0: none
    tables: bytes  # luma and chroma, 64 bytes each, or 128 with 16 bits per value
    precision: int  # bit n: table n has 16 bits per value
    quality: int  # the Q of these tables, 1 to 99; IN_BAND if there is none
    data: bytes | memoryview


def read_scan(jpeg: bytes) -> Scan:
    """Parse a JPEG; JpegError if RTP/JPEG cannot carry it. Its data is not copied."""
    if jpeg[:2] != SOI:
        raise JpegError("not a JPEG", f"starts with {jpeg[:2].hex() or 'nothing'}, not ffd8")
    start, interval = 2, 0
    tables: dict[int, bytes] = {}
    frame = b""
    while True:
        marker, body, start = _segment(jpeg, start)
        if marker == 0xDB:
            _add_tables(tables, body)
        elif marker == 0xC0:
            frame = body
        elif marker == 0xC4:
            _check_huffman(body)
        elif marker == 0xDD:
            interval = int.from_bytes(body[:2])
        elif 0xC1 <= marker <= 0xCF:
            raise JpegError("unsupported JPEG", "RTP carries baseline JPEG only")
        elif marker == 0xDA:
            break
    kind, width, height, used = _frame(frame)
    try:
        chosen = [tables[number] for number in used]
    except KeyError as error:
        raise JpegError("not a JPEG", f"quantization table {error} is missing") from error
    precision = sum((len(table) > 64) << number for number, table in enumerate(chosen))
    whole = b"".join(chosen)
    end = jpeg.rfind(EOI, start)
    return Scan(
        kind | (EXTRA_FIELD if interval else 0), width, height, interval, whole, precision,
        _quality(whole) if not precision else IN_BAND, memoryview(jpeg)[start : end if end >= 0 else len(jpeg)],
    )  # fmt: skip


def _segment(jpeg: bytes, start: int) -> tuple[int, bytes, int]:
    """The marker and the body of the segment at `start`, and the start of the next one."""
    while jpeg[start : start + 2] == b"\xff\xff":
        start += 1
    if len(jpeg) < start + 4 or jpeg[start] != 0xFF:
        raise JpegError("not a JPEG", f"no segment at byte {start}")
    end = start + 2 + int.from_bytes(jpeg[start + 2 : start + 4])
    return jpeg[start + 1], jpeg[start + 4 : end], end


def _add_tables(tables: dict[int, bytes], body: bytes) -> None:
    start = 0
    while start < len(body):
        size = 128 if body[start] >> 4 else 64
        tables[body[start] & 0x0F] = body[start + 1 : start + 1 + size]
        start += 1 + size


def _check_huffman(body: bytes) -> None:
    start = 0
    while start + 17 <= len(body):
        end = start + 17 + sum(body[start + 1 : start + 17])
        if body[start:end] not in _HUFFMAN:
            raise JpegError("unsupported JPEG", "RTP carries the standard Huffman tables only")
        start = end


def _frame(body: bytes) -> tuple[int, int, int, tuple[int, int]]:
    """The type, width, height, and quantization tables of luma and chroma in a frame header."""
    if len(body) < 15 or body[5] != 3 or body[10] != 0x11 or body[13] != 0x11 or body[7] not in _SAMPLING:
        raise JpegError("unsupported JPEG", "RTP carries colour with 4:2:2 or 4:2:0 subsampling only")
    if body[11] != body[14]:
        raise JpegError("unsupported JPEG", "RTP carries one quantization table for both chroma components")
    height, width = struct.unpack_from(">HH", body, 1)
    return _SAMPLING[body[7]], width, height, (body[8], body[11])


def _quality(tables: bytes) -> int:
    return _qualities().get(tables, IN_BAND)


@lru_cache(maxsize=1)
def _qualities() -> dict[bytes, int]:
    """Q by the tables that are computed from it."""
    segments = {quality: quantization(quality) for quality in range(99, 0, -1)}
    return {segment[5:69] + segment[74:138]: quality for quality, segment in segments.items()}


class Packetizer:
    """Numbers the packets of one sender, from `sequence` on."""

    def __init__(
        self, ssrc: int, sequence: int = 0, *, payload_type: int = PAYLOAD_TYPE, max_payload: int = MAX_PAYLOAD
    ) -> None:
        self.ssrc = ssrc
        self.sequence = sequence & 0xFFFF  # of the next packet
        self.packets = 0
        self.payload_bytes = 0
        self._payload_type = payload_type
        self._max_payload = max_payload

    def packetize(self, scan: Scan, timestamp: int, *, quality: int = 0, with_tables: bool = True) -> list[bytes]:
        """Cut one picture into packets; `timestamp` in 90 kHz ticks.

        `quality` 128 to 255 is the Q that refers to its tables; 0: the Q of the tables, or IN_BAND. Set `with_tables`
        to False if the tables were sent before.
        """
        joined, size = self.joined_packets(scan, timestamp, quality=quality, with_tables=with_tables)
        return [bytes(joined[start : start + size]) for start in range(0, len(joined), size)]

    def joined_packets(
        self, scan: Scan, timestamp: int, *, quality: int = 0, with_tables: bool = True
    ) -> tuple[memoryview, int]:
        """The packets of `packetize` one behind the other, and the bytes of each; the last one may be shorter.

        A large picture has hundreds of packets: making them one by one takes four times as long.
        """
        quality = quality or scan.quality
        width, height = (-(-side // 8) if side <= 2040 else 0 for side in (scan.width, scan.height))
        key = scan.type << 24 | quality << 16 | width << 8 | height
        restart = RESTART.pack(scan.interval, FIRST | LAST | WHOLE_FRAME) if scan.type & EXTRA_FIELD else b""
        tables = b""
        if quality >= 128:
            carried = scan.tables if with_tables else b""
            tables = TABLES.pack(0, scan.precision, len(carried)) + carried
        size, begin = FIXED.size + self._max_payload, _HEADERS + len(restart)
        step = size - begin  # bytes that each packet carries of the tables and the scan behind them
        behind = tables + scan.data if tables else scan.data
        count = max(1, -(-len(behind) // step))
        packets = np.empty((count, size), np.uint8)
        words, numbers = np.ndarray((count, _HEADERS // 4), ">u4", packets, strides=(size, 4)), np.arange(count)
        words[:, 0] = (0x80 << 24 | self._payload_type << 16) + (self.sequence + numbers & 0xFFFF)
        words[:, 1], words[:, 2], words[:, 4] = timestamp & 0xFFFF_FFFF, self.ssrc, key
        words[:, 3] = np.maximum(step * numbers - len(tables), 0)
        packets[-1, 1] |= 0x80  # the marker bit
        packets[:, _HEADERS:begin] = np.frombuffer(restart, np.uint8)
        full = step * (count - 1)
        packets[:-1, begin:] = np.frombuffer(behind, np.uint8, full).reshape(count - 1, step)
        packets[-1, begin : begin + len(behind) - full] = np.frombuffer(behind, np.uint8, offset=full)
        joined = packets.data.cast("B")[: begin * count + len(behind)]
        self.sequence = self.sequence + count & 0xFFFF
        self.packets += count
        self.payload_bytes += len(joined) - FIXED.size * count
        return joined, size

    def pack(self, payloads: Sequence[bytes], timestamp: int) -> list[bytes]:
        """Make the packets of one picture that is already cut into `payloads`; `timestamp` in 90 kHz ticks."""
        self.payload_bytes += sum(map(len, payloads))
        last = len(payloads) - 1
        return [self._header(timestamp, marker=number == last) + payload for number, payload in enumerate(payloads)]

    def _header(self, timestamp: int, *, marker: bool) -> bytes:
        packed = struct.pack(
            ">BBHII", 0x80, marker << 7 | self._payload_type, self.sequence, timestamp & 0xFFFF_FFFF, self.ssrc
        )
        self.sequence = (self.sequence + 1) & 0xFFFF
        self.packets += 1
        return packed

    def report(self, ntp: int, timestamp: int) -> bytes:
        """Make a sender report: `timestamp` was at `ntp`, 64 bits of seconds since 1900 and their fraction."""
        return struct.pack(
            ">BBHIIIIII", 0x80, SENDER_REPORT, 6, self.ssrc, ntp >> 32 & 0xFFFF_FFFF, ntp & 0xFFFF_FFFF,
            timestamp & 0xFFFF_FFFF, self.packets & 0xFFFF_FFFF, self.payload_bytes & 0xFFFF_FFFF,
        )  # fmt: skip

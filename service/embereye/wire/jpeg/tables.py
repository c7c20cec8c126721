"""Rebuild the JPEG tables and headers that RTP/JPEG leaves out (RFC 2435, appendices A and B)."""

import struct
from dataclasses import dataclass
from functools import lru_cache

from embereye.units import counted
from embereye.wire.jpeg.header import SOI, JpegError

EXTRA_FIELD = 64  # added to the type if restart intervals are used
# ITU-T T.81, tables K.1 and K.2, in zig-zag order.
_LUMA = bytes.fromhex(
    "100b0c0e0c0a100e0d0e1211101318281a181616183123251d283a333d3c3933383740485c4e404457453738506d51575f626768673e4d7179"
    "7064785c656763"
)
_CHROMA = bytes.fromhex("1112121815182f1a1a2f634238426363") + b"\x63" * 48
# ITU-T T.81, tables K.3 to K.6, as the segments that define them.
HUFFMAN = bytes.fromhex(
    "ffc4001f0000010501010101010100000000000000000102030405060708090a0b"
    "ffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f024336272"
    "82090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a83848586"
    "8788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8"
    "e9eaf1f2f3f4f5f6f7f8f9fa"
    "ffc4001f0100030101010101010101010000000000000102030405060708090a0b"
    "ffc400b51100020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0156272d1"
    "0a162434e125f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a828384"
    "85868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7"
    "e8e9eaf2f3f4f5f6f7f8f9fa"
)
SCAN = bytes.fromhex("ffda000c03010002110311003f00")


@dataclass(frozen=True, slots=True)
class Geometry:
    """The grid of minimum coded units (MCUs) of a picture."""

    width: int  # pixels
    height: int  # pixels
    type: int  # RTP/JPEG's: 0 is 4:2:2, 1 is 4:2:0; without EXTRA_FIELD

    @property
    def unit_height(self) -> int:
        """Rows of pixels in an MCU; it has 16 columns in both types."""
        return 16 if self.type & 1 else 8

    @property
    def columns(self) -> int:
        """MCUs in a row."""
        return -(-self.width // 16)

    @property
    def units(self) -> int:
        """MCUs in the picture."""
        return self.columns * -(-self.height // self.unit_height)


@lru_cache(maxsize=128)
def quantization(quality: int) -> bytes:
    """The segment with both tables of `quality` 1 to 99 (RFC 2435, appendix A)."""
    factor = 5000 // quality if quality < 50 else 200 - 2 * quality
    return quantization_segment(
        b"".join(bytes(min(255, max(1, (value * factor + 50) // 100)) for value in base) for base in (_LUMA, _CHROMA)),
        precision=0,
    )


def quantization_segment(tables: bytes, precision: int) -> bytes:
    """The DQT segment of the tables that RTP carries; bit n of `precision`: table n has 16 bits per value.

    A single table is used for luma and chroma. JpegError if a table is incomplete.
    """
    segments: list[bytes] = []
    start = 0
    for number in range(2):
        size = 128 if precision >> number & 1 else 64
        table = tables[start : start + size]
        if not table and number == 1:
            table, size = segments[0][1:], len(segments[0]) - 1
        if len(table) != size:
            raise JpegError(
                "unsupported JPEG", f"{counted(len(tables), 'byte')} of quantization tables of precision {precision}"
            )
        segments.append(bytes([(size > 64) << 4 | number]) + table)
        start += size
    return b"".join(b"\xff\xdb" + (2 + len(segment)).to_bytes(2) + segment for segment in segments)


@lru_cache(maxsize=1024)
def header(geometry: Geometry, tables: bytes, interval: int) -> bytes:
    """The bytes before the scan's data, from DQT segments `tables` and a restart `interval` in MCUs (0: none)."""
    restart = struct.pack(">HHH", 0xFFDD, 4, interval) if interval else b""
    sampling = 0x22 if geometry.type & 1 else 0x21
    frame = struct.pack(">HHBHHB", 0xFFC0, 17, 8, geometry.height, geometry.width, 3)
    frame += bytes([1, sampling, 0, 2, 0x11, 1, 3, 0x11, 1])
    return SOI + tables + restart + frame + HUFFMAN + SCAN

import random
import struct

import pytest

from embereye.wire.jpeg.tables import EXTRA_FIELD
from embereye.wire.rtp.packetize import IN_BAND, MAX_PAYLOAD, Packetizer, Scan

DICE = random.Random(3)


def scan_of(size, interval=0):
    kind = EXTRA_FIELD if interval else 0
    return Scan(kind, 1920, 1080, interval, bytes(range(128)), 0, IN_BAND, DICE.randbytes(size))


def separate_packets(scan, sequence, quality):
    """Yield the packets of `scan` as RFC 2435 describes them, each made separately."""
    tables = struct.pack(">BBH", 0, 0, 128) + scan.tables if quality >= 128 else b""
    restart = struct.pack(">HH", scan.interval, 0xFFFF) if scan.interval else b""
    offset = 0
    while True:
        head = struct.pack(">BBHII", 0x80, 26, sequence, 0xFFFF_FFFF, 0xFEDC_BA98)
        head += struct.pack(">IBBBB", offset, scan.type, quality, 240, 135) + restart + tables
        part = scan.data[offset : offset + 12 + MAX_PAYLOAD - len(head)]
        offset, sequence, tables = offset + len(part), sequence + 1 & 0xFFFF, b""
        if offset == len(scan.data):
            yield head[:1] + bytes([head[1] | 0x80]) + head[2:] + part
            return
        yield head + part


@pytest.mark.parametrize("interval", [0, 120])
@pytest.mark.parametrize("quality", [60, 200])
@pytest.mark.parametrize("sequence", [0, 0xFFF0, 0xFFFF])
@pytest.mark.parametrize("size", [0, 1, 1392, 1393, 9 * 1392, 10 * 1392, 10 * 1392 + 1, 12 * 1388 - 132, 300_000])
def test_packets_made_together_equal_packets_made_separately(size, sequence, quality, interval):
    scan, sender = scan_of(size, interval), Packetizer(0xFEDC_BA98, sequence)
    expected = list(separate_packets(scan, sequence, quality))
    joined, size_of_each = sender.joined_packets(scan, 0x1_FFFF_FFFF, quality=quality)
    assert joined == b"".join(expected)
    assert [size_of_each] * (len(expected) - 1) == [len(packet) for packet in expected[:-1]]
    assert (sender.sequence, sender.packets) == (sequence + len(expected) & 0xFFFF, len(expected))
    assert sender.payload_bytes == len(joined) - 12 * len(expected)
    assert Packetizer(0xFEDC_BA98, sequence).packetize(scan, 0x1_FFFF_FFFF, quality=quality) == expected


def test_a_large_picture_fills_its_packets_and_marks_the_last():
    packets = Packetizer(1, 5).packetize(scan_of(100_000), 7, quality=60)
    assert {len(packet) for packet in packets[:-1]} == {12 + MAX_PAYLOAD}
    assert [packet[1] >> 7 for packet in packets] == [0] * (len(packets) - 1) + [1]
    offsets = [struct.unpack_from(">I", packet, 12)[0] for packet in packets]
    assert offsets == [number * (MAX_PAYLOAD - 8) for number in range(len(packets))]

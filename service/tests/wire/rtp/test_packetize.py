import random
import struct

import pytest

from embereye.wire.jpeg.tables import EXTRA_FIELD
from embereye.wire.rtp import packetize
from embereye.wire.rtp.packetize import IN_BAND, MAX_PAYLOAD, Packetizer, Scan

DICE = random.Random(3)


def scan_of(size, interval=0):
    kind = EXTRA_FIELD if interval else 0
    return Scan(kind, 1920, 1080, interval, bytes(range(128)), 0, IN_BAND, DICE.randbytes(size))


@pytest.mark.parametrize("interval", [0, 120])
@pytest.mark.parametrize("quality", [60, 200])
@pytest.mark.parametrize("sequence", [0, 0xFFF0, 0xFFFF])
@pytest.mark.parametrize("size", [0, 1, 1392, 1393, 9 * 1392, 10 * 1392, 10 * 1392 + 1, 12 * 1388 - 132, 300_000])
def test_packets_that_are_made_together_are_those_that_are_made_one_by_one(
    monkeypatch, size, sequence, quality, interval
):
    scan, together = scan_of(size, interval), Packetizer(0xFEDC_BA98, sequence)
    made = together.packets_of(scan, 0x1_FFFF_FFFF, quality=quality)
    monkeypatch.setattr(packetize, "ALIKE", 1_000_000)
    alone = Packetizer(0xFEDC_BA98, sequence)
    assert made == alone.packets_of(scan, 0x1_FFFF_FFFF, quality=quality)
    assert (together.sequence, together.packets, together.payload_bytes) == (
        alone.sequence, alone.packets, alone.payload_bytes
    )  # fmt: skip


def test_a_large_picture_leaves_in_full_packets_of_which_the_last_has_the_marker():
    packets = Packetizer(1, 5).packets_of(scan_of(100_000), 7, quality=60)
    assert {len(packet) for packet in packets[:-1]} == {12 + MAX_PAYLOAD}
    assert [packet[1] >> 7 for packet in packets] == [0] * (len(packets) - 1) + [1]
    offsets = [struct.unpack_from(">I", packet, 12)[0] for packet in packets]
    assert offsets == [number * (MAX_PAYLOAD - 8) for number in range(len(packets))]

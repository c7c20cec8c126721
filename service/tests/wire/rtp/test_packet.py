import itertools
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.units import MILLISECOND
from embereye.wire.rtp.packet import (
    Arrival,
    CaptureClock,
    PacketReception,
    RtpError,
    is_rtcp,
    parse_packet,
    parse_rtcp,
    receiver_report,
)
from embereye.wire.rtp.packetize import Packetizer


def test_losses_reordering_and_duplicates_are_counted_as_in_the_standard():
    reception = PacketReception()
    for sequence in (65_533, 65_534, 0, 65_535, 3, 3):
        assert reception.count_packet(sequence) in {Arrival.NEXT, Arrival.LATE}
    assert reception.expected == 7
    assert reception.lost == 1  # 1 and 2 are missing, 3 came twice
    assert reception.extended == 0x10003


def test_a_stray_sequence_number_changes_nothing_and_two_in_order_restart():
    reception = PacketReception()
    assert [reception.count_packet(n) for n in (10, 11, 40_000, 12)] == [
        Arrival.NEXT, Arrival.NEXT, Arrival.STRAY, Arrival.NEXT,
    ]  # fmt: skip
    assert [reception.count_packet(n) for n in (30_000, 30_001)] == [Arrival.STRAY, Arrival.RESTART]
    assert (reception.expected, reception.lost) == (1, 0)


def test_a_report_has_the_share_lost_since_the_previous_report():
    reception = PacketReception()
    for sequence in (0, 1, 2, 5, 6, 7):
        reception.count_packet(sequence)
    block = reception.report_block(7, 0x1234, 99)
    assert block[:4] == (7).to_bytes(4)
    assert block[4] == 2 * 256 // 8
    assert int.from_bytes(block[5:8]) == 2
    assert int.from_bytes(block[8:12]) == 7
    assert block[16:] == (0x1234).to_bytes(4) + (99).to_bytes(4)
    reception.count_packet(8)
    assert reception.report_block(7, 0, 0)[4] == 0


def test_a_receiver_report_is_a_compound_packet_that_names_its_sender():
    packet = receiver_report(5, PacketReception().report_block(7, 0, 0), "embereye")
    assert is_rtcp(memoryview(packet))
    assert len(packet) % 4 == 0
    length = 4 * (1 + int.from_bytes(packet[2:4]))
    assert packet[length + 1] == 202
    assert len(packet) == length + 4 * (1 + int.from_bytes(packet[length + 2 : length + 4]))
    assert b"embereye" in packet


def test_a_sender_report_is_read_as_written():
    report, bye = parse_rtcp(Packetizer(7).report(0x11223344_55667788, 90_000), 7)
    assert report
    assert (report.ssrc, report.timestamp, report.middle, bye) == (7, 90_000, 0x33445566, False)
    assert parse_rtcp(b"\x81\xcb\0\1\0\0\0\7", 7) == (None, True)
    assert parse_rtcp(b"\x81\xcb\0\1\0\0\0\7", -1) == (None, True)
    assert parse_rtcp(b"\x80\xcb\0\0\x80\xcb\0\0", 7) == (None, True)  # without an SSRC
    assert parse_rtcp(b"\x82\xcb\0\2\0\0\0\7\0\0\0\x08", 8) == (None, True)
    assert parse_rtcp(b"\x82\xcb\0\2\0\0\0\7\0\0\0\x08", 9) == (None, False)


def test_frames_get_even_times_despite_jitter():
    chance, clock, begin = random.Random(1), CaptureClock(), 1_700_000_000_000 * MILLISECOND
    times = [
        clock.capture_ns(
            0xFFFF_0000 + 6000 * n & 0xFFFF_FFFF, begin + (n * 200 // 3 + chance.randint(0, 30)) * MILLISECOND
        )
        for n in range(300)
    ]
    steps = [later - earlier for earlier, later in itertools.pairwise(times[50:])]
    assert max(abs(step - 200 * MILLISECOND // 3) for step in steps) < 2 * MILLISECOND
    assert abs(times[-1] - begin - 299 * 200 * MILLISECOND // 3) < 5 * MILLISECOND


def test_a_sender_whose_clock_runs_slow_or_jumps_is_followed():
    clock, begin = CaptureClock(), 1_700_000_000_000 * MILLISECOND
    for n in range(2000):
        now = begin + n * 100 * MILLISECOND
        assert abs(clock.capture_ns(n * 8_997, now) - now) < 20 * MILLISECOND
    assert clock.capture_ns(5, now + 100 * MILLISECOND) == now + 100 * MILLISECOND


def played(clock, frames, begin=1_700_000_000_000 * MILLISECOND):
    """The reported lags of `frames`, (timestamp, time of arrival) in milliseconds, and the steps between them."""
    times = [(clock.capture_ns(90 * stamp & 0xFFFF_FFFF, begin + at * MILLISECOND), at) for stamp, at in frames]
    lags = [at - (time - begin) // MILLISECOND for time, at in times]
    return lags, [(later[0] - earlier[0]) / MILLISECOND for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize("stated", [40, 63, 10, 0])
def test_a_sender_that_states_too_little_time_between_pictures_is_detected(stated):
    lags, steps = played(CaptureClock(), [(stated * n, 80 * n) for n in range(600)])
    assert max(lags[150:]) < 120
    assert 75 < min(steps[150:]) <= max(steps[150:]) < 85


def test_a_sender_whose_clock_is_right_again_is_trusted_again():
    slow, right = [(40 * n, 80 * n) for n in range(300)], [(12_000 + 40 * n, 24_000 + 40 * n) for n in range(600)]
    chance = random.Random(1)
    lags, steps = played(CaptureClock(), slow + [(stamp, at + chance.randint(0, 20)) for stamp, at in right])
    assert max(lags[-300:]) < 40
    assert max(abs(step - 40) for step in steps[-300:]) < 3


def test_network_delays_are_not_attributed_to_the_senders_clock():
    chance = random.Random(1)
    waits = [1_500 - 40 * (n % 500) if n % 500 < 37 else chance.randint(0, 20) for n in range(3_000)]
    _, steps = played(CaptureClock(), [(40 * n, 40 * n + wait) for n, wait in enumerate(waits)])
    assert max(abs(step - 40) for step in steps[2_600:2_990]) < 3


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data):
    with suppress(RtpError):
        packet = parse_packet(memoryview(data))
        assert len(packet.payload) <= len(data)
    parse_rtcp(data, 7)


def test_one_byte_is_written_in_the_singular():
    with pytest.raises(RtpError, match=r"^1 byte; an RTP header has 12$"):
        parse_packet(memoryview(b"\x80"))

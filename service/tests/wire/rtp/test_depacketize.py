import itertools
import random
import re
import struct

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.units import MILLISECOND
from embereye.wire.jpeg.header import JpegError, read_header
from embereye.wire.jpeg.restart import grey, smallest
from embereye.wire.jpeg.tables import Geometry, quantization
from embereye.wire.rtp.depacketize import (
    DEADLINE_NS,
    FRUITLESS_NS,
    MAX_FRAGMENTS,
    TAKEOVER_NS,
    WINDOW,
    Depacketizer,
)
from embereye.wire.rtp.packetize import Packetizer, read_scan

SAMPLING = {0: 0x211111, 1: 0x221111}


def drawn(seed=0, width=160, height=128):
    """A picture with plain areas, edges and texture, as a camera's."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x * 255 / width, y * 255 / height, (x + y + 40 * seed) % 256], -1)
    picture[: height // 2, : width // 2] += rng.normal(0, 25, (height // 2, width // 2, 3))
    cv2.circle(picture, (width // 2, height // 2), height // 4, (20, 90, 240), -1)
    return np.clip(picture, 0, 255).astype(np.uint8)


def encoded(seed=0, width=160, height=128, *, quality=75, kind=1, interval=0):
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLING[kind]]
    if interval:
        options += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    return cv2.imencode(".jpg", drawn(seed, width, height), options)[1].tobytes()


def decoded(jpeg, flag=cv2.IMREAD_COLOR):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), flag)


def packets(*jpegs, sender=None, step=6000, **options):
    sender = sender or Packetizer(7, 65_530, max_payload=400)
    return [sender.packetize(read_scan(jpeg), 90_000 + step * n, **options) for n, jpeg in enumerate(jpegs)]


def fed(receiver, *groups, now=0):
    found = []
    for packet in itertools.chain(*groups):
        found += receiver.feed(memoryview(packet), now)
    return found


def with_extension(packet, jpeg):
    """`packet` with the segments of `jpeg` in ONVIF's header extension."""
    segments = jpeg[2 : jpeg.index(b"\xff\xda")]
    segments += b"\xff" * (-len(segments) % 4)
    extension = struct.pack(">HH", 0xFFD8, len(segments) // 4) + segments
    return bytes([packet[0] | 0x10]) + packet[1:12] + extension + packet[12:]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("interval", [0, 1, 7, 10])
@pytest.mark.parametrize("quality", [1, 30, 50, 75, 99, 100])
def test_a_picture_arrives_with_exactly_the_pixels_that_were_sent(kind, interval, quality):
    jpeg = encoded(quality=quality, kind=kind, interval=interval)
    scan = read_scan(jpeg)
    assert scan.quality == (quality if quality < 100 else 255)
    (picture,) = fed(Depacketizer(), *packets(jpeg))
    assert picture.usable
    assert not picture.lost
    assert read_header(picture.data).complete
    assert (decoded(picture.data) == decoded(jpeg)).all()


def test_the_tables_of_every_quality_are_those_of_the_standard():
    for quality in range(1, 100):
        jpeg = encoded(width=16, height=16, quality=quality)
        assert quantization(quality) in jpeg.replace(jpeg[2:20], b"", 1)


def test_pictures_follow_each_other_over_the_wrap_of_sequence_numbers_and_timestamps():
    jpegs = [encoded(n) for n in range(8)]
    sender = Packetizer(7, 65_530)
    groups = [sender.packetize(read_scan(jpeg), 0xFFFF_F000 + 6000 * n) for n, jpeg in enumerate(jpegs)]
    receiver = Depacketizer()
    found = fed(receiver, *groups)
    assert [decoded(picture.data).tobytes() for picture in found] == [decoded(jpeg).tobytes() for jpeg in jpegs]
    assert receiver.reception.lost == 0
    assert receiver.reception.extended > 0xFFFF


def test_tables_in_band_are_kept_per_q_and_replaced_when_they_change():
    low, high = encoded(quality=20), encoded(quality=90)
    sender, receiver = Packetizer(7), Depacketizer()

    def arrives(jpeg, quality, timestamp, **options):
        (picture,) = fed(receiver, sender.packetize(read_scan(jpeg), timestamp, quality=quality, **options))
        return picture.usable and bool((decoded(picture.data) == decoded(jpeg)).all())

    assert arrives(low, 130, 1)
    assert arrives(high, 131, 2)
    assert arrives(low, 130, 3, with_tables=False)
    assert arrives(high, 131, 4, with_tables=False)
    assert arrives(high, 130, 5)
    assert arrives(high, 130, 6, with_tables=False)
    assert not arrives(low, 140, 7, with_tables=False)
    assert "Q 140 are missing" in receiver.counts.problem


def test_tables_of_q_255_are_never_kept():
    jpeg, sender, receiver = encoded(quality=100), Packetizer(7), Depacketizer()
    first = fed(receiver, sender.packetize(read_scan(jpeg), 1))
    second = fed(receiver, sender.packetize(read_scan(jpeg), 2, with_tables=False))
    assert [picture.usable for picture in first + second] == [True, False]


def test_a_single_table_and_tables_of_16_bits_are_understood():
    jpeg = encoded(quality=60)
    scan = read_scan(jpeg)
    wide = b"".join(value.to_bytes(2) for value in scan.tables)
    for tables, precision in ((wide, 3), (scan.tables[:64] + wide[128:], 2), (wide[:128] + scan.tables[64:], 1)):
        changed = type(scan)(scan.type, scan.width, scan.height, 0, tables, precision, 255, scan.data)
        (picture,) = fed(Depacketizer(), Packetizer(7).packetize(changed, 1))
        assert (decoded(picture.data) == decoded(jpeg)).all()
    single = type(scan)(scan.type, scan.width, scan.height, 0, scan.tables[:64], 0, 255, scan.data)
    (picture,) = fed(Depacketizer(), Packetizer(7).packetize(single, 1))
    assert picture.usable


@pytest.mark.parametrize("extra", [b"\0" * 4, b"\0" * 200])
def test_packets_with_csrc_padding_and_extensions_are_read_as_those_without(extra):
    jpeg = encoded()
    (group,) = packets(jpeg)
    csrc = [bytes([packet[0] | 2]) + packet[1:12] + b"\1" * 8 + packet[12:] for packet in group]
    padded = [bytes([packet[0] | 0x20]) + packet[1:] + bytes(3) + b"\4" for packet in group]
    extension = struct.pack(">HH", 0xBEDE, len(extra) // 4) + extra
    extended = [bytes([packet[0] | 0x10]) + packet[1:12] + extension + packet[12:] for packet in group]
    for variant in (csrc, padded, extended):
        (picture,) = fed(Depacketizer(), variant)
        assert (decoded(picture.data) == decoded(jpeg)).all()


def test_a_size_beyond_2040_pixels_comes_from_the_source_or_from_onvifs_extension():
    jpeg = encoded(width=2056, height=16)
    (group,) = packets(jpeg)
    (blind,) = fed(receiver := Depacketizer(), group)
    assert not blind.usable
    assert "Set its size" in receiver.counts.problem
    (given,) = fed(Depacketizer(size=(2056, 16)), group)
    group[0] = with_extension(group[0], jpeg)
    (extended,) = fed(Depacketizer(), group)
    for picture in (given, extended):
        assert (decoded(picture.data) == decoded(jpeg)).all()


def test_a_size_that_the_source_gives_of_a_picture_that_was_turned_since_is_of_no_use():
    receiver = Depacketizer(size=(2056, 16))
    pictures = fed(receiver, *packets(*[encoded(width=16, height=2056)] * 10))
    assert [picture.usable for picture in pictures] == [False] * 10
    assert "Set its size" in receiver.counts.problem


def test_tables_of_a_picture_count_before_those_that_onvifs_extension_gave_an_earlier_one():
    described, later = encoded(quality=90), encoded(1, quality=20)
    first, second = packets(described, later, quality=255)
    first[0] = with_extension(first[0], described)
    pictures = fed(Depacketizer(), first, second)
    assert [bool((decoded(picture.data) == decoded(jpeg)).all()) for picture, jpeg in
            zip(pictures, (described, later), strict=True)] == [True, True]  # fmt: skip


def test_a_size_that_is_no_multiple_of_8_is_exact_where_the_source_says_so():
    jpeg = encoded(width=156, height=125)
    (group,) = packets(jpeg)
    (rounded,) = fed(Depacketizer(), group)
    (exact,) = fed(Depacketizer(size=(156, 125)), group)
    assert decoded(rounded.data).shape == (128, 160, 3)
    assert (decoded(exact.data) == decoded(jpeg)).all()


def test_packets_that_overtake_each_other_and_come_twice_are_put_in_place():
    jpegs = [encoded(n, interval=(0, 10)[n % 2]) for n in range(20)]
    stream = list(itertools.chain(*packets(*jpegs)))
    chance = random.Random(4)
    order = sorted(range(len(stream)), key=lambda n: n + chance.uniform(0, 6))
    mixed = [stream[n] for n in order for _ in range(1 + (chance.random() < 0.1))]
    # Before the first packet of all, nobody knows what is late.
    receiver = Depacketizer()
    found = fed(receiver, stream[:1], mixed)
    assert [decoded(picture.data).tobytes() for picture in found] == [decoded(jpeg).tobytes() for jpeg in jpegs]
    assert receiver.counts.duplicates + receiver.counts.stale == len(mixed) + 1 - len(stream)


def test_a_gap_is_given_up_after_a_window_of_packets_or_a_time():
    first, second = packets(encoded(0, interval=10), encoded(1, 640, 480, interval=10))
    receiver = Depacketizer()
    assert not fed(receiver, first[:3], first[4:])
    assert not fed(receiver, second[:WINDOW], now=DEADLINE_NS - 1)
    assert [picture.timestamp for picture in fed(receiver, second[WINDOW : WINDOW + 1])] == [90_000]
    receiver = Depacketizer()
    fed(receiver, first[:3], first[4:], now=5)
    assert receiver.has_pending
    assert not receiver.poll(4 + DEADLINE_NS)
    assert len(receiver.poll(5 + DEADLINE_NS)) == 1
    assert not receiver.has_pending


def test_what_comes_after_its_picture_was_given_up_changes_nothing():
    first, second = packets(encoded(0, interval=10), encoded(1))
    receiver = Depacketizer()
    fed(receiver, first[:3], first[4:])
    receiver.poll(DEADLINE_NS)
    assert not fed(receiver, first[3:4])
    assert receiver.counts.stale == 1
    assert len(fed(receiver, second)) == 1


def covered(lost, width, height):
    """Which pixels `lost` covers."""
    mask = np.zeros((height, width), bool)
    for x, y, w, h in lost:
        mask[round(y * height) : round((y + h) * height), round(x * width) : round((x + w) * width)] = True
    return mask


REDUCED = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4,
           8: cv2.IMREAD_REDUCED_COLOR_8}  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("interval", [3, 20, 27])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_loss_costs_its_restart_intervals_and_every_other_pixel_is_exact_at_every_scale(kind, interval, chunks):
    width, height = 320, 240
    jpeg = encoded(3, width, height, kind=kind, interval=interval)
    whole = decoded(jpeg)
    sender = Packetizer(7, max_payload=300)
    group = in_chunks(sender, jpeg) if chunks else sender.packetize(read_scan(jpeg), 1)
    lost_share = []
    for seed in range(12):
        chance = random.Random(seed)
        gone = set(chance.sample(range(1, len(group)), 1 + seed % 4))
        receiver = Depacketizer()
        found = fed(receiver, [packet for n, packet in enumerate(group) if n not in gone])
        (picture,) = [*found, *receiver.poll(DEADLINE_NS)]
        if not picture.usable:
            continue
        assert read_header(picture.data).complete
        mask = covered(picture.lost, width, height)
        lost_share.append(mask.mean())
        assert (decoded(picture.data) == whole)[~mask].all()
        for scale, flag in REDUCED.items():
            reduced = np.add.reduceat(np.add.reduceat(mask, range(0, height, scale), 0), range(0, width, scale), 1) > 0
            assert (decoded(picture.data, flag) == decoded(jpeg, flag))[~reduced].all()
    assert len(lost_share) >= 5  # small intervals in large packets cannot always be told apart
    assert 0 < np.mean(lost_share) < 0.35


def in_chunks(sender, jpeg):
    """Packets that hold whole restart intervals and say which."""
    scan = read_scan(jpeg)
    pieces = re.split(rb"(?<=\xff[\xd0-\xd7])", scan.data)
    group, offset = [], 0
    for number, piece in enumerate(pieces):
        small = type(scan)(scan.type, scan.width, scan.height, scan.interval, b"", 0, scan.quality, piece)
        part = sender.packetize(small, 1)
        for n, packet in enumerate(part):
            place = int.from_bytes(packet[13:16]) + offset
            count = number | (0x8000 if n == 0 else 0) | (0x4000 if n == len(part) - 1 else 0)
            marker = 0x80 if number == len(pieces) - 1 and n == len(part) - 1 else 0
            group.append(
                packet[:1] + bytes([marker | 26]) + packet[2:13] + place.to_bytes(3) + packet[16:22]
                + count.to_bytes(2) + packet[24:]
            )  # fmt: skip
        offset += len(piece)
    return group


def untold(group):
    """The same packets without any word of restart intervals."""
    return [packet[:16] + bytes([packet[16] & 1]) + packet[17:20] + packet[24:] for packet in group]


@pytest.mark.parametrize(("interval", "usable"), [(10, True), (20, True), (1, True), (15, False)])
def test_restart_intervals_that_the_sender_does_not_mention_are_found_out_or_refused(interval, usable):
    jpegs = [encoded(n, interval=interval) for n in range(2)]
    first, second = packets(*jpegs)
    receiver = Depacketizer()
    (picture,) = fed(receiver, untold(first))
    assert picture.usable == usable
    if usable:
        assert (decoded(picture.data) == decoded(jpegs[0])).all()
        gone = untold(second)
        del gone[3]
        (damaged,) = [*fed(receiver, gone), *receiver.poll(DEADLINE_NS)]
        mask = covered(damaged.lost, 160, 128)
        assert 0 < mask.mean() < 0.6
        assert (decoded(damaged.data) == decoded(jpegs[1]))[~mask].all()
    else:
        assert "does not state their interval" in receiver.counts.problem


def test_a_loss_without_restart_markers_leaves_nothing_to_be_trusted():
    (group,) = packets(encoded())
    receiver = Depacketizer()
    fed(receiver, group[:3], group[4:])
    (picture,) = receiver.poll(DEADLINE_NS)
    assert not picture.usable
    assert not read_header(picture.data).complete
    assert "no restart markers" in receiver.counts.problem


def test_a_picture_that_lost_more_than_half_is_not_usable():
    (group,) = packets(encoded(interval=10))
    receiver = Depacketizer()
    fed(receiver, group[:2], group[-1:])
    (picture,) = receiver.poll(DEADLINE_NS)
    assert not picture.usable
    assert "of a picture was lost" in receiver.counts.problem


def test_a_forgotten_marker_costs_no_picture():
    first, second = packets(encoded(0), encoded(1))
    first[-1] = first[-1][:1] + bytes([26]) + first[-1][2:]
    found = fed(Depacketizer(), first, second)
    assert [picture.usable for picture in found] == [True, True]


def test_a_clock_that_stands_still_does_not_mix_pictures():
    jpegs = [encoded(n) for n in range(3)]
    found = fed(Depacketizer(), *packets(*jpegs, step=0))
    assert [decoded(picture.data).tobytes() for picture in found] == [decoded(jpeg).tobytes() for jpeg in jpegs]


def test_listening_starts_at_the_beginning_of_a_picture():
    first, second = packets(encoded(0), encoded(1))
    receiver = Depacketizer()
    found = fed(receiver, first[4:], second)
    assert [picture.usable for picture in found] == [True]
    assert receiver.counts.unusable == 0


def test_another_sender_is_listened_to_once_the_first_is_silent():
    old, new = packets(encoded(0), encoded(0)), packets(encoded(1), encoded(2), sender=Packetizer(8, 100))
    receiver = Depacketizer()
    assert len(fed(receiver, old[0])) == 1
    assert not fed(receiver, new[0], now=TAKEOVER_NS - 1)
    assert receiver.counts.strangers == len(new[0])
    assert len(fed(receiver, old[1], now=TAKEOVER_NS - 1)) == 1
    found = fed(
        receiver, new[1], new[1], packets(encoded(3), sender=Packetizer(8, 160), step=9)[0], now=9 * TAKEOVER_NS
    )
    assert receiver.ssrc == 8
    assert found


def test_a_sender_of_no_picture_keeps_nobody_out_who_sends_some():
    receiver, camera = Depacketizer(), Packetizer(7, 0)
    stray = packets(encoded(9), sender=Packetizer(9, 0))[0][1]
    came = []
    for number in range(60):
        now = number * TAKEOVER_NS // 5
        fed(receiver, [stray], now=now)
        came.append(len(fed(receiver, *packets(encoded(number % 3), sender=camera), now=now)))
    first = came.index(1)
    assert first * TAKEOVER_NS // 5 <= FRUITLESS_NS + TAKEOVER_NS
    assert came[first:] == [1] * (60 - first)


def test_a_sender_of_pictures_stays_whoever_else_sends_some():
    receiver, first, second = Depacketizer(), Packetizer(7, 0), Packetizer(9, 0)
    for number in range(60):
        now = number * TAKEOVER_NS // 5
        assert fed(receiver, *packets(encoded(1), sender=first), now=now)
        assert not fed(receiver, *packets(encoded(2), sender=second), now=now)


def test_a_sender_that_starts_over_is_followed_at_the_second_packet():
    receiver = Depacketizer()
    fed(receiver, *packets(encoded(0), sender=Packetizer(7, 100)))
    sender = Packetizer(7, 30_000)
    found = fed(receiver, *(sender.packetize(read_scan(encoded(n)), 5 + n) for n in range(3)))
    assert [picture.usable for picture in found] == [True, True]


def test_other_payloads_and_reports_are_no_pictures():
    receiver = Depacketizer()
    (group,) = packets(encoded(), sender=Packetizer(7, payload_type=96))
    report = Packetizer(7).report(1 << 32, 5)
    assert not fed(receiver, group, [report])
    assert receiver.counts.other_payload == {96: len(group)}
    assert receiver.counts.malformed == 0


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [(0, 0x00, "RTP version 0"), (16, 2, "type 2"), (16, 66, "type 66"), (17, 0, "Q 0"), (17, 100, "Q 100"),
     (17, 255, "truncated|bytes of quantization tables"),
     (0, 0x90, "extension is truncated"), (0, 0x8F, "longer than the packet")],
)  # fmt: skip
def test_a_packet_that_is_wrong_is_refused_with_its_reason(at, value, problem):
    receiver = Depacketizer()
    packet = bytearray(packets(encoded())[0][0][:60])
    packet[at] = value
    packet = packet[:14] if value == 0x90 else packet
    assert not fed(receiver, [bytes(packet)])
    assert receiver.counts.malformed == 1
    assert re.search(problem, receiver.counts.problem)


@pytest.mark.parametrize("size", range(0, 20, 4))
def test_a_packet_cut_short_is_refused(size):
    receiver = Depacketizer()
    assert not fed(receiver, [packets(encoded())[0][0][:size]])
    assert receiver.counts.malformed == 1


def test_a_picture_without_enough_data_for_its_size_is_not_usable():
    receiver = Depacketizer()
    packet = packets(encoded())[0][0]
    lone = packet[:1] + bytes([packet[1] | 0x80]) + packet[2:30]
    (picture,) = fed(receiver, [lone])
    assert not picture.usable
    assert "10 bytes cannot be 160x128 pixels" in receiver.counts.problem


def test_one_sender_cannot_make_us_keep_more_than_a_bound():
    receiver, sequence = Depacketizer(), 0
    for number in range(40_000):
        head = struct.pack(">BBHIIII", 0x80, 26, sequence, 1, 7, number * 1400 & 0xFFFFFF, 0x01321E1E)
        receiver.feed(memoryview(head + bytes(1380)), number)
        sequence = (sequence + 1) & 0xFFFF
    held = sum(len(part) for frame in (receiver._frame, receiver._previous) if frame for part in frame.parts.values())
    assert held < 10 * 1024 * 1024
    assert receiver.counts.malformed > 0


def test_a_picture_of_single_bytes_is_refused_before_they_fill_the_memory():
    receiver = Depacketizer()
    for number in range(MAX_FRAGMENTS + 100):
        head = struct.pack(">BBHIIII", 0x80, 26, number & 0xFFFF, 1, 7, number, 0x01321E1E)
        receiver.feed(memoryview(head + b"x"), number)
    assert len(receiver._frame.parts) == MAX_FRAGMENTS
    assert "it contradicts its picture, or makes it larger" in receiver.counts.problem


def test_no_picture_is_put_together_of_which_too_little_came(monkeypatch):
    built = []
    monkeypatch.setattr("embereye.wire.jpeg.restart.grey", lambda *what: built.append(what) or b"")
    head = struct.pack(">BBHIIII", 0x80, 0x80 | 26, 1, 1, 7, 0, 0x4132FFFF) + struct.pack(">HH", 1, 0xFFFF)
    receiver = Depacketizer()
    for sequence, offset in ((1, 0), (3, 4000)):
        packet = bytearray(head + b"\xff\xd0\xff\xd1" * 290)
        struct.pack_into(">H", packet, 2, sequence)
        struct.pack_into(">I", packet, 12, offset)
        packet[1] = 26 | 0x80 * (offset > 0)
        receiver.feed(memoryview(packet), 0)
    (picture,) = receiver.poll(DEADLINE_NS)
    assert not picture.usable
    assert "100 % of a picture was lost" in receiver.counts.problem
    assert not built


def test_what_rtp_cannot_carry_is_refused_by_the_sending_side():
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
    for options in ([cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_OPTIMIZE, 1],
                    [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111]):  # fmt: skip
        with pytest.raises(JpegError):
            read_scan(cv2.imencode(".jpg", picture, options)[1].tobytes())
    with pytest.raises(JpegError):
        read_scan(cv2.imencode(".jpg", picture[..., 0])[1].tobytes())
    with pytest.raises(JpegError):
        read_scan(b"\xff\xd8\xff\xdb")


def test_grey_intervals_are_as_small_as_an_interval_can_be():
    for kind, units in itertools.product((0, 1), (1, 2, 5, 120)):
        assert 0 <= len(grey(units, kind)) - smallest(units, kind) <= 1
    assert Geometry(1920, 1080, 1).units == 120 * 68


STREAM = [
    packet for group in packets(*(encoded(n, 64, 48, interval=2 * (n % 2)) for n in range(4))) for packet in group
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 70), st.integers(0, 255), st.integers(0, 900)),
        max_size=60,
    )
)
def test_damaged_packets_in_any_order_give_pictures_that_pass_the_header_check_or_none(damages):
    receiver, now, found = Depacketizer(), 0, []
    for number, at, value, cut in damages:
        packet = bytearray(STREAM[number])
        packet[at % len(packet)] = value
        now += cut * MILLISECOND
        found += receiver.feed(memoryview(bytes(packet[: len(packet) - cut % 7])), now)
        found += receiver.poll(now)
    for picture in found:
        if picture.usable:
            assert read_header(picture.data).complete
        for x, y, w, h in picture.lost:
            assert min(x, y) >= 0
            assert max(x + w, y + h) <= 1 + 1e-9


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_any_bytes_give_no_exception(datagrams):
    receiver = Depacketizer()
    for data in datagrams:
        receiver.feed(memoryview(b"\x80\x1a" + data), 0)
    receiver.poll(DEADLINE_NS)


def trains(stream):
    """The packets as a socket reads them that is emptied late: those of one size joined, the last may be shorter."""
    found = []
    for packet in stream:
        if found and len(found[-1][0]) % found[-1][1] == 0 and len(packet) <= found[-1][1]:
            found[-1][0].extend(packet)
        else:
            found.append((bytearray(packet), len(packet)))
    return found


def renumbered(packet):
    """The packet with the next sequence number."""
    return packet[:2] + ((int.from_bytes(packet[2:4]) + 1) & 0xFFFF).to_bytes(2) + packet[4:]


# Three pictures over a wrap of the sequence numbers: plain, with restart markers, with chunks that say their place.
TRAINED = Packetizer(7, 65_530, max_payload=200)
TRAIN = [
    *itertools.chain(*packets(encoded(0, quality=95), encoded(1, quality=95, interval=10), sender=TRAINED)),
    *in_chunks(TRAINED, encoded(2, 640, 480, quality=95, interval=160)),
]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(TRAIN) - 1), st.sampled_from(["lose", "twice", "late", "spoil", "again"]),
                  st.integers(0, 30), st.integers(0, 255)),
        max_size=8,
    )
)  # fmt: skip
def test_packets_that_are_taken_joined_give_what_they_give_one_by_one(damages):
    stream = list(TRAIN)
    for place, damage, at, value in damages:
        packet = stream.pop(place % len(stream))
        if damage == "twice":
            stream[place:place] = [packet, packet]
        elif damage == "late":
            stream.insert(place + at, packet)
        elif damage == "spoil":
            stream.insert(place, packet[:at] + bytes([value]) + packet[at + 1 :])
        elif damage == "again":
            stream.insert(place, packet)
            stream[place + at :] = [renumbered(other) for other in (packet, *stream[place + at :])]
    one, joined = Depacketizer(), Depacketizer()
    expected = [*fed(one, stream), *one.poll(DEADLINE_NS)]
    found = [picture for train, size in trains(stream) for picture in joined.feed_joined(memoryview(train), size, 0)]
    assert [*found, *joined.poll(DEADLINE_NS)] == expected
    assert joined.counts == one.counts
    assert (joined.reception.extended, joined.reception.lost) == (one.reception.extended, one.reception.lost)


def test_what_comes_joined_is_never_taken_for_finer_pieces_than_it_came_in():
    """Six packets of a byte at one place, and later 60,000 bytes at the same, would be 60,000 pieces."""
    receiver, jpeg = Depacketizer(), encoded()
    head, *_ = Packetizer(7, 0, max_payload=200).packetize(read_scan(jpeg), 1)
    sent = []

    def packet(place, size):
        fields = struct.pack(">HHII", 0x801A, len(sent), 1, 7) + place.to_bytes(4)
        sent.append(fields + head[16:20] + bytes(size))
        return sent[-1]

    receiver.feed(memoryview(packet(0, 98)), 0)
    receiver.feed_joined(memoryview(b"".join(packet(98 + place, 1) for place in range(6))), len(sent[0]) - 97, 0)
    receiver.feed(memoryview(packet(96, 2)), 0)
    receiver.feed(memoryview(packet(98, 60_000)), 0)
    receiver.feed(memoryview(packet(98, 60_000)), 0)
    assert receiver._frame is not None
    assert len(receiver._frame.pieces()) <= len(sent)
    assert receiver.counts.duplicates == 2


def test_tiny_packets_in_order_are_bounded_as_any_others():
    jpeg = encoded()
    head, *_ = Packetizer(7, 0, max_payload=9).packetize(read_scan(jpeg), 1)
    receiver, payload = Depacketizer(), len(head) - 20
    for number in range(2 * MAX_FRAGMENTS // 40):
        train = bytearray()
        for place in range(40 * number, 40 * number + 40):
            fields = struct.pack(">HHII", 0x801A, place & 0xFFFF, 1, 7) + (place * payload).to_bytes(4)
            train += fields + head[16:20] + bytes(payload)
        receiver.feed_joined(memoryview(train), len(head), 0)
    assert receiver.counts.malformed >= MAX_FRAGMENTS - 80

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
from embereye.wire.rtp.depacketize import FRUITLESS_NS, MAX_FRAGMENTS, WINDOW, Depacketizer
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye.wire.rtp.receiver import DEADLINE_NS, TAKEOVER_NS

SAMPLING = {0: 0x211111, 1: 0x221111}


def drawn(seed=0, width=160, height=128):
    """A picture with plain areas, edges and texture, like a camera's."""
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
    pictures = []
    for packet in itertools.chain(*groups):
        pictures += receiver.feed(memoryview(packet), now)
    return pictures


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


def test_sequence_numbers_and_timestamps_may_wrap():
    jpegs = [encoded(n) for n in range(8)]
    sender = Packetizer(7, 65_530)
    groups = [sender.packetize(read_scan(jpeg), 0xFFFF_F000 + 6000 * n) for n, jpeg in enumerate(jpegs)]
    receiver = Depacketizer()
    pictures = fed(receiver, *groups)
    assert [decoded(picture.data).tobytes() for picture in pictures] == [decoded(jpeg).tobytes() for jpeg in jpegs]
    assert receiver.reception.lost == 0
    assert receiver.reception.extended > 0xFFFF


def test_tables_in_band_are_stored_per_q_and_replaced_when_they_change():
    low, high = encoded(quality=20), encoded(quality=90)
    sender, receiver = Packetizer(7), Depacketizer()

    def is_intact(jpeg, quality, timestamp, **options):
        (picture,) = fed(receiver, sender.packetize(read_scan(jpeg), timestamp, quality=quality, **options))
        return picture.usable and bool((decoded(picture.data) == decoded(jpeg)).all())

    assert is_intact(low, 130, 1)
    assert is_intact(high, 131, 2)
    assert is_intact(low, 130, 3, with_tables=False)
    assert is_intact(high, 131, 4, with_tables=False)
    assert is_intact(high, 130, 5)
    assert is_intact(high, 130, 6, with_tables=False)
    assert not is_intact(low, 140, 7, with_tables=False)
    assert "Q 140 are missing" in receiver.counts.problem


def test_tables_of_q_255_are_never_stored():
    jpeg, sender, receiver = encoded(quality=100), Packetizer(7), Depacketizer()
    first = fed(receiver, sender.packetize(read_scan(jpeg), 1))
    second = fed(receiver, sender.packetize(read_scan(jpeg), 2, with_tables=False))
    assert [picture.usable for picture in first + second] == [True, False]


def test_a_single_table_and_tables_of_16_bits_are_supported():
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
def test_packets_with_csrc_padding_and_extensions_are_read_like_others(extra):
    jpeg = encoded()
    (group,) = packets(jpeg)
    csrc = [bytes([packet[0] | 2]) + packet[1:12] + b"\1" * 8 + packet[12:] for packet in group]
    padded = [bytes([packet[0] | 0x20]) + packet[1:] + bytes(3) + b"\4" for packet in group]
    extension = struct.pack(">HH", 0xBEDE, len(extra) // 4) + extra
    extended = [bytes([packet[0] | 0x10]) + packet[1:12] + extension + packet[12:] for packet in group]
    for variant in (csrc, padded, extended):
        (picture,) = fed(Depacketizer(), variant)
        assert (decoded(picture.data) == decoded(jpeg)).all()


def test_a_size_beyond_2040_pixels_comes_from_the_source_or_onvifs_extension():
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


def test_the_size_of_a_source_is_not_used_for_a_rotated_picture():
    receiver = Depacketizer(size=(2056, 16))
    pictures = fed(receiver, *packets(*[encoded(width=16, height=2056)] * 10))
    assert [picture.usable for picture in pictures] == [False] * 10
    assert "Set its size" in receiver.counts.problem


def test_a_pictures_tables_take_precedence_over_earlier_onvif_tables():
    described, later = encoded(quality=90), encoded(1, quality=20)
    first, second = packets(described, later, quality=255)
    first[0] = with_extension(first[0], described)
    pictures = fed(Depacketizer(), first, second)
    assert [bool((decoded(picture.data) == decoded(jpeg)).all()) for picture, jpeg in
            zip(pictures, (described, later), strict=True)] == [True, True]  # fmt: skip


def test_a_size_not_divisible_by_8_is_exact_if_the_source_states_it():
    jpeg = encoded(width=156, height=125)
    (group,) = packets(jpeg)
    (rounded,) = fed(Depacketizer(), group)
    (exact,) = fed(Depacketizer(size=(156, 125)), group)
    assert decoded(rounded.data).shape == (128, 160, 3)
    assert (decoded(exact.data) == decoded(jpeg)).all()


def test_reordered_and_duplicated_packets_are_put_in_place():
    jpegs = [encoded(n, interval=(0, 10)[n % 2]) for n in range(20)]
    stream = list(itertools.chain(*packets(*jpegs)))
    chance = random.Random(4)
    order = sorted(range(len(stream)), key=lambda n: n + chance.uniform(0, 6))
    mixed = [stream[n] for n in order for _ in range(1 + (chance.random() < 0.1))]
    # Before the very first packet, it is unknown which packets are late.
    receiver = Depacketizer()
    pictures = fed(receiver, stream[:1], mixed)
    assert [decoded(picture.data).tobytes() for picture in pictures] == [decoded(jpeg).tobytes() for jpeg in jpegs]
    assert receiver.counts.duplicates + receiver.counts.stale == len(mixed) + 1 - len(stream)


def test_a_gap_counts_as_lost_after_a_window_of_packets_or_a_time():
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


def test_packets_of_a_completed_picture_change_nothing():
    first, second = packets(encoded(0, interval=10), encoded(1))
    receiver = Depacketizer()
    fed(receiver, first[:3], first[4:])
    receiver.poll(DEADLINE_NS)
    assert not fed(receiver, first[3:4])
    assert receiver.counts.stale == 1
    assert len(fed(receiver, second)) == 1


def covered(lost, width, height):
    """A mask of the pixels that `lost` covers."""
    mask = np.zeros((height, width), bool)
    for x, y, w, h in lost:
        mask[round(y * height) : round((y + h) * height), round(x * width) : round((x + w) * width)] = True
    return mask


REDUCED = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4,
           8: cv2.IMREAD_REDUCED_COLOR_8}  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("interval", [3, 20, 27])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_loss_affects_only_its_restart_intervals_at_every_scale(kind, interval, chunks):
    width, height = 320, 240
    jpeg = encoded(3, width, height, kind=kind, interval=interval)
    whole = decoded(jpeg)
    sender = Packetizer(7, max_payload=300)
    group = in_chunks(sender, jpeg) if chunks else sender.packetize(read_scan(jpeg), 1)
    lost_share = []
    for seed in range(12):
        chance = random.Random(seed)
        lost = set(chance.sample(range(1, len(group)), 1 + seed % 4))
        receiver = Depacketizer()
        pictures = fed(receiver, [packet for n, packet in enumerate(group) if n not in lost])
        (picture,) = [*pictures, *receiver.poll(DEADLINE_NS)]
        if not picture.usable:
            continue
        assert read_header(picture.data).complete
        mask = covered(picture.lost, width, height)
        lost_share.append(mask.mean())
        assert (decoded(picture.data) == whole)[~mask].all()
        for scale, flag in REDUCED.items():
            reduced = np.add.reduceat(np.add.reduceat(mask, range(0, height, scale), 0), range(0, width, scale), 1) > 0
            assert (decoded(picture.data, flag) == decoded(jpeg, flag))[~reduced].all()
    assert len(lost_share) >= 5  # small intervals in large packets are sometimes ambiguous
    assert 0 < np.mean(lost_share) < 0.35


def in_chunks(sender, jpeg):
    """Make packets with whole restart intervals and their numbers."""
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


def without_restart_headers(group):
    """Remove the restart headers from the packets."""
    return [packet[:16] + bytes([packet[16] & 1]) + packet[17:20] + packet[24:] for packet in group]


@pytest.mark.parametrize(("interval", "usable"), [(10, True), (20, True), (1, True), (15, False)])
def test_unannounced_restart_intervals_are_inferred_or_refused(interval, usable):
    jpegs = [encoded(n, interval=interval) for n in range(2)]
    first, second = packets(*jpegs)
    receiver = Depacketizer()
    (picture,) = fed(receiver, without_restart_headers(first))
    assert picture.usable == usable
    if usable:
        assert (decoded(picture.data) == decoded(jpegs[0])).all()
        incomplete = without_restart_headers(second)
        del incomplete[3]
        (damaged,) = [*fed(receiver, incomplete), *receiver.poll(DEADLINE_NS)]
        mask = covered(damaged.lost, 160, 128)
        assert 0 < mask.mean() < 0.6
        assert (decoded(damaged.data) == decoded(jpegs[1]))[~mask].all()
    else:
        assert "does not state their interval" in receiver.counts.problem


def test_a_loss_without_restart_markers_makes_the_picture_unusable():
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


def test_a_missing_marker_loses_no_picture():
    first, second = packets(encoded(0), encoded(1))
    first[-1] = first[-1][:1] + bytes([26]) + first[-1][2:]
    pictures = fed(Depacketizer(), first, second)
    assert [picture.usable for picture in pictures] == [True, True]


def test_a_stopped_clock_does_not_mix_pictures():
    jpegs = [encoded(n) for n in range(3)]
    pictures = fed(Depacketizer(), *packets(*jpegs, step=0))
    assert [decoded(picture.data).tobytes() for picture in pictures] == [decoded(jpeg).tobytes() for jpeg in jpegs]


def test_receiving_starts_at_the_beginning_of_a_picture():
    first, second = packets(encoded(0), encoded(1))
    receiver = Depacketizer()
    pictures = fed(receiver, first[4:], second)
    assert [picture.usable for picture in pictures] == [True]
    assert receiver.counts.unusable == 0


def test_another_sender_is_accepted_once_the_first_is_silent():
    old, new = packets(encoded(0), encoded(0)), packets(encoded(1), encoded(2), sender=Packetizer(8, 100))
    receiver = Depacketizer()
    assert len(fed(receiver, old[0])) == 1
    assert not fed(receiver, new[0], now=TAKEOVER_NS - 1)
    assert receiver.counts.strangers == len(new[0])
    assert len(fed(receiver, old[1], now=TAKEOVER_NS - 1)) == 1
    pictures = fed(
        receiver, new[1], new[1], packets(encoded(3), sender=Packetizer(8, 160), step=9)[0], now=9 * TAKEOVER_NS
    )
    assert receiver.ssrc == 8
    assert pictures


def test_a_sender_without_pictures_is_replaced_by_one_with_pictures():
    receiver, camera = Depacketizer(), Packetizer(7, 0)
    stray = packets(encoded(9), sender=Packetizer(9, 0))[0][1]
    counts = []
    for number in range(60):
        now = number * TAKEOVER_NS // 5
        fed(receiver, [stray], now=now)
        counts.append(len(fed(receiver, *packets(encoded(number % 3), sender=camera), now=now)))
    first = counts.index(1)
    assert first * TAKEOVER_NS // 5 <= FRUITLESS_NS + TAKEOVER_NS
    assert counts[first:] == [1] * (60 - first)


def test_a_sender_with_pictures_is_not_replaced_by_another():
    receiver, first, second = Depacketizer(), Packetizer(7, 0), Packetizer(9, 0)
    for number in range(60):
        now = number * TAKEOVER_NS // 5
        assert fed(receiver, *packets(encoded(1), sender=first), now=now)
        assert not fed(receiver, *packets(encoded(2), sender=second), now=now)


def test_a_restarted_sender_is_followed_from_its_second_packet():
    receiver = Depacketizer()
    fed(receiver, *packets(encoded(0), sender=Packetizer(7, 100)))
    sender = Packetizer(7, 30_000)
    pictures = fed(receiver, *(sender.packetize(read_scan(encoded(n)), 5 + n) for n in range(3)))
    assert [picture.usable for picture in pictures] == [True, True]


def test_other_payloads_and_reports_are_ignored():
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
def test_a_malformed_packet_is_refused_with_a_reason(at, value, problem):
    receiver = Depacketizer()
    packet = bytearray(packets(encoded())[0][0][:60])
    packet[at] = value
    packet = packet[:14] if value == 0x90 else packet
    assert not fed(receiver, [bytes(packet)])
    assert receiver.counts.malformed == 1
    assert re.search(problem, receiver.counts.problem)


@pytest.mark.parametrize("size", range(0, 20, 4))
def test_a_truncated_packet_is_refused(size):
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


def test_the_memory_used_by_a_sender_is_bounded():
    receiver, sequence = Depacketizer(), 0
    for number in range(40_000):
        head = struct.pack(">BBHIIII", 0x80, 26, sequence, 1, 7, number * 1400 & 0xFFFFFF, 0x01321E1E)
        receiver.feed(memoryview(head + bytes(1380)), number)
        sequence = (sequence + 1) & 0xFFFF
    stored = sum(len(part) for frame in (receiver._frame, receiver._previous) if frame for part in frame.parts.values())
    assert stored < 10 * 1024 * 1024
    assert receiver.counts.malformed > 0


def test_a_picture_of_single_bytes_is_refused_before_they_fill_the_memory():
    receiver = Depacketizer()
    for number in range(MAX_FRAGMENTS + 100):
        head = struct.pack(">BBHIIII", 0x80, 26, number & 0xFFFF, 1, 7, number, 0x01321E1E)
        receiver.feed(memoryview(head + b"x"), number)
    assert len(receiver._frame.parts) == MAX_FRAGMENTS
    assert "it contradicts its picture, or makes it larger" in receiver.counts.problem


def test_a_picture_with_too_little_data_is_not_assembled(monkeypatch):
    built = []
    monkeypatch.setattr("embereye.wire.jpeg.restart.grey", lambda *arguments: built.append(arguments) or b"")
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


def test_the_sender_refuses_pictures_that_rtp_cannot_carry():
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


def test_grey_intervals_are_as_small_as_possible():
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
def test_damaged_packets_in_any_order_give_valid_pictures_or_none(damages):
    receiver, now, pictures = Depacketizer(), 0, []
    for number, at, value, cut in damages:
        packet = bytearray(STREAM[number])
        packet[at % len(packet)] = value
        now += cut * MILLISECOND
        pictures += receiver.feed(memoryview(bytes(packet[: len(packet) - cut % 7])), now)
        pictures += receiver.poll(now)
    for picture in pictures:
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


def joined_reads(stream):
    """Join packets as a socket returns them when it is read late: equal sizes joined, the last may be shorter."""
    reads = []
    for packet in stream:
        if reads and len(reads[-1][0]) % reads[-1][1] == 0 and len(packet) <= reads[-1][1]:
            reads[-1][0].extend(packet)
        else:
            reads.append((bytearray(packet), len(packet)))
    return reads


def renumbered(packet):
    """Give the packet the next sequence number."""
    return packet[:2] + ((int.from_bytes(packet[2:4]) + 1) & 0xFFFF).to_bytes(2) + packet[4:]


# Three pictures over a wrap of the sequence numbers: plain, with restart markers, with numbered chunks.
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
def test_joined_packets_give_the_same_pictures_as_single_packets(damages):
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
    single, joined = Depacketizer(), Depacketizer()
    expected = [*fed(single, stream), *single.poll(DEADLINE_NS)]
    pictures = [
        picture for train, size in joined_reads(stream) for picture in joined.feed_joined(memoryview(train), size, 0)
    ]
    assert [*pictures, *joined.poll(DEADLINE_NS)] == expected
    assert joined.counts == single.counts
    assert (joined.reception.extended, joined.reception.lost) == (single.reception.extended, single.reception.lost)


def test_joined_packets_are_never_split_finer_than_they_arrived():
    """Six packets of one byte at a place, and later 60,000 bytes there, must not become 60,000 pieces."""
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


def test_tiny_packets_in_order_are_limited_like_any_others():
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

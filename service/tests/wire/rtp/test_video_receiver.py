import itertools
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.camera.scheduling.mailbox import Mailbox
from embereye.camera.scheduling.video_mailbox import VideoFrame, VideoMailbox
from embereye.units import MILLISECOND
from embereye.wire.rtp.nal_payload import AP, FU, FU_A, FU_START, STAP_A, H264Format, H265Format, NalFormat
from embereye.wire.rtp.receiver import DEADLINE_NS, TAKEOVER_NS
from embereye.wire.rtp.video_receiver import VideoReceiver
from embereye.wire.video.access_unit import MAX_SETS, MAX_UNIT, AccessUnit

from ..video.coded import coded, decoded

FORMATS: dict[str, NalFormat] = {"H264": H264Format(), "H265": H265Format()}
PAYLOAD = 97
BOTH = pytest.mark.parametrize("encoding", list(FORMATS))


def packets(encoding, units, *, limit=300, sequence=65_500, base=0xFFFF_0000, ssrc=7, marker=True):
    """The RTP packets of each access unit; sequence numbers and timestamps wrap."""
    groups, number = [], itertools.count(sequence)
    for timestamp, nals in units:
        payloads = list(FORMATS[encoding].payloads(nals, limit))
        groups.append([
            struct.pack(">BBHII", 0x80, (marker and last is payloads[-1]) << 7 | PAYLOAD, next(number) & 0xFFFF,
                        base + timestamp & 0xFFFF_FFFF, ssrc) + last
            for last in payloads
        ])  # fmt: skip
    return groups


def fed(receiver, *groups, now=0):
    return [
        unit
        for packet in itertools.chain(*groups)
        for unit in receiver.feed_joined(memoryview(packet), len(packet), now)
    ]


def receiver(encoding, **options):
    return VideoReceiver(encoding, PAYLOAD, **options)


def trusted(units):
    return [unit for unit in units if not unit.damaged]


def nals_of(unit):
    return tuple(unit.data.split(b"\0\0\0\1")[1:])


@BOTH
@pytest.mark.parametrize("limit", [60, 300, 1400, 60_000])
def test_access_units_arrive_with_exactly_the_bytes_that_were_sent(encoding, limit):
    sent = coded(encoding, 24)
    units = fed(receiver(encoding), *packets(encoding, sent, limit=limit))
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]
    assert [unit.timestamp for unit in units] == [0xFFFF_0000 + timestamp & 0xFFFF_FFFF for timestamp, _ in sent]
    assert [number for number, unit in enumerate(units) if unit.key] == [0, 8, 16]
    assert not any(unit.damaged for unit in units)
    assert {unit.size for unit in units} == {(96, 64)}


@BOTH
def test_small_nal_units_are_joined_and_large_ones_are_cut(encoding):
    payloads = list(FORMATS[encoding].payloads(coded(encoding, 1, 320, 240)[0][1], 300))
    kinds = [p[0] & 0x1F if encoding == "H264" else p[0] >> 1 & 0x3F for p in payloads]
    assert {"H264": STAP_A, "H265": AP}[encoding] in kinds
    assert {"H264": FU_A, "H265": FU}[encoding] in kinds
    assert max(map(len, payloads)) <= 300


@BOTH
def test_parameter_sets_from_the_sdp_precede_every_key_frame(encoding):
    sent = coded(encoding, 16)
    count = {"H264": 2, "H265": 3}[encoding]
    sets = [nal for nal in sent[0][1] if len(nal) < 120][:count]
    bare = [(timestamp, tuple(nal for nal in nals if nal not in sets)) for timestamp, nals in sent]
    units = fed(receiver(encoding, sets=sets), *packets(encoding, bare))
    assert not any(unit.damaged for unit in units)
    assert len(decoded(encoding, units)) == 16
    assert set(sets) <= set(nals_of(units[0]))
    assert set(sets) <= set(nals_of(units[8]))
    without = fed(receiver(encoding), *packets(encoding, bare))
    assert not without  # decoding cannot start


@pytest.mark.parametrize(("encoding", "named"), [("H264", 0), ("H264", 1), ("H265", 0), ("H265", 1), ("H265", 2)])
def test_a_parameter_set_from_the_sdp_is_added_to_those_in_the_stream(encoding, named):
    sent = coded(encoding, 16)
    only = sent[0][1][named]
    bare = [(timestamp, tuple(nal for nal in nals if nal != only)) for timestamp, nals in sent]
    units = fed(receiver(encoding, sets=[only]), *packets(encoding, bare))
    assert not any(unit.damaged for unit in units)
    assert len(decoded(encoding, units)) == 16
    assert only in nals_of(units[8])


@BOTH
def test_units_before_the_first_key_frame_are_left_out(encoding):
    units = fed(receiver(encoding), *packets(encoding, coded(encoding, 24))[3:])
    assert units[0].key
    assert len(units) == 16


@BOTH
def test_reordered_packets_are_put_in_order(encoding):
    sent = coded(encoding, 24)
    chance = random.Random(5)
    flat = list(itertools.chain(*packets(encoding, sent, limit=100)))
    order = [flat[0], *sorted(flat[1:], key=lambda packet: flat.index(packet) + chance.uniform(0, 6))]
    assert order != flat
    units = fed(receiver(encoding), order)
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]
    assert not any(unit.damaged for unit in units)


@BOTH
def test_duplicated_packets_change_nothing(encoding):
    sent = coded(encoding, 16)
    units = fed(receiver(encoding), *([packet, packet] for group in packets(encoding, sent) for packet in group))
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]


@BOTH
def test_after_a_loss_pictures_are_damaged_until_the_next_key_frame(encoding):
    groups = packets(encoding, coded(encoding, 24, 320, 240), limit=60)
    del groups[3][len(groups[3]) // 2]
    units = fed(receiver(encoding, window=4), *groups)
    assert [bool(unit.damaged) for unit in units] == [3 <= number < 8 for number in range(24)]


@BOTH
def test_a_missing_picture_damages_the_following_ones(encoding):
    groups = packets(encoding, coded(encoding, 24))
    del groups[3]
    units = fed(receiver(encoding, window=0), *groups)
    assert [bool(unit.damaged) for unit in units] == [3 <= number < 7 for number in range(23)]


@BOTH
def test_a_damaged_key_frame_does_not_end_the_damage(encoding):
    groups = packets(encoding, coded(encoding, 24), limit=60)
    del groups[8][-2]
    units = fed(receiver(encoding, window=0), *groups)
    assert [bool(unit.damaged) for unit in units] == [8 <= number < 16 for number in range(24)]


@pytest.mark.parametrize(("encoding", "options"), [
    ("H264", {"x264": "bframes=1:b-adapt=0:b-pyramid=none:scenecut=0"}),
    ("H265", {"x265": "bframes=1:b-adapt=0:b-pyramid=0:scenecut=0"}),
])  # fmt: skip
def test_a_loss_in_an_unreferenced_picture_damages_only_that_picture(encoding, options):
    sent = coded(encoding, 24, 320, 240, gop=24, **options)
    whole = fed(receiver(encoding), *packets(encoding, sent, limit=60))
    number = next(n for n, unit in enumerate(whole) if not unit.reference and len(unit.data) > 150)
    groups = packets(encoding, sent, limit=60)
    del groups[number][-2]
    units = fed(receiver(encoding, window=0), *groups)
    assert [n for n, unit in enumerate(units) if unit.damaged] == [number]
    assert not any(unit.damages_following for unit in units)


OPEN_GROUPS = pytest.mark.parametrize(("encoding", "options"), [
    ("H264", {"x264": "bframes=2:b-adapt=0:open-gop=1:scenecut=0"}),
    ("H264", {"x264": "bframes=4:b-adapt=0:b-pyramid=normal:open-gop=1:scenecut=0"}),
    ("H265", {"x265": "bframes=2:b-adapt=0:open-gop=1:scenecut=0"}),
    ("H265", {"x265": "bframes=4:b-adapt=0:b-pyramid=1:open-gop=1:scenecut=0"}),
])  # fmt: skip


@OPEN_GROUPS
def test_joining_at_an_open_group_omits_only_its_leading_pictures(encoding, options):
    sent = coded(encoding, 48, gop=15, **options)
    whole = fed(receiver(encoding), *packets(encoding, sent))
    key = [n for n, unit in enumerate(whole) if unit.key][1]
    units = fed(receiver(encoding), *packets(encoding, sent)[key:])
    assert len(units) == len(whole) - key
    before = [unit.timestamp for unit in units if unit.timestamp - units[0].timestamp & 0xFFFF_FFFF > 0x7FFF_FFFF]
    assert before
    assert [unit.timestamp for unit in units if unit.damaged] == before
    mailbox, seen = Mailbox(), []
    box = VideoMailbox(mailbox)
    for unit in units:
        box.offer_unit(unit, 1, 1, boosted=True, refused=False)
        frame = mailbox.take_frame()
        if isinstance(frame, VideoFrame) and (ready := box.with_units(frame)):
            seen += ready.units
    assert [unit.data for unit in seen] == [unit.data for unit in units if not unit.damaged]
    exact = dict(decoded(encoding, whole))
    shown = decoded(encoding, trusted(units))
    assert len(shown) == len(units) - len(before)
    assert all((exact[pts] == picture).all() for pts, picture in shown)


@OPEN_GROUPS
def test_leading_pictures_of_an_open_group_after_a_loss_are_damaged(encoding, options):
    sent = coded(encoding, 32, gop=15, **options)
    whole = fed(receiver(encoding), *packets(encoding, sent))
    key = [n for n, unit in enumerate(whole) if unit.key][1]
    groups = packets(encoding, sent)
    del groups[key - 2]
    units = fed(receiver(encoding, window=0), *groups)
    after = units[key - 1 :]
    assert after[0].key
    assert not after[0].damaged
    leading = [unit for unit in after[1:] if after[0].timestamp - unit.timestamp & 0xFFFF_FFFF < 0x7FFF_FFFF]
    assert leading
    assert all(unit.damaged for unit in leading)
    exact = dict(decoded(encoding, whole))
    seen = decoded(encoding, trusted(units))
    assert all((exact[pts] == picture).all() for pts, picture in seen)


@OPEN_GROUPS
def test_a_clock_set_back_damages_only_the_first_decoded_group(encoding, options):
    sent = coded(encoding, 48, gop=15, **options)
    key = [n for n, unit in enumerate(fed(receiver(encoding), *packets(encoding, sent))) if unit.key][1]
    before, after = sent[key : key + 8], sent[:30]  # its first group is closed
    set_back = [(timestamp + 90_000 * 3_600, nals) for timestamp, nals in before] + after
    units = fed(receiver(encoding), *packets(encoding, set_back, base=0))
    assert not any(unit.damaged for unit in units[len(before) :])


def test_without_key_frames_a_gradual_refresh_ends_the_damage():
    sent = coded("H264", 60, gop=12, x264="intra-refresh=1:bframes=0")
    groups = packets("H264", sent)
    del groups[20]
    units = fed(receiver("H264", window=0), *groups)
    damaged = [n for n, unit in enumerate(units) if unit.damaged]
    assert damaged[0] == 20
    assert 24 < damaged[-1] < 50
    assert damaged == list(range(20, damaged[-1] + 1))


@BOTH
def test_a_missing_packet_is_awaited_until_the_deadline(encoding):
    groups = packets(encoding, coded(encoding, 16))
    late = groups[3].pop(0)
    ours = receiver(encoding)
    assert len(fed(ours, *groups[:5])) == 3
    assert not ours.poll(DEADLINE_NS - 1)
    assert len(fed(ours, [late], now=DEADLINE_NS - 1)) == 2  # it arrived just in time
    del groups[9][0]
    units = fed(ours, *groups[5:11], now=2 * DEADLINE_NS)
    units += ours.poll(3 * DEADLINE_NS)
    assert [bool(unit.damaged) for unit in units] == [False] * 4 + [True] * len(units[4:])


def test_a_pause_within_a_slice_does_not_end_the_picture():
    sent = coded("H264", 16, 320, 240, x264="slices=4:sliced-threads=0:bframes=0")
    before, within, after = (groups := packets("H264", sent))[:8], groups[8], groups[9:]
    second = [n for n, packet in enumerate(within) if packet[12] & 0x1F == FU_A and packet[13] & FU_START][1]
    ours = receiver("H264")
    units = fed(ours, *before, within[: second + 1])
    units += ours.poll(DEADLINE_NS)
    units += fed(ours, within[second + 1 :], *after, now=DEADLINE_NS)
    assert [(nals_of(unit), unit.damaged) for unit in units] == [(nals, "") for _, nals in sent]


def test_a_picture_without_its_end_is_damaged_even_if_the_next_comes_late():
    sent = coded("H264", 16, 320, 240, x264="slices=4:sliced-threads=0:bframes=0")
    groups = packets("H264", sent, limit=max(map(len, sent[8][1])))
    assert len(groups[8]) == 4  # the parameter sets with the first slice, and the others
    ours = receiver("H264")
    units = fed(ours, *groups[:8], groups[8][:-1])
    units += ours.poll(DEADLINE_NS)
    units += fed(ours, *groups[9:], now=DEADLINE_NS)
    units += ours.poll(2 * DEADLINE_NS)
    assert [bool(unit.damaged) for unit in units] == [False] * 8 + [True] * 8


@BOTH
def test_pictures_without_markers_arrive_one_picture_later(encoding):
    sent = coded(encoding, 16)
    ours = receiver(encoding)
    units = fed(ours, *packets(encoding, sent, marker=False))
    assert len(units) == 15
    units += ours.poll(DEADLINE_NS)
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]


def test_a_sender_that_marks_every_slice_is_recognised_after_some_pictures():
    sent = coded("H264", 24, 320, 240, x264="slices=4:sliced-threads=0:bframes=0")
    marked = [
        [struct.pack(">BB", packet[0], packet[1] | 0x80) + packet[2:] for packet in group]
        for group in packets("H264", sent, limit=1400)
    ]
    ours = receiver("H264")
    units = fed(ours, *marked) + list(ours.poll(DEADLINE_NS))
    good = [nals_of(unit) for unit in units if not unit.damaged]
    assert [nals for _, nals in sent][8:] == good[-16:]


@BOTH
def test_another_sender_takes_over_only_when_the_first_is_silent(encoding):
    ours, sent = receiver(encoding), coded(encoding, 16)
    assert len(fed(ours, *packets(encoding, sent[:8]))) == 8
    assert not fed(ours, *packets(encoding, sent, ssrc=8, sequence=9)[:4])
    assert ours.counts.strangers
    units = fed(ours, *packets(encoding, sent, ssrc=8, sequence=9), now=TAKEOVER_NS)
    assert len(trusted(units)) >= 8
    assert trusted(units)[0].key


def seconds(groups, ssrcs):
    """Yield the packets of `groups` with the SSRC of each second (eight pictures), and the time of each."""
    for number, group in enumerate(groups):
        ssrc = struct.pack(">I", ssrcs[number // 8])
        yield number * 125 * MILLISECOND, [packet[:8] + ssrc + packet[12:] for packet in group]


@BOTH
@pytest.mark.parametrize("ssrcs", [(1, 2, 3, 4), (1, 2, 1, 2)])
def test_a_single_sender_that_changes_its_ssrc_is_followed_at_once(encoding, ssrcs):
    ours, sent = receiver(encoding, window=0, alone=True), coded(encoding, 32)
    units = [unit for now, group in seconds(packets(encoding, sent), ssrcs) for unit in fed(ours, group, now=now)]
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]
    assert not any(unit.damaged for unit in units)


@BOTH
def test_a_stray_packet_of_another_sender_changes_nothing(encoding):
    ours, sent = receiver(encoding, window=0, alone=True), packets(encoding, coded(encoding, 16), limit=60)
    stray = sent[3][0][:8] + struct.pack(">I", 8) + sent[3][0][12:]
    sent[2].insert(1, stray)
    sent[5].insert(0, stray)
    units = fed(ours, *sent)
    assert len(trusted(units)) == 16


@BOTH
def test_only_one_of_two_streams_on_a_connection_is_followed(encoding):
    ours, sent = receiver(encoding, window=0, alone=True), packets(encoding, coded(encoding, 32))
    units = []
    for first, second in zip(seconds(sent, (1,) * 4), seconds(sent, (2,) * 4), strict=True):
        units += [*fed(ours, first[1], now=first[0]), *fed(ours, second[1], now=second[0])]
    assert ours.ssrc == 2
    assert len(trusted(units)) >= 31


@BOTH
def test_a_restarted_sender_is_followed_from_its_next_key_frame(encoding):
    ours, sent = receiver(encoding), coded(encoding, 16)
    assert len(fed(ours, *packets(encoding, sent[:6]))) == 6
    units = fed(ours, *packets(encoding, sent, sequence=20_000, base=5))
    assert trusted(units)[0].key
    assert len(trusted(units)) >= 8


@BOTH
def test_a_change_of_size_takes_effect_with_its_key_frame(encoding):
    first, second = coded(encoding, 8), coded(encoding, 8, 160, 120)
    sent = [*first, *((timestamp + 48_000, nals) for timestamp, nals in second)]
    units = fed(receiver(encoding), *packets(encoding, sent))
    assert [unit.size for unit in units] == [(96, 64)] * 8 + [(160, 120)] * 8
    assert not any(unit.damaged for unit in units)


def test_packets_of_other_kinds_are_counted():
    ours = receiver("H264")
    assert not fed(ours, [b"\x80\x1a" + b"\0" * 20, b"\x80", b"\x80\x61" + b"\0" * 9 + b"\1\x7a\0\0"])
    assert ours.counts.other_payload == {26: 1}
    assert ours.counts.malformed == 2
    assert "packetization-mode" in ours.counts.problem


def followed(groups, payloads):
    """Append packets with `payloads` to each of `groups`, and number them again."""
    numbers = itertools.count(3)
    groups = [[*group, *(group[-1][:12] + payload for payload in payloads)] for group in groups]
    return [[packet[:2] + struct.pack(">H", next(numbers)) + packet[4:] for packet in group] for group in groups]


NOTHING = {
    "H264": [b"", b"\x1e\x80\x01", b"\x1f\x80", b"\0\x80\0\x02"],  # types 30, 31 and 0, which RFC 6184 says to ignore
    "H265": [b"", b"\x66\x01\x80", b"\x7e\x01"],  # types 51 and 63
}
ENDS = {"H264": [b"\x0a", b"\x0b"], "H265": [b"\x48\x01", b"\x4a\x01"]}  # end of a sequence, end of the stream


@BOTH
@pytest.mark.parametrize("marked", [True, False])
def test_ignored_packets_and_ends_of_sequences_damage_no_picture(encoding, marked):
    sent = coded(encoding, 16)
    groups = followed(packets(encoding, sent, marker=marked), NOTHING[encoding] + ENDS[encoding])
    ours = receiver(encoding)
    units = [*fed(ours, *groups), *ours.poll(DEADLINE_NS)]
    assert len(units) == 16
    assert not any(unit.damaged for unit in units)
    assert not ours.counts.malformed


@BOTH
def test_packets_with_announced_but_missing_padding_are_read(encoding):
    sent = coded(encoding, 8)
    groups = [[b"\xa0" + packet[1:] + b"\0" for packet in group] for group in packets(encoding, sent, limit=60_000)]
    units = fed(receiver(encoding), *groups)
    assert [len(nals_of(unit)) for unit in units] == [len(nals) for _, nals in sent]
    assert not any(unit.damaged for unit in units)


@BOTH
@pytest.mark.parametrize("padding", [b"\0\0", b"\0\0\0\0\0", b"\0"])
def test_padding_behind_joined_nal_units_is_left_out(encoding, padding):
    sent = coded(encoding, 8)
    groups = packets(encoding, sent, limit=60_000)
    groups[0][0] += padding
    units = fed(receiver(encoding), *groups)
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]


@BOTH
@pytest.mark.parametrize(("limit", "first"), [(60, b""), (60_000, b""), (60_000, b"\0\0\1"), (60_000, b"\0\0\0\1")])
def test_nal_units_sent_as_one_are_split(encoding, limit, first):
    sent = coded(encoding, 16)
    glued = [(timestamp, (first + b"\0\0\0\1".join(nals),)) for timestamp, nals in sent]
    units = fed(receiver(encoding), *packets(encoding, glued, limit=limit))
    assert [nals_of(unit) for unit in units] == [nals for _, nals in sent]
    assert [unit.key for unit in units] == [True, *[False] * 7] * 2
    assert not any(unit.damaged for unit in units)


@BOTH
def test_an_empty_packet_changes_nothing(encoding):
    first, *others = packets(encoding, coded(encoding, 16))
    units = fed(ours := receiver(encoding), first, [b""], *others)
    assert len(trusted(units)) == 16
    assert ours.counts.malformed == 0


def test_an_endless_picture_is_dropped():
    ours = receiver("H264")
    fed(ours, *packets("H264", coded("H264", 1)))
    head = b"\x7c\x85" + bytes(60_000)
    part = b"\x7c\x05" + bytes(60_000)
    for number in range(MAX_UNIT // 60_000 + 20):
        body = head if number == 0 else part
        packet = struct.pack(">BBHII", 0x80, PAYLOAD, 65_600 + number & 0xFFFF, 1, 7) + body
        ours.feed_joined(memoryview(packet), len(packet), 0)
        assert ours._fragment_bytes <= MAX_UNIT
    assert ours.counts.pictures <= 2


def test_the_number_of_parameter_sets_is_limited():
    sets = [bytes((0x68, 0x80 >> (n % 3) | n % 32, n)) + bytes((n,)) * 3 for n in range(200)]
    ours = receiver("H264", sets=sets)
    assert len(ours._assembler._sets) <= MAX_SETS


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_trusted_pictures_are_exact_with_any_loss_and_reordering(data):
    encoding = data.draw(st.sampled_from(["H264", "H265"]))
    options = data.draw(st.sampled_from([{}, {"b": 2}]))
    if options:
        name = {"H264": "x264", "H265": "x265"}[encoding]
        options = {name: "bframes=2:b-adapt=0:scenecut=0" + (":open-gop=1" if data.draw(st.booleans()) else "")}
    sent = coded(encoding, 24, gop=6, **options)
    flat = list(itertools.chain(*packets(encoding, sent, limit=80)))
    lost = data.draw(st.sets(st.integers(1, len(flat) - 1), max_size=6))
    moved = data.draw(st.dictionaries(st.integers(1, len(flat) - 1), st.integers(1, 10), max_size=6))
    order = sorted((n for n in range(len(flat)) if n not in lost), key=lambda n: n + moved.get(n, 0))
    units = fed(receiver(encoding, window=data.draw(st.integers(0, 12))), [flat[n] for n in order])
    assert all(isinstance(unit, AccessUnit) for unit in units)
    by_time = {0xFFFF_0000 + timestamp & 0xFFFF_FFFF: nals for timestamp, nals in sent}
    for unit in trusted(units):
        assert set(by_time[unit.timestamp]) <= set(nals_of(unit))
    exact = dict(decoded(encoding, [_unit(0xFFFF_0000 + t & 0xFFFF_FFFF, nals) for t, nals in sent]))
    for pts, picture in decoded(encoding, trusted(units)):
        assert (exact[pts] == picture).all()


def _unit(timestamp, nals):
    return AccessUnit(b"".join(b"\0\0\0\1" + nal for nal in nals), timestamp, (0, 0))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_fast_path_for_expected_packets_changes_nothing(data):
    encoding = data.draw(st.sampled_from(["H264", "H265"]))
    flat = list(itertools.chain(*packets(encoding, coded(encoding, 12), limit=data.draw(st.sampled_from([40, 80])))))
    for place in data.draw(st.sets(st.integers(0, len(flat) - 1), max_size=5)):
        spoilt = bytearray(flat[place])
        spoilt[data.draw(st.integers(0, 14))] ^= data.draw(st.integers(1, 255))
        flat[place] = bytes(spoilt)
    lost = data.draw(st.sets(st.integers(0, len(flat) - 1), max_size=3))
    moved = data.draw(st.dictionaries(st.integers(0, len(flat) - 1), st.integers(1, 6), max_size=3))
    order = sorted((n for n in range(len(flat)) if n not in lost), key=lambda n: n + moved.get(n, 0))
    ours, slow = receiver(encoding, window=4), receiver(encoding, window=4)
    slow._accept_expected = lambda *_: False
    for number, place in enumerate(order):
        packet = flat[place]
        assert fed(ours, [packet], now=number * MILLISECOND) == fed(slow, [packet], now=number * MILLISECOND)
    assert vars(ours.counts) == vars(slow.counts)
    assert vars(ours.reception) == vars(slow.reception)
    assert ours.has_pending == slow.has_pending


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_packets_raise_an_exception(data):
    encoding = data.draw(st.sampled_from(["H264", "H265"]))
    ours, now = receiver(encoding), 0
    flat = list(itertools.chain(*packets(encoding, coded(encoding, 12), limit=100)))
    for _ in range(data.draw(st.integers(0, 40))):
        packet = bytearray(data.draw(st.sampled_from(flat) | st.binary(max_size=60)))
        if packet and data.draw(st.booleans()):
            packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
        now += data.draw(st.sampled_from([0, 10 * MILLISECOND, 200 * MILLISECOND]))
        ours.feed_joined(memoryview(packet), len(packet), now)
        ours.poll(now)

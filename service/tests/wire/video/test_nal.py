import contextlib
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.wire.video.access_unit import Assembler
from embereye.wire.video.bits import BitReader, BitsError, without_emulation_prevention
from embereye.wire.video.h264 import H264
from embereye.wire.video.h265 import H265
from embereye.wire.video.nal import JOINED, Codec, NalKind, VideoError, nal_units, split_joined

from .coded import coded

CODECS: dict[str, Codec] = {"H264": H264(), "H265": H265()}


def inspected(encoding, units):
    return [[CODECS[encoding].inspect(nal) for nal in nals] for _, nals in units]


@pytest.mark.parametrize("encoding", CODECS)
@pytest.mark.parametrize("size", [(96, 64), (100, 54), (640, 360), (1920, 1080)])
def test_the_size_of_pictures_is_read_from_their_parameter_set(encoding, size):
    units = inspected(encoding, coded(encoding, 1, *size))
    assert [unit.size for unit in units[0] if unit.size != (0, 0)] == [size]


@pytest.mark.parametrize("profile", ["baseline", "main", "high", "high422", "high444"])
def test_the_size_is_read_in_every_profile_of_h264(profile):
    pixels = {"high422": "yuv422p", "high444": "yuv444p"}.get(profile, "yuv420p")
    options = {"profile": profile, "pixels": pixels}
    if profile != "baseline":
        options["x264"] = "cqm=jvt" if profile.startswith("high") else "ref=4"
    units = inspected("H264", coded("H264", 1, 102, 58, **options))
    assert [unit.size for unit in units[0] if unit.size != (0, 0)] == [(102, 58)]


def test_interlaced_pictures_have_the_height_of_both_fields():
    units = inspected("H264", coded("H264", 2, 96, 68, x264="interlaced=1", interlaced=True))
    assert (96, 68) in [unit.size for unit in units[0]]


@pytest.mark.parametrize("encoding", CODECS)
def test_key_frames_are_recognised_by_their_type(encoding):
    units = inspected(encoding, coded(encoding, 24, gop=8))
    keys = [any(unit.key for unit in nals) for nals in units]
    assert [number for number, key in enumerate(keys) if key] == [0, 8, 16]


@pytest.mark.parametrize(("encoding", "options"), [
    ("H264", {"x264": "bframes=1:b-adapt=0:b-pyramid=none"}), ("H265", {"x265": "bframes=1:b-adapt=0:b-pyramid=0"}),
])  # fmt: skip
def test_unreferenced_pictures_are_recognised(encoding, options):
    units = inspected(encoding, coded(encoding, 24, gop=24, **options))
    needed = [any(unit.reference for unit in nals if unit.kind is NalKind.SLICE) for nals in units]
    assert 8 <= needed.count(False) <= 12


def test_the_count_of_a_recovery_point_is_read():
    units = inspected("H264", coded("H264", 24, gop=12, x264="intra-refresh=1:bframes=0"))
    counts = [unit.recovery for nals in units for unit in nals if unit.recovery >= 0]
    assert counts
    assert all(count > 0 for count in counts)


@pytest.mark.parametrize("end", [b"\x06\x01\x80\x80", b"\x06\x7f\0\x80", b"\x06\xff\xff\xff"])
def test_proprietary_data_is_neither_a_recovery_point_nor_an_error(end):
    payload = bytes(40) + end  # emulation prevention is added to series of zeros
    sent = re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", b"\x06\x05" + bytes([len(payload)]) + payload + b"\x80")
    assert CODECS["H264"].inspect(sent).recovery == -1
    assert CODECS["H264"].inspect(b"\x06\x05\x03abc" + end).kind is NalKind.PREFIX  # with a wrong length


def test_slices_and_parameter_sets_of_both_codecs_are_distinguished():
    for encoding, codec in CODECS.items():
        _, nals = coded(encoding, 1)[0]
        kinds = [codec.inspect(nal).kind for nal in nals]
        assert kinds.count(NalKind.SLICE) >= 1
        assert kinds.count(NalKind.PARAMETERS) == {"H264": 2, "H265": 3}[encoding]


@pytest.mark.parametrize("nal", [b"", b"\x67", b"\x67\x64", b"\xe7\x64\0\x1f", b"\x62\0\0", b"\x67" + b"\0" * 40])
def test_malformed_h264_is_refused(nal):
    with pytest.raises(VideoError):
        H264().inspect(nal)


@pytest.mark.parametrize("nal", [b"", b"\x42\x01", b"\x42\0\1", b"\xc2\1\1\1", b"\x42\x01" + b"\0" * 60])
def test_malformed_h265_is_refused(nal):
    with pytest.raises(VideoError):
        H265().inspect(nal)


def test_a_size_beyond_any_cameras_is_refused():
    bits = "01000010" + "0" * 16 + "1" + "1" + "1" + "1" + "1" + "0"  # baseline; all codes 0
    side = (1 << 12) - 1  # macroblocks
    code = "0" * 12 + format(side + 1, "b")
    bits += code + code + "1" + "0" + "0" + "0" + "1"
    data = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8))
    with pytest.raises(VideoError, match="65536x65536 pixels"):
        H264().inspect(b"\x67" + data)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["H264", "H265"]))
def test_inspecting_any_nal_unit_raises_only_video_errors(data, encoding):
    with contextlib.suppress(VideoError):
        CODECS[encoding].inspect(data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_inspecting_damaged_parameter_sets_raises_only_video_errors(data):
    encoding = data.draw(st.sampled_from(["H264", "H265"]))
    nals = coded(encoding, 1)[0][1]
    nal = bytearray(data.draw(st.sampled_from([nal for nal in nals if len(nal) < 200])))
    for _ in range(data.draw(st.integers(1, 4))):
        nal[data.draw(st.integers(0, len(nal) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(VideoError):
        CODECS[encoding].inspect(bytes(nal[: data.draw(st.integers(0, len(nal)))]))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_emulation_prevention_is_removed_as_in_the_standard(data):
    protected, zeros = bytearray(), 0
    for byte in data:
        if zeros == 2 and byte <= 3:
            protected.append(3)
            zeros = 0
        protected.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    assert without_emulation_prevention(bytes(protected)) == data


def test_codes_of_every_length_are_read():
    for value in [0, 1, 2, 6, 7, 254, 255, 65_535, 2**31 + 12_345]:
        zeros = (value + 1).bit_length() - 1
        bits = "0" * zeros + format(value + 1, "b") + "1"
        size = -(-len(bits) // 8)
        reader = BitReader(int(bits.ljust(8 * size, "0"), 2).to_bytes(size))
        assert reader.unsigned() == value
    with pytest.raises(BitsError):
        BitReader(b"\0" * 20).unsigned()


def test_nal_units_are_split_at_start_codes_of_three_and_four_bytes():
    nals = [b"\x67abc", b"\x68d", b"\x65" + b"e" * 9]
    for codes in itertools.product([b"\0\0\1", b"\0\0\0\1"], repeat=3):
        data = b"".join(code + nal for code, nal in zip(codes, nals, strict=True))
        assert list(nal_units(data)) == nals
    assert list(nal_units(b"nothing")) == []


def test_an_endless_number_is_not_read_byte_by_byte():
    class Counted(bytes):
        reads = 0

        def __getitem__(self, at):
            Counted.reads += 1
            return super().__getitem__(at)

    message = b"\x06" + b"\xff" * 100_000
    assert H264().inspect(Counted(message)) == H264().inspect(message)
    assert Counted.reads < 1_000
    assert H264().inspect(b"\x06\xff\x01\x00\x06\x01\x88\x80").recovery == 0  # behind a message of type 256


def test_the_number_of_nal_units_split_is_limited():
    assert len(list(split_joined(b"\x67abc" + b"\0\0\1\x09" * 1_000_000))) == JOINED


@pytest.mark.parametrize(("options", "weak"), [("intra-refresh=1:bframes=0", True), ("bframes=0", False)])
def test_a_key_frame_that_may_refer_to_earlier_pictures_is_marked(options, weak):
    assembler, units = Assembler(CODECS["H264"]), []
    for timestamp, nals in coded("H264", 36, gop=12, x264=options):
        units += [assembler.add(nal, timestamp) for nal in nals]
    keys = [unit for unit in units if unit and unit.key and not unit.damaged][1:]
    assert keys
    assert all(unit.weak_key == weak for unit in keys)


@pytest.mark.parametrize("encoding", CODECS)
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_repeated_parameter_set_is_read_the_same(encoding, data):
    sets = [nal for nal in coded(encoding, 1)[0][1] if len(nal) < 120]
    nal = bytearray(data.draw(st.sampled_from(sets)) + data.draw(st.binary(max_size=2)) * 200)
    nal[data.draw(st.integers(1, len(nal) - 1))] = data.draw(st.integers(0, 255))

    def read():
        try:
            return CODECS[encoding].inspect(bytes(nal))
        except VideoError as error:
            return str(error)

    assert read() == read()

import contextlib
import io
import json
import shutil
import subprocess

import av
import pytest

from embereye.wire.mp4 import LiveMuxer, Mp4Error, Mp4Muxer, is_start_of_video

from .video.coded import coded

SECOND = 1_000_000_000
STREAMS = pytest.mark.parametrize(("encoding", "options"), [
    ("H264", {}), ("H264", {"x264": "bframes=3"}), ("H265", {}), ("H265", {"x265": "bframes=3"}),
])  # fmt: skip


def annex_b(nals):
    return b"".join(b"\0\0\0\1" + nal for nal in nals)


def muxed(encoding, options, count=40):
    units = coded(encoding, count, gop=10, **options)
    muxer = Mp4Muxer(encoding, 96, 64)
    parts = [muxer.begin(annex_b(units[0][1]))]
    for timestamp, nals in units:
        kinds = {nal[0] & 0x1F for nal in nals} if encoding == "H264" else {nal[0] >> 1 & 0x3F for nal in nals}
        key = bool(kinds & ({5} if encoding == "H264" else set(range(16, 22))))
        parts.append(muxer.sample(annex_b(nals), 7 * SECOND + timestamp * 100_000 // 9, key=key))
    return units, [*parts, muxer.finish()]


@STREAMS
def test_libavformat_plays_every_picture_at_its_time(encoding, options):
    units, parts = muxed(encoding, options)
    with av.open(io.BytesIO(b"".join(parts))) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height) == (96, 64)
        seconds = [frame.time for frame in container.decode(stream)]
    shown = sorted(timestamp / 90_000 for timestamp, _ in units)
    assert [after - seconds[0] for after in seconds] == pytest.approx(shown, abs=1e-4)


@STREAMS
def test_a_file_written_until_a_crash_plays(encoding, options):
    _, parts = muxed(encoding, options)
    whole = b"".join(parts[:30])
    for cut in (0, 5, 100):
        count = 0
        with av.open(io.BytesIO(whole[: len(whole) - cut])) as container, contextlib.suppress(av.FFmpegError):
            for _ in container.decode(video=0):
                count += 1
        assert count >= 9


@pytest.mark.skipif(shutil.which("ffprobe") is None, reason="ffprobe is missing. Install it with make peers.")
@STREAMS
def test_ffprobe_reports_no_problems(encoding, options, tmp_path):
    units, parts = muxed(encoding, options)
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"".join(parts))
    command = ["ffprobe", "-v", "warning", "-count_frames", "-show_streams", "-of", "json", str(path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stderr == ""
    (stream,) = json.loads(done.stdout)["streams"]
    assert int(stream["nb_read_frames"]) == len(units)
    assert stream["codec_tag_string"] == {"H264": "avc1", "H265": "hvc1"}[encoding]


def test_a_stream_without_parameter_sets_in_its_first_picture_is_refused():
    units = coded("H264", 4)
    with pytest.raises(Mp4Error, match="parameter sets"):
        Mp4Muxer("H264", 96, 64).begin(annex_b(units[1][1]))


def live(encoding, options, at_ns=1_790_000_000 * SECOND, count=40):
    """The fragments of a stream, and True for those that a player can start at."""
    muxer = LiveMuxer()
    for timestamp, nals in coded(encoding, count, gop=10, **options):
        kinds = {nal[0] & 0x1F for nal in nals} if encoding == "H264" else {nal[0] >> 1 & 0x3F for nal in nals}
        key = bool(kinds & ({5} if encoding == "H264" else set(range(16, 22))))
        yield muxer.fragment(encoding, (96, 64), annex_b(nals), at_ns + timestamp * 100_000 // 9, key=key), key


@STREAMS
def test_a_live_video_plays_from_any_key_frame_with_its_times(encoding, options):
    pieces = list(live(encoding, options))
    starts = [number for number, (_, key) in enumerate(pieces) if key]
    assert len(starts) > 2
    assert all(is_start_of_video(data) == key for data, key in pieces)
    for start in starts:
        data = b"".join(data for data, _ in pieces[start:])
        with av.open(io.BytesIO(data)) as container:
            times = [frame.time for frame in container.decode(video=0)]
        whole = len(pieces) - start
        assert whole - 3 <= len(times) <= whole  # leading pictures may refer to earlier ones
        assert times == sorted(times)
        assert 1_790_000_000 <= times[0] < 1_790_000_000 + 3
        assert times[-1] - times[0] == pytest.approx((len(times) - 1) / 15, abs=1e-3)


def test_a_live_video_waits_for_a_key_frame_at_first_and_when_the_clock_is_set():
    muxer, units = LiveMuxer(), coded("H264", 24, gop=8)

    def fragment(number, seconds):
        return muxer.fragment("H264", (96, 64), annex_b(units[number][1]), seconds * SECOND, key=number % 8 == 0)

    assert fragment(1, 100) == b""
    assert is_start_of_video(fragment(8, 100))
    assert fragment(9, 101)
    assert fragment(10, 50) == b""
    assert fragment(11, 51) == b""
    assert is_start_of_video(fragment(16, 52))
    assert fragment(17, 53)


def test_a_live_unit_without_a_picture_is_left_out():
    muxer, units = LiveMuxer(), coded("H264", 4)
    assert muxer.fragment("H264", (96, 64), annex_b(units[0][1]), SECOND, key=True)
    assert muxer.fragment("H264", (96, 64), b"\0\0\0\1\x09\x10", 2 * SECOND, key=False) == b""

"""FFmpeg and GStreamer as encoders, with mediamtx as a server between them and a shard, like a recorder.

Every camera ends analysed, or with a reason that names the problem.
"""

import asyncio
import contextlib
import shlex
import shutil
import socket
from dataclasses import dataclass

import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, GSTREAMER, MEDIAMTX, program
from harness.servers.mediamtx import mediamtx_settings

from embereye.process.addresses import free_port
from embereye.wire.video.bits import BitReader

from ..wire.video.coded import coded
from .conftest import assignment, device, status_of

pytestmark = [pytest.mark.needs(MEDIAMTX), pytest.mark.timeout(300)]

X264 = "-c:v libx264 -preset veryfast -g 15"
X265 = "-c:v libx265 -preset ultrafast -g 15 -x265-params log-level=none"


@dataclass
class Server:
    """mediamtx and its publishers."""

    port: int
    stack: contextlib.AsyncExitStack

    def url(self, name):
        return f"rtsp://127.0.0.1:{self.port}/{name}"

    async def start(self, *command):
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self.stack.push_async_callback(ended, process)
        return process

    async def start_until_published(self, name, *command):
        """Start `command` until the server has its stream `name`: a sender may hang or give up while connecting."""
        for _ in range(4):
            process = await self.start(*command)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):
                    while process.returncode is None and not await self.has(name):
                        await asyncio.sleep(0.1)
            if await self.has(name):
                return
            await ended(process)
        raise TimeoutError(f"{shlex.join(map(str, command))} has published nothing, four times in turn")

    async def has(self, name):
        """True if the stream `name` is published."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"DESCRIBE {self.url(name)} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()
        return b" 200 " in status

    async def publish(self, name, options):
        """Let FFmpeg publish its test picture, or a file, with `options` between its input and its output."""
        words = (
            options
            if isinstance(options, list)
            else ["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=15", *options.split()]
        )
        sender = [shutil.which("ffmpeg"), "-v", "quiet", "-re", *words, "-f", "rtsp", "-rtsp_transport", "tcp"]
        await self.start_until_published(name, *sender, self.url(name))


async def ended(process):
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@pytest.fixture
async def server(tmp_path):
    port = free_port()
    (tmp_path / "mediamtx.yml").write_text(mediamtx_settings(port))
    async with contextlib.AsyncExitStack() as stack:
        made = Server(port, stack)
        await made.start(program("mediamtx"), tmp_path / "mediamtx.yml")
        await eventually(lambda: listening(port))
        yield made


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def watched(running, server, names, frames=20):
    """Return each camera's status once all have analysed `frames`, or after a minute."""
    cameras = [device(name, server.url(name), fps_target=15, fps_min=1) for name in names]
    running.shard.apply(assignment(1, *cameras, deadline_s=4.0))

    def done():
        statuses = {name: status_of(running.shard, name) for name in names}
        return all(status.covered and status.ledger.analysed >= frames for status in statuses.values()) and statuses

    try:
        return await eventually(done, 60)
    except TimeoutError:
        return {name: status_of(running.shard, name) for name in names}
    finally:
        running.shard.apply(assignment(2))


def trouble(statuses):
    """Return the problems of cameras that are not analysed."""
    return {
        name: (status.reason, status.state, status.ledger.analysed)
        for name, status in statuses.items()
        if not status.covered
    }


H264 = {
    "baseline": f"-pix_fmt yuv420p {X264} -profile:v baseline",
    "main": f"-pix_fmt yuv420p {X264} -profile:v main -bf 0",
    "high-bframes": f"-pix_fmt yuv420p {X264} -profile:v high -bf 3 -x264-params b-pyramid=normal:b-adapt=0",
    "high10": f"-pix_fmt yuv420p10le {X264} -profile:v high10",
    "high422": f"-pix_fmt yuv422p {X264} -profile:v high422",
    "high444": f"-pix_fmt yuv444p {X264} -profile:v high444",
    "interlaced": f"-pix_fmt yuv420p {X264} -flags +ildct+ilme -x264-params tff=1",
    "slices": f"-pix_fmt yuv420p {X264} -x264-params slices=4:sliced-threads=1",
    "intra-refresh": f"-pix_fmt yuv420p {X264} -x264-params intra-refresh=1",
    "full-range": f"-pix_fmt yuvj420p {X264} -colorspace bt709",
}
H265 = {
    "main": f"-pix_fmt yuv420p {X265}:bframes=0",
    "bframes": f"-pix_fmt yuv420p {X265}:bframes=4:b-adapt=0:open-gop=1",
    "main10": f"-pix_fmt yuv420p10le {X265}",
    "main422-10": f"-pix_fmt yuv422p10le {X265}",
    "main444": f"-pix_fmt yuv444p {X265}",
    "slices": f"-pix_fmt yuv420p {X265}:slices=3",
}


@pytest.mark.needs(FFMPEG)
@pytest.mark.parametrize("kinds", [H264, H265], ids=["H264", "H265"])
async def test_every_profile_that_ffmpeg_encodes_is_analysed(running, server, kinds):
    await asyncio.gather(*(server.publish(name, options) for name, options in kinds.items()))
    statuses = await watched(running, server, kinds)
    assert not trouble(statuses)
    for name, status in statuses.items():
        # Only pictures that refer to ones before the first received one are damaged.
        assert set(status.ledger.rejected) <= {"damaged"}, name
        assert status.ledger.rejected["damaged"] <= (30 if name == "intra-refresh" else 5), name


LAUNCH = "videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width=320,height=240,framerate=15/1"
GSTREAMER_KINDS = {
    "x264-zero-latency": "x264enc tune=zerolatency key-int-max=15 ! video/x-h264,profile=main ! h264parse",
    "x264-bframes": "x264enc bframes=2 b-adapt=false key-int-max=15 ! video/x-h264,profile=high ! h264parse",
    "x264-interlaced": "x264enc interlaced=true key-int-max=15 ! h264parse",
    "openh264": "openh264enc gop-size=15 ! h264parse",
    "x265": "x265enc speed-preset=ultrafast tune=zerolatency key-int-max=15 ! h265parse",
}


@pytest.mark.needs(GSTREAMER)
async def test_streams_encoded_by_gstreamer_are_analysed(running, server):
    for name, encoder in GSTREAMER_KINDS.items():
        words = f"{LAUNCH} ! {encoder} ! rtspclientsink protocols=tcp location={server.url(name)}".split()
        await server.start_until_published(name, shutil.which("gst-launch-1.0"), "-q", *words)
    assert not trouble(await watched(running, server, GSTREAMER_KINDS))


def without_vui(nal):
    """Remove the usability information from a sequence parameter set of H.264's Baseline, Main or Extended profile."""
    bits = BitReader(nal[1:])
    total = bits._left
    assert bits.bits(8) in {66, 77, 88}
    bits.skip(16)
    for _ in range(2):
        bits.unsigned()  # id, log2_max_frame_num
    if bits.unsigned() == 0:  # pic_order_cnt_type
        bits.unsigned()
    bits.unsigned()  # reference frames
    bits.skip(1)
    bits.unsigned()  # width
    bits.unsigned()  # height
    if not bits.flag():  # frame_mbs_only
        bits.skip(1)
    bits.skip(1)
    if bits.flag():
        for _ in range(4):
            bits.unsigned()
    length = total - bits._left
    assert bits.flag(), "it has something to leave out"
    plain = BitReader(nal[1:])
    written = plain.bits(length) << 2 | 0b01  # no VUI, then the stop bit
    padding = -(length + 2) % 8
    return nal[:1] + (written << padding).to_bytes((length + 2 + padding) // 8)


def annexb(units, change=lambda nal: nal):
    return b"".join(b"\0\0\0\1" + change(nal) for _, nals in units for nal in nals)


def copied(path):
    """FFmpeg's options for sending the file `path` without transcoding."""
    return ["-r", "15", "-f", path.suffix[1:], "-i", str(path), "-c", "copy"]


@pytest.mark.needs(FFMPEG)
async def test_a_stream_without_usability_information_is_analysed(running, server, tmp_path):
    units = coded("H264", 45, 320, 240, gop=15, profile="baseline")
    path = tmp_path / "plain.h264"
    path.write_bytes(annexb(units, lambda nal: without_vui(nal) if nal[0] & 31 == 7 else nal) * 20)
    await server.publish("plain", copied(path))
    assert not trouble(await watched(running, server, ["plain"]))


@pytest.mark.needs(FFMPEG)
@pytest.mark.parametrize(("encoding", "suffix"), [("H264", "h264"), ("H265", "hevc")])
async def test_a_stream_that_changes_its_size_is_still_analysed(running, server, tmp_path, encoding, suffix):
    path = tmp_path / f"sizes.{suffix}"
    small, large = coded(encoding, 30, 320, 240, gop=15), coded(encoding, 30, 640, 480, gop=15)
    path.write_bytes((annexb(small) + annexb(large)) * 20)
    await server.publish("sizes", copied(path))
    status = (await watched(running, server, ["sizes"], frames=90))["sizes"]  # the size changes every two seconds
    assert not trouble({"sizes": status})
    assert status.ledger.analysed >= 90


TIMES = {
    "standing": "setts=ts=N",
    "slow": "setts=ts=PTS/10",
    "fast": "setts=ts=PTS*20",
    "leaping": "setts=ts=PTS+trunc(N/20)*9000000",
}


@pytest.mark.needs(FFMPEG)
async def test_wrong_time_stamps_blind_no_camera(running, server):
    sender = f"-pix_fmt yuv420p {X264} -bf 0 -bsf:v"
    await asyncio.gather(*(server.publish(name, f"{sender} {filtered}") for name, filtered in TIMES.items()))
    assert not trouble(await watched(running, server, TIMES))


@pytest.mark.needs(FFMPEG)
async def test_an_unsupported_format_is_named(running, server):
    formats = {"mpeg4": "-c:v mpeg4 -g 15", "vp8": "-c:v libvpx -deadline realtime -g 15"}
    for name, options in formats.items():
        await server.publish(name, f"-pix_fmt yuv420p {options}")
    running.shard.apply(assignment(1, *(device(name, server.url(name)) for name in formats)))
    for name, format_name in (("mpeg4", "MP4V-ES"), ("vp8", "VP8")):
        await eventually(
            lambda name=name, format_name=format_name: format_name in status_of(running.shard, name).reason, 40
        )
        reason = status_of(running.shard, name).reason
        assert f"the camera has no JPEG, H.264 or H.265 track, only: video {format_name}" in reason
    running.shard.apply(assignment(2))


@pytest.mark.needs(FFMPEG)
async def test_a_sender_that_leaves_is_reported_and_analysed_again_after_its_return(running, server, tmp_path):
    path = tmp_path / "short.h264"
    data = annexb(coded("H264", 45, 320, 240, gop=15))
    path.write_bytes(data)
    running.shard.apply(assignment(1, device("gate", server.url("gate"))))
    await eventually(lambda: "DESCRIBE: 404" in status_of(running.shard, "gate").reason)
    await server.publish("gate", copied(path))
    await eventually(lambda: status_of(running.shard, "gate").covered, 40)
    await eventually(lambda: not status_of(running.shard, "gate").covered, 40)
    assert "source: " in status_of(running.shard, "gate").reason
    path.write_bytes(data * 20)
    await server.publish("gate", copied(path))
    await eventually(lambda: status_of(running.shard, "gate").covered, 40)
    running.shard.apply(assignment(2))

"""gst-rtsp-server as a camera: with and without authentication, over TCP and UDP, JPEG and H.264."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import RTSP_SERVER, SYSTEM_PYTHON

from embereye.camera.decode.image import DecodeOrder, PictureDelayedError
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.stream import VideoStream
from embereye.camera.sources.rtsp import session as rtsp
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.wire.jpeg.header import read_header

SERVER = Path(__file__).with_name("gst_rtsp_server.py")
BARS = [(240, 240, 240), (8, 240, 240), (240, 240, 8), (8, 240, 8)]  # BGR of the first test bars


pytestmark = pytest.mark.needs(RTSP_SERVER)


class Address(str):
    """The address of a server; `output` is its standard output."""

    output: Any

    def __new__(cls, text, output):
        address = super().__new__(cls, text)
        address.output = output
        return address


@contextlib.asynccontextmanager
async def serving(*arguments):
    server = await asyncio.create_subprocess_exec(
        SYSTEM_PYTHON, str(SERVER), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        address = f"127.0.0.1:{(await asyncio.wait_for(server.stdout.readline(), 20)).decode().strip()}"
        yield Address(address, server.stdout)
    finally:
        server.kill()
        await server.wait()


async def play(address, path, user="", password="", pictures=5):
    frames, states = [], []
    source = RtspSource(
        parse_source(f"rtsp://{address}{path}"), lambda: (user, password), DialLimiter(1), SocketPoller()
    )
    player = asyncio.ensure_future(source.play(lambda *frame: frames.append(frame), states.append))
    await eventually(lambda: len(frames) >= pictures or player.done(), 40)
    player.cancel()
    try:
        await player
    except SourceError as error:
        return frames, states, str(error)
    except asyncio.CancelledError:
        pass
    return frames, states, ""


def is_test_picture(jpeg):
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    seen = [picture[60, 20 + 46 * number].astype(int) for number in range(4)]
    return picture.shape == (240, 320, 3) and all(
        np.abs(bar - np.array(expected)).max() < 30 for bar, expected in zip(seen, BARS, strict=True)
    )


@pytest.mark.parametrize("query", ["", "?transport=udp"])
@pytest.mark.parametrize("path", ["/jpeg", "/dynamic"])
async def test_jpeg_arrives_over_tcp_and_udp_with_static_and_dynamic_payload_types(path, query):
    async with serving() as address:
        frames, states, reason = await play(address, path + query)
    assert not reason
    assert states[-1] == "streaming"
    assert all(read_header(data).complete and not lost for data, _, lost in frames)
    assert is_test_picture(frames[-1][0])
    steps = np.diff([time_ns for _, time_ns, _ in frames]) / 1e6
    assert (steps > 0).all()


@pytest.mark.parametrize("query", ["", "?transport=udp"])
async def test_the_camera_receives_our_receiver_reports(query, monkeypatch):
    monkeypatch.setattr(rtsp, "REPORT_SECONDS", 0.2)
    async with serving() as address:
        source = RtspSource(
            parse_source(f"rtsp://{address}/jpeg{query}"), lambda: ("", ""), DialLimiter(1), SocketPoller()
        )
        player = asyncio.ensure_future(source.play(lambda *_: None, lambda _: None))
        output = [await asyncio.wait_for(address.output.readline(), 20) for _ in range(3)]
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    assert all(line.startswith(b"report from ") for line in output)


async def test_a_session_with_a_short_timeout_is_kept_alive(monkeypatch):
    monkeypatch.setattr(rtsp, "REPORT_SECONDS", 1e9)  # reports would also keep the session alive
    async with serving("timeout=1") as address:
        frames, _, reason = await play(address, "/jpeg?transport=udp", pictures=100)
    assert not reason
    assert len(frames) >= 100


@pytest.mark.parametrize("method", ["basic", "digest"])
async def test_a_protected_camera_accepts_only_its_credentials(method):
    async with serving("me", "secret", method) as address:
        frames, _, reason = await play(address, "/jpeg", "me", "secret")
        assert not reason
        assert frames
        for user, password in (("me", "wrong"), ("", "")):
            frames, _, reason = await play(address, "/jpeg", user, password)
            assert "401" in reason
            assert "Check the credentials" in reason
            assert not frames


async def test_a_missing_path_is_reported():
    async with serving() as address:
        _, _, reason = await play(address, "/none")
    assert "404" in reason


@pytest.mark.parametrize(("path", "guard"), [("/h264", ()), ("/h264", ("me", "secret")), ("/h265", ())])
async def test_h264_and_h265_are_received_completely(path, guard):
    async with serving(*guard) as address:
        frames, _, reason = await play(address, path, *guard, pictures=3)
    if "404" in reason or "503" in reason:
        pytest.skip(f"needs a GStreamer encoder for {path}: `make peers` installs it")
    assert not reason
    decoder = VideoDecoder(path[1:].upper())
    order = DecodeOrder(1, picture_side=320)
    made = [decoder.decode(order, [(unit.data, number)]) for number, (unit, *_) in enumerate(frames)]
    assert is_test_picture(made[-1].picture)


@pytest.mark.parametrize("query", ["", "?transport=udp"])
@pytest.mark.parametrize("path", ["/h264-bframes", "/h264-interlaced", "/h264-slices", "/h264-refresh", "/h264-inband"])
async def test_h264_of_many_kinds_is_received_and_decoded(path, query):
    async with serving() as address:
        frames, _, reason = await play(address, path + query, pictures=40)
    if "404" in reason or "503" in reason:
        pytest.skip(f"needs GStreamer's x264enc for {path}: `make peers` installs it")
    assert not reason
    decoder, seen = VideoDecoder("H264"), []
    for number, (unit, time_ns) in enumerate(frames):
        with contextlib.suppress(PictureDelayedError):
            decoded = decoder.decode(DecodeOrder(1, picture_side=320), [(unit.data, number)])
            seen.append((frames[decoded.unit][1], decoded.picture, frames[decoded.unit][0].damaged, time_ns))
    assert len(seen) >= 30
    assert [time_ns for time_ns, *_ in seen] == sorted(time_ns for time_ns, *_ in seen)
    whole = [picture for _, picture, damaged, _ in seen if not damaged]
    assert is_test_picture(whole[-1])


@pytest.mark.parametrize("query", ["", "?transport=udp"])
async def test_an_avpf_camera_sends_the_requested_key_frame(query, monkeypatch):
    monkeypatch.setattr(VideoStream, "is_key_needed", property(lambda stream: stream.offered >= 10))
    async with serving() as address:
        frames, _, reason = await play(address, f"/h264-feedback{query}", pictures=60)
    if "404" in reason or "503" in reason:
        pytest.skip("needs GStreamer's x264enc: `make peers` installs it")
    assert not reason
    assert sum(unit.key for unit, *_ in frames) >= 2  # without a request it sends one in five minutes


async def test_a_killed_camera_is_reported(tmp_path):
    async with serving() as address:
        frames, states = [], []
        source = RtspSource(
            parse_source(f"rtsp://{address}/jpeg"), lambda: ("", ""), DialLimiter(1), SocketPoller(), stall=1.0
        )
        player = asyncio.ensure_future(source.play(lambda *frame: frames.append(frame), states.append))
        await eventually(lambda: frames)
    with pytest.raises(SourceError):
        await player

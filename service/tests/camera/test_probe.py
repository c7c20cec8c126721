"""A probe finds a camera's streams by its maker's addresses, measures them, and never sends a wrong password again."""

import asyncio
import contextlib
import shutil
import socket

import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, MEDIAMTX, program

from embereye.camera.probe.makers import maker_of, streams_of
from embereye.camera.probe.search import NoAnswerError, Probe, WrongPasswordError
from embereye.camera.sources.declared import SourceError
from embereye.process.addresses import free_port
from embereye.wire.jpeg.header import read_header

from .sources.rtp.rtsp_camera import RtspCamera

MISSING = b"RTSP/1.0 404 Not Found\r\nCSeq: {CSEQ}\r\nServer: Rtsp Server\r\n\r\n"
WRONG = b'RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\nWWW-Authenticate: Digest realm="Login to 4F", nonce="n"\r\n\r\n'
MEDIAMTX_CONFIG = """
logLevel: error
rtspAddress: 127.0.0.1:{port}
rtspTransports: [tcp, udp]
rtpAddress: 127.0.0.1:{rtp}
rtcpAddress: 127.0.0.1:{rtcp}
rtmp: no
hls: no
webrtc: no
srt: no
authInternalUsers:
- user: any
  permissions: [{{action: publish}}]
- user: viewer
  pass: 'p@ss#word'
  permissions: [{{action: read}}]
paths: {{all_others: {{}}}}
"""


def probe(address, user="", password="", **options):
    lines = []
    return Probe(address, user, password, lines.append, pause=0.0, **options), lines


def test_a_cameras_own_words_reveal_its_maker_and_bring_its_addresses_first():
    assert maker_of('Digest realm="Login to 4F0123", nonce="1"') == "Dahua"
    assert maker_of("HIKVISION DS-2CD2043") == "Hikvision"
    assert maker_of("whatever") == ""
    assert streams_of("axis")[0].maker == "Axis"


async def test_a_stream_named_by_its_url_is_measured():
    async with RtspCamera().serving() as served:
        opened, _ = probe(f"rtsp://{served.address}/live", seconds=0.5)
        camera = await opened.run()
    (stream,) = camera.streams
    assert stream.measured.codec == "JPEG"
    assert stream.measured.rate > 0
    assert read_header(stream.measured.still).complete
    assert "TCP" in stream.ways


async def test_a_refused_password_is_sent_once_and_never_again():
    async with RtspCamera(answers={"DESCRIBE": WRONG}).serving() as camera:
        opened, _ = probe(camera.address, "me", "wrong")
        with pytest.raises(WrongPasswordError, match="refuses this user and password"):
            await opened.run()
        logins = [request for request in camera.requests if request.header("authorization")]
    assert len(logins) == 1


async def test_no_password_is_guessed():
    async with RtspCamera(answers={"DESCRIBE": WRONG}).serving() as camera:
        opened, _ = probe(camera.address)
        with pytest.raises(WrongPasswordError, match="asks for a user and a password"):
            await opened.run()
        assert not [request for request in camera.requests if request.header("authorization")]


async def test_all_known_addresses_are_tried_before_a_path_is_asked_for():
    async with RtspCamera(answers={"DESCRIBE": MISSING}).serving() as camera:
        opened, _ = probe(camera.address)
        with pytest.raises(SourceError, match=r"none of the known addresses plays.*rtsp://127\.0\.0\.1/PATH"):
            await opened.run()
        assert len(camera.requests) >= len(streams_of(""))


async def test_a_port_that_refuses_is_told_from_one_that_speaks_something_else():
    opened, _ = probe(f"127.0.0.1:{free_port()}")
    with pytest.raises(NoAnswerError, match="answers, but refuses port"):
        await opened.run()

    async def greet(reader, writer):
        writer.write(b"220 mail\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        opened, _ = probe(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(NoAnswerError, match="speaks neither RTSP nor ONVIF"):
            await opened.run()


async def test_a_password_in_the_address_is_refused_and_not_repeated():
    opened, lines = probe("rtsp://me:secret@127.0.0.1/x")
    with pytest.raises(SourceError, match="--credentials") as refused:
        await opened.run()
    assert "secret" not in str(refused.value) + "".join(lines)


@pytest.mark.needs(MEDIAMTX, FFMPEG)
@pytest.mark.timeout(120)
async def test_a_hikvision_with_a_password_is_found_by_its_address(tmp_path):
    port, rtp = free_port(), _even_port()
    (tmp_path / "mediamtx.yml").write_text(MEDIAMTX_CONFIG.format(port=port, rtp=rtp, rtcp=rtp + 1))
    async with contextlib.AsyncExitStack() as stack:
        await _start(stack, program("mediamtx"), tmp_path / "mediamtx.yml")
        await eventually(lambda: is_listening(port), 30)
        for path, size in (("101", "640x360"), ("102", "320x240")):
            await _start(
                stack, shutil.which("ffmpeg"), "-v", "quiet", "-re", "-f", "lavfi",
                "-i", f"testsrc2=size={size}:rate=10", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "0",
                "-g", "10", "-f", "rtsp", "-rtsp_transport", "tcp",
                f"rtsp://127.0.0.1:{port}/Streaming/Channels/{path}",
            )  # fmt: skip

        async def probed():
            opened, _ = probe(f"127.0.0.1:{port}", "viewer", "p@ss#word", seconds=4.0)
            with contextlib.suppress(SourceError):
                camera = await opened.run()
                return camera if len(camera.streams) == 2 else None
            return None

        deadline = asyncio.get_running_loop().time() + 60
        while (camera := await probed()) is None:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.5)
    small, large = camera.streams
    assert (camera.maker, camera.guarded) == ("Hikvision", True)
    assert (small.measured.size, large.measured.size) == ((320, 240), (640, 360))
    assert large.measured.codec == "H.264"
    assert large.source == f"rtsp://127.0.0.1:{port}/Streaming/Channels/101"
    assert large.measured.key_seconds > 0
    assert read_header(large.measured.still).width == 640
    assert large.ways == ["TCP", "UDP"]


async def _start(stack, *command):
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def end():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    stack.push_async_callback(end)


def _even_port():
    while True:
        port = free_port()
        if port % 2 == 0:
            return port


def is_listening(port):
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0

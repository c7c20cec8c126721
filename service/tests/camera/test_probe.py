"""A probe finds a camera's streams by its maker's addresses, measures them, and never sends a wrong password again."""

import asyncio
import contextlib
import shutil
import socket
from dataclasses import dataclass

import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, MEDIAMTX, program

from embereye.camera.probe import search
from embereye.camera.probe.makers import KNOWN, maker_of, streams_of
from embereye.camera.probe.search import NoAnswerError, Probe, WrongPasswordError
from embereye.camera.sources.declared import SourceError
from embereye.process.addresses import free_port
from embereye.wire.jpeg.header import read_header

from .sources.rtp.rtsp_camera import RtspCamera

MISSING = b"RTSP/1.0 404 Not Found\r\nCSeq: {CSEQ}\r\nServer: Rtsp Server\r\n\r\n"
WRONG = b'RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\nWWW-Authenticate: Digest realm="Login to 4F", nonce="n"\r\n\r\n'
# Makers whose addresses are different from those of others by their path alone, as mediamtx needs it.
MAKERS = [
    "Hikvision",
    *(pytest.param(maker, marks=pytest.mark.slow) for maker in ("Reolink", "Hanwha", "Tapo", "FLIR")),
]
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


@dataclass
class CameraOfMaker(RtspCamera):
    """Has the streams with these addresses after the host, and no others."""

    streams: tuple[str, ...] = ()

    def _answer(self, item):
        if item.reason == "DESCRIBE" and "/" + item.url.split("/", 3)[3] not in self.streams:
            return MISSING.replace(b"{CSEQ}", str(item.sequence).encode())
        return super()._answer(item)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.maker} {known.main.rpartition('/')[2]}")
async def test_the_small_and_the_large_stream_of_each_maker_are_found(known):
    streams = tuple(address.removeprefix("rtsp://{host}") for address in (known.sub, known.main) if address)
    async with CameraOfMaker(streams=streams).serving() as camera:
        opened, _ = probe(camera.address, seconds=0.1)
        result = await opened.run()
    assert [stream.source.removeprefix(f"rtsp://{camera.address}") for stream in result.streams] == list(streams)
    assert result.maker == ("" if known.maker == "other" else known.maker)


async def test_a_stream_over_tls_is_found_at_the_port_for_it(certificate, monkeypatch):
    hikvision = ("/Streaming/Channels/102", "/Streaming/Channels/101")
    async with CameraOfMaker(streams=hikvision, tls=certificate).serving() as camera:
        monkeypatch.setattr(search, "RTSPS_PORTS", (int(camera.address.partition(":")[2]),))
        opened, _ = probe(camera.address, seconds=0.1)
        result = await opened.run()
    assert [stream.source for stream in result.streams] == [
        f"rtsps://{camera.address}{path}?tls=unverified" for path in hikvision
    ]


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
@pytest.mark.parametrize("maker", MAKERS)
async def test_a_camera_with_a_password_is_found_by_its_makers_address(maker, tmp_path):
    known = next(known for known in KNOWN if known.maker == maker)
    paths = {
        address.removeprefix("rtsp://{host}"): size
        for address, size in ((known.main, "640x360"), (known.sub, "320x240"))
    }
    port, rtp = free_port(), _even_port()
    (tmp_path / "mediamtx.yml").write_text(MEDIAMTX_CONFIG.format(port=port, rtp=rtp, rtcp=rtp + 1))
    async with contextlib.AsyncExitStack() as stack:
        await _start(stack, program("mediamtx"), tmp_path / "mediamtx.yml")
        await eventually(lambda: is_listening(port), 30)
        for path, size in paths.items():
            await _start(
                stack, shutil.which("ffmpeg"), "-v", "quiet", "-re", "-f", "lavfi",
                "-i", f"testsrc2=size={size}:rate=10", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "0",
                "-g", "10", "-f", "rtsp", "-rtsp_transport", "tcp",
                f"rtsp://127.0.0.1:{port}{path}",
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
    assert (camera.maker, camera.guarded) == (maker, True)
    assert (small.measured.size, large.measured.size) == ((320, 240), (640, 360))
    assert large.measured.codec == "H.264"
    assert large.source == known.main.format(host=f"127.0.0.1:{port}")
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

"""A shard that is suspended for longer than a camera may be silent, and then resumes."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from ..conftest import noisy_jpeg
from .rtp.rtsp_camera import RtspCamera

STOP_SECONDS = 3.5  # seconds
PAUSE = 0.1  # seconds between two pictures
OK = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=--x\r\n"


@contextlib.asynccontextmanager
async def mjpeg(coding):
    """Run a camera and yield its address."""
    jpeg = noisy_jpeg()
    part = b"--x\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + b"\r\n"
    if coding:
        part = b"%x\r\n%s\r\n" % (len(part), part)

    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + coding + b"\r\n")
            while True:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(PAUSE)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/video.mjpg"
    finally:
        server.close()


@contextlib.asynccontextmanager
async def rtsp(way):
    async with RtspCamera(pause=PAUSE).serving() as camera:
        yield f"rtsp://{camera.address}/live?transport={way}"


@pytest.mark.parametrize(
    ("kind", "camera"),
    [
        ("http", lambda: mjpeg(b"")),
        ("http", lambda: mjpeg(b"Transfer-Encoding: chunked\r\n")),
        ("rtsp", lambda: rtsp("tcp")),
        ("rtsp", lambda: rtsp("udp")),
    ],
    ids=["mjpeg", "mjpeg in chunks", "rtsp by tcp", "rtsp by udp"],
)
async def test_a_sending_camera_is_not_dialled_again_after_its_shard_was_suspended(kind, camera):
    async with camera() as address:
        script = Path(__file__).with_name("stopped_player.py")
        player = await asyncio.create_subprocess_exec(sys.executable, script, kind, address, stdout=PIPE)
        assert player.stdout
        try:
            async with asyncio.timeout(60):
                for _ in range(5):
                    assert await player.stdout.readline() == b"picture\n"
                player.send_signal(signal.SIGSTOP)
                await asyncio.sleep(STOP_SECONDS)
                player.send_signal(signal.SIGCONT)
                for _ in range(int(STOP_SECONDS / PAUSE) + 15):  # more than arrived meanwhile
                    assert await player.stdout.readline() == b"picture\n"
        finally:
            player.kill()
            await player.wait()

import asyncio
import contextlib
import errno
import socket

import pytest

from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.source import RtpSource
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.process.lifecycle import UserError
from embereye.sim.cameras import rtsp
from embereye.sim.cameras.rtp import check_carried, send_rtp
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import CameraSpec, looped_film, prepare
from embereye.wire.jpeg.header import read_header
from embereye.wire.rtsp.messages import RtspParser, request


async def cameras(*ids):
    return await prepare([CameraSpec(name) for name in ids], fps=20, size=(160, 120))


async def first_frames(source, count=3):
    frames, enough = [], asyncio.Event()

    def offer(data, time_ns=0, lost=()):
        frames.append(data)
        if len(frames) >= count:
            enough.set()

    player = asyncio.ensure_future(source.play(offer, lambda _: None))
    await asyncio.wait({player, asyncio.ensure_future(enough.wait())}, timeout=20, return_when="FIRST_COMPLETED")
    player.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await player
    return frames


@contextlib.asynccontextmanager
async def rtsp_server(*ids):
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(await cameras(*ids), "127.0.0.1", 0, stop, port.set_result))
    yield f"127.0.0.1:{await port}"
    stop.set()
    await server


async def test_cameras_are_sent_to_separate_ports():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] & ~1
    stop = asyncio.Event()
    sender = asyncio.ensure_future(send_rtp(await cameras("a", "b"), "127.0.0.1", port, stop))
    for number in (0, 2):
        frames = await first_frames(RtpSource(parse_source(f"rtp://127.0.0.1:{port + number}"), SocketPoller()))
        assert (read_header(frames[0]).width, read_header(frames[0]).complete) == (160, True)
    stop.set()
    await sender


@pytest.mark.parametrize("host", ["::1%none", "255.255.255.255"])
async def test_an_unreachable_host_is_named(host):
    with pytest.raises(UserError, match=rf"cannot send to {host}: \w+"):
        await asyncio.wait_for(send_rtp(await cameras("a"), host, 5004, asyncio.Event()), 60)


@pytest.mark.parametrize("query", ["", "?transport=udp"])
async def test_cameras_are_served_by_rtsp_over_tcp_and_udp(query):
    async with rtsp_server("a") as address:
        source = RtspSource(
            parse_source(f"rtsp://{address}/a{query}"), lambda: ("", ""), DialLimiter(1), SocketPoller()
        )
        frames = await first_frames(source)
    assert len(set(frames)) == 3
    assert all(read_header(frame).complete for frame in frames)


async def test_a_viewer_that_sends_nonsense_is_disconnected_and_others_continue():
    async with rtsp_server("a") as address:
        host, port = address.split(":")
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 200_000, request("PLAY", "rtsp://x/a", 1, {})[:9]):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(nonsense)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert not await reader.read()
            writer.close()
        reader, writer = await asyncio.open_connection(host, port)
        parser = RtspParser()
        for method, url, headers, status in (
            ("DESCRIBE", "rtsp://x/none", {}, 404),
            ("PLAY", "rtsp://x/a", {}, 455),
            ("SETUP", "rtsp://x/a/video", {"Transport": "RTP/AVP;multicast"}, 461),
            ("OPTIONS", "*", {}, 200),
        ):
            writer.write(request(method, url, 1, headers))
            (answer,) = parser.feed(await reader.readuntil(b"\r\n\r\n"))
            assert answer.status == status
        writer.close()


async def test_a_viewer_whose_network_fails_is_dropped_and_others_continue(monkeypatch, caplog):
    read, failures = rtsp._read, [OSError(errno.EHOSTUNREACH, "No route to host")]

    async def fail_once(reader):
        if failures:
            raise failures.pop()
        return await read(reader)

    monkeypatch.setattr(rtsp, "_read", fail_once)
    async with rtsp_server("a") as address:
        reader, first = await asyncio.open_connection(*address.split(":"))
        assert not await reader.read()
        reader, second = await asyncio.open_connection(*address.split(":"))
        second.write(request("OPTIONS", "*", 1, {}))
        assert await reader.readline() == b"RTSP/1.0 200 OK\r\n"
        first.close()
        second.close()
    assert "task rtsp-viewer failed" not in caplog.text, "that would end the server"


async def test_pictures_that_rtp_cannot_carry_are_refused_before_sending():
    shown = await cameras("a")
    shown.films["a"] = looped_film(1.0, lambda _: ([b"no JPEG"], 0))
    with pytest.raises(UserError, match="camera a cannot be sent by RTP"):
        check_carried(shown)

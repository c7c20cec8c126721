"""Simulated cameras by RTP: JPEG sent to ports, and an RTSP server that sends it to whoever asks (RFC 2435, 2326)."""

import asyncio
import contextlib
import logging
import random
import re
import socket
import time
from collections.abc import Callable

from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks, first_of, start_task
from embereye.sim.cameras import Cameras
from embereye.wire.jpeg.header import JpegError
from embereye.wire.rtp.depacketize import PAYLOAD_TYPE
from embereye.wire.rtp.packet import VIDEO_HZ
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye.wire.rtsp.messages import Message, RtspError, RtspParser, interleaved

logger = logging.getLogger(__name__)
REPORT_SECONDS = 5.0  # between two sender reports
SESSION_SECONDS = 60.0  # that a client may be silent
UNSENT_BYTES = 1024 * 1024  # waiting for a slow client before it misses pictures
NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
PORT_STEP = 2  # the odd ports are for reports


async def send_rtp(cameras: Cameras, host: str, port: int, stop: asyncio.Event) -> None:
    """Send every camera to `host`: the first to `port`, the next one to the even port after it, and so on."""
    async with Tasks() as tasks:
        for number, spec in enumerate(cameras.specs):
            tasks.start(_send_to(cameras, spec.id, host, port + PORT_STEP * number), name=f"rtp-{spec.id}")
        await first_of(stop.wait(), tasks.failed.wait())


async def _send_to(cameras: Cameras, camera: str, host: str, port: int) -> None:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as packets, \
            socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as reports:  # fmt: skip
        packets.connect(address)
        reports.connect((address[0], port + 1, *address[2:]))

        def send(own: socket.socket) -> Callable[[bytes], None]:
            def one(data: bytes) -> None:
                with contextlib.suppress(OSError):  # nobody listens, or the buffer is full: packets are lost
                    own.send(data)

            return one

        await _stream(cameras, camera, send(packets), send(reports))


async def _stream(
    cameras: Cameras, camera: str, packet: Callable[[bytes], None], report: Callable[[bytes], None]
) -> None:
    """Send a camera's pictures by `packet`, and what time it is by `report`, until cancelled."""
    chance = random.SystemRandom()
    sender = Packetizer(chance.getrandbits(32), chance.getrandbits(16))
    base, began, reported = chance.getrandbits(32), time.time(), 0.0
    async for frame in cameras.frames(camera):
        now = time.time()
        timestamp = base + int((now - began) * VIDEO_HZ)
        for data in sender.packets_of(read_scan(frame), timestamp):
            packet(data)
        if now - reported >= REPORT_SECONDS:
            reported = now
            report(sender.report(int((now + NTP_EPOCH) * (1 << 32)), timestamp))


def check_carried(cameras: Cameras) -> None:
    """UserError where RTP/JPEG cannot carry what a camera shows."""
    for camera, film in cameras.films.items():
        try:
            read_scan(film.frame(0.0))
        except JpegError as error:
            raise UserError(f"camera {camera} cannot be sent by RTP: {error}") from error


async def serve_rtsp(
    cameras: Cameras, host: str, port: int, stop: asyncio.Event, ready: Callable[[int], None] | None = None
) -> None:
    """Serve rtsp://`host`:`port`/ID until `stop`, over TCP and UDP; `ready` is told the port."""
    async with Tasks() as tasks:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.start(_Viewer(cameras, writer).serve(reader), name="rtsp-viewer")

        try:
            server = await asyncio.start_server(serve, host, port)
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        async with server:
            if ready:
                ready(server.sockets[0].getsockname()[1])
            await first_of(stop.wait(), tasks.failed.wait())


class _Viewer:
    """One client of the RTSP server."""

    def __init__(self, cameras: Cameras, writer: asyncio.StreamWriter) -> None:
        self._cameras = cameras
        self._writer = writer
        self._camera = ""
        self._sinks: tuple[Callable[[bytes], None], Callable[[bytes], None]] | None = None
        self._sockets = contextlib.ExitStack()
        self._player: asyncio.Task[None] | None = None
        self._session = f"{random.SystemRandom().getrandbits(32):08x}"

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer until the client leaves or falls silent."""
        parser = RtspParser()
        try:
            while data := await asyncio.wait_for(reader.read(65_536), SESSION_SECONDS):
                for item in parser.feed(data):
                    if isinstance(item, Message) and item.status == 0:
                        self._answer(item)
                        if item.reason == "TEARDOWN":
                            return
        except (RtspError, ConnectionError, TimeoutError) as error:
            logger.info("an RTSP client is gone: %s", error or "it fell silent")
        finally:
            if self._player:
                self._player.cancel()
                await asyncio.gather(self._player, return_exceptions=True)
            self._sockets.close()
            self._writer.close()

    def _answer(self, item: Message) -> None:
        camera = item.url.partition("://")[2].partition("/")[2].partition("?")[0].partition("/")[0]
        if camera not in self._cameras.films and item.reason != "OPTIONS":
            self._reply(item, "404 Not Found")
        elif item.reason == "OPTIONS":
            self._reply(item, "200 OK", "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN")
        elif item.reason == "DESCRIBE":
            sdp = f"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns={camera}\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n"
            sdp += f"m=video 0 RTP/AVP {PAYLOAD_TYPE}\r\na=control:video\r\n"
            base = f"Content-Base: {item.url.rstrip('/')}/"
            self._reply(item, "200 OK", base, "Content-Type: application/sdp", body=sdp)
        elif item.reason == "SETUP":
            self._set_up(item, camera)
        elif item.reason == "PLAY" and self._sinks:
            if self._player is None:
                self._player = start_task(
                    _stream(self._cameras, self._camera, *self._sinks), name=f"rtsp-play-{self._camera}"
                )
            self._reply(item, "200 OK")
        elif item.reason in {"GET_PARAMETER", "TEARDOWN"}:
            self._reply(item, "200 OK")
        else:
            self._reply(item, "455 Method Not Valid in This State")

    def _set_up(self, item: Message, camera: str) -> None:
        asked = item.header("transport")
        channels = re.search(r"interleaved=(\d{1,3})-(\d{1,3})", asked)
        ports = re.search(r"client_port=(\d{1,5})-(\d{1,5})", asked)
        if channels and max(map(int, channels.groups())) < 256:
            first, second = (int(channel) for channel in channels.groups())
            self._sinks = self._over_connection(first), self._over_connection(second)
            agreed = f"RTP/AVP/TCP;unicast;interleaved={first}-{second}"
        elif ports and max(map(int, ports.groups())) < 65_536:
            sinks = [self._over_socket(int(port)) for port in ports.groups()]
            self._sinks = sinks[0][0], sinks[1][0]
            agreed = f"RTP/AVP;unicast;client_port={ports[1]}-{ports[2]};server_port={sinks[0][1]}-{sinks[1][1]}"
        else:
            self._reply(item, "461 Unsupported Transport")
            return
        self._camera = camera
        self._reply(item, "200 OK", f"Transport: {agreed}")

    def _over_connection(self, channel: int) -> Callable[[bytes], None]:
        def send(data: bytes) -> None:
            if self._writer.transport.get_write_buffer_size() < UNSENT_BYTES:
                self._writer.write(interleaved(channel, data))

        return send

    def _over_socket(self, port: int) -> tuple[Callable[[bytes], None], int]:
        own, peer = (self._writer.get_extra_info(name)[0] for name in ("sockname", "peername"))
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        sender = self._sockets.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        sender.bind((own, 0))
        sender.connect((peer, port))

        def send(data: bytes) -> None:
            with contextlib.suppress(OSError):  # full: packets are lost
                sender.send(data)

        return send, sender.getsockname()[1]

    def _reply(self, item: Message, status: str, *headers: str, body: str = "") -> None:
        lines = [
            f"RTSP/1.0 {status}", f"CSeq: {max(0, item.sequence)}", *headers,
            f"Session: {self._session};timeout={SESSION_SECONDS:.0f}", f"Content-Length: {len(body)}",
        ]  # fmt: skip
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

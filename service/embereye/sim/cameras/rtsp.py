"""Serve simulated cameras by RTSP: JPEG, H.264 or H.265 over RTP, by TCP and UDP (RFC 2326).

Each connection has a `_Viewer`, which answers requests as they come. SETUP chooses where packets go: to channels of the
connection, or to the client's UDP ports. PLAY starts a task that sends the camera's pictures there when they are due.
Viewers share the coded films, and each notices a request for a key frame itself.
"""

import asyncio
import contextlib
import logging
import random
import re
import socket
from collections.abc import Callable, Coroutine

from embereye.process.files import system_errors
from embereye.process.tasks import Tasks, first_of
from embereye.sim.cameras.rtp import VIDEO_PAYLOAD, stream_pictures, stream_video
from embereye.sim.cameras.video import CodedFilms
from embereye.sim.scenes.films import Cameras
from embereye.wire.rtp.packet import is_key_frame_request
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE
from embereye.wire.rtsp.messages import Interleaved, Message, RtspError, RtspParser, interleaved

logger = logging.getLogger(__name__)
SESSION_SECONDS = 60.0  # longest silence of a client
UNSENT_BYTES = 1024 * 1024  # waiting for a slow client; beyond, it misses pictures


async def serve_rtsp(
    cameras: Cameras, host: str, port: int, stop: asyncio.Event, ready: Callable[[int], None] | None = None,
    encoding: str = "JPEG", loss: float = 0.0,
) -> None:  # fmt: skip
    """Serve rtsp://`host`:`port`/ID until `stop`, over TCP and UDP; call `ready` with the port once it listens.

    A share `loss` of the packets sent over UDP is dropped. `encoding` is JPEG, H264 or H265; a client can request
    another one by `?codec=h264` and so on in the URL.
    """
    films = CodedFilms(cameras)
    async with Tasks() as tasks:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.start(_Viewer(films, encoding, loss, writer).serve(reader), name="rtsp-viewer")

        with system_errors(f"cannot listen on {host}:{port}"):
            server = await asyncio.start_server(serve, host, port)
        async with server:
            if ready:
                ready(server.sockets[0].getsockname()[1])
            await first_of(stop.wait(), tasks.failed.wait())


async def _read(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SESSION_SECONDS):
        return await reader.read(65_536)


class _Viewer:
    """One client of the RTSP server."""

    def __init__(self, films: CodedFilms, encoding: str, loss: float, writer: asyncio.StreamWriter) -> None:
        self._cameras = films.cameras
        self._films = films
        self._encoding = encoding
        self._loss = loss
        self._key_wanted = asyncio.Event()
        self._writer = writer
        self._camera = ""
        self._sinks: tuple[Callable[[bytes], None], Callable[[bytes], None]] | None = None
        self._sockets = contextlib.ExitStack()
        self._tasks = Tasks()
        self._playing = False
        self._session = f"{random.SystemRandom().getrandbits(32):08x}"

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer until the client disconnects, or is silent for SESSION_SECONDS."""
        parser = RtspParser()
        try:
            while data := await _read(reader):
                for item in parser.feed(data):
                    if isinstance(item, Interleaved):
                        self._receive_report(item.data)
                    elif item.status == 0:
                        self._answer(item)
                        if item.reason == "TEARDOWN":
                            return
        except (RtspError, OSError) as error:
            logger.info("RTSP client disconnected: %s", error or "it was silent for too long")
        finally:
            await self._tasks.stop()
            self._sockets.close()
            self._writer.close()

    def _receive_report(self, report: bytes | memoryview) -> None:
        if is_key_frame_request(report):
            self._key_wanted.set()

    def _pictures(self) -> Coroutine[None, None, None]:
        assert self._sinks
        if self._encoding == "JPEG":
            send, report = self._sinks

            def send_picture(joined: memoryview, size: int) -> None:
                for start in range(0, len(joined), size):
                    send(bytes(joined[start : start + size]))

            return stream_pictures(self._cameras, self._camera, send_picture, report)
        return stream_video(self._films, self._camera, self._encoding, *self._sinks, self._key_wanted)

    def _description(self, camera: str) -> str:
        sdp = f"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns={camera}\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n"
        if self._encoding == "JPEG":
            return f"{sdp}m=video 0 RTP/AVP {PAYLOAD_TYPE}\r\na=control:video\r\n"
        number = VIDEO_PAYLOAD
        sdp += f"m=video 0 RTP/AVP {number}\r\na=rtpmap:{number} {self._encoding}/90000\r\n"
        mode = f"a=fmtp:{number} packetization-mode=1\r\n" if self._encoding == "H264" else ""
        return f"{sdp}{mode}a=rtcp-fb:{number} nack pli\r\na=control:video\r\n"

    def _answer(self, item: Message) -> None:
        if match := re.search(r"[?&]codec=(jpeg|h264|h265)\b", item.url, re.IGNORECASE):
            self._encoding = match[1].upper()
        camera = item.url.partition("://")[2].partition("/")[2].partition("?")[0].partition("/")[0]
        if camera not in self._cameras.films and item.reason != "OPTIONS":
            self._reply(item, "404 Not Found")
        elif item.reason == "OPTIONS":
            self._reply(item, "200 OK", "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN")
        elif item.reason == "DESCRIBE":
            base = f"Content-Base: {item.url.rstrip('/')}/"
            self._reply(item, "200 OK", base, "Content-Type: application/sdp", body=self._description(camera))
        elif item.reason == "SETUP":
            self._set_up(item, camera)
        elif item.reason == "PLAY" and self._sinks:
            if not self._playing:
                self._playing = True
                self._tasks.start(self._pictures(), name=f"rtsp-play-{self._camera}")
            self._reply(item, "200 OK")
        elif item.reason in {"GET_PARAMETER", "TEARDOWN"}:
            self._reply(item, "200 OK")
        else:
            self._reply(item, "455 Method Not Valid in This State")

    def _set_up(self, item: Message, camera: str) -> None:
        requested = item.header("transport")
        channels = re.search(r"interleaved=(\d{1,3})-(\d{1,3})", requested)
        ports = re.search(r"client_port=(\d{1,5})-(\d{1,5})", requested)
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
            transport = self._writer.transport
            if not transport.is_closing() and transport.get_write_buffer_size() < UNSENT_BYTES:
                self._writer.write(interleaved(channel, data))

        return send

    def _over_socket(self, port: int) -> tuple[Callable[[bytes], None], int]:
        local, peer = (self._writer.get_extra_info(name)[0] for name in ("sockname", "peername"))
        family = socket.AF_INET6 if ":" in local else socket.AF_INET
        sender = self._sockets.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        sender.bind((local, 0))
        sender.connect((peer, port))
        loop = asyncio.get_running_loop()
        loop.add_reader(sender, self._read, sender)
        self._sockets.callback(loop.remove_reader, sender)

        def send(data: bytes) -> None:
            if self._loss and random.random() < self._loss:
                return
            with contextlib.suppress(OSError):  # buffer full: packets are lost
                sender.send(data)

        return send, sender.getsockname()[1]

    def _read(self, reports: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._receive_report(reports.recv(2048))

    def _reply(self, item: Message, status: str, *headers: str, body: str = "") -> None:
        lines = [
            f"RTSP/1.0 {status}", f"CSeq: {max(0, item.sequence)}", *headers,
            f"Session: {self._session};timeout={SESSION_SECONDS:.0f}", f"Content-Length: {len(body)}",
        ]  # fmt: skip
        if not self._writer.is_closing():  # the client may have disconnected
            self._writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

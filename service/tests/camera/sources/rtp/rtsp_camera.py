"""A camera for tests that speaks RTSP as configured, including errors."""

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass, field

from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye.wire.rtsp.messages import Interleaved, RtspParser, interleaved

from ...conftest import noisy_jpeg

SDP = "v=0\r\nm=video 0 RTP/AVP 26\r\na=control:track1\r\n"


@dataclass
class RtspCamera:
    """Answers each method with 200, or with `answers`: bytes, or a list of bytes used one at a time."""

    sdp: str = SDP
    answers: dict = field(default_factory=dict)
    refuse: str = ""  # a transport that is refused with 461: "TCP" or "UDP"
    pictures: int = 1_000_000  # sent after PLAY
    pause: float = 0.01  # seconds between two of them
    mute: str = ""  # a transport whose packets are lost: "TCP" or "UDP"
    end: bool = False  # close the connection after the last picture
    leaves: int = 0  # SSRC of a BYE after the first picture; the camera's SSRC is 7
    announced: str = ";server_port={ports}"  # transport parameters with the sending address
    stranger: str = ""  # an address that sends one picture before the camera does
    line_end: bytes = b"\r\n"
    tls: object = None
    timeout: int = 60
    requests: list = field(default_factory=list)
    reports: list = field(default_factory=list)  # RTCP from the client
    transports: list = field(default_factory=list)
    address: str = ""

    @contextlib.asynccontextmanager
    async def serving(self):
        self.tasks, self.writers = set(), []
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _connected(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        self.writers.append(writer)
        parser, player = RtspParser(), None
        try:
            while data := await reader.read(65536):
                for item in parser.feed(data):
                    if isinstance(item, Interleaved):
                        self.reports.append(item.data)
                        continue
                    self.requests.append(item)
                    head, blank, body = self._answer(item).partition(b"\r\n\r\n")
                    writer.write((head + blank).replace(b"\r\n", self.line_end) + body)
                    if item.reason == "PLAY" and "PLAY" not in self.answers and player is None:
                        player = asyncio.ensure_future(self._play(writer))
                        self.tasks.add(player)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if player:
                player.cancel()
            with contextlib.suppress(Exception):
                writer.close()

    def hang_up(self):
        """Break every connection, as a restarting camera does."""
        for writer in self.writers:
            writer.transport.abort()

    def _answer(self, item):
        given = self.answers.get(item.reason)
        if isinstance(given, list):
            given = given.pop(0) if given else None
        if given is not None:
            return given.replace(b"{CSEQ}", str(item.sequence).encode())
        status, extra, body = "200 OK", "", ""
        if item.reason == "OPTIONS":
            extra = "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN\r\n"
        if item.reason == "DESCRIBE":
            extra, body = "Content-Type: application/sdp\r\n", self.sdp
        if item.reason == "SETUP":
            asked = item.header("transport")
            way = "TCP" if "TCP" in asked else "UDP"
            self.transports.append(way)
            if way == self.refuse:
                status = "461 Unsupported Transport"
            else:
                extra = f"Session: 4711;timeout={self.timeout}\r\nTransport: {self._agree(asked, way)}\r\n"
        return (
            f"RTSP/1.0 {status}\r\nCSeq: {item.sequence}\r\n{extra}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    def _agree(self, asked, way):
        self.way = way
        if way == "TCP":
            return asked
        self.port = int(re.search(r"client_port=(\d+)", asked)[1])
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for port_socket in self.sockets:
            port_socket.bind(("127.0.0.1", 0))
        ports = "-".join(str(port_socket.getsockname()[1]) for port_socket in self.sockets)
        return asked + self.announced.format(ports=ports)

    async def _play(self, writer):
        packetizer = Packetizer(7)
        if self.stranger:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind((self.stranger, 0))
                for packet in packetizer.packetize(read_scan(noisy_jpeg(5)), 0):
                    stranger.sendto(packet, ("127.0.0.1", self.port))
        for number in range(self.pictures):
            for packet in packetizer.packetize(read_scan(noisy_jpeg(number % 5)), 6000 * number):
                if self.way == self.mute:
                    continue
                if self.way == "TCP":
                    writer.write(interleaved(0, packet))
                else:
                    self.sockets[0].sendto(packet, ("127.0.0.1", self.port))
            if number == 0 and self.way == "TCP":
                writer.write(interleaved(1, packetizer.report(1 << 40, 0)))
                if self.leaves:
                    writer.write(interleaved(1, b"\x81\xcb\0\1" + self.leaves.to_bytes(4)))
            await asyncio.sleep(self.pause)
        if self.end:
            writer.close()


@dataclass
class VideoCamera(RtspCamera):
    """Sends the access units `units` over and over; the units with numbers in `lost` miss one packet."""

    encoding: str = "H264"
    units: list = field(default_factory=list)
    lost: set = field(default_factory=set)

    async def _play(self, writer):
        layout: NalFormat = H264Format() if self.encoding == "H264" else H265Format()
        sequence, count = 1, len(self.units)
        for number in range(self.pictures):
            timestamp = self.units[number % count][0] + number // count * count * 6000
            payloads = list(layout.payloads(self.units[number % count][1], 80))
            for place, payload in enumerate(payloads):
                marker = place == len(payloads) - 1
                head = struct.pack(">BBHII", 0x80, marker << 7 | 96, sequence & 0xFFFF, timestamp & 0xFFFF_FFFF, 7)
                sequence += 1
                if number in self.lost and place == len(payloads) // 2:
                    continue
                if self.way == "TCP":
                    writer.write(interleaved(0, head + payload))
                else:
                    self.sockets[0].sendto(head + payload, ("127.0.0.1", self.port))
            await asyncio.sleep(self.pause)

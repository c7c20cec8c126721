"""One RTSP session: the choice of a track, its transport, and its pictures until the camera stops.

There are three steps. `describe` connects and chooses a track, or returns a redirect. `set_up` agrees on TCP or UDP and
starts the stream. `play` receives packets, sends receiver reports and keep-alives, and notices silence.

FFmpeg's client is not used because it blocks a thread per camera. With 16 cameras (H.264, 640x480, 15 pictures/s, TCP)
it took 16 threads, 36 MB and 2 waits per access unit. This client took no thread, 2 MB and 0.15 waits, because the
`SocketPoller` reads all sockets together. It used more CPU time for that: 147 instead of 109 µs per access unit, on a
busy machine.
"""

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from urllib.parse import urlsplit

from embereye.camera.sources.declared import RefusedCredentialsError, SourceError, redact
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import DatagramReader, dropped, open_port
from embereye.camera.sources.rtp.stream import CHECK_SECONDS, JpegStream, PictureStream, VideoStream
from embereye.camera.sources.rtsp.connection import AGENT, DEFAULT_PORTS, Endpoint, RtspConnection
from embereye.camera.sources.source import DIAL_SECONDS, Offer, SetState
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.silence import LATE_SECONDS
from embereye.wire.rtp.packet import full_intra_request, key_frame_request, parse_rtcp, receiver_report
from embereye.wire.rtp.receiver import DEADLINE_NS
from embereye.wire.rtp.reorder import WINDOW
from embereye.wire.rtsp.messages import (
    DEFAULT_TIMEOUT,
    FIR,
    Interleaved,
    Message,
    RtspError,
    Track,
    Transport,
    base_url,
    interleaved,
    printable,
    read_description,
    read_session,
    read_transport,
)

STALL_SECONDS = 5.0  # without a packet, after which the camera is dialled again
REPORT_SECONDS = 5.0  # between two receiver reports (RFC 3550, 6.2)
STARTING = 3.0  # factor on the time for an answer: go2rtc and MediaMTX describe a stream once it runs, in up to 10 s
KEY_SECONDS = 0.5  # between two requests for a key frame, so that the camera can code one in between
FORMATS = ("JPEG", "H264", "H265")  # in order of preference: JPEG costs least and refers to no other picture
PORTS = 16  # pairs tried to find an even port
_HINTS = {
    401: "Check the credentials", 403: "Check the credentials", 404: "Check the path in the source",
    453: "It lacks bandwidth for another viewer", 454: "It has dropped the session", 461: "It refuses the transport",
    503: "It may have too many viewers",
}  # fmt: skip


class SilentError(Exception):
    """No packet arrived although the camera accepted PLAY."""


@dataclass(frozen=True)
class Patience:
    """Time limits for a camera, in seconds."""

    dial: float = DIAL_SECONDS
    stall: float = STALL_SECONDS


class RtspSession:
    """A session with one camera. Call `describe`, `set_up` and `play` in this order, and always `close`."""

    def __init__(
        self, endpoint: Endpoint, offer: Offer, set_state: SetState, poller: SocketPoller, patience: Patience,
        formats: Sequence[str] = FORMATS,
    ) -> None:  # fmt: skip
        self.track: Track | None = None  # chosen by `describe`
        self._formats = formats
        self._connection = RtspConnection(endpoint, patience.dial, self._receive_items, lambda: self.has_pending)
        self._url = self._control = endpoint.url
        self._offer, self._set_state, self._poller = offer, set_state, poller
        self._stall = patience.stall
        self._timeout = DEFAULT_TIMEOUT
        self._stream: PictureStream | None = None
        self._key_requested_at = 0.0  # when a key frame was last requested, monotonic seconds
        self._key_requests = 0
        self._channels: tuple[int, int] | None = None
        self._sockets = contextlib.ExitStack()
        self._receiver: socket.socket | None = None
        self._reports: socket.socket | None = None
        self._ssrc = secrets.randbits(32)  # our SSRC
        self._heard_report = (0, 0)  # middle bits of the latest sender report, and its arrival in monotonic nanoseconds

    @property
    def transport(self) -> str:
        """The agreed transport, "TCP" or "UDP", after `set_up`."""
        return "UDP" if self._receiver else "TCP"

    def _receive_items(self, items: Sequence[Interleaved], now: int) -> None:
        if not self._stream or not self._channels:
            return
        pictures, reports = self._channels
        for channel, group in groupby(items, itemgetter(0)):
            packets = [memoryview(data) for _, data in group]
            if channel == pictures:
                if self._stream.receive_separate(packets, now):
                    self._request_key_frame()
            elif channel == reports:
                for packet in packets:
                    self._report(packet, now)

    @property
    def has_pending(self) -> bool:
        """True if a picture is arriving."""
        return self._stream is not None and self._stream.has_pending

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Add packets to their pictures, and request a key frame if a picture lacks one; see `PacketReceiver`."""
        assert self._stream
        complete = self._stream.receive_packets(packets, size, now_ns)
        if complete:
            self._request_key_frame()
        return complete

    def expire_pictures(self) -> None:
        """Offer pictures whose missing packets are overdue, and request a key frame if they lack one."""
        assert self._stream
        self._stream.expire_pictures()
        self._request_key_frame()

    def _check(self, method: str, answer: Message) -> None:
        if answer.status != 200:
            hint = f". {_HINTS[answer.status]}" if answer.status in _HINTS else ""
            refused = answer.status == 401 and self._connection.is_challenged
            kind = RefusedCredentialsError if refused else SourceError
            raise kind(f"{method}: {answer.status} {printable(answer.reason)}{hint}")

    async def describe(self) -> str:
        """Connect and choose a track. Returns the camera's redirect, or ''."""
        await self._connection.connect()
        options = await self._connection.ask("OPTIONS", self._url)
        if "GET_PARAMETER" in options.header("public").upper():
            self._connection.keepalive = "GET_PARAMETER"
        answer = await self._connection.ask("DESCRIBE", self._url, {"Accept": "application/sdp"}, patience=STARTING)
        if 300 <= answer.status < 400:
            return self._redirect_target(answer.header("location"))
        self._check("DESCRIBE", answer)
        said = answer.header("content-base") or answer.header("content-location")
        tracks, self._control = read_description(answer.body, base_url(said, self._url))
        known = [track for track in tracks if track.encoding in self._formats]
        if known:
            self.track = min(known, key=lambda track: self._formats.index(track.encoding))
        else:
            names = ", ".join(sorted({f"{track.media} {track.encoding}".strip() for track in tracks}))
            wanted = " or ".join(", ".join(map(_pretty, self._formats)).rsplit(", ", 1))
            raise SourceError(f"the camera has no {wanted} track, only: {printable(names) or 'nothing'}")
        return ""

    def _redirect_target(self, location: str) -> str:
        try:
            parts = urlsplit(location)
            valid = parts.scheme in DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        # A redirect away from TLS would send the credentials unencrypted.
        if not valid or (self._url.startswith("rtsps:") and parts.scheme != "rtsps"):
            raise SourceError(f'redirected to "{printable(redact(location))}", which cannot be followed')
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    async def set_up(self, *, udp: bool) -> None:
        """Agree on a transport: the wanted one, or the other one if the camera refuses it."""
        for try_udp in (udp, not udp):
            answer = await self._try(udp=try_udp)
            if answer.status != 461:
                break
        self._check("SETUP", answer)
        self._connection.session, self._timeout = read_session(answer.header("session"))
        agreed = read_transport(answer.header("transport"))
        if self._receiver is None:
            self._channels = agreed.channels or (0, 1)
        else:
            self._expect(agreed)
        self._check("PLAY", await self._connection.ask("PLAY", self._control, {"Range": "npt=0.000-"}))
        self._connection.read_together(self._poller)

    async def _try(self, *, udp: bool) -> Message:
        assert self.track
        self._stream = self._stream_of(self.track, udp=udp)
        if not udp:
            self._channels = (0, 1)  # some cameras send before they answer
            return await self._connection.ask(
                "SETUP", self.track.control, {"Transport": f"{self.track.profile}/TCP;unicast;interleaved=0-1"}
            )
        self._receiver, self._reports = self._open_port_pair()
        first = self._receiver.getsockname()[1]
        answer = await self._connection.ask(
            "SETUP", self.track.control, {"Transport": f"{self.track.profile};unicast;client_port={first}-{first + 1}"}
        )
        if answer.status != 200:
            self._receiver.close()
            self._reports.close()
            self._receiver = self._reports = None
        return answer

    def _stream_of(self, track: Track, *, udp: bool) -> PictureStream:
        """Create a stream of the pictures of `track`. TCP loses and reorders nothing, it only delays."""
        deadline_ns = DEADLINE_NS if udp else int(self._stall * 1e9)
        if track.encoding == "JPEG":
            return JpegStream(
                self._offer, self._set_state, payload_type=track.payload_type, size=track.size, deadline_ns=deadline_ns
            )
        return VideoStream(
            self._offer, self._set_state, encoding=track.encoding, payload_type=track.payload_type,
            sets=track.parameter_sets, deadline_ns=deadline_ns, window=WINDOW if udp else 0, alone=not udp,
        )  # fmt: skip

    def _open_port_pair(self) -> tuple[socket.socket, socket.socket]:
        """Open two sockets at an even port and the next one, at our address as the camera sees it."""
        address = self._connection.own_address
        for _ in range(PORTS):
            first = open_port(address, 0)
            port = first.getsockname()[1]
            if port % 2 == 0:
                with contextlib.suppress(SourceError):
                    return first, open_port(address, port + 1)
            first.close()
        raise SourceError(f"UDP: no free pair of ports in {PORTS} attempts")

    def _expect(self, agreed: Transport) -> None:
        """Accept packets only from the address that the camera announced."""
        assert self._receiver
        assert self._reports
        peer = self._connection.peer_address
        with contextlib.suppress(OSError):  # a name, or an address of another family
            socket.inet_pton(self._receiver.family, agreed.source)
            peer = agreed.source
        known = False
        if agreed.server_ports:
            with contextlib.suppress(OSError):
                for receiver, port in zip((self._receiver, self._reports), agreed.server_ports, strict=True):
                    receiver.connect((peer, port))
                    # Opens the way back through address translation; the camera ignores it as a packet.
                    receiver.send(receiver_report(self._ssrc, b"", AGENT))
                known = True
        sender = "" if known else peer
        self._sockets.enter_context(DatagramReader(self._receiver, self, self._poller, sender))
        self._sockets.enter_context(DatagramReader(self._reports, _Reports(self._report), self._poller, sender))

    def _report(self, data: memoryview, now_ns: int) -> None:
        assert self._stream
        report, bye = parse_rtcp(data, self._stream.receiver.ssrc)
        if report:
            self._heard_report = (report.middle, now_ns)
        if bye:
            self._connection.fail("the camera ended the stream (RTCP BYE)")

    async def play(self) -> None:
        """Offer pictures until the camera stops. Raises SilentError if no packet arrived at all.

        Raises RtspError if the connection breaks, SourceError if packets stop.
        """
        assert self._stream
        began = since = checked_at = time.monotonic()
        if not self._stream.offered:  # some cameras send before they answer
            self._stream.report_state("connected, no picture yet")
        duties = _periodic(REPORT_SECONDS, self._send_report), _periodic(self._timeout / 2, self._send_keepalive)
        while not self._connection.failure:
            await aligned_sleep(CHECK_SECONDS)
            now = time.monotonic()
            for duty in duties:
                duty(now)
            checked_at, before = now, checked_at
            heard = max(began, self._stream.packets_ns / 1e9)
            if now - before > 2 * CHECK_SECONDS + LATE_SECONDS and heard >= since:
                since = now  # this process was suspended, so packets may wait unread: start the silence again, once
                continue
            self.expire_pictures()
            if not self._stream.packets_ns:
                if now - since > self._stall:
                    raise SilentError(f"the camera plays, but no packet arrived within {self._stall:g} s")
                continue
            if now - max(since, heard) > self._stall:
                raise SourceError(f"no packet for {self._stall:g} s")
            self._stream.check_state("no packets", self._dropped)
        raise RtspError(self._connection.failure)

    def _dropped(self) -> int:
        return dropped(self._receiver) if self._receiver else 0

    def _send_report(self) -> None:
        assert self._stream
        receiver = self._stream.receiver
        if receiver.ssrc < 0:
            return
        middle, came = self._heard_report
        delay = (time.monotonic_ns() - came) * 65_536 // 1_000_000_000 if middle else 0
        block = receiver.reception.report_block(receiver.ssrc, middle, min(delay, 0xFFFF_FFFF))
        self._send_rtcp(receiver_report(self._ssrc, block, AGENT))

    def _request_key_frame(self) -> None:
        """Request a key frame if pictures are damaged and the camera supports that."""
        stream = self._stream
        if (
            not isinstance(stream, VideoStream)
            or not stream.is_key_needed
            or not (self.track and self.track.key_request)
        ):
            return
        now = time.monotonic()
        if now - self._key_requested_at >= KEY_SECONDS and stream.receiver.ssrc >= 0:
            self._key_requested_at, self._key_requests = now, self._key_requests + 1
            request = key_frame_request(self._ssrc, stream.receiver.ssrc)
            if self.track.key_request == FIR:
                request = full_intra_request(self._ssrc, stream.receiver.ssrc, self._key_requests)
            self._send_rtcp(receiver_report(self._ssrc, b"", AGENT) + request)

    def _send_rtcp(self, data: bytes) -> None:
        if self._reports is None:
            assert self._channels
            self._connection.write(interleaved(self._channels[1], data))
        else:
            with contextlib.suppress(OSError):
                self._reports.send(data)

    def _send_keepalive(self) -> None:
        self._connection.send_keepalive(self._control)

    def close(self) -> None:
        """End the session and close its sockets, without waiting for the camera's answer."""
        self._connection.close(self._control)
        self._sockets.close()
        for receiver in (self._receiver, self._reports):
            if receiver:
                receiver.close()


class _Reports:
    """A `PacketReceiver` that passes on the packets of the port for reports."""

    has_pending = False

    def __init__(self, report: Callable[[memoryview, int], None]) -> None:
        self._report = report

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Pass on each packet."""
        for start in range(0, len(packets), size):
            self._report(packets[start : start + size], now_ns)
        return False

    def expire_pictures(self) -> None:
        """Do nothing: reports are never incomplete."""


def _pretty(encoding: str) -> str:
    return encoding if encoding == "JPEG" else f"{encoding[0]}.{encoding[1:]}"


def _periodic(period: float, act: Callable[[], None]) -> Callable[[float], None]:
    """Return a function that calls `act` every `period` seconds, if called with the time often enough."""
    following = time.monotonic() + period

    def act_if_due(now: float) -> None:
        nonlocal following
        if now >= following:
            following = now + period
            act()

    return act_if_due

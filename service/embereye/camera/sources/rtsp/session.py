"""One connection to an RTSP camera: describe, set up, play, stay alive, tear down."""

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from embereye.camera.sources import tls
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import DatagramReader, dropped, open_port
from embereye.camera.sources.rtp.stream import CHECK_SECONDS, JpegStream
from embereye.camera.sources.source import Offer, SetState, read_pause
from embereye.process.aligned_sleep import aligned_sleep
from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.rtp.depacketize import DEADLINE_NS
from embereye.wire.rtp.packet import parse_rtcp, receiver_report
from embereye.wire.rtsp.messages import (
    DEFAULT_TIMEOUT,
    Interleaved,
    Message,
    RtspError,
    RtspParser,
    Track,
    Transport,
    interleaved,
    printable,
    read_description,
    read_session,
    read_transport,
    request,
)

REPORT_SECONDS = 5.0  # between two receiver reports (RFC 3550, 6.2)
PORTS = 16  # pairs that are tried in search of an even port
AGENT = "embereye"
_DEFAULT_PORTS = {"rtsp": 554, "rtsps": 322}
_HINTS = {
    401: "check the credentials", 403: "check the credentials", 404: "check the path in the source",
    453: "it has no bandwidth for another viewer", 454: "it has forgotten the session", 461: "it refuses the transport",
    503: "it may have too many viewers",
}  # fmt: skip


class SilentError(Exception):
    """No packet came although the camera said that it plays."""


class RtspSession(asyncio.Protocol):
    """One connection to one camera."""

    def __init__(  # noqa: PLR0913 -- one dial, all that it needs by name
        self, url: str, user: str, password: str, offer: Offer, set_state: SetState,
        *, poller: SocketPoller, dial: float, stall: float, proven: bool,
    ) -> None:  # fmt: skip
        self.track: Track | None = None  # None after `describe`: only a player can show what there is
        self._url = url
        self._user, self._password = user, password
        self._proven = proven
        self._offer, self._set_state, self._poller = offer, set_state, poller
        self._dial, self._stall = dial, stall
        self._parser = RtspParser()
        self._transport: asyncio.Transport | None = None
        self._failure = ""
        self._sequence = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._challenge: Challenge | None = None
        self._uses = 0  # of the challenge's nonce
        self._keepalive = "OPTIONS"
        self._control = url
        self._id = ""
        self._timeout = DEFAULT_TIMEOUT
        self._stream: JpegStream | None = None
        self._channels: tuple[int, int] | None = None
        self._sockets = contextlib.ExitStack()
        self._receiver: socket.socket | None = None
        self._reports: socket.socket | None = None
        self._own = secrets.randbits(32)  # our SSRC
        self._heard_report = (0, 0)  # its middle bits, and when it came, monotonic nanoseconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's derive from none of asyncio's classes

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every request that waits for an answer."""
        self._fail(f"the connection broke: {exc}" if exc else "it closed the connection")

    def data_received(self, data: bytes) -> None:
        """Handle answers and packets."""
        if self._failure:
            return
        began = time.thread_time()
        try:
            found = self._parser.feed(data)
        except RtspError as error:
            self._fail(str(error))
            return
        now = time.monotonic_ns()
        for item in found:
            if isinstance(item, Interleaved):
                self._packet(item, now)
            elif item.status == 0:
                self._write(f"RTSP/1.0 501 Not Implemented\r\nCSeq: {max(0, item.sequence)}\r\n\r\n".encode())
            elif (waiting := self._answers.pop(item.sequence, None)) and not waiting.done():
                waiting.set_result(item)
        if (pause := read_pause(time.thread_time() - began)) and self._transport and not self._failure:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(pause, self._read_on)

    def _read_on(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def _packet(self, item: Interleaved, now: int) -> None:
        if not self._stream or not self._channels:
            return
        if item.channel == self._channels[0]:
            self._stream.receive_packets(memoryview(item.data), len(item.data), now)
        elif item.channel == self._channels[1]:
            self._report(memoryview(item.data), now)

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(RtspError(self._failure))
        self._answers.clear()
        if self._transport:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(data)

    async def _connect(self) -> None:
        parts = urlsplit(self._url)
        secure = tls.context(proven=self._proven) if parts.scheme == "rtsps" else None
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        try:
            async with asyncio.timeout(self._dial):
                await asyncio.get_running_loop().create_connection(lambda: self, parts.hostname or "", port, ssl=secure)
        except TimeoutError as error:
            raise SourceError(f"cannot connect within {self._dial:g} s") from error
        except ssl.SSLError as error:
            raise tls.refusal(error) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise SourceError(f"cannot connect: {reason}") from error

    async def _ask(self, method: str, url: str, headers: dict[str, str] | None = None) -> Message:
        """The answer to a request; a challenge is met once, and once more if only the nonce was too old."""
        for attempt in range(3):
            answer = await self._exchange(method, url, headers or {})
            if answer.status != 401:
                return answer
            challenge = strongest(answer.headers.get("www-authenticate", ()))
            refused = self._challenge is not None and attempt > 0 and not (challenge and challenge.stale)
            if challenge is None or not self._user or refused:
                return answer
            self._challenge, self._uses = challenge, 0
        return answer

    async def _exchange(self, method: str, url: str, headers: dict[str, str]) -> Message:
        if self._failure:
            raise RtspError(self._failure)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._send(method, url, headers)] = answer
        try:
            async with asyncio.timeout(self._dial):
                return await answer
        except TimeoutError as error:
            raise SourceError(f"no answer to {method} within {self._dial:g} s") from error
        finally:
            self._answers = {number: other for number, other in self._answers.items() if other is not answer}

    def _send(self, method: str, url: str, headers: dict[str, str]) -> int:
        self._sequence += 1
        headers = {"User-Agent": AGENT, **headers}
        if self._id:
            headers["Session"] = self._id
        if self._challenge:
            self._uses += 1
            headers["Authorization"] = authorize(
                self._challenge, method, url, self._user, self._password,
                count=self._uses, client_nonce=secrets.token_hex(8),
            )  # fmt: skip
        self._write(request(method, url, self._sequence, headers))
        return self._sequence

    @staticmethod
    def _check(method: str, answer: Message) -> None:
        if answer.status != 200:
            hint = f": {_HINTS[answer.status]}" if answer.status in _HINTS else ""
            raise SourceError(f"{method}: {answer.status} {printable(answer.reason)}{hint}")

    async def describe(self) -> str:
        """Connect, and choose a track; returns where the camera says that it has gone, if it does."""
        await self._connect()
        options = await self._ask("OPTIONS", self._url)
        if "GET_PARAMETER" in options.header("public").upper():
            self._keepalive = "GET_PARAMETER"
        answer = await self._ask("DESCRIBE", self._url, {"Accept": "application/sdp"})
        if 300 <= answer.status < 400:
            return self._moved(answer.header("location"))
        self._check("DESCRIBE", answer)
        base = answer.header("content-base") or answer.header("content-location") or self._url
        tracks, self._control = read_description(answer.body, base)
        pictures = [track for track in tracks if track.encoding == "JPEG"]
        if pictures:
            self.track = pictures[0]
        elif not any(track.encoding in {"H264", "H265"} for track in tracks):
            names = ", ".join(sorted({f"{track.media} {track.encoding}".strip() for track in tracks}))
            raise SourceError(f"it has no JPEG, H.264 or H.265 track, only: {printable(names) or 'nothing'}")
        return ""

    def _moved(self, location: str) -> str:
        try:
            parts = urlsplit(location)
            valid = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        # A redirect away from TLS would send the credentials in the open.
        if not valid or (self._url.startswith("rtsps:") and parts.scheme != "rtsps"):
            raise SourceError(f'redirected to "{printable(location.rpartition("@")[2])}", which cannot be followed')
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    async def set_up(self, *, udp: bool) -> None:
        """Agree on a transport: the one asked for, or the other one where the camera refuses it."""
        for way in (udp, not udp):
            answer = await self._try(udp=way)
            if answer.status != 461:
                break
        self._check("SETUP", answer)
        self._id, self._timeout = read_session(answer.header("session"))
        agreed = read_transport(answer.header("transport"))
        if self._receiver is None:
            self._channels = agreed.channels or (0, 1)
        else:
            self._expect(agreed)
        self._check("PLAY", await self._ask("PLAY", self._control, {"Range": "npt=0.000-"}))

    async def _try(self, *, udp: bool) -> Message:
        assert self.track
        self._stream = JpegStream(
            self._offer, self._set_state, payload_type=self.track.payload_type, size=self.track.size,
            deadline_ns=DEADLINE_NS if udp else int(self._stall * 1e9),  # a connection loses nothing, it only waits
        )  # fmt: skip
        if not udp:
            self._channels = (0, 1)  # some cameras send before they answer
            return await self._ask("SETUP", self.track.control, {"Transport": "RTP/AVP/TCP;unicast;interleaved=0-1"})
        self._receiver, self._reports = self._pair()
        first = self._receiver.getsockname()[1]
        answer = await self._ask(
            "SETUP", self.track.control, {"Transport": f"RTP/AVP;unicast;client_port={first}-{first + 1}"}
        )
        if answer.status != 200:
            self._receiver.close()
            self._reports.close()
            self._receiver = self._reports = None
        return answer

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        """Two sockets at an even port and the one behind it, at the address that the camera knows us by."""
        assert self._transport
        own = self._transport.get_extra_info("sockname")[0]
        for _ in range(PORTS):
            first = open_port(own, 0)
            port = first.getsockname()[1]
            if port % 2 == 0:
                with contextlib.suppress(SourceError):
                    return first, open_port(own, port + 1)
            first.close()
        raise SourceError(f"no free pair of ports in {PORTS} attempts")

    def _expect(self, agreed: Transport) -> None:
        """Accept packets from where the camera says that it sends them, and from nowhere else."""
        assert self._transport
        assert self._receiver
        assert self._reports
        assert self._stream
        peer = agreed.source or self._transport.get_extra_info("peername")[0]
        if agreed.server_ports:
            for own, port in zip((self._receiver, self._reports), agreed.server_ports, strict=True):
                with contextlib.suppress(OSError, ValueError):  # a name, or an address of another family
                    own.connect((peer, port))
                    # Opens the way back through address translation, and is no packet to anybody.
                    own.send(receiver_report(self._own, b"", AGENT))
        self._sockets.enter_context(DatagramReader(self._receiver, self._stream, self._poller))
        self._sockets.enter_context(DatagramReader(self._reports, _Reports(self._report), self._poller))

    def _report(self, data: memoryview, now_ns: int) -> None:
        report, bye = parse_rtcp(data)
        if report:
            self._heard_report = (report.middle, now_ns)
        if bye:
            self._fail("it said good-bye")

    async def play(self) -> None:
        """Offer pictures until the camera stops; SilentError if no packet came at all.

        RtspError where the connection breaks, SourceError where packets stop.
        """
        assert self._stream
        began = time.monotonic()
        if not self._stream.offered:  # some cameras send before they answer
            self._stream.report_state("connected, no picture yet")
        duties = _every(REPORT_SECONDS, self._send_report), _every(self._timeout / 2, self._stay_alive)
        while not self._failure:
            await aligned_sleep(CHECK_SECONDS)
            self._stream.expire_pictures()
            now = time.monotonic()
            for duty in duties:
                duty(now)
            if not self._stream.packets_ns:
                if now - began > self._stall:
                    raise SilentError(f"it plays, but no packet came within {self._stall:g} s")
                continue
            if now - self._stream.packets_ns / 1e9 > self._stall:
                raise SourceError(f"no packet for {self._stall:g} s")
            self._stream.check_state("no packets", self._dropped)
        raise RtspError(self._failure)

    def _dropped(self) -> int:
        return dropped(self._receiver) if self._receiver else 0

    def _send_report(self) -> None:
        assert self._stream
        receiver = self._stream.receiver
        if receiver.ssrc < 0:
            return
        middle, came = self._heard_report
        delay = (time.monotonic_ns() - came) * 65_536 // 1_000_000_000 if middle else 0
        block = receiver.reception.block(receiver.ssrc, middle, min(delay, 0xFFFF_FFFF))
        data = receiver_report(self._own, block, AGENT)
        if self._reports is None:
            assert self._channels
            self._write(interleaved(self._channels[1], data))
        else:
            with contextlib.suppress(OSError):
                self._reports.send(data)

    def _stay_alive(self) -> None:
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(self._alive)
        self._answers.clear()
        self._answers[self._send(self._keepalive, self._control, {})] = waiting

    def _alive(self, waiting: "asyncio.Future[Message]") -> None:
        if waiting.cancelled() or waiting.exception():
            return
        answer = waiting.result()
        if answer.status == 454:
            self._fail("it has forgotten the session")
        elif answer.status == 401:
            challenge = strongest(answer.headers.get("www-authenticate", ()))
            if challenge and challenge.nonce != (self._challenge and self._challenge.nonce):
                self._challenge, self._uses = challenge, 0
                self._stay_alive()

    def close(self) -> None:
        """End the session and close its sockets, without waiting for the camera's answer."""
        if self._id and not self._failure:
            self._send("TEARDOWN", self._control, {})
        self._failure = self._failure or "closed"
        for waiting in self._answers.values():
            waiting.cancel()
        self._sockets.close()
        for own in (self._receiver, self._reports):
            if own:
                own.close()
        if self._transport:
            self._transport.close()


class _Reports:
    """A `PacketReceiver` that passes on what comes to the port for reports."""

    pending = False

    def __init__(self, report: Callable[[memoryview, int], None]) -> None:
        self._report = report

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Pass on each of them."""
        for start in range(0, len(packets), size):
            self._report(packets[start : start + size], now_ns)
        return False

    def expire_pictures(self) -> None:
        """No packet is waited for."""


def _every(period: float, act: Callable[[], None]) -> Callable[[float], None]:
    """A function that calls `act` every `period` seconds, if it is called with the time often enough."""
    following = time.monotonic() + period

    def act_if_due(now: float) -> None:
        nonlocal following
        if now >= following:
            following = now + period
            act()

    return act_if_due

"""One connection to an RTSP camera: requests, answers, credentials, and the packets in between.

asyncio's transport reads requests and answers until PLAY; then the `SocketPoller` reads the socket together with those
of other cameras, except over TLS. `fail` ends the connection once, with the first reason.
"""

import asyncio
import contextlib
import os
import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from embereye.camera.sources import tls
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import read_pause, refusal_reason
from embereye.process.connecting import connect_any
from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.rtsp.messages import Interleaved, Message, RtspError, RtspParser, request

AGENT = "embereye"
ATTEMPTS = 3  # per request: without credentials, with them, and once more if the nonce was stale
OUTGOING_LIMIT = 64 * 1024  # unread bytes after which the camera is sent nothing more
DEFAULT_PORTS = {"rtsp": 554, "rtsps": 322}


@dataclass(frozen=True)
class Endpoint:
    """The camera's address and the credentials for it."""

    url: str  # without credentials
    user: str = ""
    password: str = ""
    verified: bool = True  # require a trusted certificate, if it uses TLS


class RtspConnection(asyncio.Protocol):
    """The connection; use it on the event loop. `handle_packets` gets the packets of each read and their arrival time.

    Arrival times are monotonic nanoseconds. `dial`: seconds for connecting and for each answer. `incomplete` returns
    True if the rest of a picture is about to arrive.
    """

    def __init__(
        self, endpoint: Endpoint, dial: float, handle_packets: Callable[[Sequence[Interleaved], int], None],
        incomplete: Callable[[], bool] = bool,
    ) -> None:  # fmt: skip
        self.failure = ""  # why the connection ended; empty: it is open
        self.session = ""  # the session's id, sent with every request once known
        self.keepalive = "OPTIONS"  # the method of keep-alive requests
        self._endpoint = endpoint
        self._dial = dial
        self._handle_packets = handle_packets
        self._incomplete = incomplete
        self._parser = RtspParser()
        self._transport: asyncio.Transport | None = None
        self._sequence = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._challenge: Challenge | None = None
        self._uses = 0  # of the challenge's nonce
        self._poller: SocketPoller | None = None  # reads the socket instead of the transport
        self._descriptor = -1  # of the socket, while the poller reads it; else -1
        self._unanswered: asyncio.TimerHandle | None = None  # ends the wait for the answer to a keep-alive request

    @property
    def is_challenged(self) -> bool:
        """True if the camera has asked for credentials."""
        return self._challenge is not None

    @property
    def own_address(self) -> str:
        """Our address, as the camera sees it."""
        assert self._transport
        return str(self._transport.get_extra_info("sockname")[0])

    @property
    def peer_address(self) -> str:
        """The camera's address."""
        assert self._transport
        return str(self._transport.get_extra_info("peername")[0])

    async def connect(self) -> None:
        """Connect; raise SourceError if that fails. Cancelling it leaves nothing open."""
        parts = urlsplit(self._endpoint.url)
        secure = tls.context(verified=self._endpoint.verified) if parts.scheme == "rtsps" else None
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        try:
            async with asyncio.timeout(self._dial):
                await asyncio.get_running_loop().create_connection(
                    lambda: self,
                    sock=await connect_any(host, port),
                    ssl=secure,
                    server_hostname=host if secure else None,
                )
        except TimeoutError as error:
            raise SourceError(f"cannot connect within {self._dial:g} s") from error
        except ssl.SSLError as error:
            raise tls.refusal(error) from error
        except OSError as error:
            raise SourceError(f"cannot connect: {refusal_reason(error)}") from error

    def read_together(self, poller: SocketPoller) -> None:
        """Let `poller` read the socket together with other cameras' from now on; the transport still reads TLS."""
        transport = self._transport
        if transport is None or transport.is_closing() or self.failure or transport.get_extra_info("ssl_object"):
            return
        transport.pause_reading()
        self._poller = poller
        self._resume_polling()

    def _resume_polling(self) -> None:
        if self._poller and self._transport and not self._transport.is_closing() and not self.failure:
            self._descriptor = self._transport.get_extra_info("socket").fileno()
            self._poller.add(self._descriptor, self._read, patient=True)

    def _stop_polling(self) -> None:
        if self._poller and self._descriptor >= 0:
            self._poller.remove(self._descriptor)
            self._descriptor = -1

    def _drop_unread(self) -> None:
        """Read the pending data: closing with unread data resets the connection, and TEARDOWN may be lost."""
        if self._poller and self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.readv(self._descriptor, [self._poller.buffer])

    def _read(self) -> bool:
        assert self._poller
        buffer = self._poller.buffer
        try:
            size = os.readv(self._descriptor, [buffer])
        except BlockingIOError:
            return False
        except OSError as error:
            self.fail(f"the connection broke: {error.strerror}")
            return False
        if not size:
            self.fail("the camera closed the connection")
            return False
        self.data_received(buffer[:size])
        return self._incomplete()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's transports derive from none of asyncio's classes
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every request that waits for an answer."""
        self._stop_polling()
        self.fail(f"the connection broke: {exc}" if exc else "the camera closed the connection")

    def data_received(self, data: bytes | memoryview) -> None:
        """Handle answers, requests and packets."""
        if self.failure:
            return
        began = time.thread_time()
        try:
            items = self._parser.feed(data)
        except RtspError as error:
            self.fail(str(error))
            return
        now = time.monotonic_ns()
        if packets := [item for item in items if isinstance(item, Interleaved)]:
            self._handle_packets(packets, now)
        for item in items:
            if isinstance(item, Message):
                self._handle_message(item)
        if (pause := read_pause(time.thread_time() - began)) and self._transport and not self.failure:
            resume = self._resume_reading
            if self._poller:
                self._stop_polling()
                resume = self._resume_polling
            else:
                self._transport.pause_reading()
            asyncio.get_running_loop().call_later(pause, resume)

    def _handle_message(self, message: Message) -> None:
        if message.status == 0:
            self.write(f"RTSP/1.0 501 Not Implemented\r\nCSeq: {max(0, message.sequence)}\r\n\r\n".encode())
        elif (waiting := self._pending_request(message)) and not waiting.done():
            waiting.set_result(message)

    def _pending_request(self, answer: Message) -> asyncio.Future[Message] | None:
        """Return the request that `answer` belongs to. Some cameras leave out CSeq or write a wrong number."""
        if not 1 <= answer.sequence <= self._sequence and len(self._answers) == 1:
            return self._answers.popitem()[1]
        return self._answers.pop(answer.sequence, None)

    def _resume_reading(self) -> None:
        if self._transport and not self._transport.is_closing() and self._poller is None:
            self._transport.resume_reading()

    def fail(self, reason: str) -> None:
        """End the connection. Waiting requests fail with the first `reason` that was given."""
        self.failure = self.failure or reason
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(RtspError(self.failure))
        self._answers.clear()
        self._stop_waiting()
        self._stop_polling()
        if self._transport:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send `data`, unless the connection is closed or the camera does not read."""
        transport = self._transport
        if transport and not transport.is_closing() and transport.get_write_buffer_size() < OUTGOING_LIMIT:
            transport.write(data)

    async def ask(
        self, method: str, url: str, headers: dict[str, str] | None = None, *, patience: float = 1.0
    ) -> Message:
        """Send a request and return the answer, with credentials if the camera demands them.

        `patience` multiplies the time limit. Raises SourceError if no answer comes in time, RtspError if the connection
        breaks.
        """
        for attempt in range(ATTEMPTS):
            answer = await self._exchange(method, url, headers or {}, patience * self._dial)
            if answer.status != 401:
                return answer
            challenge = strongest(answer.headers.get("www-authenticate", ()))
            refused = self._challenge is not None and attempt > 0 and not (challenge and challenge.stale)
            if challenge is None or not self._endpoint.user or refused:
                return answer
            self._challenge, self._uses = challenge, 0
        return answer

    async def _exchange(self, method: str, url: str, headers: dict[str, str], seconds: float) -> Message:
        if self.failure:
            raise RtspError(self.failure)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._send(method, url, headers)] = answer
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            raise SourceError(f"no answer to {method} within {seconds:g} s") from error
        finally:
            self._answers = {number: other for number, other in self._answers.items() if other is not answer}

    def _send(self, method: str, url: str, headers: dict[str, str]) -> int:
        self._sequence += 1
        headers = {"User-Agent": AGENT, **headers}
        if self.session:
            headers["Session"] = self.session
        if self._challenge:
            self._uses += 1
            headers["Authorization"] = authorize(
                self._challenge, method, url, self._endpoint.user, self._endpoint.password,
                count=self._uses, client_nonce=secrets.token_hex(8),
            )  # fmt: skip
        self.write(request(method, url, self._sequence, headers))
        return self._sequence

    def send_keepalive(self, url: str, *, repeated: bool = False) -> None:
        """Send a keep-alive request without waiting. The connection ends if the camera no longer knows the session.

        If the camera requests credentials again, the request is `repeated` with them. If the camera refuses it or does
        not answer in time, OPTIONS is used instead, which all cameras know.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Message] = loop.create_future()

        def check_answer(answered: asyncio.Future[Message]) -> None:
            self._stop_waiting()
            if answered.cancelled() or answered.exception():
                return
            answer = answered.result()
            if answer.status == 454:
                self.fail("the camera has dropped the session")
            elif answer.status == 401 and not repeated:
                challenge = strongest(answer.headers.get("www-authenticate", ()))
                if challenge and challenge.nonce != (self._challenge and self._challenge.nonce):
                    self._challenge, self._uses = challenge, 0
                    self.send_keepalive(url, repeated=True)
            elif answer.status >= 400:
                self._keep_alive_otherwise(url)

        waiting.add_done_callback(check_answer)
        self._answers.clear()
        self._answers[self._send(self.keepalive, url, {})] = waiting
        self._stop_waiting()
        self._unanswered = loop.call_later(self._dial, self._keep_alive_otherwise, url)

    def _keep_alive_otherwise(self, url: str) -> None:
        if self.keepalive != "OPTIONS" and not self.failure:
            self.keepalive = "OPTIONS"
            self.send_keepalive(url)

    def _stop_waiting(self) -> None:
        if self._unanswered:
            self._unanswered.cancel()

    def close(self, control: str) -> None:
        """End the session at the URL `control`, if there is one, and close the connection, without waiting."""
        if self.session and not self.failure:
            self._send("TEARDOWN", control, {})
        self.failure = self.failure or "closed"
        for waiting in self._answers.values():
            waiting.cancel()
        self._stop_waiting()
        self._drop_unread()
        self._stop_polling()
        if self._transport:
            self._transport.close()

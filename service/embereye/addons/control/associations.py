"""Associations: the hub's streams without HTTP/2, as delimited protobuf over TCP, TLS or a Unix socket.

A client connects and sends one `Associate` message with its token and the name of a call. The hub checks both, answers
`Associated`, and passes all further messages to the call's `Stream`.

| state of an association | ends when |
| --- | --- |
| unidentified: no valid `Associate` yet | nothing valid arrives in UNIDENTIFIED_SECONDS, or too many are unidentified |
| open: has a `Stream` | silent for IDLE_SECONDS, token revoked, invalid message, or the stream raises ReleasedError |
| over: `Released` with a reason was sent | the client has read it, at the latest after LINGER_SECONDS |

Connections count from their first packet, including the TLS handshake. A client that does not read is not read either.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from google.protobuf.message import DecodeError, Message

from embereye.hub.access.keeper import Access, DeniedError, RevokedError, SlowDownError
from embereye.hub.refusals import ForbiddenError
from embereye.hub.roles import Principal, Role
from embereye.process.addresses import place_of
from embereye.process.admission import Admission
from embereye.process.files import system_errors
from embereye.process.http.pages import all_interfaces
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.listener import TlsListener
from embereye.v1.association_pb2 import Associate, Associated, Released
from embereye.wire.delimited import Buffers, DelimitedBuffers, DelimitedError, DelimitedReader, delimited

logger = logging.getLogger(__name__)
VERSION = 1
MAX_ASSOCIATE = 8 * 1024  # bytes of the first message
MAX_ASSOCIATIONS = 512
MAX_UNIDENTIFIED = 128  # associations without a valid `Associate` message yet
UNIDENTIFIED_SECONDS = 5.0  # time for that message
IDLE_SECONDS = 120.0  # without a byte
UNEXPECTED = "the message is not of the expected type"
CHECK_SECONDS = 0.5  # between two checks of these times
LINGER_SECONDS = 1.0  # time for a client to read the reason of its release
UNSENT = 256 * 1024  # unread bytes above which the client is not read either
LOCAL = "this machine"  # the address of clients at the Unix socket


class ReleasedError(Exception):
    """The association has to end; the text says why."""


class Stream(Protocol):
    """The receiver of an association's messages."""

    def receive(self, messages: Sequence[Any]) -> None:
        """Process messages that arrived together, in order. ReleasedError or DecodeError ends the association.

        Each message is bytes or, if the call has buffers, possibly a memoryview of a buffer to be returned there.
        """

    def close(self) -> None:
        """Clean up: the connection is gone."""


@dataclass(frozen=True)
class Call:
    """A kind of stream that clients can open."""

    open: "Callable[[Association], Stream]"
    response: type[Message]  # has the field `released`
    role: Role
    max_message: int = 64 * 1024  # bytes
    buffers: Buffers | None = None  # for long messages


class Associations:
    """Listens for associations, and counts and limits them."""

    def __init__(self, access: Access, calls: Mapping[str, Call], *, most: int = MAX_ASSOCIATIONS) -> None:
        self.access = access
        self.calls = calls
        self.tasks = Tasks()
        self.refused = 0  # connections refused for lack of room or without a valid token
        self._open: Admission[Association] = Admission(most)
        self._servers: list[asyncio.Server | TlsListener] = []
        self._socket: Path | None = None

    def __len__(self) -> int:
        return sum(1 for association in self._open if association.who is not None)

    async def listen(self, host: str, port: int, tls: ServerTls | None) -> int:
        """Accept connections at `host:port`; returns the port. UserError if the address cannot be used."""
        with system_errors(f"cannot listen for associations on {host}:{port}"):
            if tls is not None:
                listener = TlsListener(host, port, tls, lambda: Association(self), shared=False)
                listener.start(self.tasks)
                self._servers.append(listener)
                return int(listener.sockets[0].getsockname()[1])
            server = await asyncio.get_running_loop().create_server(
                lambda: Association(self), all_interfaces(host), port, backlog=1024
            )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path) -> None:
        """Accept connections at a Unix socket, which only this process's user can open; UserError as in `listen`."""
        before = os.umask(0o177)
        try:
            server = await asyncio.get_running_loop().create_unix_server(lambda: Association(self), str(path))
        except OSError as error:
            raise UserError(f"cannot listen for associations on {path}: {error.strerror or error}") from error
        finally:
            os.umask(before)
        self._servers.append(server)
        self._socket = path

    async def run(self) -> None:
        """Release associations that are silent for too long, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = loop.time()
            for association in self._open:
                association.check_silence(now)

    async def close(self, reason: str) -> None:
        """Stop listening, and release all associations."""
        for server in self._servers:
            server.close()
        for association in self._open:
            association.release(reason)
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        await self.tasks.stop()

    def admit(self, association: "Association") -> str:
        """Count a new connection; returns why it cannot be admitted, or '' if it can."""
        unidentified = [known for known in self._open if known.who is None]
        if len(unidentified) >= MAX_UNIDENTIFIED:
            # Drop the oldest unidentified one at once: releasing it with a reason would take up to a second.
            min(unidentified, key=lambda known: known.since).drop()
        address = association.address
        if self._open.admit(association, "" if address == LOCAL else address):
            return ""
        self.refused += 1
        if len(self._open) >= self._open.most:
            return f"there are {self._open.most} associations, and no more are accepted: try again later"
        return (
            f"there are {self._open.clients[place_of(address)]} associations from {address}, and no more are accepted"
        )

    def forget(self, association: "Association") -> None:
        """Remove a connection that has ended."""
        self._open.forget(association)


class Association(asyncio.Protocol):
    """One association; see the module for its states."""

    def __init__(self, associations: Associations) -> None:
        self.who: Principal | None = None  # None: unidentified
        self.address = ""
        self.since = self.heard = asyncio.get_running_loop().time()
        self._associations = associations
        self._reader = DelimitedReader(MAX_ASSOCIATE)
        self._transport: asyncio.Transport | None = None
        self._abort: Callable[[], None] | None = None
        self._stream: Stream | None = None
        self._response: type[Message] = Associated
        self._paused: set[str] = set()  # reasons why reading is paused
        self._closed = asyncio.Event()
        self._over = False

    # The connection

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Admit a client that starts a TLS handshake; see `TlsListener`."""
        self.address, self._abort = address, abort
        return not self._associations.admit(self)

    def abandon(self, why: str) -> None:
        """Forget a client whose TLS handshake failed."""
        self._associations.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, if `begin` has not done so."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._abort is not None:
            return
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]).removeprefix("::ffff:") if isinstance(peer, tuple) and peer else LOCAL
        if problem := self._associations.admit(self):
            self.send(Associated(released=Released(reason=problem)))
            self._over = True
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the stream and forget the client."""
        self._over = True
        self._closed.set()
        self._associations.forget(self)
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self.pause_reading("unread")

    def resume_writing(self) -> None:
        """Read from the client again."""
        self.resume_reading("unread")

    def data_received(self, data: bytes) -> None:
        """Pass complete messages to the stream; invalid ones end the association with a reason."""
        self._receive(self._reader.receive, data)

    def data_filled(self, reader: DelimitedBuffers, count: int) -> None:
        """Process the next `count` bytes in the space of `reader`, as in `data_received`."""
        self._receive(reader.advance, count)

    def _receive(self, read: Callable[[Any], Any], arrived: object) -> None:
        if self._over or self._transport is None:
            return
        self.heard = asyncio.get_running_loop().time()
        try:
            messages: list[Any] = read(arrived)
            if self._stream is None and messages:
                messages += self._associate(Associate.FromString(messages.pop(0)))
            if self._stream is not None and messages:
                self._stream.receive(messages)
        except DecodeError:
            self.release(UNEXPECTED)
        except (ReleasedError, DelimitedError) as error:
            self.release(str(error))

    # Identification

    def _associate(self, request: Associate) -> Sequence[bytes | memoryview]:
        """Identify the client and open its stream; returns messages that have arrived already."""
        access = self._associations.access
        if request.version != VERSION:
            raise ReleasedError(f"version {request.version} is not supported: this hub supports version {VERSION}")
        try:
            who = access.identify(request.token, self.address)
        except (DeniedError, SlowDownError) as error:
            self._associations.refused += 1
            raise ReleasedError(str(error)) from error
        call = self._associations.calls.get(request.call)
        if call is None:
            known = ", ".join(sorted(self._associations.calls))
            raise ReleasedError(f'there is no stream "{request.call[:80]}" for associations; there are: {known}')
        try:
            who.check_role(call.role)
            who.check_unlimited()
        except ForbiddenError as error:
            raise ReleasedError(str(error)) from error
        self.who, self._response, self._reader.limit = who, call.response, call.max_message
        self.send(Associated(name=who.name, max_message=call.max_message))
        self._stream = call.open(self)
        self._associations.tasks.start(self._end_on_revocation(who), name="association")
        return [] if call.buffers is None else self._receive_into(DelimitedBuffers(call.max_message, call.buffers))

    def _receive_into(self, reader: DelimitedBuffers) -> Sequence[bytes | memoryview]:
        """Receive further bytes directly into the reader's space; returns messages that are complete already."""
        assert self._transport is not None
        rest, complete = self._reader.take_rest(), list[bytes | memoryview]()
        while rest:
            space = reader.space()
            count = min(len(space), len(rest))
            space[:count], rest = rest[:count], rest[count:]
            complete += reader.advance(count)
        self._transport.set_protocol(_LongMessages(self, reader))
        return complete

    async def _end_on_revocation(self, who: Principal) -> None:
        """Release the association when its token is revoked."""
        try:
            async with self._associations.access.until_revoked(who):
                await self._closed.wait()
        except RevokedError as error:
            self.release(str(error))

    # Services for its stream

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `coroutine` as a task of the stream, which has to cancel it when closed."""
        return self._associations.tasks.start(coroutine, name="association-stream")

    def pause_reading(self, why: str = "stream") -> None:
        """Stop reading until `resume_reading` has been called for each reason."""
        self._paused.add(why)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self, why: str = "stream") -> None:
        """Remove one reason; read again if none is left."""
        self._paused.discard(why)
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Messages to the client

    def send(self, message: Message) -> None:
        """Send `message`, unless the association is over."""
        self.send_bytes(delimited(message.SerializeToString()))

    def send_bytes(self, data: bytes) -> None:
        """Send an encoded message with its length prefix, unless the association is over."""
        if not self._over and self._transport is not None:
            self._transport.write(data)

    def release(self, reason: str) -> None:
        """End the association and send the reason."""
        if self._over:
            return
        if self._transport is None:
            if self._abort is not None:
                self._abort()
            return
        if self.who is not None:
            logger.info("the association of %s from %s ends: %s", self.who.name, self.address, reason)
        self.send(self._response(released=Released(reason=reason)))
        self._over = True
        if self._stream is not None:  # close it now, so that it stops steering its actuator at once
            self._stream.close()
            self._stream = None
        # Closing a socket with unread data would discard the reason before the client reads it.
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client is gone, but the event loop does not know yet
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()

    def drop(self) -> None:
        """End the association without sending a reason."""
        self._over = True
        self._associations.forget(self)
        if self._transport is not None:
            self._transport.abort()
        elif self._abort is not None:
            self._abort()

    def check_silence(self, now: float) -> None:
        """Release the association if it is unidentified or silent for too long."""
        if self.who is None and now - self.since > UNIDENTIFIED_SECONDS:
            self.release(f"the client did not identify itself within {UNIDENTIFIED_SECONDS:g} s")
        elif now - self.heard > IDLE_SECONDS:
            self.release(f"the client was silent for {IDLE_SECONDS:g} s")


class _LongMessages(asyncio.BufferedProtocol):
    """The protocol of an association whose messages are received directly into buffers."""

    def __init__(self, association: Association, reader: DelimitedBuffers) -> None:
        self._reader = reader
        self._association = association
        self.pause_writing = association.pause_writing  # type: ignore[method-assign]
        self.resume_writing = association.resume_writing  # type: ignore[method-assign]
        self.connection_lost = association.connection_lost  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """The space for the next bytes."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Process the received bytes."""
        self._association.data_filled(self._reader, nbytes)

"""Streams of the hub without HTTP/2: delimited protobuf over TCP, TLS or a Unix socket, of callers who are known.

Whoever connects says within seconds who they are and what they want; then they are that stream's. Connections are
counted from their first packet on.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from google.protobuf.message import DecodeError, Message

from embereye.hub.access.keeper import Access, DeniedError, RevokedError, SlowDownError
from embereye.hub.access.roles import Principal, Role
from embereye.process.addresses import place_of
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
MAX_STRANGERS = 128  # of them, that have not said who they are
STRANGER_SECONDS = 5.0  # that they have for it
IDLE_SECONDS = 120.0  # without a byte
UNEXPECTED = "what arrived is not the message that was expected"
LOOK_SECONDS = 0.5
LINGER_SECONDS = 1.0  # for a peer to read why it is released
UNSENT = 256 * 1024  # bytes that wait for a peer to read them, from which on it is not read either
HERE = "this machine"  # the address of those who come by the Unix socket


class ReleasedError(Exception):
    """The association is to end; the text says why."""


class Stream(Protocol):
    """What the messages of an association are for."""

    def receive(self, messages: Sequence[Any]) -> None:
        """Take up those that came together, in order. ReleasedError, or DecodeError, ends the association.

        Each is bytes or, where the call has buffers, perhaps a memoryview of one, to be put back there.
        """
        ...

    def close(self) -> None:
        """The connection is gone."""
        ...


@dataclass(frozen=True)
class Call:
    """A stream that can be associated with."""

    open: "Callable[[Association], Stream]"
    response: type[Message]  # has `released`
    role: Role
    max_message: int = 64 * 1024  # bytes
    buffers: Buffers | None = None  # of those whose messages are long


class Associations:
    """Listens, and counts who is connected."""

    def __init__(self, access: Access, calls: Mapping[str, Call], *, most: int = MAX_ASSOCIATIONS) -> None:
        self.access = access
        self.calls = calls
        self.tasks = Tasks()
        self.refused = 0  # connections for want of room, and those that proved nothing
        self._most = most
        self._open: set[Association] = set()
        self._places: Counter[str] = Counter()
        self._servers: list[asyncio.Server | TlsListener] = []
        self._socket: Path | None = None

    def __len__(self) -> int:
        return sum(1 for one in self._open if one.who is not None)

    async def listen(self, host: str, port: int, tls: ServerTls | None) -> int:
        """Take connections at `host:port`; returns the port. UserError where that cannot be had."""
        try:
            if tls is not None:
                listener = TlsListener(host, port, tls, lambda: Association(self), shared=False)
                listener.start(self.tasks)
                self._servers.append(listener)
                return int(listener.sockets[0].getsockname()[1])
            server = await asyncio.get_running_loop().create_server(
                lambda: Association(self), all_interfaces(host), port, backlog=1024
            )
        except OSError as error:
            raise UserError(f"cannot listen for associations on {host}:{port}: {error.strerror or error}") from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path) -> None:
        """Take connections at a Unix socket, which nobody but this process's user can open; UserError as above."""
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
        """End what says nothing for too long, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time()
            for one in list(self._open):
                one.look(now)

    async def close(self, reason: str) -> None:
        """Take no more connections, and end those that there are."""
        for server in self._servers:
            server.close()
        for one in list(self._open):
            one.release(reason)
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        await self.tasks.stop()

    def admit(self, one: "Association") -> str:
        """Count a connection in; why it cannot be, '' where it can."""
        strangers = [other for other in self._open if other.who is None]
        if len(strangers) >= MAX_STRANGERS:
            # Those who prove nothing make room for who may, and at once: a word to each would take a second.
            min(strangers, key=lambda other: other.since).drop()
        if len(self._open) >= self._most:
            self.refused += 1
            return f"there are {self._most} associations, and no more are accepted: try again later"
        if one.address != HERE and self._places[one.place] * 2 >= self._most:
            self.refused += 1
            return f"there are {self._places[one.place]} associations from {one.address}, and no more are accepted"
        self._open.add(one)
        self._places[one.place] += 1
        return ""

    def forget(self, one: "Association") -> None:
        """The connection has ended."""
        if one in self._open:
            self._open.discard(one)
            self._places[one.place] -= 1
            if not self._places[one.place]:
                del self._places[one.place]


class Association(asyncio.Protocol):
    """One connection."""

    def __init__(self, associations: Associations) -> None:
        self.who: Principal | None = None
        self.address = ""
        self.place = ""
        self.since = self.heard = asyncio.get_running_loop().time()
        self._associations = associations
        self._reader = DelimitedReader(MAX_ASSOCIATE)
        self._transport: asyncio.Transport | None = None
        self._abort: Callable[[], None] | None = None
        self._stream: Stream | None = None
        self._response: type[Message] = Associated
        self._paused: set[str] = set()  # why it is not read
        self._closed = asyncio.Event()
        self._over = False

    # Connected

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Begin with a handshake of TLS. See `TlsListener`."""
        self.address, self.place, self._abort = address, place_of(address), abort
        return not self._associations.admit(self)

    def abandon(self, why: str) -> None:
        """The handshake has failed, which is the stranger's affair."""
        self._associations.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it in."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._abort is not None:
            return
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]).removeprefix("::ffff:") if isinstance(peer, tuple) and peer else HERE
        self.place = place_of(self.address)
        if problem := self._associations.admit(self):
            self.send(Associated(released=Released(reason=problem)))
            self._over = True
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        self._over = True
        self._closed.set()
        self._associations.forget(self)
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def pause_writing(self) -> None:
        """Whoever does not read is not read either."""
        self.pause_reading("unread")

    def resume_writing(self) -> None:
        """Go on."""
        self.resume_reading("unread")

    def data_received(self, data: bytes) -> None:
        """Hand whole messages on; what breaks the rules ends the association with a sentence."""
        self._receive(self._reader.receive, data)

    def data_filled(self, reader: DelimitedBuffers, count: int) -> None:
        """The same of long messages, once the next `count` bytes are in the `reader`'s space."""
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

    # Who is it?

    def _associate(self, request: Associate) -> Sequence[bytes | memoryview]:
        """Open the stream; its first messages, where they are here already and not read yet."""
        access = self._associations.access
        if request.version != VERSION:
            raise ReleasedError(f"version {request.version} is not spoken here: this hub speaks {VERSION}")
        try:
            who = access.identify(request.token, self.address)
        except (DeniedError, SlowDownError) as error:
            self._associations.refused += 1
            raise ReleasedError(str(error)) from error
        call = self._associations.calls.get(request.call)
        if call is None:
            known = ", ".join(sorted(self._associations.calls))
            raise ReleasedError(f'there is no stream "{request.call[:80]}" to associate with; there are: {known}')
        if who.role < call.role:
            raise ReleasedError(f"{who.name} is {who.role.word}: this takes the role {call.role.word}")
        self.who, self._response, self._reader.limit = who, call.response, call.max_message
        self.send(Associated(name=who.name, max_message=call.max_message))
        self._stream = call.open(self)
        self._associations.tasks.start(self._last(who), name="association")
        return [] if call.buffers is None else self._receive_into(DelimitedBuffers(call.max_message, call.buffers))

    def _receive_into(self, reader: DelimitedBuffers) -> Sequence[bytes | memoryview]:
        """From now on receive into where the reader says; what was whole before."""
        assert self._transport is not None
        rest, found = self._reader.take_rest(), list[bytes | memoryview]()
        while rest:
            space = reader.space()
            count = min(len(space), len(rest))
            space[:count], rest = rest[:count], rest[count:]
            found += reader.advance(count)
        self._transport.set_protocol(_LongMessages(self, reader))
        return found

    async def _last(self, who: Principal) -> None:
        """End it when the token that it was opened with is revoked."""
        try:
            async with self._associations.access.lasting(who):
                await self._closed.wait()
        except RevokedError as error:
            self.release(str(error))

    # For its stream

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `coroutine` for its stream, which cancels it when it is closed."""
        return self._associations.tasks.start(coroutine, name="association-stream")

    def pause_reading(self, why: str = "stream") -> None:
        """Leave what comes with the peer, until `resume_reading` was called for each reason."""
        self._paused.add(why)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self, why: str = "stream") -> None:
        """Go on."""
        self._paused.discard(why)
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What it is told

    def send(self, message: Message) -> None:
        """Send `message`; what the connection no longer takes is lost with it."""
        self.send_bytes(delimited(message.SerializeToString()))

    def send_bytes(self, data: bytes) -> None:
        """Send what has its length in front already."""
        if not self._over and self._transport is not None:
            self._transport.write(data)

    def release(self, reason: str) -> None:
        """End the association, and say why."""
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
        if self._stream is not None:  # what it steers is not steered a moment longer
            self._stream.close()
            self._stream = None
        # Closed while something is unread, the system would take the reason back from the peer.
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the peer has gone, which the loop has not heard yet
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()

    def drop(self) -> None:
        """End it without a word."""
        self._over = True
        self._associations.forget(self)
        if self._transport is not None:
            self._transport.abort()
        elif self._abort is not None:
            self._abort()

    def look(self, now: float) -> None:
        """End it where it has said nothing for too long."""
        if self.who is None and now - self.since > STRANGER_SECONDS:
            self.release(f"who calls was not said within {STRANGER_SECONDS:g} s")
        elif now - self.heard > IDLE_SECONDS:
            self.release(f"nothing was heard for {IDLE_SECONDS:g} s")


class _LongMessages(asyncio.BufferedProtocol):
    """An association's connection from when on its messages are received into where they stay."""

    def __init__(self, association: Association, reader: DelimitedBuffers) -> None:
        self._reader = reader
        self._association = association
        self.pause_writing = association.pause_writing  # type: ignore[method-assign]
        self.resume_writing = association.resume_writing  # type: ignore[method-assign]
        self.connection_lost = association.connection_lost  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        self._association.data_filled(self._reader, nbytes)

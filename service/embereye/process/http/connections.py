"""Limit the connections of an HTTP server: their number in all and per client, and their idle time.

Each connection is wrapped in a `_Gate`, which admits it and passes everything on to aiohttp's handler. `Connections`
orders idle connections by the time they became idle. If there is no room for a new connection, it closes the one that
has been idle longest: of the same client, if that has too many, else of all. A sweep closes those idle for too long.
"""

import asyncio
import contextlib
import socket
import sys
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from embereye.process.addresses import place_of
from embereye.process.admission import Admission, descriptors
from embereye.process.http.pages import all_interfaces
from embereye.process.tasks import Tasks
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.listener import BACKLOG, TlsListener

MAX_CONNECTIONS = 12_000
RESERVED = 512  # descriptors for gRPC, files and everything else
IDLE_SECONDS = 30.0  # without a request being answered; a request that is still arriving does not count
SWEEP_SECONDS = 1.0
BYTES_ACKED = 120  # offset of tcpi_bytes_acked (8 bytes) in the tcp_info of linux/tcp.h

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def room() -> int:
    """The number of connections that the process has descriptors for."""
    return max(16, min(MAX_CONNECTIONS, (descriptors() - RESERVED) // 2))


@dataclass(eq=False)
class _Connection:
    abort: Callable[[], None]
    place: str  # its client, by address
    since: float  # since when it is idle, monotonic seconds
    busy: int = 0  # requests being answered
    transport: asyncio.BaseTransport | None = None  # None during the TLS handshake
    delivered: int = 0  # bytes that the client had acknowledged at the last call of `has_progressed`

    def has_progressed(self) -> bool:
        """True if data was delivered since the last call: a long answer is still sent after its handler has ended."""
        before = self.delivered
        connection = self.transport.get_extra_info("socket") if self.transport else None
        if connection is not None and hasattr(socket, "TCP_INFO"):
            with contextlib.suppress(OSError):
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED + 8)
                self.delivered = int.from_bytes(info[BYTES_ACKED:], sys.byteorder)
        return self.delivered != before


class Connections:
    """The open connections of a server: wrap each handler in `protocol`, install `middleware`, and run `sweeping`."""

    def __init__(self, most: int = 0, *, steady: Callable[[], float] = time.monotonic) -> None:
        """`most` is the limit in all, by default `room()`; one client, which may be a proxy, may have half of it."""
        self._admission: Admission[asyncio.Protocol] = Admission(most or room(), make_room=self._end_idlest)
        self._steady = steady
        self._open: dict[asyncio.Protocol, _Connection] = {}  # by aiohttp's handler
        # Idle connections of each client and of all (""), longest idle first: with thousands of connections, a search
        # for each new one would block the event loop.
        self._idle: defaultdict[str, OrderedDict[asyncio.Protocol, None]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, handler: asyncio.Protocol) -> "_Gate":
        """Wrap aiohttp's `handler` of a connection."""
        return _Gate(self, handler)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Mark the connection of `request` as busy while it is answered."""
        protocol = cast("asyncio.Protocol", request.protocol)
        connection = self._open.get(protocol)
        if connection is None:
            return await handler(request)
        connection.busy += 1
        self._leave_idle(protocol, connection.place)
        try:
            return await handler(request)
        finally:
            connection.busy -= 1
            self._note_idle(protocol)

    def admit(self, handler: asyncio.Protocol, address: str, abort: Callable[[], None]) -> bool:
        """Add a connection, which `abort` ends; False if there is no room, not even by closing an idle one."""
        if not self._admission.admit(handler, address):
            return False
        self._open[handler] = _Connection(abort, place_of(address), self._steady())
        self._note_idle(handler)
        return True

    def _note_idle(self, handler: asyncio.Protocol) -> None:
        """Mark a connection as idle from now on, if it is open and no request is being answered."""
        connection = self._open.get(handler)
        if connection is None or connection.busy:
            return
        connection.since = self._steady()
        for place in ("", connection.place):
            self._idle[place][handler] = None
            self._idle[place].move_to_end(handler)

    def _leave_idle(self, handler: asyncio.Protocol, place: str) -> None:
        for key in ("", place):
            self._idle[key].pop(handler, None)
            if not self._idle[key]:
                del self._idle[key]

    def attach(self, handler: asyncio.Protocol, transport: asyncio.BaseTransport) -> bool:
        """Set the transport of a connection; False if it was closed meanwhile to make room."""
        connection = self._open.get(handler)
        if connection is None:
            return False
        connection.abort, connection.transport = cast("asyncio.Transport", transport).abort, transport
        return True

    def forget(self, handler: asyncio.Protocol) -> None:
        """Remove a connection that has ended."""
        connection = self._open.pop(handler, None)
        if connection is not None:
            self._leave_idle(handler, connection.place)
            self._admission.forget(handler)

    def _end_idlest(self, place: str) -> bool:
        """End the longest idle connection of client `place` ('': of all); False if none is idle."""
        if place not in self._idle:
            return False
        longest = next(iter(self._idle[place]))
        self._open[longest].abort()
        self.forget(longest)
        return True

    async def sweeping(self, _: web.Application) -> AsyncIterator[None]:
        """Close connections that are idle for too long; add this to the application's `cleanup_ctx`."""
        async with Tasks() as tasks:
            tasks.start(self._sweep(), name="http-connections")
            yield

    async def _sweep(self) -> None:
        while True:
            await aligned_sleep(SWEEP_SECONDS)
            due = self._steady() - IDLE_SECONDS
            for handler, connection in list(self._open.items()):
                if connection.has_progressed():
                    self._note_idle(handler)
                elif not connection.busy and connection.since < due:
                    connection.abort()


class _Gate(asyncio.Protocol):
    """Forwards everything to aiohttp's handler of an admitted connection."""

    def __init__(self, connections: Connections, handler: asyncio.Protocol) -> None:
        self._connections = connections
        self._handler = handler
        self._inside = False  # admitted

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Admit the connection at the start of its TLS handshake. See `TlsListener`."""
        self._inside = self._connections.admit(self._handler, address, abort)
        return self._inside

    def abandon(self, why: str) -> None:
        """Remove the connection after a failed handshake."""
        self._connections.forget(self._handler)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        abort = cast("asyncio.Transport", transport).abort
        if not self._inside:
            address = (transport.get_extra_info("peername") or ("",))[0]
            self._inside = self._connections.admit(self._handler, address, abort)
        self._inside = self._inside and self._connections.attach(self._handler, transport)
        if self._inside:
            self._handler.connection_made(transport)
        else:
            abort()

    def data_received(self, data: bytes) -> None:
        if self._inside:
            self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._inside else None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._inside:
            self._connections.forget(self._handler)
            self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()


class LimitedSite(web.TCPSite):
    """A site of `runner` whose connections are limited by `connections`, with `tls` already during the handshake."""

    def __init__(
        self, runner: web.AppRunner, connections: Connections, host: str, port: int, tls: ServerTls | None = None,
        *, shared: bool = False,
    ) -> None:  # fmt: skip
        """`shared`: other processes may listen on the port, too, and each gets some of the connections."""
        super().__init__(runner, all_interfaces(host), port, backlog=BACKLOG)
        self._tls_host = host
        self._connections = connections
        self._tls = tls
        self._shared = shared
        self._tasks = Tasks()

    async def start(self) -> None:
        """Listen. OSError if that fails."""
        make = self._runner.server
        assert make is not None
        await web.BaseSite.start(self)
        if self._tls is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._connections.protocol(make()), self._host, self._port, backlog=self._backlog,
                reuse_port=self._shared,
            )  # fmt: skip
            return
        listener = TlsListener(
            self._tls_host, self._port, self._tls, lambda: self._connections.protocol(make()), shared=self._shared
        )
        listener.start(self._tasks)
        self._server = cast("asyncio.Server", listener)  # aiohttp uses only `close` and `sockets`

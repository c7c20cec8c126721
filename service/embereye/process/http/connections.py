"""How many connections an HTTP server serves, in all and of one address, and how long one may be idle.

Whoever reaches the port can open connections without having proved anything: they must not take the descriptors that
everything else in the process lives on.
"""

import asyncio
import contextlib
import resource
import socket
import sys
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from embereye.process.addresses import place_of
from embereye.process.http.pages import all_interfaces
from embereye.process.tasks import Tasks
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.listener import BACKLOG, TlsListener

MAX_CONNECTIONS = 12_000
KEPT_BACK = 512  # descriptors for gRPC, files and everything else
IDLE_SECONDS = 30.0  # without a request that is being answered; one that is being sent does not count
SWEEP_SECONDS = 1.0
BYTES_ACKED = 120  # linux/tcp.h: where a tcp_info has what the other end has acknowledged, eight bytes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def room() -> int:
    """How many connections there is room for."""
    return max(16, min(MAX_CONNECTIONS, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - KEPT_BACK) // 2))


@dataclass(eq=False)
class _Connection:
    abort: Callable[[], None]
    place: str  # of its address
    since: float  # monotonic seconds that it is idle since
    busy: int = 0  # requests that are being answered
    transport: asyncio.BaseTransport | None = None  # once it is made
    delivered: int = 0  # bytes that the other end has acknowledged, when that was asked for last

    def proceeds(self) -> bool:
        """Whether anything was delivered since this was asked last: a long answer is sent when its handler is over."""
        before = self.delivered
        connection = self.transport.get_extra_info("socket") if self.transport else None
        if connection is not None and hasattr(socket, "TCP_INFO"):
            with contextlib.suppress(OSError):
                told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED + 8)
                self.delivered = int.from_bytes(told[BYTES_ACKED:], sys.byteorder)
        return self.delivered != before


class Connections:
    """Wrap each handler of a server in `protocol`, have `middleware` see every request, and let `sweeping` run."""

    def __init__(self, most: int = 0, *, steady: Callable[[], float] = time.monotonic) -> None:
        """`most` is the number in all, by default `room()`; of one address half of it: a proxy is one for many."""
        self._most = most or room()
        self._steady = steady
        self._open: dict[asyncio.Protocol, _Connection] = {}  # by aiohttp's handler
        self._places: Counter[str] = Counter()
        # Those that are idle, longest first, of each place and of all (""): strangers' connections may be thousands,
        # and to look at each of them for each new one would take all of the event loop.
        self._idle: defaultdict[str, OrderedDict[asyncio.Protocol, None]] = defaultdict(OrderedDict)
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, handler: asyncio.Protocol) -> "_Gate":
        """What stands between a transport and aiohttp's `handler` of it."""
        return _Gate(self, handler)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes that the connection of `request` is of use."""
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
        """Count a connection in, which `abort` ends; False where there is no room.

        One that is idle makes room: of the same address, where that has all that it may have.
        """
        place = place_of(address)
        crowded = self._places[place] * 2 >= self._most
        if (crowded or len(self._open) >= self._most) and not self._end_idlest(place if crowded else ""):
            self.refused += 1
            return False
        self._open[handler] = _Connection(abort, place, self._steady())
        self._places[place] += 1
        self._note_idle(handler)
        return True

    def _note_idle(self, handler: asyncio.Protocol) -> None:
        """A connection is idle from now on, where it is open and nothing of it is being answered."""
        connection = self._open.get(handler)
        if connection is None or connection.busy:
            return
        connection.since = self._steady()
        for place in ("", connection.place):
            self._idle[place][handler] = None
            self._idle[place].move_to_end(handler)

    def _leave_idle(self, handler: asyncio.Protocol, own: str) -> None:
        for place in ("", own):
            self._idle[place].pop(handler, None)
            if not self._idle[place]:
                del self._idle[place]

    def made(self, handler: asyncio.Protocol, transport: asyncio.BaseTransport) -> bool:
        """The connection is `transport`, which ends it from now on; False where it has made room for another."""
        connection = self._open.get(handler)
        if connection is None:
            return False
        connection.abort, connection.transport = cast("asyncio.Transport", transport).abort, transport
        return True

    def forget(self, handler: asyncio.Protocol) -> None:
        """The connection has ended."""
        connection = self._open.pop(handler, None)
        if connection is not None:
            self._leave_idle(handler, connection.place)
            self._places[connection.place] -= 1
            if not self._places[connection.place]:
                del self._places[connection.place]

    def _end_idlest(self, place: str) -> bool:
        """End the connection from `place` ('': from anywhere) that is idle longest; False where none is."""
        if place not in self._idle:
            return False
        longest = next(iter(self._idle[place]))
        self._open[longest].abort()
        self.forget(longest)
        return True

    async def sweeping(self, _: web.Application) -> AsyncIterator[None]:
        """While an application runs, end what is idle for too long: one of its `cleanup_ctx`."""
        async with Tasks() as tasks:
            tasks.start(self._sweep(), name="http-connections")
            yield

    async def _sweep(self) -> None:
        while True:
            await aligned_sleep(SWEEP_SECONDS)
            due = self._steady() - IDLE_SECONDS
            for handler, connection in list(self._open.items()):
                if connection.proceeds():
                    self._note_idle(handler)
                elif not connection.busy and connection.since < due:
                    connection.abort()


class _Gate(asyncio.Protocol):
    """Passes everything on to aiohttp's handler of a connection that was let in."""

    def __init__(self, connections: Connections, handler: asyncio.Protocol) -> None:
        self._connections = connections
        self._handler = handler
        self._inside = False

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Begin with a handshake of TLS. See `TlsListener`."""
        self._inside = self._connections.admit(self._handler, address, abort)
        return self._inside

    def abandon(self, why: str) -> None:
        """The handshake has failed, which is the stranger's affair."""
        self._connections.forget(self._handler)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        abort = cast("asyncio.Transport", transport).abort
        if not self._inside:
            address = (transport.get_extra_info("peername") or ("",))[0]
            self._inside = self._connections.admit(self._handler, address, abort)
        self._inside = self._inside and self._connections.made(self._handler, transport)
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
    """A site of `runner` whose connections are counted by `connections`, with `tls` from before their handshake on."""

    def __init__(
        self, runner: web.AppRunner, connections: Connections, host: str, port: int, tls: ServerTls | None = None
    ) -> None:
        super().__init__(runner, all_interfaces(host), port, backlog=BACKLOG)
        self._tls_host = host
        self._connections = connections
        self._tls = tls
        self._tasks = Tasks()

    async def start(self) -> None:
        """Listen. OSError where that is not possible."""
        make = self._runner.server
        assert make is not None
        await web.BaseSite.start(self)
        if self._tls is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._connections.protocol(make()), self._host, self._port, backlog=self._backlog
            )
            return
        listener = TlsListener(
            self._tls_host, self._port, self._tls, lambda: self._connections.protocol(make()), shared=False
        )
        listener.start(self._tasks)
        self._server = cast("asyncio.Server", listener)  # of which aiohttp uses `close` and `sockets`

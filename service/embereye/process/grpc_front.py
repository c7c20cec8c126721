"""The front of an open gRPC port: accepts connections, ends TLS, and acknowledges the server's settings at once.

gRPC's core limits the headers of a call only after the client has acknowledged its HTTP/2 settings. A client that never
does could fill the memory with small compressed headers. So the core listens only on a socket that nobody else can
reach, and the front connects each client to it. Before it passes on a call, it acknowledges the settings in the
client's place. It drops the client's own acknowledgement. All other bytes pass unchanged, in both directions.

`peer_of` finds a client's address and certificate by the name under which the core knows its connection.
"""

import asyncio
import contextlib
import logging
import math
import os
import secrets
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from embereye.process.addresses import peer_host
from embereye.process.admission import Admission
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.process.throttle import PerPeer
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.listener import BACKLOG, TlsListener, open_port

logger = logging.getLogger(__name__)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER = 9  # bytes of a frame's header: length (3), type, flags, stream (4)
SETTINGS, ACK = 4, 1
ACKNOWLEDGEMENT = bytes((0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0))
MAX_SETTINGS = 1_024  # bytes of a client's settings, 6 for each
# For an end to read any of what waits for it. gRPC's keepalive ends idle connections about as early.
STALLED_SECONDS = 25.0
STOP_SECONDS = 2.0  # for the last answers to reach their clients
FRONT_DESCRIPTORS = 3  # per connection: the client's, and both ends of that to the core
REMEMBERED = 10_000  # ended connections whose calls may still be running


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a connection."""

    host: str
    certificate: Mapping[str, Any] = field(default_factory=dict)  # as from Python's ssl; empty: none was required


_peers: dict[str, Peer] = {}  # by the core's name of the connection
_ended: deque[str] = deque()  # names of ended connections that are still in `_peers`, oldest first


def peer_of(context: Any) -> Peer:
    """The client that made the call of a servicer's `context`."""
    peer = context.peer()
    return _peers.get(peer) or Peer(peer_host(peer))


class Front:
    """The listening ports of one gRPC server, and the connections that they accepted."""

    def __init__(
        self, server: grpc.aio.Server, most: int, tls: ServerTls | None, *, shared: bool, greeting_seconds: float
    ) -> None:
        """Make `server` serve the connections of this front, at most `most`; `shared`: its ports, with other processes.

        A client has `greeting_seconds` to send its settings and to acknowledge the server's. If there are too many
        connections, the oldest that has not done that yet makes room.
        """
        self.greeting_seconds = greeting_seconds
        self.open: Admission[_Client] = Admission(most, make_room=self._make_room)
        self.greeting: dict[_Client, None] = {}  # clients that have not acknowledged the settings, the oldest first
        self.tasks = Tasks()
        self.silent = PerPeer()
        self._tls = tls
        self._shared = shared
        self._listening: list[socket.socket | TlsListener] = []
        self._servers: list[asyncio.Server] = []
        try:
            with tempfile.TemporaryDirectory(prefix="embereye-") as folder:
                path = f"{folder}/grpc"
                server.add_insecure_port(f"unix:{path}")
                # The name goes with the folder, so only this process can connect.
                self._core = os.open(path, os.O_PATH)
        except (OSError, RuntimeError) as error:
            raise UserError(f"no temporary folder for gRPC: {error}. Set TMPDIR to a writable one") from error

    def listen(self, address: str) -> int:
        """Bind `address` ("host:port", port 0 for any) and return the port; OSError if that fails."""
        host, _, port = address.rpartition(":")
        if self._tls:
            listener = TlsListener(host, int(port), self._tls, self._client, shared=self._shared, http2=True)
            self._listening.append(listener)
            return int(listener.sockets[0].getsockname()[1])
        listening = open_port(host, int(port), shared=self._shared)
        self._listening.append(listening)
        return int(listening.getsockname()[1])

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            if isinstance(listening, TlsListener):
                listening.start(self.tasks)
            else:
                self._servers.append(await loop.create_server(self._client, sock=listening, backlog=BACKLOG))

    def close(self) -> None:
        """Stop accepting connections."""
        for listening in (*self._servers, *self._listening):
            listening.close()
        for client in self.open:
            if not client.is_connected:
                client.abort()

    async def stop(self) -> None:
        """Wait until the last answers of the stopped server have reached their clients, and end all connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while len(self.open):
                    await asyncio.sleep(0.01)
        for client in self.open:
            client.abort()
        await self.tasks.stop()
        if self._core >= 0:
            os.close(self._core)
            self._core = -1

    async def connect(self, make: Callable[[], asyncio.Protocol], name: str) -> None:
        """Open a connection to the core, which knows it by `name`; OSError if the core does not accept it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.bind(f"\0{name}")
            while True:
                try:
                    connection.connect(f"/proc/self/fd/{self._core}")
                    break
                except BlockingIOError:  # the core has not accepted earlier ones yet
                    await asyncio.sleep(0.02)
            await asyncio.get_running_loop().create_unix_connection(make, sock=connection)
        except BaseException:
            connection.close()
            raise

    def admit(self, client: "_Client") -> bool:
        """Add a connection; False if there is no room."""
        if not self.open.admit(client):
            return False
        self.greeting[client] = None
        return True

    def forget(self, client: "_Client") -> None:
        """Remove a connection that has ended."""
        self.open.forget(client)
        self.greeting.pop(client, None)

    def _make_room(self, _: str) -> bool:
        oldest = next(iter(self.greeting), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.abort()
        return True

    def _client(self) -> "_Client":
        return _Client(self)


class _End(asyncio.Protocol):
    """One end of a connection. What arrives is written to the other end, which sets the pace."""

    def __init__(self, other: "_End") -> None:
        self.other = other
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_connected(self) -> bool:
        """True if this end can be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.other.write(data)

    def write(self, data: bytes) -> None:
        """Send `data`, unless this end is closing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self, *, paused: bool) -> None:
        """Stop or continue to read."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def pause_writing(self) -> None:
        """Pause the other end until this one has read enough."""
        self.other.pause_reading(paused=True)
        self._expect_progress()

    def resume_writing(self) -> None:
        """Resume the other end."""
        self._cancel_timer()
        self.other.pause_reading(paused=False)

    def _expect_progress(self, before: float = math.inf) -> None:
        """Abort this end if it has not read any of the `before` bytes that waited for it; check again later."""
        self._cancel_timer()
        waiting = self._transport.get_write_buffer_size() if self._transport else 0
        if waiting < before:
            self._timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._expect_progress, waiting)
        else:
            self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Send what waits, then close."""
        if self._transport is not None and not self._transport.is_closing():
            self._expect_progress()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end, too."""
        self._cancel_timer()
        self._transport = None  # or its buffers would wait for the garbage collector
        self.other.close()


class _Core(_End):
    """The end at gRPC's core."""

    def __init__(self, client: "_Client") -> None:
        super().__init__(client)
        self._client = client
        self._name = f"embereye-{secrets.token_hex(8)}"
        self._known_as = f"unix-abstract:{self._name}"  # as `context.peer` has it
        self.has_sent = False  # its settings

    async def connect(self, front: Front, client: Peer) -> None:
        """Connect to the core on behalf of `client`, or end the client's connection."""
        _peers[self._known_as] = client
        try:
            await front.connect(lambda: self, self._name)
        except OSError:  # the server has stopped
            _peers.pop(self._known_as, None)
            self.other.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.other.is_connected:
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Pass on what the core sends, first its settings."""
        self.other.write(data)
        if not self.has_sent:
            self.has_sent = True
            self._client.greet()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _ended.append(self._known_as)
        while len(_ended) > REMEMBERED:
            _peers.pop(_ended.popleft(), None)


class _Client(_End):
    """The client's end. It reads the headers of frames until the client has acknowledged the settings."""

    def __init__(self, front: Front) -> None:
        self._core = _Core(self)
        super().__init__(self._core)
        self._front = front
        self._host = ""
        self._abort_handshake: Callable[[], None] = lambda: None
        self._has_greeted = False  # has sent preface and settings
        self._has_acknowledged = False
        self._received = b""  # not passed on yet, because it is incomplete
        self._payload = 0  # bytes of the current frame's payload that have not arrived yet
        self._greeting: asyncio.TimerHandle | None = None

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Admit the client; False if there is no room. See `TlsListener`."""
        self._host, self._abort_handshake = address, abort
        return self._front.admit(self)

    def abandon(self, why: str) -> None:
        """Note that the TLS handshake failed."""
        logger.debug("%s: TLS handshake failed: %s", self._host, why)
        self._front.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect the client to the core."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername") or ("unknown",)
        if not self._host and not self.begin(str(peer[0]).removeprefix("::ffff:"), lambda: None):
            self.abort()
            return
        self._greeting = asyncio.get_running_loop().call_later(self._front.greeting_seconds, self._end_greeting)
        client = Peer(self._host, transport.get_extra_info("peercert") or {})
        self._front.tasks.start(self._core.connect(self._front, client), name="grpc-front")

    def data_received(self, data: bytes) -> None:
        """Pass `data` on."""
        if self._has_acknowledged:
            self.other.write(data)
        elif self._core.has_sent:
            self._receive_greeting(self._received + data)
        else:
            self._received += data
            self.pause_reading(paused=True)

    def greet(self) -> None:
        """Pass on what has arrived: the core's settings may be acknowledged now."""
        self.pause_reading(paused=False)  # first, because the core may pause it again
        self._receive_greeting(self._received)

    def _receive_greeting(self, data: bytes) -> None:
        """Pass on complete frame headers and all payload of `data`, and acknowledge for the client."""
        if not self._has_greeted:
            try:
                end = greeting_length(data)
            except ValueError:
                self.abort()
                return
            if not end:
                self._received = data
                return
            self._has_greeted = True
            self.other.write(data[:end] + ACKNOWLEDGEMENT)
            data = data[end:]
        position, self._has_acknowledged = find_acknowledgement(data, self._payload)
        if self._has_acknowledged:
            self._received = b""
            self.other.write(data[:position] + data[position + HEADER :])
            self._cancel_greeting()
            self._front.greeting.pop(self, None)
        else:
            self._received, self._payload = data[position:], max(0, position - len(data))
            self.other.write(data[:position])

    def _end_greeting(self) -> None:
        if self._has_greeted and self._front.silent.is_due(self._host):
            logger.warning(
                "%s: its gRPC client acknowledged no HTTP/2 settings within %.0f s: its connection was closed",
                self._host, self._front.greeting_seconds,
            )  # fmt: skip
        self.abort()

    def _cancel_greeting(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()

    def abort(self) -> None:
        """Close at once, also during the handshake."""
        super().abort()
        if self._transport is None:
            self._abort_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_greeting()
        self._front.forget(self)


def greeting_length(data: bytes) -> int:
    """The bytes that preface and settings of a client have at the start of `data`; 0 if they are incomplete.

    ValueError if it is not HTTP/2.
    """
    start = len(PREFACE)
    if data[:start] != PREFACE[: len(data)]:
        raise ValueError("not HTTP/2")
    if len(data) < start + HEADER:
        return 0
    length, kind, flags = int.from_bytes(data[start : start + 3]), data[start + 3], data[start + 4]
    if kind != SETTINGS or flags & ACK or length > MAX_SETTINGS:
        raise ValueError("the first frame has no valid settings")
    end = start + HEADER + length
    return end if len(data) >= end else 0


def find_acknowledgement(data: bytes, position: int) -> tuple[int, bool]:
    """Find an acknowledgement among the frames of `data`, the first of which starts at `position`.

    Returns its position and True, or the position of the next frame whose header is not complete, and False.
    """
    while position + HEADER <= len(data):
        if data.startswith(ACKNOWLEDGEMENT, position):
            return position, True
        position += HEADER + int.from_bytes(data[position : position + 3])
    return position, False

"""The front of an open gRPC port: accepts connections, ends TLS, and acknowledges the server's settings at once.

gRPC's core limits the headers of a call only after the client has acknowledged its HTTP/2 settings. A client that never
does could fill the memory with small compressed headers. So the core listens only on a socket that nobody else can
reach, and the front connects each client to it. Before it passes on a call, it acknowledges the settings in the
client's place. It drops the client's own acknowledgement. All other bytes pass unchanged, in both directions.

The core accepts calls faster than their servicers run, and each waiting call takes 7 to 15 kB. So the front passes on
the next call of a client only while few of its calls wait for the first bytes of their answer. It also does not read
from a client that does not read its answers.

`peer_of` finds a client's address and certificate by the name under which the core knows its connection.
"""

import asyncio
import contextlib
import gc
import itertools
import logging
import math
import os
import secrets
import socket
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from embereye.process.addresses import peer_host
from embereye.process.admission import Admission
from embereye.process.http2 import (
    ACK,
    ACKNOWLEDGEMENT,
    CALL_FRAMES,
    DATA,
    FRAME,
    HEADER,
    HEADERS,
    MAX_STREAM,
    RST_STREAM,
    SETTINGS,
    greeting_length,
)
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.process.throttle import PerPeer
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.listener import BACKLOG, TlsListener, open_port

logger = logging.getLogger(__name__)
# Calls that the front has passed on and that wait for the first bytes of their answer. The core rejects some calls if
# 1,000 wait for their servicers, so a stranger must not reach that number.
WAITING_CALLS = 1_000  # of all connections, in equal shares
WAITING_CALLS_EACH = 100
WAITING_BYTES = 1024 * 1024  # payload of one connection's waiting calls: the largest single request
QUEUED_CALLS = 300  # calls that no servicer has begun yet, also those that the core has refused meanwhile
QUEUE_SECONDS = 0.25  # after which the queue is empty if no servicer has begun a call
TURN = 16  # clients whose calls may continue at a time
# Settings, pings and other frames that belong to no call, of each client in a tenth of a second
CONTROL_FRAMES = 100
CONTROL_SECONDS = 0.1
# The library leaves up to 16 kB of metadata of each call in a reference cycle. The collector itself would start after
# some 4,000 calls.
COLLECT_CALLS = 500
RESUME = 0.75  # share of these limits at which blocked calls continue
RESET_SECONDS = 1.0  # for the core to forget a call that the client has cancelled
# For an end to read any of what waits for it, and for a client's blocked calls to continue. gRPC's
# keepalive ends idle connections about as early.
STALLED_SECONDS = 25.0
STOP_SECONDS = 2.0  # for the last answers to reach their clients
# Reasons not to read from an end
UNREADY, FULL, UNREAD, CALLS = "core not ready", "other end full", "answers unread", "calls blocked"
PASS, DROP, BLOCK = range(3)  # verdicts about a frame
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
        self,
        server: grpc.aio.Server,
        queue: "CallQueue",
        most: int,
        tls: ServerTls | None,
        *,
        shared: bool,
        greeting_seconds: float,
    ) -> None:
        """Make `server`, whose first interceptor is `queue`, serve the connections of this front, at most `most`.

        `shared`: its ports, with other processes.

        A client has `greeting_seconds` to send its settings and to acknowledge the server's. If there are too many
        connections, the oldest that has not done that yet makes room.
        """
        self.greeting_seconds = greeting_seconds
        self.open: Admission[_Client] = Admission(most, make_room=self._make_room)
        self.greeting: dict[_Client, None] = {}  # clients that have not acknowledged the settings, the oldest first
        self.queue = queue
        self.waiting: dict[_Client, None] = {}  # clients with calls that wait for an answer
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
        self.waiting.pop(client, None)
        self.queue.blocked.pop(client, None)

    def share(self) -> int:
        """The number of calls that each client may have waiting."""
        return max(1, min(WAITING_CALLS_EACH, WAITING_CALLS // max(1, len(self.waiting))))

    def _make_room(self, _: str) -> bool:
        oldest = next(iter(self.greeting), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.abort()
        return True

    def _client(self) -> "_Client":
        return _Client(self)


class CallQueue(grpc.aio.ServerInterceptor):
    """The calls that were passed on to the core, and that the library has not taken from it yet.

    The core reads calls in another thread, and keeps up to 3,000. It also keeps those that it has refused and answered.
    Their server must have this interceptor as its first.
    """

    def __init__(self) -> None:
        self.blocked: dict[_Client, None] = {}  # clients whose calls are blocked, the next first
        self._size = 0
        self._taken = 0
        self._checking = False

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Note that a call was taken."""
        self._taken += 1
        self._size = max(0, self._size - 1)
        if self._taken % COLLECT_CALLS == 0:
            gc.collect(0)
        if self.blocked and self._size <= QUEUED_CALLS * RESUME:
            self._continue()
        return await continuation(handler_call_details)

    def add(self) -> bool:
        """Add a call; False if there are too many."""
        if self._size >= QUEUED_CALLS:
            self._check_later()
            return False
        self._size += 1
        return True

    def _check_later(self) -> None:
        if not self._checking:
            self._checking = True
            asyncio.get_running_loop().call_later(QUEUE_SECONDS, self._check, self._taken)

    def _check(self, taken: int) -> None:
        """Empty the queue if no call was taken for some time: the core drops some of them."""
        self._checking = False
        if taken == self._taken:
            self._size = 0
        if self._size < QUEUED_CALLS:
            self._continue()
        if self.blocked:
            self._check_later()

    def _continue(self) -> None:
        for client in list(itertools.islice(self.blocked, TURN)):
            self.blocked[client] = self.blocked.pop(client)  # the last from now on
            client.continue_calls()


class _End(asyncio.Protocol):
    """One end of a connection. The frames that arrive are written to the other end, which sets the pace."""

    def __init__(self, other: "_End") -> None:
        self.other = other
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = b""  # not passed on yet: blocked, or the start of a frame's header
        self._payload = 0  # bytes of the current frame's payload that have not arrived yet
        self._pauses: set[str] = set()  # reasons not to read

    @property
    def is_connected(self) -> bool:
        """True if this end can be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the frames of `data`, until `_see` blocks one."""
        if self._received:
            data = self._received + data
        position, start, size = self._payload, 0, len(data)
        while position + HEADER <= size:
            high, low, kind, flags, stream = FRAME.unpack_from(data, position)
            length = high << 8 | low
            verdict = self._see(kind, flags, stream & MAX_STREAM, length)
            if verdict == BLOCK:
                break
            if verdict == DROP:
                self.other.write(data[start:position])
                start = position + HEADER + length
            position += HEADER + length
        self._received, self._payload = data[position:], max(0, position - size)
        self.other.write(data[start:position] if start or position < size else data)

    def _see(self, kind: int, flags: int, stream: int, length: int) -> int:
        """Note a frame before it is passed on; PASS, BLOCK or DROP."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send `data`, unless this end is closing."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self, reason: str) -> None:
        """Stop to read until `reason` is gone, see `resume_reading`."""
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(reason)

    def resume_reading(self, reason: str) -> None:
        """Continue to read if there is no other reason against it than `reason`."""
        if reason not in self._pauses:
            return
        self._pauses.discard(reason)
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Pause the other end until this one has read enough."""
        self.other.pause_reading(FULL)
        self._expect_progress()

    def resume_writing(self) -> None:
        """Resume the other end."""
        self._cancel_timer()
        self.other.resume_reading(FULL)

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
        self._transport, self._received = None, b""  # or they would wait for the garbage collector
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
        super().data_received(data)
        if not self.has_sent:
            self.has_sent = True
            self._client.greet()
        self._client.continue_calls()

    def _see(self, kind: int, flags: int, stream: int, length: int) -> int:
        if kind in (HEADERS, RST_STREAM):
            self._client.note_answer(stream)
        return PASS

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _ended.append(self._known_as)
        while len(_ended) > REMEMBERED:
            _peers.pop(_ended.popleft(), None)


class _Client(_End):
    """The client's end."""

    def __init__(self, front: Front) -> None:
        self._core = _Core(self)
        super().__init__(self._core)
        self._front = front
        self._host = ""
        self._abort_handshake: Callable[[], None] = lambda: None
        self._has_greeted = False  # has sent preface and settings
        self._has_acknowledged = False
        self._greeting: asyncio.TimerHandle | None = None
        self._calls: dict[int, int] = {}  # bytes of waiting calls by stream; negative if the client has cancelled it
        self._bytes = 0  # their sum
        self._is_blocked = False
        self._controls = 0  # frames
        self._blocked: asyncio.TimerHandle | None = None

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
        """Pass on `data`, once the core's settings may be acknowledged."""
        if self._core.has_sent:
            self._pass_on(data)
        else:
            self._received += data
            self.pause_reading(UNREADY)

    def greet(self) -> None:
        """Pass on what has arrived: the core's settings may be acknowledged now."""
        self.resume_reading(UNREADY)  # first, because the core may pause it again
        self._pass_on(b"")

    def _pass_on(self, data: bytes) -> None:
        if not self._has_greeted:
            data, self._received = self._received + data, b""
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
        super().data_received(data)

    def pause_writing(self) -> None:
        """Read nothing more from a client that reads nothing: the core would collect the answers."""
        super().pause_writing()
        self.pause_reading(UNREAD)

    def resume_writing(self) -> None:
        """Continue to read."""
        super().resume_writing()
        self.resume_reading(UNREAD)

    def _see(self, kind: int, flags: int, stream: int, length: int) -> int:
        calls = self._calls
        if kind == DATA and stream in calls:
            if self._bytes >= WAITING_BYTES:
                return self._block()
            calls[stream] += length
            self._bytes += length
        elif kind == HEADERS and stream not in calls:  # a call has no other headers
            if len(calls) >= self._front.share() or not self._front.queue.add():
                return self._block()
            calls[stream] = 0
            self._front.waiting[self] = None
        elif kind == RST_STREAM and stream in calls:
            calls[-stream] = calls.pop(stream)
            asyncio.get_running_loop().call_later(RESET_SECONDS, self._forget_cancelled, -stream)
        elif kind == SETTINGS and (flags, stream, length) == (ACK, 0, 0) and not self._has_acknowledged:
            self._has_acknowledged = True
            self._cancel_greeting()
            self._front.greeting.pop(self, None)
            return DROP
        elif kind not in CALL_FRAMES:
            if self._controls >= CONTROL_FRAMES:
                return self._block()
            if not self._controls:
                asyncio.get_running_loop().call_later(CONTROL_SECONDS, self._allow_control_frames)
            self._controls += 1
        return PASS

    def _allow_control_frames(self) -> None:
        self._controls = 0
        self.continue_calls()

    def _block(self) -> int:
        self._is_blocked = True
        self._front.queue.blocked[self] = None
        self.pause_reading(CALLS)
        if self._blocked is None:
            self._blocked = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._end_blocked)
        return BLOCK

    def note_answer(self, stream: int) -> None:
        """Note the first bytes of an answer."""
        self._bytes -= self._calls.pop(stream, 0)
        if not self._calls:
            self._front.waiting.pop(self, None)

    def _forget_cancelled(self, stream: int) -> None:
        self.note_answer(stream)
        self.continue_calls()

    def continue_calls(self) -> None:
        """Pass on blocked calls, if enough others have been answered."""
        many = len(self._calls) > self._front.share() * RESUME or self._bytes > WAITING_BYTES * RESUME
        if many or not self._is_blocked:
            return
        self._is_blocked = False
        self._cancel_blocked()
        self._front.queue.blocked.pop(self, None)
        self._pass_on(b"")
        if not self._is_blocked:
            self.resume_reading(CALLS)

    def _end_blocked(self) -> None:
        if self._front.silent.is_due(self._host):
            logger.warning(
                "%s: a gRPC client had %d calls waiting, and none of them continued within %.0f s: "
                "its connection was closed",
                self._host, len(self._calls), STALLED_SECONDS,
            )  # fmt: skip
        self.abort()

    def _cancel_blocked(self) -> None:
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None

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
        self._cancel_blocked()
        self._front.forget(self)

"""Lines that another shard of the fleet passes on, as its text devices sent them: each connection is a session here."""

import asyncio
import contextlib
from collections import deque
from typing import Any

import grpc

from embereye.process.grpc_server import Service
from embereye.process.tasks import Tasks
from embereye.sensor.relay import Passed
from embereye.sensor.sessions import Sessions
from embereye.v1.ingest_pb2 import RelayedConnection, RelayResponse
from embereye.v1.ingest_pb2_grpc import add_RelaysServicer_to_server

PAUSED_LIMIT = 256 * 1024  # bytes kept of a connection while its session cannot take them


class RelayService:
    """Serves `Relays.Pass`, on control ports alone."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def service(self) -> Service:
        """How a server takes it."""
        return Service(add_RelaysServicer_to_server, self, "embereye.v1.Relays")

    async def Pass(self, requests: object, context: Any) -> None:
        """Take what one shard passes on, until it ends the stream or goes."""
        async with Tasks() as tasks:
            caller = _Caller(self._sessions, context, tasks)
            try:
                while (request := await context.read()) is not grpc.aio.EOF:
                    for connection in request.connections:
                        caller.hand_lines(connection)
            finally:
                caller.close()


class _Caller:
    """The connections that one shard passes on."""

    def __init__(self, sessions: Sessions, context: Any, tasks: Tasks) -> None:
        self.sessions = sessions
        self.connections: dict[tuple[int, bool], _Connection] = {}
        self._context = context
        self._tasks = tasks
        self._responses: deque[RelayResponse] = deque()
        self._writing = asyncio.Lock()

    def hand_lines(self, passed: RelayedConnection) -> None:
        """Hand lines to the session of their connection, which begins with the first of them."""
        key = passed.since_ns, passed.also
        connection = self.connections.get(key)
        if connection is None and passed.lines:
            connection = self.connections[key] = _Connection(self, passed)
            connection.begin()
        if connection is not None:
            connection.feed(passed.lines)
            if passed.closed:
                connection.close()

    def send(self, response: RelayResponse) -> None:
        """Send a command back, with others that wait."""
        self._responses.append(response)
        self._tasks.start(self._flush(), name="relay-send")

    async def _flush(self) -> None:
        with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            async with self._writing:
                while self._responses:
                    await self._context.write(self._responses.popleft())

    def close(self) -> None:
        """End every session."""
        for connection in list(self.connections.values()):
            connection.close()


class _Connection(asyncio.Transport):
    """What a session takes for its connection."""

    def __init__(self, caller: _Caller, passed: RelayedConnection) -> None:
        super().__init__({"peername": (passed.address, 0)})
        self._caller = caller
        self._key = passed.since_ns, passed.also
        self._session = caller.sessions.protocol()
        self._session.pass_on(Passed(passed.since_ns, passed.also, passed.address, passed.device))
        self._closing = False
        self._paused = False
        self._kept = bytearray()  # while it is paused

    def begin(self) -> None:
        """Let the session begin; it may end it at once."""
        self._session.connection_made(self)

    def feed(self, lines: bytes) -> None:
        """Give the session lines, now or once it takes some again; what is too much for that is dropped."""
        if not lines:
            return
        if self._closing or (self._paused and len(self._kept) + len(lines) > PAUSED_LIMIT):
            self._caller.sessions.drop_relayed(lines.count(b"!"))
        elif self._paused:
            self._kept += lines
        else:
            self._session.data_received(lines)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the device a command."""
        self._caller.send(RelayResponse(since_ns=self._key[0], word=bytes(data).decode()))

    def get_write_buffer_size(self) -> int:
        """Nothing that counts: commands are few and short."""
        return 0

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Go on with what was kept."""
        self._paused = False
        kept, self._kept = bytes(self._kept), bytearray()
        self.feed(kept)

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self._closing

    def close(self) -> None:
        """End the session; what the shard passes on later begins another."""
        if not self._closing:
            self._closing = True
            self._caller.connections.pop(self._key, None)
            if self._kept:
                self._session.data_received(bytes(self._kept))
            self._session.connection_lost(None)

    abort = close

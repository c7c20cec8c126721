"""Receive the lines that other shards of the fleet relay: each device's connection is a session here.

Each calling shard has one stream. The first lines of a connection open a session on a `_Connection`, which is in place
of the transport, so the session works as for a direct connection. Its commands go back on the stream. While the session
pauses reading, lines wait up to a limit; beyond it they are dropped and counted. The end of the stream ends its
sessions.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from embereye.process.grpc_server import Service
from embereye.process.tasks import Tasks
from embereye.sensor.relay import Origin
from embereye.sensor.sessions import Sessions
from embereye.v1.ingest_pb2 import (
    DeliverRequest,
    DeliverResponse,
    PushedMessage,
    PushOutcome,
    RelayedConnection,
    RelayResponse,
)
from embereye.v1.ingest_pb2_grpc import add_RelaysServicer_to_server

PAUSED_LIMIT = 256 * 1024  # bytes of one connection that wait while its session has paused reading


class RelayService:
    """Serves `Relays`, only on control ports."""

    def __init__(self, sessions: Sessions, receive: Callable[[PushedMessage], PushOutcome]) -> None:
        """`receive` analyses a message of a device that sends by HTTP."""
        self._sessions = sessions
        self._receive = receive

    def service(self) -> Service:
        """The service for a gRPC server."""
        return Service(add_RelaysServicer_to_server, self, "embereye.v1.Relays")

    async def Deliver(self, request: DeliverRequest, context: Any) -> DeliverResponse:
        """Analyse messages that devices sent by HTTP to another shard."""
        return DeliverResponse(outcomes=[self._receive(message) for message in request.messages])

    async def Pass(self, requests: object, context: Any) -> None:
        """Receive the lines of one shard until its stream ends."""
        async with Tasks() as tasks:
            caller = _Caller(self._sessions, context, tasks)
            try:
                while (request := await context.read()) is not grpc.aio.EOF:
                    for connection in request.connections:
                        caller.hand_lines(connection)
            finally:
                caller.close()


class _Caller:
    """The connections that one shard relays."""

    def __init__(self, sessions: Sessions, context: Any, tasks: Tasks) -> None:
        self.sessions = sessions
        self.connections: dict[tuple[int, bool], _Connection] = {}
        self._context = context
        self._tasks = tasks
        self._responses: deque[RelayResponse] = deque()
        self._writing = asyncio.Lock()

    def hand_lines(self, relayed: RelayedConnection) -> None:
        """Hand lines to the session of their connection, which opens with the first line."""
        key = relayed.since_ns, relayed.also
        connection = self.connections.get(key)
        if connection is None and relayed.lines:
            connection = self.connections[key] = _Connection(self, relayed)
            connection.begin()
        if connection is not None:
            connection.feed(relayed.lines)
            if relayed.closed:
                connection.close()

    def send(self, response: RelayResponse) -> None:
        """Queue a command for the relaying shard, and send all that are queued."""
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
    """A relayed connection, in the form of the transport that a session expects."""

    def __init__(self, caller: _Caller, relayed: RelayedConnection) -> None:
        super().__init__({"peername": (relayed.address, 0)})
        self._caller = caller
        self._key = relayed.since_ns, relayed.also
        self._session = caller.sessions.protocol()
        self._session.set_origin(Origin(relayed.since_ns, relayed.also, relayed.address, relayed.device))
        self._closing = False
        self._paused = False
        self._waiting = bytearray()  # lines that arrived while it is paused

    def begin(self) -> None:
        """Start the session, which may close the connection at once."""
        self._session.connection_made(self)

    def feed(self, lines: bytes) -> None:
        """Pass lines to the session, or queue them while it has paused reading; lines beyond the limit are dropped."""
        if not lines:
            return
        if self._closing or (self._paused and len(self._waiting) + len(lines) > PAUSED_LIMIT):
            self._caller.sessions.count_dropped(lines.count(b"!"))
        elif self._paused:
            self._waiting += lines
        else:
            self._session.data_received(lines)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the device a command."""
        self._caller.send(RelayResponse(since_ns=self._key[0], word=bytes(data).decode()))

    def get_write_buffer_size(self) -> int:
        """Return 0: commands are few and short."""
        return 0

    def pause_reading(self) -> None:
        """Queue the lines that arrive from now on."""
        self._paused = True

    def resume_reading(self) -> None:
        """Pass the queued lines to the session, and later ones as they arrive."""
        self._paused = False
        waiting, self._waiting = bytes(self._waiting), bytearray()
        self.feed(waiting)

    def is_closing(self) -> bool:
        """True once the connection is closed."""
        return self._closing

    def close(self) -> None:
        """End the session; lines that are relayed later open another one."""
        if not self._closing:
            self._closing = True
            self._caller.connections.pop(self._key, None)
            if self._waiting:
                self._session.data_received(bytes(self._waiting))
            self._session.connection_lost(None)

    abort = close

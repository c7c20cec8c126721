"""The Control service over gRPC; associations have the same sessions.

A call has one `ControlSession`. A task reads requests into the session; the session's responses go through a queue to
the client. A client that leaves too many responses unread is disconnected, so a slow one delays nobody. The session is
closed with the call, and an actuator that it steered falls back to safe values.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from embereye.addons.control.actuators import Actuators, NotConnectedError, RefusedError, TakenError
from embereye.addons.control.session import ControlSession
from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Step
from embereye.hub.hub import Hub
from embereye.hub.roles import CALLER, Principal, Role
from embereye.process.tasks import beside
from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, Handshake
from embereye.v1.control_pb2_grpc import ControlServicer

Context = grpc.aio.ServicerContext[ControlRequest, ControlResponse]
ROLES = {"/embereye.v1.Control/Session": Role.OPERATOR}  # all other methods are for viewers
UNREAD = 64  # unread responses of a client
CODES = {NotConnectedError: grpc.StatusCode.FAILED_PRECONDITION, TakenError: grpc.StatusCode.FAILED_PRECONDITION}


class ControlService(ControlServicer):
    """Serves any number of control sessions."""

    def __init__(self, actuators: Actuators, on_handshake: Callable[[Principal, Handshake], None]) -> None:
        """`on_handshake` is called with each accepted handshake."""
        self._actuators = actuators
        self._on_handshake = on_handshake

    async def Session(
        self, request_iterator: AsyncIterator[ControlRequest], context: Context
    ) -> AsyncIterator[ControlResponse]:
        """Serve a handshake, then lockstep until either side ends it."""
        waiting: asyncio.Queue[ControlResponse | None] = asyncio.Queue()
        code, reason = grpc.StatusCode.OK, ""

        def end(why: str, because: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
            nonlocal code, reason
            if not reason:
                code, reason = because, why
                waiting.put_nowait(None)

        def send(response: ControlResponse) -> None:
            if waiting.qsize() < UNREAD:
                waiting.put_nowait(response)
            else:
                end(f"the client left {UNREAD} responses unread", grpc.StatusCode.RESOURCE_EXHAUSTED)

        who = CALLER.get()
        session = ControlSession(self._actuators, who, send, end, lambda handshake: self._on_handshake(who, handshake))

        async def read() -> None:
            try:
                async for request in request_iterator:
                    session.receive(request)
            except RefusedError as error:
                end(str(error), CODES.get(type(error), grpc.StatusCode.INVALID_ARGUMENT))
            waiting.put_nowait(None)

        try:
            async with beside(read(), name="control-session"):
                while (response := await waiting.get()) is not None:
                    yield response
            if reason:
                await context.abort(code, reason)
        finally:
            session.close()


def handshake_recorder(hub: Hub) -> Callable[[Principal, Handshake], None]:
    """Make the callback that records accepted handshakes in the audit trail."""

    def record(who: Principal, handshake: Handshake) -> None:
        if handshake.WhichOneof("side") == "actuator":
            action, subject, detail = "connect actuator", handshake.name, ""
        else:
            action, subject, detail = "steer", handshake.controller.actuator, f"as {handshake.name}"
        hub.committer.enqueue(Step(lambda draft: add_entry(draft, who, action, subject, detail)))

    return record


def worst_state(hub: Hub) -> Callable[[], ZoneState.ValueType]:
    """Make a function that returns the most urgent zone state; it caches, as each turn of a control loop calls it."""
    known: tuple[int, ZoneState.ValueType] = (-1, ZoneState.ZONE_STATE_UNSPECIFIED)

    def worst() -> ZoneState.ValueType:
        nonlocal known
        if known[0] != hub.feed.latest:
            known = hub.feed.latest, hub.zones.worst_state().wire
        return known[1]

    return worst

"""The Control service over gRPC: the same sessions as by an association."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from embereye.hub.access.keeper import add_entry
from embereye.hub.access.roles import CALLER, Principal
from embereye.hub.control.actuators import Actuators, NotConnectedError, RefusedError, TakenError
from embereye.hub.control.session import ControlSession
from embereye.hub.hub import Hub
from embereye.hub.storage.committer import Step
from embereye.process.tasks import beside
from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, Handshake
from embereye.v1.control_pb2_grpc import ControlServicer

Context = grpc.aio.ServicerContext[ControlRequest, ControlResponse]
UNREAD = 64  # responses that wait for a client to read them
CODES = {NotConnectedError: grpc.StatusCode.FAILED_PRECONDITION, TakenError: grpc.StatusCode.FAILED_PRECONDITION}


class ControlService(ControlServicer):
    """Any number of sessions."""

    def __init__(self, actuators: Actuators, began: Callable[[Principal, Handshake], None]) -> None:
        """`began` is told who has begun a session."""
        self._actuators = actuators
        self._began = began

    async def Session(
        self, request_iterator: AsyncIterator[ControlRequest], context: Context
    ) -> AsyncIterator[ControlResponse]:
        """A handshake, then lockstep until either side ends."""
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
                end(f"{UNREAD} responses have not been read", grpc.StatusCode.RESOURCE_EXHAUSTED)

        who = CALLER.get()
        session = ControlSession(self._actuators, who, send, end, lambda handshake: self._began(who, handshake))

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


def began(hub: Hub) -> Callable[[Principal, Handshake], None]:
    """Notes in the audit trail who has begun a session."""

    def note(who: Principal, handshake: Handshake) -> None:
        if handshake.WhichOneof("side") == "actuator":
            action, subject, detail = "connect actuator", handshake.name, ""
        else:
            action, subject, detail = "steer", handshake.controller.actuator, f"as {handshake.name}"
        hub.committer.enqueue(Step(lambda draft: add_entry(draft, who, action, subject, detail)))

    return note


def worst_state(hub: Hub) -> Callable[[], ZoneState.ValueType]:
    """Tells the most urgent state of any zone; it looks anew after events only, being asked at every turn of a loop."""
    known: tuple[int, ZoneState.ValueType] = (-1, ZoneState.ZONE_STATE_UNSPECIFIED)

    def worst() -> ZoneState.ValueType:
        nonlocal known
        if known[0] != hub.feed.latest:
            known = hub.feed.latest, hub.zones.worst().wire
        return known[1]

    return worst

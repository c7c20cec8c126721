"""The Control service: a controller drives named outputs in lockstep, and they fall to 0 when it falls silent."""

import math
import time
from collections.abc import AsyncIterator

import grpc

from embereye.hub.hub import Hub
from embereye.hub.outputs import Lease, Outputs
from embereye.v1.control_pb2 import Command, ControlRequest, ControlResponse, Handshake, State, Welcome
from embereye.v1.control_pb2_grpc import ControlServicer

VERSION = 1
MIN_TIMEOUT_NS = 1_000_000
MAX_TIMEOUT_NS = 60_000_000_000
MAX_OUTPUTS = 256

Context = grpc.aio.ServicerContext[ControlRequest, ControlResponse]


class ControlService(ControlServicer):
    """One State for every Command."""

    def __init__(self, hub: Hub, outputs: Outputs) -> None:
        self._hub = hub
        self._outputs = outputs

    async def Session(
        self, request_iterator: AsyncIterator[ControlRequest], context: Context
    ) -> AsyncIterator[ControlResponse]:
        """A handshake, then lockstep until either side ends."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        if first.WhichOneof("body") != "handshake":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a handshake")
        if problem := _check_handshake(first.handshake):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        try:
            lease = self._outputs.acquire(first.handshake)
        except ValueError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error}: end that session first")
        try:
            welcome = Welcome(version=VERSION, period_ns=lease.timeout_ns // 2)
            yield ControlResponse(welcome=welcome)
            async for request in requests:
                if request.WhichOneof("body") != "command":
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "after the handshake come commands")
                if problem := _check_command(request.command, lease):
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
                yield ControlResponse(state=self._step(lease, request.command))
        finally:
            self._outputs.release(lease)

    def _step(self, lease: Lease, command: Command) -> State:
        lease.command(command.outputs, self._outputs.steady())
        return State(
            sequence=command.sequence, time_ns=time.time_ns(), outputs=lease.values, worst=self._hub.zones.worst().wire
        )


def _check_handshake(handshake: Handshake) -> str:
    if not handshake.controller:
        return "controller is empty: say who steers"
    if handshake.version != VERSION:
        return f"version {handshake.version} is not spoken here: this hub speaks {VERSION}"
    if handshake.timeout_ns and not MIN_TIMEOUT_NS <= handshake.timeout_ns <= MAX_TIMEOUT_NS:
        return f"timeout_ns {handshake.timeout_ns} is not between {MIN_TIMEOUT_NS} and {MAX_TIMEOUT_NS}"
    if len(handshake.outputs) > MAX_OUTPUTS:
        return f"{len(handshake.outputs)} outputs are too many for one session: at most {MAX_OUTPUTS}"
    if len(set(handshake.outputs)) != len(handshake.outputs) or "" in handshake.outputs:
        return "outputs must have names, each once"
    return ""


def _check_command(command: Command, lease: Lease) -> str:
    for name, value in command.outputs.items():
        if name not in lease.values:
            return f'output "{name}" was not named in the handshake'
        if not math.isfinite(value):
            return f'output "{name}": {value} is not a finite number'
    return ""

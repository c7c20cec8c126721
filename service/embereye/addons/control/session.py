"""One side's control session from its handshake on, over any transport.

The gRPC service and the associations each make a session for a connection, pass it every request and close it at the
end. The first request has to be the handshake, and decides the side: an actuator sends only states after it, a
controller only commands. `Actuators` owns both sides and answers through `send`.

A request that breaks the rules raises RefusedError, which ends the session. No method waits; both transports call it on
the event loop's thread.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from embereye.addons.control.actuators import (
    ActiveController,
    Actuators,
    ConnectedActuator,
    End,
    RefusedError,
    Send,
    bounds,
)
from embereye.hub.roles import Principal
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Controller, ControlRequest, ControlResponse, Handshake, Output, Welcome

VERSION = 2
MIN_TIMEOUT_NS, MAX_TIMEOUT_NS = 1_000_000, 60 * SECOND
MIN_PERIOD_NS, MAX_PERIOD_NS = 500_000, SECOND
MAX_OUTPUTS = MAX_SENSORS = 256
MAX_NAME = 63  # characters


@dataclass(eq=False)
class ControlSession:
    """Call `receive` for each request, and `close` when the connection ends. RefusedError ends the session."""

    actuators: Actuators
    who: Principal
    send: Send
    end: End
    on_handshake: Callable[[Handshake], None] = lambda _: None  # called with each accepted handshake
    _actuator: ConnectedActuator | None = field(default=None, init=False)
    _controller: ActiveController | None = field(default=None, init=False)

    def receive(self, request: ControlRequest) -> None:
        """Handle one request; its answer is sent now or later."""
        try:
            match request.WhichOneof("body"):
                case "state" if self._actuator is not None:
                    self._actuator.receive_state(request.state)
                case "command" if self._controller is not None:
                    self._controller.receive_command(request.command)
                case "handshake" if self._actuator is None and self._controller is None:
                    self._accept_handshake(request.handshake)
                case body:
                    raise RefusedError(self._unexpected(body))
        except RefusedError:
            self.actuators.counts.refused += 1
            raise

    def _unexpected(self, body: str | None) -> str:
        if self._actuator is not None:
            return f"an actuator sends states after its handshake, not {body or 'nothing'}"
        if self._controller is not None:
            return f"a controller sends commands after its handshake, not {body or 'nothing'}"
        return "the first message must be a handshake"

    def _accept_handshake(self, handshake: Handshake) -> None:
        if problem := handshake_problem(handshake):
            raise RefusedError(problem)
        welcome = Welcome(version=VERSION)
        if handshake.WhichOneof("side") == "actuator":
            self._actuator = self.actuators.connect(handshake, self.who, self.send, self.end)
            welcome.period_ns = handshake.actuator.period_ns
            self.send(ControlResponse(welcome=welcome))
        else:
            controller = self.actuators.steer(handshake, self.who, self.send, self.end)
            self._controller = controller
            welcome.actuator.CopyFrom(controller.actuator.declared)
            welcome.period_ns = controller.actuator.period_ns
            if controller.synchronised:
                welcome.deadline_ns = controller.deadline_ns
            self.send(ControlResponse(welcome=welcome))
            controller.offer()
        self.on_handshake(handshake)

    def close(self) -> None:
        """End the session: the steered actuator falls back to safe values."""
        if self._controller is not None:
            self.actuators.release(self._controller)
        if self._actuator is not None:
            self.actuators.disconnect(self._actuator)


def handshake_problem(handshake: Handshake) -> str:
    """The problem of a handshake as one sentence; '' if there is none."""
    if handshake.version != VERSION:
        return f"version {handshake.version} is not supported. This hub speaks {VERSION}."
    if not 1 <= len(handshake.name) <= MAX_NAME or not handshake.name.isprintable():
        return f'name "{handshake.name[:80]}" is not allowed. Use 1 to {MAX_NAME} printable characters.'
    if handshake.timeout_ns and not MIN_TIMEOUT_NS <= handshake.timeout_ns <= MAX_TIMEOUT_NS:
        return f"timeout_ns {handshake.timeout_ns} is not between {MIN_TIMEOUT_NS} and {MAX_TIMEOUT_NS}"
    match handshake.WhichOneof("side"):
        case "actuator":
            return _actuator_problem(handshake.actuator)
        case "controller":
            return _controller_problem(handshake.controller)
    return "neither actuator nor controller is set. Set the one that this side is."


def _controller_problem(controller: Controller) -> str:
    if not controller.actuator:
        return "controller.actuator is empty. Name the actuator to steer."
    if controller.mode not in {Controller.MODE_SYNCHRONISED, Controller.MODE_FREE_RUNNING}:
        return f"controller.mode {controller.mode} is neither synchronised (1) nor free-running (2)"
    if controller.deadline_ns and not MIN_PERIOD_NS <= controller.deadline_ns <= MAX_PERIOD_NS:
        return f"controller.deadline_ns {controller.deadline_ns} is not between {MIN_PERIOD_NS} and {MAX_PERIOD_NS}"
    return ""


def _actuator_problem(actuator: Actuator) -> str:
    if not MIN_PERIOD_NS <= actuator.period_ns <= MAX_PERIOD_NS:
        return f"actuator.period_ns {actuator.period_ns} is not between {MIN_PERIOD_NS} and {MAX_PERIOD_NS}"
    if not 1 <= len(actuator.outputs) <= MAX_OUTPUTS:
        return f"actuator.outputs: {len(actuator.outputs)} outputs. Declare 1 to {MAX_OUTPUTS}."
    if len(actuator.sensors) > MAX_SENSORS:
        return f"actuator.sensors: {len(actuator.sensors)} sensors are too many. Declare at most {MAX_SENSORS}."
    for kind, names in (
        ("outputs", [output.name for output in actuator.outputs]),
        ("sensors", [sensor.name for sensor in actuator.sensors]),
    ):
        for place, name in enumerate(names):
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name in names[:place]:
                rule = f"use a unique name of 1 to {MAX_NAME} printable characters"
                return f'actuator.{kind}[{place}].name "{name[:80]}": {rule}'
    for place, output in enumerate(actuator.outputs):
        if problem := _output_problem(output):
            return f'actuator.outputs[{place}] "{output.name}": {problem}'
    return ""


def _output_problem(output: Output) -> str:
    if output.kind not in Output.Kind.values() or output.kind == Output.KIND_UNSPECIFIED:
        return f"kind {output.kind} is not one of angle, velocity, torque, switch, opening (1 to 5)"
    low, high = bounds(output)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return f"min {low:g} and max {high:g} are not a range"
    if not low <= output.safe <= high:
        return f"safe {output.safe:g} is not between {low:g} and {high:g}"
    if output.kind == Output.KIND_SWITCH and output.safe not in {0.0, 1.0}:
        return f"safe {output.safe:g} is neither 0 (off) nor 1 (on)"
    return ""

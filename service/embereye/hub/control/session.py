"""One side of a control loop from its handshake on, whatever it is connected by."""

import math
from collections.abc import Callable

from embereye.hub.access.roles import Principal
from embereye.hub.control.actuators import (
    ActiveController,
    Actuators,
    ConnectedActuator,
    End,
    RefusedError,
    Send,
    bounds,
)
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Controller, ControlRequest, ControlResponse, Handshake, Output, Welcome

VERSION = 2
MIN_TIMEOUT_NS, MAX_TIMEOUT_NS = 1_000_000, 60 * SECOND
MIN_PERIOD_NS, MAX_PERIOD_NS = 500_000, SECOND
MAX_OUTPUTS = MAX_SENSORS = 256
MAX_NAME = 63  # characters


class ControlSession:
    """`receive` each request, `close` once the connection is gone. RefusedError ends the session."""

    def __init__(
        self,
        actuators: Actuators,
        who: Principal,
        send: Send,
        end: End,
        began: Callable[[Handshake], None] = lambda _: None,
    ) -> None:
        """`began` is told of a handshake that was accepted."""
        self._actuators = actuators
        self._who = who
        self._send = send
        self._end = end
        self._began = began
        self._actuator: ConnectedActuator | None = None
        self._controller: ActiveController | None = None

    def receive(self, request: ControlRequest) -> None:
        """Take up one request; what it is answered with is sent now or later."""
        try:
            match request.WhichOneof("body"):
                case "state" if self._actuator is not None:
                    self._actuator.state_arrived(request.state)
                case "command" if self._controller is not None:
                    self._controller.command_arrived(request.command)
                case "handshake" if self._actuator is None and self._controller is None:
                    self._shake_hands(request.handshake)
                case body:
                    raise RefusedError(self._unexpected(body))
        except RefusedError:
            self._actuators.counts.refused += 1
            raise

    def _unexpected(self, body: str | None) -> str:
        if self._actuator is not None:
            return f"an actuator sends states after its handshake, not {body or 'nothing'}"
        if self._controller is not None:
            return f"a controller sends commands after its handshake, not {body or 'nothing'}"
        return "the first message must be a handshake"

    def _shake_hands(self, handshake: Handshake) -> None:
        if problem := check_handshake(handshake):
            raise RefusedError(problem)
        welcome = Welcome(version=VERSION)
        if handshake.WhichOneof("side") == "actuator":
            self._actuator = self._actuators.connect(handshake, self._who, self._send, self._end)
            welcome.period_ns = handshake.actuator.period_ns
            self._send(ControlResponse(welcome=welcome))
        else:
            controller = self._actuators.steer(handshake, self._who, self._send, self._end)
            self._controller = controller
            welcome.actuator.CopyFrom(controller.actuator.declared)
            welcome.period_ns = controller.actuator.period_ns
            if controller.synchronised:
                welcome.deadline_ns = controller.deadline_ns
            self._send(ControlResponse(welcome=welcome))
            controller.offer()
        self._began(handshake)

    def close(self) -> None:
        """The connection is gone: what is steered falls back to safe values."""
        if self._controller is not None:
            self._actuators.release(self._controller)
        if self._actuator is not None:
            self._actuators.disconnect(self._actuator)


def check_handshake(handshake: Handshake) -> str:
    """What is wrong with it, as one sentence; '' where nothing is."""
    if handshake.version != VERSION:
        return f"version {handshake.version} is not spoken here: this hub speaks {VERSION}"
    if not 1 <= len(handshake.name) <= MAX_NAME or not handshake.name.isprintable():
        return f'name "{handshake.name[:80]}": give this side one, of at most {MAX_NAME} printable characters'
    if handshake.timeout_ns and not MIN_TIMEOUT_NS <= handshake.timeout_ns <= MAX_TIMEOUT_NS:
        return f"timeout_ns {handshake.timeout_ns} is not between {MIN_TIMEOUT_NS} and {MAX_TIMEOUT_NS}"
    match handshake.WhichOneof("side"):
        case "actuator":
            return _check_actuator(handshake.actuator)
        case "controller":
            return _check_controller(handshake.controller)
    return "neither actuator nor controller is set: say which side this is"


def _check_controller(controller: Controller) -> str:
    if not controller.actuator:
        return "controller.actuator is empty: name the actuator to be steered"
    if controller.mode not in {Controller.MODE_SYNCHRONISED, Controller.MODE_FREE_RUNNING}:
        return f"controller.mode {controller.mode} is neither synchronised (1) nor free-running (2)"
    if controller.deadline_ns and not MIN_PERIOD_NS <= controller.deadline_ns <= MAX_PERIOD_NS:
        return f"controller.deadline_ns {controller.deadline_ns} is not between {MIN_PERIOD_NS} and {MAX_PERIOD_NS}"
    return ""


def _check_actuator(actuator: Actuator) -> str:
    if not MIN_PERIOD_NS <= actuator.period_ns <= MAX_PERIOD_NS:
        return f"actuator.period_ns {actuator.period_ns} is not between {MIN_PERIOD_NS} and {MAX_PERIOD_NS}"
    if not 1 <= len(actuator.outputs) <= MAX_OUTPUTS:
        return f"actuator.outputs: {len(actuator.outputs)} of them, and 1 to {MAX_OUTPUTS} there may be"
    if len(actuator.sensors) > MAX_SENSORS:
        return f"actuator.sensors: {len(actuator.sensors)} of them are too many: at most {MAX_SENSORS}"
    for kind, names in (
        ("outputs", [output.name for output in actuator.outputs]),
        ("sensors", [sensor.name for sensor in actuator.sensors]),
    ):
        for place, name in enumerate(names):
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name in names[:place]:
                rule = f"each has a name of its own, of at most {MAX_NAME} characters"
                return f'actuator.{kind}[{place}].name "{name[:80]}": {rule}'
    for place, output in enumerate(actuator.outputs):
        if problem := _check_output(output):
            return f'actuator.outputs[{place}] "{output.name}": {problem}'
    return ""


def _check_output(output: Output) -> str:
    if output.kind not in Output.Kind.values() or output.kind == Output.KIND_UNSPECIFIED:
        return f"kind {output.kind} is none of angle, velocity, torque, switch, opening (1 to 5)"
    low, high = bounds(output)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return f"min {low:g} and max {high:g} are no range"
    if not low <= output.safe <= high:
        return f"safe {output.safe:g} is not between {low:g} and {high:g}"
    if output.kind == Output.KIND_SWITCH and output.safe not in {0.0, 1.0}:
        return f"safe {output.safe:g} is neither 0 (off) nor 1 (on)"
    return ""

"""Both sides of a control loop at the hub: the actuator, and the controller that steers it.

Both sides block on a `Link` and run in lockstep: one message out, one message back. `ActuatorLink.step` sends a state
and carries out the command in the answer. `ControllerLink.step` sends a command and returns the next state.

`run_actuator` steps at the device's period and dials again after each failure. Whenever there is no hub, and at its
end, the device goes to its safe state.
"""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol

from embereye.addons.control.link import Link, LinkError
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Command, Controller, ControlRequest, ControlResponse, Handshake, State

CALL = "embereye.v1.Control/Session"
VERSION = 2


class Device(Protocol):
    """The hardware of an actuator."""

    @property
    def actuator(self) -> Actuator:
        """Its outputs and measurements."""

    def measure(self, state: State) -> None:
        """Fill in `measured` and `sensors`."""

    def carry_out(self, command: Command) -> None:
        """Set the outputs to the command's values."""

    def fall_back(self, reason: str) -> None:
        """Go to the safe state, because there is no hub."""


class ActuatorLink:
    """The actuator's side: `step` sends its measurements and carries out the command in the answer."""

    def __init__(self, link: Link, name: str, device: Device, *, timeout_ns: int = 0) -> None:
        """Make the handshake; LinkError if the hub refuses."""
        self.link = link
        self.tick = 0
        self.sequence = 0  # sequence of the last command that was carried out
        self._device = device
        self._outputs = len(device.actuator.outputs)
        handshake = Handshake(name=name, version=VERSION, timeout_ns=timeout_ns, actuator=device.actuator)
        link.send(ControlRequest(handshake=handshake))
        link.receive(ControlResponse)

    def step(self) -> Command:
        """Send one State and carry out its Command. LinkError if the hub is gone: go to the device's safe state."""
        self.tick += 1
        request = ControlRequest()
        state = request.state
        state.tick, state.sequence, state.time_ns = self.tick, self.sequence, time.time_ns()
        self._device.measure(state)
        self.link.send(request)
        response = self.link.receive(ControlResponse)
        command = response.command
        if not response.HasField("command") or len(command.values) != self._outputs:
            raise LinkError(f"{self.link.address}: the answer is not a command for this device")
        self.sequence = command.sequence
        self._device.carry_out(command)
        return command


def run_actuator(
    dial: Callable[[], Link], name: str, device: Device, stop: threading.Event, log: Callable[[str], None]
) -> None:
    """Keep `device` connected until `stop`, and in its safe state while it is not. `log` is called with the reason.

    Any exception of `device`, or of `dial` other than LinkError, ends this; the device goes to its safe state, too.
    """
    ended = "the program was stopped"
    try:
        _keep_connected(dial, name, device, stop, log)
    except BaseException as error:
        ended = f"the program failed: {type(error).__name__}: {error}"
        raise
    finally:
        device.fall_back(ended)


def _keep_connected(
    dial: Callable[[], Link], name: str, device: Device, stop: threading.Event, log: Callable[[str], None]
) -> None:
    backoff = Backoff(floor=0.2, cap=5.0)
    period = device.actuator.period_ns / SECOND
    while not stop.is_set():
        try:
            with dial() as link:
                side = ActuatorLink(link, name, device)
                due = time.monotonic()
                for tick in itertools.count(1):
                    if stop.is_set():
                        break
                    side.step()
                    if tick == 1:
                        backoff.reset()
                    due = max(due + period, time.monotonic() - period)
                    time.sleep(max(0.0, due - time.monotonic()))
        except LinkError as error:
            device.fall_back(str(error))
            log(str(error))
            stop.wait(backoff.next())


class ControllerLink:
    """The controller's side; `actuator` describes the steered actuator."""

    def __init__(
        self,
        link: Link,
        name: str,
        actuator: str,
        *,
        mode: Controller.Mode.ValueType = Controller.MODE_SYNCHRONISED,
        timeout_ns: int = 0,
        deadline_ns: int = 0,
    ) -> None:
        """Make the handshake; LinkError if the hub refuses."""
        self.link = link
        self.synchronised = mode == Controller.MODE_SYNCHRONISED
        self._request = ControlRequest(command=Command())
        controller = Controller(actuator=actuator, mode=mode, deadline_ns=deadline_ns)
        link.send(ControlRequest(handshake=Handshake(
            name=name, version=VERSION, timeout_ns=timeout_ns, controller=controller
        )))  # fmt: skip
        welcome = link.receive(ControlResponse).welcome
        self.actuator = welcome.actuator
        self.period_ns = welcome.period_ns

    def first_state(self) -> State:
        """Receive the first State; only for a synchronised controller."""
        return self.link.receive(ControlResponse).state

    def step(self, values: list[float], tick: int = 0) -> State:
        """Set the outputs, in the actuator's order; return the next State, or the latest one if free-running.

        `tick` is the tick of the State from which `values` were derived.
        """
        command = self._request.command
        command.sequence += 1
        command.time_ns, command.tick = time.time_ns(), tick
        command.values[:] = values
        self.link.send(self._request)
        return self.link.receive(ControlResponse).state

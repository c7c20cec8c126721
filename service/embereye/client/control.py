"""Either side of a control loop at the hub: a device that is steered, and whoever steers it."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol

from embereye.client.link import Link, LinkError
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Command, Controller, ControlRequest, ControlResponse, Handshake, State

CALL = "embereye.v1.Control/Session"
VERSION = 2


class Device(Protocol):
    """What an actuator is made of."""

    @property
    def actuator(self) -> Actuator:
        """What it can do and tell."""
        ...

    def measure(self, state: State) -> None:
        """Fill in `measured` and `sensors`."""
        ...

    def carry_out(self, command: Command) -> None:
        """Do what the command says."""
        ...

    def fall_back(self, reason: str) -> None:
        """There is no hub: go to the safe state."""
        ...


class ActuatorLink:
    """A device's side: `step` sends what it measures, and has it carry out what it is answered."""

    def __init__(self, link: Link, name: str, device: Device, *, timeout_ns: int = 0) -> None:
        """Shakes hands; LinkError where the hub refuses."""
        self.link = link
        self.tick = 0
        self.sequence = 0  # of the command that was carried out last
        self._device = device
        self._outputs = len(device.actuator.outputs)
        handshake = Handshake(name=name, version=VERSION, timeout_ns=timeout_ns, actuator=device.actuator)
        link.send(ControlRequest(handshake=handshake))
        link.receive(ControlResponse)

    def step(self) -> Command:
        """One State, and its Command. LinkError where the hub is gone: the device has to go to its safe state."""
        self.tick += 1
        request = ControlRequest()
        state = request.state
        state.tick, state.sequence, state.time_ns = self.tick, self.sequence, time.time_ns()
        self._device.measure(state)
        self.link.send(request)
        response = self.link.receive(ControlResponse)
        command = response.command
        if not response.HasField("command") or len(command.values) != self._outputs:
            raise LinkError(f"{self.link.address} answers with what is no command of this device")
        self.sequence = command.sequence
        self._device.carry_out(command)
        return command


def run_actuator(
    dial: Callable[[], Link], name: str, device: Device, stop: threading.Event, said: Callable[[str], None]
) -> None:
    """Keep `device` connected until `stop`: in its safe state whenever it is not. `said` is told why it is not.

    What `device` raises, or `dial` besides LinkError, ends it: in the safe state, too.
    """
    ended = "it was asked to stop"
    try:
        _keep_connected(dial, name, device, stop, said)
    except BaseException as error:
        ended = f"its program failed: {type(error).__name__}: {error}"
        raise
    finally:
        device.fall_back(ended)


def _keep_connected(
    dial: Callable[[], Link], name: str, device: Device, stop: threading.Event, said: Callable[[str], None]
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
            said(str(error))
            stop.wait(backoff.next())


class ControllerLink:
    """The other side: `actuator` says what is steered."""

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
        """Shakes hands; LinkError where the hub refuses."""
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

    def first(self) -> State:
        """The State that a synchronised controller begins with."""
        return self.link.receive(ControlResponse).state

    def step(self, values: list[float], tick: int = 0) -> State:
        """Set the outputs, by the actuator's order; returns the next State, or free-running the latest.

        `tick` is that of the State that `values` were decided on.
        """
        command = self._request.command
        command.sequence += 1
        command.time_ns, command.tick = time.time_ns(), tick
        command.values[:] = values
        self.link.send(self._request)
        return self.link.receive(ControlResponse).state

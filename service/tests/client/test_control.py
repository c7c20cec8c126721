"""An actuator's side of a control loop: whatever ends it, the device is left in its safe state."""

import threading
from typing import Any

import pytest

from embereye.client.control import run_actuator
from embereye.client.link import Link
from embereye.units import MILLISECOND
from embereye.v1.control_pb2 import Actuator, Command, ControlResponse, State


class Hub(Link):
    """One that answers each State with a Command."""

    def __init__(self) -> None:
        self.address = "hub"

    def send(self, message: Any) -> None:
        pass

    def receive(self, kind: Any) -> Any:
        return ControlResponse(command=Command(sequence=1, values=[1.0]))

    def close(self) -> None:
        pass


class Valve:
    """One whose bus fails when it is to be opened."""

    actuator = Actuator(period_ns=2 * MILLISECOND)

    def __init__(self) -> None:
        self.fell: list[str] = []

    def measure(self, state: State) -> None:
        state.measured.append(0.0)

    def carry_out(self, command: Command) -> None:
        raise OSError("no answer by the bus")

    def fall_back(self, reason: str) -> None:
        self.fell.append(reason)


def test_a_device_that_fails_at_a_command_is_told_to_go_to_its_safe_state() -> None:
    valve = Valve()
    with pytest.raises(OSError, match="no answer by the bus"):
        run_actuator(Hub, "valve", valve, threading.Event(), lambda reason: None)
    assert valve.fell == ["its program failed: OSError: no answer by the bus"]

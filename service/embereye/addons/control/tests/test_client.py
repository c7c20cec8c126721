"""An actuator's side of a control loop: its device goes to its safe state, however the loop ends."""

import threading
from typing import Any

import pytest

from embereye.addons.control.client import run_actuator
from embereye.addons.control.link import Link
from embereye.units import MILLISECOND
from embereye.v1.control_pb2 import Actuator, Command, ControlResponse, Output, State, Welcome


class Hub(Link):
    """A hub that answers the handshake, and each State, with `answer`."""

    def __init__(self, answer: ControlResponse) -> None:
        self.address = "hub"
        self.answer = answer

    def send(self, message: Any) -> None:
        pass

    def receive(self, kind: Any) -> Any:
        return self.answer

    def close(self) -> None:
        pass


OPEN = ControlResponse(command=Command(sequence=1, values=[1.0]))


class Valve:
    """A valve whose bus fails when it opens."""

    actuator = Actuator(period_ns=2 * MILLISECOND, outputs=[Output(name="valve", kind=Output.KIND_OPENING)])

    def __init__(self) -> None:
        self.fell: list[str] = []

    def measure(self, state: State) -> None:
        state.measured.append(0.0)

    def carry_out(self, command: Command) -> None:
        raise OSError("no answer by the bus")

    def fall_back(self, reason: str) -> None:
        self.fell.append(reason)


def test_a_device_that_fails_at_a_command_goes_to_its_safe_state() -> None:
    valve = Valve()
    with pytest.raises(OSError, match="no answer by the bus"):
        run_actuator(lambda: Hub(OPEN), "valve", valve, threading.Event(), lambda reason: None)
    assert valve.fell == ["the program failed: OSError: no answer by the bus"]


@pytest.mark.parametrize(
    "answer",
    [
        ControlResponse(welcome=Welcome()),
        ControlResponse(command=Command()),
        ControlResponse(command=Command(values=[1.0, 1.0])),
    ],
)
def test_a_command_for_another_device_is_not_carried_out(answer: ControlResponse) -> None:
    valve, stop = Valve(), threading.Event()
    run_actuator(lambda: Hub(answer), "valve", valve, stop, lambda reason: stop.set())
    assert valve.fell == ["hub: the answer is not a command for this device", "the program was stopped"]

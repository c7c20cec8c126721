"""Feed garbage and damaged messages to control sessions: `make fuzz` continues with it."""

import pytest
from google.protobuf.message import DecodeError
from harness.fuzz import MINUTES, Target, fuzz, pieces

from embereye.addons.control.actuators import Actuators, RefusedError, bounds
from embereye.addons.control.pan_tilt import PanTiltHead
from embereye.addons.control.session import ControlSession
from embereye.hub.roles import Principal, Role
from embereye.v1.control_pb2 import Command, Controller, ControlRequest, Handshake
from embereye.wire.delimited import DelimitedError, DelimitedReader, delimited

HEAD = ControlRequest(handshake=Handshake(version=2, name="head", actuator=PanTiltHead(2_000_000).actuator))
CONTROLLER = Controller(actuator="head", mode=Controller.MODE_FREE_RUNNING)
ADA = Principal("ada", Role.OPERATOR, "ada")


def _control(data: bytes, cuts: list[int]) -> None:
    """A controller that sends these bytes: the values in force stay within the limits of a head."""
    actuators = Actuators(later=lambda seconds, act: pytest.fail("a free-running session has no deadline"))
    head = ControlSession(actuators, ADA, lambda _: None, lambda _: None)
    head.receive(HEAD)
    session, reader = ControlSession(actuators, ADA, lambda _: None, lambda _: None), DelimitedReader(65_536)
    session.receive(ControlRequest(handshake=Handshake(version=2, name="follower", controller=CONTROLLER)))
    try:
        for piece in pieces(data, cuts):
            for message in reader.receive(piece):
                session.receive(ControlRequest.FromString(message))
    finally:
        (actuator,) = actuators.all
        for output, value in zip(actuator.outputs, actuator.values(actuators.steady()), strict=True):
            low, high = bounds(output)
            assert low <= value <= high
        session.close()
        assert actuator.values(actuators.steady()) == [output.safe for output in actuator.outputs]
        head.close()


SESSIONS = Target(
    _control,
    (
        b"".join(
            delimited(
                ControlRequest(command=Command(sequence=number, values=[1, 0.5, 2, number % 2])).SerializeToString()
            )
            for number in range(1, 4)
        ),
        delimited(HEAD.SerializeToString()),
    ),
    (DelimitedError, DecodeError, RefusedError),
)


@pytest.mark.timeout(180 + 120 * MINUTES)
def test_no_bytes_make_a_session_raise_anything_but_its_own_error() -> None:
    fuzz(SESSIONS)

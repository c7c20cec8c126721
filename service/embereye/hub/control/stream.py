"""A control session by an association."""

from collections.abc import Callable, Sequence

from embereye.hub.access.roles import Principal, Role
from embereye.hub.associations import Association, Call, ReleasedError
from embereye.hub.control.actuators import Actuators, RefusedError
from embereye.hub.control.session import ControlSession
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, Handshake

CALL = "embereye.v1.Control/Session"
Began = Callable[[Principal, Handshake], None]


def control_call(actuators: Actuators, began: Began) -> Call:
    """The stream "embereye.v1.Control/Session"; `began` is told who has begun a session."""
    return Call(lambda association: _ControlStream(association, actuators, began), ControlResponse, Role.OPERATOR)


class _ControlStream:
    def __init__(self, association: Association, actuators: Actuators, began: Began) -> None:
        who = association.who
        assert who is not None
        self._session = ControlSession(
            actuators, who, association.send, association.release, lambda handshake: began(who, handshake)
        )

    def receive(self, messages: Sequence[bytes]) -> None:
        """Requests, in order."""
        try:
            for message in messages:
                self._session.receive(ControlRequest.FromString(message))
        except RefusedError as error:
            raise ReleasedError(str(error)) from error

    def close(self) -> None:
        """The connection is gone."""
        self._session.close()

"""Control sessions over associations."""

from collections.abc import Callable, Sequence

from embereye.addons.control.actuators import Actuators, RefusedError
from embereye.addons.control.associations import Association, Call, ReleasedError
from embereye.addons.control.session import ControlSession
from embereye.hub.roles import Principal, Role
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, Handshake

CALL = "embereye.v1.Control/Session"
OnHandshake = Callable[[Principal, Handshake], None]


def control_call(actuators: Actuators, on_handshake: OnHandshake) -> Call:
    """The call "embereye.v1.Control/Session"; `on_handshake` is called with each accepted handshake."""
    return Call(
        lambda association: _ControlStream(association, actuators, on_handshake), ControlResponse, Role.OPERATOR
    )


class _ControlStream:
    def __init__(self, association: Association, actuators: Actuators, on_handshake: OnHandshake) -> None:
        who = association.who
        assert who is not None
        self._session = ControlSession(
            actuators, who, association.send, association.release, lambda handshake: on_handshake(who, handshake)
        )

    def receive(self, messages: Sequence[bytes]) -> None:
        """Handle requests, in order."""
        try:
            for message in messages:
                self._session.receive(ControlRequest.FromString(message))
        except RefusedError as error:
            raise ReleasedError(str(error)) from error

    def close(self) -> None:
        """End the session."""
        self._session.close()

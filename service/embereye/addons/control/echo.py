"""Echo over gRPC and over associations.

It measures the transport alone. The gRPC call parses each request and makes a response. The association sends a
request's bytes back unparsed, because the response has the same fields.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from embereye.addons.control.associations import Association, Call
from embereye.hub.roles import Role
from embereye.v1.echo_pb2 import EchoRequest, EchoResponse
from embereye.v1.echo_pb2_grpc import EchoServicer
from embereye.wire.delimited import delimited

CALL = "embereye.v1.Echo/Echo"
MAX_MESSAGE = 33 * 1024  # bytes


class EchoService(EchoServicer):
    """Sends everything back."""

    async def Echo(
        self, request_iterator: AsyncIterator[EchoRequest], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[EchoResponse]:
        """Send one response for each request."""
        async for request in request_iterator:
            yield EchoResponse(sequence=request.sequence, payload=request.payload)


class _EchoStream:
    """Sends a request's bytes as the response; requests that arrive together go back in one write."""

    def __init__(self, association: Association) -> None:
        self._association = association

    def receive(self, messages: Sequence[bytes]) -> None:
        """Send the messages back unparsed."""
        self._association.send_bytes(b"".join(map(delimited, messages)))

    def close(self) -> None:
        """Do nothing: an echo has no state."""


def echo_call() -> Call:
    """The call "embereye.v1.Echo/Echo"."""
    return Call(_EchoStream, EchoResponse, Role.VIEWER, MAX_MESSAGE)

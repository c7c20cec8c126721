import socket

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from embereye.process.reason import reason_of

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
NO_ADDRESS = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.96.0.7:50053: "


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("the port\n  is taken"), "the port is taken"),
        (TimeoutError(), "timed out"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_every_error_has_a_reason_in_one_line(error: Exception, words: str) -> None:
    assert reason_of(error) == words


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (UNAVAILABLE, NO_ADDRESS + "Failed to connect to remote host: Connection refused", "connection refused"),
        (UNAVAILABLE, NO_ADDRESS + "Failed to connect to remote host: connect() timed out", "no answer in time"),
        (UNAVAILABLE, NO_ADDRESS + "tcp handshaker shutdown", "the connection was closed"),
        (UNAVAILABLE, NO_ADDRESS + "Handshake read failed (Socket closed)", "the TLS handshake failed"),
        (UNAVAILABLE, "Stream removed (Socket closed)", "the connection was closed"),
        (UNAVAILABLE, "Stream removed (sendmsg: Connection timed out (110))", "no answer in time"),
        (UNAVAILABLE, "Cancelling all calls", "the connection was closed"),
        (UNAVAILABLE, "errors resolving hub.site.svc:50053: [address lookup failed]", "its name cannot be resolved"),
        (UNAVAILABLE, "the hub is a standby", "UNAVAILABLE: the hub is a standby"),
        (grpc.StatusCode.INTERNAL, "Internal error from Core", "the connection was closed"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no answer in time"),
        (grpc.StatusCode.PERMISSION_DENIED, "timed out tokens are refused", None),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", "it does not know this call"),
        (grpc.StatusCode.UNIMPLEMENTED, "clips are off", None),
        (grpc.StatusCode.ABORTED, "", "ABORTED"),
    ],
)
def test_a_failed_call_is_explained_in_plain_words(code: grpc.StatusCode, details: str, words: str | None) -> None:
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    assert reason_of(error) == (words or f"{code.name}: {details}")


async def test_a_port_where_nobody_listens_refuses_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await HealthStub(link).Check(HealthCheckRequest())
    assert reason_of(caught.value) == "connection refused"

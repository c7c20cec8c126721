"""The gRPC server and channels of every EmberEye process, with health and limits.

A process runs two servers of the same services: one for devices and people, one for control calls. While services are
added, a `Registrar` lets only the calls through that this kind of server may serve. Health is NOT_SERVING from `start`
until `set_serving(True)`, and again while the process ends.

Servers and channels share limits and keepalive, since a server disconnects clients that ping too often. Control
channels verify the server by the process's certificate. Each channel has a separate connection.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from embereye.process.addresses import LOOPBACK
from embereye.process.admission import descriptors
from embereye.process.grpc_front import FRONT_DESCRIPTORS, CallQueue, Front
from embereye.process.http.bearer import interceptors
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.guard import Registrar
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.process.tls.folder import ServerTls

logger = logging.getLogger(__name__)
Q = TypeVar("Q")
R = TypeVar("R")
PEOPLE = "embereye.people"  # the health check of a hub's routes to people, for the operator
MAX_MESSAGE = 16 * 1024 * 1024  # bytes; the default of 4 MB is less than a large picture of a camera
# Both ends use this: a server disconnects a client that pings more often than it allows (too_many_pings).
KEEPALIVE_MS = 20_000
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 5_000),
)
SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", 10_000),  # close connections that send nothing
    (
        "grpc.max_connection_idle_ms",
        60_000,
    ),  # close connections without calls; the client dials again for its next call
    ("grpc.max_concurrent_streams", 1_000),  # per connection
)
GREETING_SECONDS = 10.0  # for a new connection to exchange its HTTP/2 settings
# Longest attempt to connect. gRPC's default is 20 s, too long if a machine was powered off and another one serves the
# address now.
CONNECT_MS = 3_000
# Otherwise identical channels share one connection, and one flow-control window.
CHANNEL_OPTIONS = (
    *OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    # A restarting process is back within a second or two; gRPC's defaults retry after 1 and 2.6 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),  # the environment's proxy is for the outside; it reaches no EmberEye process
)


@dataclass(frozen=True)
class Service:
    """One gRPC service: the generated `add_…Servicer_to_server`, its implementation, its full name."""

    add: Callable[[Any, Any], None]
    servicer: Any
    name: str  # for example "embereye.v1.Shard"
    options: tuple[tuple[str, int], ...] = ()  # options that its server must have


# Ends old connections, so that a caller whose certificate has expired has to authenticate; calls have 30 s to end.
CONTROL_OPTIONS = (("grpc.max_connection_age_ms", 12 * 3_600_000), ("grpc.max_connection_age_grace_ms", 30_000))


def most_connections(*, control: bool) -> int:
    """The number of connections that one server accepts, so that descriptors remain for everything else."""
    return max(64, min(4_000 if control else 10_000, descriptors() // 16))


def most_descriptors() -> int:
    """The number of descriptors that the two servers of a process may use for connections."""
    return FRONT_DESCRIPTORS * most_connections(control=False) + most_connections(control=True)


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # it has no types
    """Serves health by Check, not by Watch.

    The library's Watch has a lock while it writes, which takes forever if a client does not read. The next change of
    health would wait for that lock, and the process would never end. Clients take UNIMPLEMENTED as healthy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.questions: dict[str, Callable[[], bool | None]] = {}  # by name, which is answered like a service's

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        """Answer for a service, or a question; one without an answer is unknown."""
        question = self.questions.get(request.service)
        if question is None:
            return await super().Check(request, context)
        if (answer := question()) is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.service} has no answer here")
        return health_pb2.HealthCheckResponse(status=_status(serving=bool(answer)))

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Refuse the call."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Watch is not supported: use Check")


def _status(*, serving: bool) -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
    answers = health_pb2.HealthCheckResponse
    return answers.SERVING if serving else answers.NOT_SERVING


class GrpcServer:
    """Serves `services` with health; SERVING only after `set_serving(True)`.

    It serves either devices and people, or `control` calls; `identity/calls.py` lists the calls of each. Callers of
    control calls are authenticated by mTLS if there are `credentials`.
    """

    def __init__(
        self,
        services: Iterable[Service],
        *,
        share_port: bool = False,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        control: bool = False,
        credentials: Credentials | None = None,
        tls: ServerTls | None = None,
        namespaces: Collection[str] = (),
        greeting_seconds: float = GREETING_SECONDS,
    ) -> None:
        """`tls` is for a port that is not for control; None: plain TCP.

        Only shards of `namespaces` may make control calls; empty: all shards. `greeting_seconds`: see `Front`.
        """
        services = list(services)
        extra = [option for service in services for option in service.options]
        extra += CONTROL_OPTIONS if credentials or (tls and tls.has_client_authorities) else ()
        self._credentials = credentials
        most = most_connections(control=control)
        # Without so_reuseport=0, a second process would silently take half of the connections.
        options = [*SERVER_OPTIONS, *extra, ("grpc.so_reuseport", 0)]
        options += [("grpc.max_allowed_incoming_connections", most)] if control else []  # else the front counts them
        queue = None if control else CallQueue()
        self._server = grpc.aio.server(interceptors=(*([queue] if queue else []), *interceptors), options=options)
        self._front = queue and Front(
            self._server, queue, most, tls, shared=share_port, greeting_seconds=greeting_seconds
        )
        self._health = _Health()
        self.not_serving = "starting"  # why it does not serve; '' if it does
        registrar = Registrar(self._server, control=control, credentials=credentials, namespaces=namespaces)
        for service in services:
            service.add(service.servicer, registrar)
        self._names = registrar.served
        # Every port serves health to everybody: it is not in the table, and registered as if this was no control port.
        health_pb2_grpc.add_HealthServicer_to_server(self._health, Registrar(self._server, control=False))

    def listen(self, address: str) -> int:
        """Bind `address` ("host:port", port 0 for any) and return the port."""
        try:
            if self._front:
                port = self._front.listen(address)
            elif self._credentials:
                port = self._server.add_secure_port(address, self._credentials.for_server())
            else:
                port = self._server.add_insecure_port(address)
        except (RuntimeError, OSError):
            port = 0
        if not port:
            raise UserError(f"cannot listen for gRPC on {address}: the port is taken or the address is not this host's")
        return int(port)

    async def start(self) -> None:
        """Start to answer; health is NOT_SERVING until `set_serving(True)`."""
        await self.set_serving(False)
        await self._server.start()
        if self._front:
            await self._front.start()

    async def set_serving(self, serving: bool) -> None:
        """Set the health of the process and of each service."""
        self.not_serving = "" if serving else self.not_serving or "ending"
        for name in ("", *self._names):
            await self._health.set(name, _status(serving=serving))

    def answer(self, name: str, question: Callable[[], bool | None]) -> None:
        """Let health checks of `name` get the answer of `question`: SERVING, NOT_SERVING, or NOT_FOUND for None."""
        self._health.questions[name] = question

    async def stop(self, grace: float = 0.5) -> None:
        """Refuse new calls, give running ones `grace` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        if self._front:
            self._front.close()
        await self._server.stop(grace)
        if self._front:
            await self._front.stop()


def control_host(host: str, credentials: Credentials | None) -> str:
    """The address of the control port: only loopback if callers cannot be authenticated."""
    if credentials is None:
        logger.warning(
            "control is served on %s only, because without --identity its callers cannot be authenticated",
            LOOPBACK,
        )
        return LOOPBACK
    return host


def control_channel(
    target: str, server_name: str, credentials: Credentials | None, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """A channel to the control port at `target`, whose certificate has to name `server_name`.

    Without `credentials` neither end is authenticated.
    """
    if credentials is None:
        return channel(target, options)
    return credentials.channel(
        target, server_name, [*options, *CHANNEL_OPTIONS]
    )  # of equal options the first one counts


def channel(target: str, options: Sequence[tuple[str, int]] = (), *, token: str = "") -> grpc.aio.Channel:
    """An insecure channel to `target` ("host:port") with the limits the servers expect; each call carries `token`."""
    return grpc.aio.insecure_channel(target, options=[*options, *CHANNEL_OPTIONS], interceptors=interceptors(token))


async def converse(
    call: "grpc.aio.StreamStreamCall[Q, R]", send: Callable[["grpc.aio.StreamStreamCall[Q, R]"], Awaitable[None]]
) -> AsyncGenerator[R, None]:
    """Yield the responses of a call while `send(call)` writes its requests. The call ends with the iteration.

    The iteration raises the reason if the call fails; the writer only ends it.
    """

    async def write() -> None:
        try:
            await send(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call.cancel()
        except Exception:
            logger.exception("a gRPC request could not be made")
            call.cancel()

    try:
        async with beside(write(), name="grpc-send"):
            async for response in call:
                yield response
    finally:
        call.cancel()  # an abandoned call is never garbage-collected

"""gRPC as every EmberEye process uses it: a server with health and reflection, channels, sane limits."""

import asyncio
import logging
import resource
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from embereye.process.addresses import LOOPBACK
from embereye.process.http.bearer import interceptors
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.guard import Registrar
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.process.tls.folder import ServerTls

logger = logging.getLogger(__name__)
Q = TypeVar("Q")
R = TypeVar("R")
MAX_MESSAGE = 16 * 1024 * 1024  # bytes; the default of 4 MB is less than a large camera still
# A client that pings more often than the server allows is sent away (too_many_pings): both ends use these.
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
    ("grpc.server_handshake_timeout_ms", 10_000),  # whoever connects and says nothing gives its descriptor back
    ("grpc.max_connection_idle_ms", 60_000),  # as does a client that calls nothing; it dials again when it does
    ("grpc.max_concurrent_streams", 1_000),  # of one connection
)
# An attempt to connect, at the longest: to a machine that was powered off gRPC alone would try for 20 seconds, while
# another one serves the same address.
CONNECT_MS = 3_000
# Identical channels would otherwise share one connection, and one flow-control window.
CHANNEL_OPTIONS = (
    *OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    # Who restarts is back within a second or two, and what it is to be told waits: gRPC would look after 1 and 2.6 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),  # of the environment, which is for the outside: it reaches none of our processes
)


@dataclass(frozen=True)
class Service:
    """One gRPC service: the generated `add_…Servicer_to_server`, its implementation, its full name."""

    add: Callable[[Any, Any], None]
    servicer: Any
    name: str  # for example "embereye.v1.Shard"
    options: tuple[tuple[str, int], ...] = ()  # that its server must have


# A caller whose certificate has expired cannot go on for ever by a connection that it has; half a minute to end calls.
CONTROL_OPTIONS = (("grpc.max_connection_age_ms", 12 * 3_600_000), ("grpc.max_connection_age_grace_ms", 30_000))


def most_connections(*, control: bool) -> int:
    """How many connections one server takes: whoever reaches its port must leave descriptors for everything else."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(64, min(4_000, descriptors // 16) if control else min(10_000, descriptors // 8))


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # it has no types
    """Answers who asks; changes have to be asked for.

    The library's Watch holds a lock while it writes, without end to a client that reads nothing, and the next change of
    the health waits for that lock: this process would never end. Clients take UNIMPLEMENTED as healthy.
    """

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Refused."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the health is told by Check alone")


class GrpcServer:
    """Serves `services` with health and reflection; SERVING only after `set_serving(True)`.

    For devices and people, or for `control`: which calls belong where stands in `identity/calls.py`. Who calls for
    control has to prove who it is by mTLS where there are `credentials`.
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
    ) -> None:
        """`tls` is what a port that is not for control shows, and asks for; None: it is plain.

        Shards of `namespaces` alone may call one that is for control; none: all.
        """
        # SO_REUSEPORT is grpc's default and would let a second process silently take half of the connections.
        services = list(services)
        own = [option for service in services for option in service.options]
        own += CONTROL_OPTIONS if credentials or (tls and tls.asks_clients) else ()
        self._credentials = credentials
        self._tls = tls
        most = ("grpc.max_allowed_incoming_connections", most_connections(control=control))
        options = [*SERVER_OPTIONS, *own, most, ("grpc.so_reuseport", int(share_port))]
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._health = _Health()
        self.not_serving = "starting"  # why it does not serve; '' where it does
        registrar = Registrar(self._server, control=control, credentials=credentials, namespaces=namespaces)
        for service in services:
            service.add(service.servicer, registrar)
        self._names = registrar.served
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)

    def listen(self, address: str) -> int:
        """Bind `address` ("host:port", port 0 for any) and return the port."""
        try:
            if shown := self._credentials.for_server() if self._credentials else self._tls and self._tls.for_grpc():
                port = self._server.add_secure_port(address, shown)
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise UserError(f"cannot listen for gRPC on {address}: the port is taken or the address is not this host's")
        return int(port)

    async def start(self) -> None:
        """Start to answer; health is NOT_SERVING until told otherwise."""
        await self.set_serving(False)
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """Set the health of the process and of each service."""
        self.not_serving = "" if serving else self.not_serving or "ending"
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, status)

    async def stop(self, grace: float = 0.5) -> None:
        """Refuse new calls, give running ones `grace` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)


def control_host(host: str, credentials: Credentials | None) -> str:
    """The address to listen on for control: with no way to ask who calls, only this machine may."""
    if credentials is None:
        logger.warning(
            "without --identity nobody who calls for control can be asked who it is: control is served on %s alone",
            LOOPBACK,
        )
        return LOOPBACK
    return host


def control_channel(
    target: str, server_name: str, credentials: Credentials | None, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """A channel to the control port at `target`, whose server has to prove that it is `server_name`.

    Without `credentials` neither end proves anything.
    """
    if credentials is None:
        return channel(target, options)
    return credentials.channel(target, server_name, [*options, *CHANNEL_OPTIONS])  # the first counts


def channel(target: str, options: Sequence[tuple[str, int]] = (), *, token: str = "") -> grpc.aio.Channel:
    """An insecure channel to `target` ("host:port") with the limits the servers expect; each call shows `token`."""
    return grpc.aio.insecure_channel(target, options=[*options, *CHANNEL_OPTIONS], interceptors=interceptors(token))


async def converse(
    call: "grpc.aio.StreamStreamCall[Q, R]", send: Callable[["grpc.aio.StreamStreamCall[Q, R]"], Awaitable[None]]
) -> AsyncGenerator[R, None]:
    """The responses of a call, while `send(call)` writes its requests; the call is over when the iteration is.

    Why it ended is what the reading side raises: a writer that finds the call broken only ends it.
    """

    async def write() -> None:
        try:
            await send(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call.cancel()
        except Exception:
            logger.exception("what was to be sent could not be made")
            call.cancel()

    try:
        async with beside(write(), name="grpc-send"):
            async for response in call:
                yield response
    finally:
        call.cancel()  # a call that is left alone is never collected

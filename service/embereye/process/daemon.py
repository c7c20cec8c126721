"""The common parts of shards and hubs: certificates, metrics and gRPC servers, from their start to their end."""

import asyncio
from collections.abc import Collection, Sequence

import grpc
from prometheus_client import CollectorRegistry

from embereye.process.grpc_server import GrpcServer, Service, control_host
from embereye.process.http.pages import metrics_pages, serve_pages
from embereye.process.identity.credentials import Credentials
from embereye.process.tasks import Tasks
from embereye.process.telemetry.runtime_metrics import RuntimeMetrics
from embereye.process.tls.folder import ServerTls


class Daemon:
    """A process that serves the same gRPC services on open ports and, authenticated, on a control port.

    Use it in this order: `listen` and `listen_control`, `open_pages`, `start`, `set_serving`, `stop`.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        credentials: Credentials | None,
        tls: ServerTls | None,
        share_port: bool = False,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        namespaces: Collection[str] = (),
    ) -> None:
        """`credentials` are for the control port, `tls` is for open ports; the rest is as in `GrpcServer`."""
        self.registry = CollectorRegistry()
        self.grpc = GrpcServer(services, share_port=share_port, interceptors=interceptors, tls=tls)
        self.control = GrpcServer(services, control=True, credentials=credentials, namespaces=namespaces)
        self._credentials = credentials
        self._tls = tls
        self._runtime = RuntimeMetrics(self.registry, lambda: credentials, tls)
        self._pages: asyncio.Server | None = None

    def listen(self, host: str, *ports: int) -> list[int]:
        """Bind open `ports`, 0 for any; return them. UserError if that fails."""
        return [self.grpc.listen(f"{host}:{port}") for port in ports]

    def listen_control(self, host: str, port: int) -> int:
        """Bind the control port, on loopback only if callers cannot be authenticated; UserError if that fails."""
        return self.control.listen(f"{control_host(host, self._credentials)}:{port}")

    async def open_pages(self, host: str, port: int) -> None:
        """Serve metrics and health over HTTP."""
        pages = metrics_pages(self.registry, not_ready=lambda: self.grpc.not_serving)
        self._pages = await serve_pages(pages, host, port)

    async def start(self, tasks: Tasks) -> None:
        """Answer calls; health is NOT_SERVING until `set_serving`. Follow certificates and measure in `tasks`."""
        await self.grpc.start()
        await self.control.start()
        for followed, name in ((self._credentials, "follow-identity"), (self._tls, "follow-tls")):
            if followed:
                tasks.start(followed.follow(), name=name)
        tasks.start(self._runtime.run(), name="event-loop-lag")

    async def set_serving(self, serving: bool) -> None:
        """Set the health of all services on all ports."""
        await asyncio.gather(self.grpc.set_serving(serving), self.control.set_serving(serving))

    async def stop(self, grace: float = 0.5) -> None:
        """Refuse new calls, give running ones `grace` seconds, and close the pages."""
        await asyncio.gather(self.grpc.stop(grace), self.control.stop(grace))
        if self._pages is not None:
            self._pages.close()

"""The text listeners of a sensor shard, with and without TLS.

The shard listens at its own port and, if the options name one, at a shared port: every process
that listens there may get a connection. Each accepted connection gets a session from `protocol`.
"""

import asyncio
from collections.abc import Callable

from embereye.process.files import system_errors
from embereye.process.http.pages import all_interfaces
from embereye.process.lifecycle import UserError
from embereye.process.tls.listener import TlsListener
from embereye.sensor.sessions import TextSession
from embereye.shard.service import ShardContext


class Listeners:
    """The listening ports. They serve every device of the fleet, owned here or not."""

    def __init__(self, protocol: Callable[[], TextSession]) -> None:
        self._protocol = protocol
        self._servers: list[asyncio.Server] = []
        self._tls: list[TlsListener] = []

    async def open(self, context: ShardContext) -> None:
        """Listen as the options say; UserError if an address cannot be used."""
        options = context.options
        if options.tls_port and context.tls is None:
            raise UserError("--tls-port needs --tls: name the folder of the certificate for devices")
        outer = options.outer_host or options.host
        await self._listen(options.host, options.tcp_port, context, shared=False)
        if options.shared_tcp_port:
            await self._listen(outer, options.shared_tcp_port, context, shared=True)
        if options.tls_port:
            await self._listen(options.host, options.tls_port, context, shared=False, tls=True)
        if options.shared_tls_port and context.tls:
            await self._listen(outer, options.shared_tls_port, context, shared=True, tls=True)

    async def _listen(self, host: str, port: int, context: ShardContext, *, shared: bool, tls: bool = False) -> None:
        with system_errors(f"cannot listen for devices on {host}:{port}"):
            if tls and context.tls:
                listener = TlsListener(host, port, context.tls, self._protocol, shared=shared)
                listener.start(context.tasks)
                self._tls.append(listener)
            else:
                address, loop = all_interfaces(host), asyncio.get_running_loop()
                server = await loop.create_server(self._protocol, address, port, reuse_port=shared, backlog=4096)
                self._servers.append(server)

    @property
    def first(self) -> asyncio.Server | None:
        """The shard's own listener without TLS; None before `open`."""
        return self._servers[0] if self._servers else None

    @property
    def ports(self) -> list[int]:
        """The ports of the listeners without TLS, the shard's own first."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    def close(self) -> None:
        """Stop accepting connections."""
        for server in self._servers:
            server.close()
        for listener in self._tls:
            listener.close()

"""A TLS listener that counts each connection from its first packet, not only after its handshake.

Otherwise unfinished handshakes, which need no authentication, could use up the descriptors of the process.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from embereye.process.condition import Condition
from embereye.process.http.pages import all_interfaces
from embereye.process.tasks import Tasks
from embereye.process.tls.folder import HANDSHAKE_SECONDS, ServerTls

logger = logging.getLogger(__name__)
BACKLOG = 4096
PAUSE_SECONDS = 0.1  # after a connection could not be accepted because the system has no room


class Caller(Protocol):
    """The asyncio protocol of one connection, which is called before the handshake, too."""

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Note the start of the handshake with `address`; False if there is no room. `abort` ends the handshake."""

    def abandon(self, why: str) -> None:
        """Note that the handshake failed; `why` is empty if it was aborted."""


class TlsListener:
    """Accepts TLS connections on `host:port`; `make` creates their protocols.

    Each handshake uses the current certificates. The constructor opens the port, and raises OSError if that fails;
    `close` leaves open connections open.
    """

    def __init__(
        self, host: str, port: int, tls: ServerTls, make: Callable[[], Caller], *, shared: bool, http2: bool = False
    ) -> None:
        self._tls = tls
        self._http2 = http2
        self._make = make
        self._listening = open_port(host, port, shared=shared)
        self._shaking = Tasks()
        self._accepting: asyncio.Task[None] | None = None

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening socket, as in asyncio's servers."""
        return [self._listening]

    def start(self, tasks: Tasks) -> None:
        """Accept connections in a task of `tasks`."""
        self._accepting = tasks.start(self._accept(), name="tls-listener")

    def close(self) -> None:
        """Stop accepting connections."""
        if self._accepting is not None:
            self._accepting.cancel()
        else:
            self._listening.close()

    async def _accept(self) -> None:
        loop, failing = asyncio.get_running_loop(), Condition(logger)
        with self._listening:
            while True:
                try:
                    connection, peer = await loop.sock_accept(self._listening)
                except OSError as error:
                    failing.fail(str(error), "a connection cannot be accepted: %s", error)
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                failing.clear()
                caller, handshake = self._make(), _Handshake()
                if caller.begin(str(peer[0]).removeprefix("::ffff:"), handshake.abort):
                    shaking = self._shake_hands(caller, connection, handshake)
                    handshake.task = self._shaking.start(shaking, name="tls-handshake")
                else:
                    connection.close()

    async def _shake_hands(self, caller: Caller, connection: socket.socket, handshake: "_Handshake") -> None:
        """Make the handshake and connect the protocol; close the connection if that fails or takes too long."""
        why, made = "", False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast("Any", caller),
                connection,
                ssl=self._tls.context(http2=self._http2),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
            made = True
        except OSError as error:  # includes ssl.SSLError and timeouts
            why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
            why = why or type(error).__name__
        finally:
            handshake.task = None  # free the task: the handshake object lives as long as the connection
            if not made:
                caller.abandon(why)
                connection.close()


class _Handshake:
    task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()


def open_port(host: str, port: int, *, shared: bool) -> socket.socket:
    """Bind `host:port` and listen; `shared`: together with other processes. OSError if that fails."""
    address = all_interfaces(host)
    both = address is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or (address and ":" in address) else socket.AF_INET
    listening = socket.create_server(
        (address or "", port), family=family, backlog=BACKLOG, reuse_port=shared, dualstack_ipv6=both
    )
    listening.setblocking(False)
    return listening

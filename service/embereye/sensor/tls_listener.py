"""Text devices that speak TLS: each connection counts from its first packet on, not from the end of its handshake."""

import asyncio
import logging
import socket

from embereye.process.pages import all_interfaces
from embereye.process.tls import HANDSHAKE_SECONDS, ServerTls
from embereye.sensor.sessions import Sessions, TextSession

logger = logging.getLogger(__name__)
BACKLOG = 4096
PAUSE_SECONDS = 0.1  # after a connection that could not be accepted: the system has no room


class TlsListener:
    """Accepts connections on `host:port` for `sessions`, which have to shake hands with `tls`; OSError at once.

    Each handshake shows, and asks for, what is current. `run` has to run for as long as it listens.
    """

    def __init__(self, host: str, port: int, sessions: Sessions, tls: ServerTls, *, shared: bool) -> None:
        self._sessions = sessions
        self._tls = tls
        self._listening = _listen(host, port, shared=shared)

    async def run(self) -> None:
        """Accept until cancelled, or closed."""
        loop = asyncio.get_running_loop()
        while self._listening.fileno() >= 0:
            try:
                connection, peer = await loop.sock_accept(self._listening)
            except OSError as error:
                if self._listening.fileno() >= 0:
                    logger.warning("a connection cannot be accepted: %s", error)
                    await asyncio.sleep(PAUSE_SECONDS)
                continue
            session = self._sessions.protocol()
            session.address = str(peer[0]).removeprefix("::ffff:")
            if not self._sessions.opened(session):
                connection.close()
                continue
            shaking = self._shake_hands(session, connection)
            session.handshake = self._sessions.tasks.start(shaking, name="tls-handshake")

    async def _shake_hands(self, session: TextSession, connection: socket.socket) -> None:
        """Hand the connection over to its session; whoever cannot speak TLS, or takes too long, is gone."""
        handed_over = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session, connection, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
            handed_over = True
        except OSError as error:  # ssl's own and every timeout are some
            self._sessions.handshakes_failed += 1
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
            self._sessions.deny(session.address, f"TLS: {reason or type(error).__name__}")
        finally:
            if not handed_over:
                self._sessions.closed(session)
                connection.close()

    def close(self) -> None:
        """Accept nothing more; what is connected stays so."""
        self._listening.close()


def _listen(host: str, port: int, *, shared: bool) -> socket.socket:
    address = all_interfaces(host)
    both = address is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or (address and ":" in address) else socket.AF_INET
    listening = socket.create_server(
        (address or "", port), family=family, backlog=BACKLOG, reuse_port=shared, dualstack_ipv6=both
    )
    listening.setblocking(False)
    return listening

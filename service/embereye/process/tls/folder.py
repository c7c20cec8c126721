"""The TLS certificate of a server for devices and people, and the authorities of its clients' certificates.

The files are read from a folder, and again when they change. Nothing restarts, and open connections stay open.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embereye.process.condition import Condition
from embereye.process.identity.credentials import (
    expiry,
    load_authorities,
    load_chain,
    read_files,
    verify_certificate,
)
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep

logger = logging.getLogger(__name__)
PERIOD = 5.0  # seconds between checks of the files
HANDSHAKE_SECONDS = 10.0  # longest duration of a TLS handshake


@dataclass(frozen=True)
class ServedCertificate:
    """The contents of the files when they were last read; PEM."""

    chain: bytes
    key: bytes
    clients: bytes  # authorities of clients' certificates; empty: clients need none
    expires: float  # seconds since the Unix epoch

    def context(self, *protocols: str) -> ssl.SSLContext:
        """The context for a server that speaks the `protocols` (ALPN), if there are any."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No session resumption: it would skip authentication, even after an authority has lost our trust.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        load_chain(context, self.chain, self.key)
        if protocols:
            context.set_alpn_protocols(protocols)
        if self.clients:
            context.verify_mode = ssl.CERT_REQUIRED
            load_authorities(context, self.clients)
        return context


class ServerTls:
    """A server's certificate, `tls.crt` and `tls.key` of a folder. Use it on the event loop.

    `clients` is a folder with `ca.crt`: clients need a certificate of these authorities. `follow` polls the files; the
    next handshake uses a changed certificate.
    """

    def __init__(self, folder: Path, clients: Path | None = None) -> None:
        """Read the files; UserError if they cannot be used."""
        self._folder = folder
        self._clients = clients
        self.failing = Condition(logger)  # the present contents of the files are not used
        try:
            self.current = self._read()
        except ValueError as error:
            raise UserError(f"TLS cannot be served: {error}") from error
        self._contexts = self.current.context(), self.current.context("h2")
        self._subscribers: list[Callable[[], None]] = []

    @property
    def has_client_authorities(self) -> bool:
        """True if clients need a certificate."""
        return self._clients is not None

    def context(self, *, http2: bool = False) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._contexts[http2]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the authorities of clients' certificates change."""
        self._subscribers.append(changed)

    async def follow(self, period: float = PERIOD) -> None:
        """Read the files when they change, until cancelled."""
        while True:
            await aligned_sleep(period)
            self.reload()

    def reload(self) -> None:
        """Use the present contents of the files if they are valid."""
        before = self.current
        try:
            latest = self._read()
            if latest != before:
                self._contexts, self.current = (latest.context(), latest.context("h2")), latest
                logger.info("%s: the server's certificate or its clients' authorities have changed", self._folder)
            self.failing.clear()
        except ValueError as error:
            self.failing.fail(str(error), "%s; the previous certificate remains in use", error)
        if self.current.clients != before.clients:
            for changed in self._subscribers:
                changed()

    def _read(self) -> ServedCertificate:
        try:
            chain, key = read_files(self._folder, ("tls.crt", "tls.key"))
            certificate = verify_certificate(chain, chain, key)
        except ValueError as error:
            raise ValueError(f"{self._folder}: {str(error).replace('ca.crt, tls.crt', 'tls.crt')}") from error
        clients = b""
        if self._clients is not None:
            try:
                (clients,) = read_files(self._clients, ("ca.crt",))
                load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), clients)
            except (ValueError, ssl.SSLError) as error:
                raise ValueError(f"{self._clients}: ca.crt contains no certificate authority: {error}") from error
        return ServedCertificate(chain, key, clients, expiry(certificate))

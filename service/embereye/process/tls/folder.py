"""TLS for those who are none of our own processes: the certificate that a server shows, and whose it asks for.

It is read from a folder, and read again as it changes; nothing is started anew, and what is connected stays so.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from embereye.process.identity.credentials import (
    expiry,
    load_authorities,
    load_chain,
    read_files,
    server_credentials,
    shake_hands,
)
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep

logger = logging.getLogger(__name__)
PERIOD = 5.0  # seconds between looks at the files
HANDSHAKE_SECONDS = 10.0  # that whoever connects has to prove what there is to prove


@dataclass(frozen=True)
class Shown:
    """What the files said when they were read last; PEM."""

    chain: bytes
    key: bytes
    clients: bytes  # authorities that clients' certificates have to be of; empty: none is asked for
    expires: float  # seconds since the Unix epoch

    def for_servers(self) -> grpc.ServerCertificateConfiguration:
        """As a gRPC server shows it."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.chain)], self.clients or None)

    def context(self) -> ssl.SSLContext:
        """As any other server shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A session that is taken up again proves nothing again, after an authority has lost our trust either.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        load_chain(context, self.chain, self.key)
        if self.clients:
            context.verify_mode = ssl.CERT_REQUIRED
            load_authorities(context, self.clients)
        return context


class ServerTls:
    """One server's certificate, `tls.crt` and `tls.key` of a folder; belongs to the event loop.

    `clients` is a folder with `ca.crt`: whoever connects has to show a certificate of these authorities. `follow` looks
    whether the files have changed; the next handshake shows the new certificate, on threads of gRPC's, too.
    """

    def __init__(self, folder: Path, clients: Path | None = None) -> None:
        """UserError where the files cannot be used."""
        self._folder = folder
        self._clients = clients
        self.failing = ""  # why what is in the files is not used
        try:
            self.current = self._read()
        except ValueError as error:
            raise UserError(f"TLS cannot be served: {error}") from error
        self._context = self.current.context()
        self._subscribers: list[Callable[[], None]] = []

    @property
    def asks_clients(self) -> bool:
        """Whether clients have to show a certificate."""
        return self._clients is not None

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def for_grpc(self) -> grpc.ServerCredentials:
        """For a gRPC server; it shows whichever certificate is current."""
        return server_credentials(lambda: self.current, asks_clients=self.asks_clients)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever clients' certificates have to be of other authorities than before."""
        self._subscribers.append(changed)

    async def follow(self, period: float = PERIOD) -> None:
        """Read the files whenever they change, until cancelled."""
        while True:
            await aligned_sleep(period)
            self.reload()

    def reload(self) -> None:
        """Use what the files say now; where that cannot be, what they said before stays in use."""
        before = self.current
        try:
            latest = self._read()
            if latest != before:
                self._context, self.current = latest.context(), latest
                logger.info("%s: the certificate that is shown has changed", self._folder)
            self.failing = ""
        except ValueError as error:
            if str(error) != self.failing:
                logger.warning("%s; the certificate before it stays in use", error)
            self.failing = str(error)
        if self.current.clients != before.clients:
            for changed in self._subscribers:
                changed()

    def _read(self) -> Shown:
        try:
            chain, key = read_files(self._folder, ("tls.crt", "tls.key"))
            certificate = shake_hands(chain, chain, key)
        except ValueError as error:
            raise ValueError(f"{self._folder}: {str(error).replace('ca.crt, tls.crt', 'tls.crt')}") from error
        clients = b""
        if self._clients is not None:
            try:
                (clients,) = read_files(self._clients, ("ca.crt",))
                load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), clients)
            except (ValueError, ssl.SSLError) as error:
                raise ValueError(f"{self._clients}: ca.crt holds no certificate authority: {error}") from error
        return Shown(chain, key, clients, expiry(certificate))

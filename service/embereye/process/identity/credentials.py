"""The certificate that this process proves itself with, read from a folder, and read again whenever it changes."""

import asyncio
import contextlib
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from embereye.process.identity.names import Identity, parse_uri
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep

logger = logging.getLogger(__name__)
FILES = ("ca.crt", "tls.crt", "tls.key")  # as in Secrets of the type kubernetes.io/tls
PERIOD = 5.0  # seconds between looks at the folder
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for


@dataclass(frozen=True)
class Certificate:
    """What the files said when they were read last."""

    identity: Identity
    expires: float  # seconds since the Unix epoch
    trusted: bytes  # PEM
    chain: bytes  # PEM
    key: bytes  # PEM

    def for_servers(self) -> grpc.ServerCertificateConfiguration:
        """As a server shows it."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.chain)], self.trusted)


class Showable(Protocol):
    """What the files of a server said when they were read last."""

    def for_servers(self) -> grpc.ServerCertificateConfiguration:
        """As a server shows it."""


def server_credentials(current: Callable[[], Showable], *, asks_clients: bool) -> grpc.ServerCredentials:
    """For a gRPC server that shows whatever is `current`, asked on threads of gRPC's at every handshake."""
    shown = current()
    lock = threading.Lock()

    def fetch() -> Any:  # None: as it is
        nonlocal shown
        with lock:
            latest = current()
            if shown is latest:
                return None
            shown = latest
            return shown.for_servers()

    return grpc.dynamic_ssl_server_credentials(shown.for_servers(), fetch, asks_clients)


class Credentials:
    """The identity of this process. Belongs to the event loop; handshakes come in on threads of gRPC's.

    `follow` looks whether the files have changed. Servers show the new certificate from the next handshake on;
    `changed` is set, and replaced, so that connections of ours are made anew.
    """

    def __init__(self, folder: Path) -> None:
        """UserError where the folder holds no identity."""
        self._folder = folder
        try:
            self.current = read_certificate(folder)
        except ValueError as error:
            raise UserError(f"--identity {folder}: {error}") from error
        self.changed = asyncio.Event()
        logger.info("identity: %s", self.current.identity)

    @property
    def identity(self) -> Identity:
        """Who this process is."""
        return self.current.identity

    async def follow(self, period: float = PERIOD) -> None:
        """Read the files whenever they change, until cancelled. Files that are no identity are told, and not used."""
        failing = ""
        while True:
            await aligned_sleep(period)
            failing = self.reload(failing)

    def reload(self, failing: str = "") -> str:
        """Use what the files say now; returns why that cannot be, '' where it can."""
        try:
            if read_files(self._folder, FILES) == [self.current.trusted, self.current.chain, self.current.key]:
                return ""
            latest = read_certificate(self._folder)
            if latest.identity != self.identity:
                raise ValueError(f"tls.crt is of {latest.identity}, and this is {self.identity}")
        except ValueError as error:
            if str(error) != failing:
                logger.warning("%s: %s; the certificate before it stays in use", self._folder, error)
            return str(error)
        self.current = latest
        logger.info("identity: the certificate was renewed")
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return ""

    def for_server(self) -> grpc.ServerCredentials:
        """For a server that asks who calls; it shows whichever certificate is current."""
        return server_credentials(lambda: self.current, asks_clients=True)

    def channel(self, target: str, server_name: str, options: Sequence[tuple[str, int]]) -> grpc.aio.Channel:
        """A channel to the process at `target` that proves to be `server_name`, whatever its address is."""
        current = self.current
        proof = grpc.ssl_channel_credentials(current.trusted, current.key, current.chain)
        names = [("grpc.ssl_target_name_override", server_name), ("grpc.default_authority", server_name)]
        return grpc.aio.secure_channel(target, proof, options=[*options, *names])


def read_certificate(folder: Path) -> Certificate:
    """What `folder` holds; ValueError where a file is missing or they do not belong together. It may have expired."""
    trusted, chain, key = read_files(folder, FILES)
    certificate = shake_hands(trusted, chain, key)
    uris = [str(name[1]) for name in certificate.get("subjectAltName", ()) if name[0] == "URI"]
    if len(uris) != 1:
        raise ValueError(f"tls.crt names {len(uris)} processes by URI: one is wanted, spiffe://embereye/ns/…")
    return Certificate(parse_uri(uris[0]), expiry(certificate), trusted, chain, key)


def read_files(folder: Path, names: Sequence[str]) -> list[bytes]:
    """The contents of files of one version; ValueError where one cannot be read."""
    # A mounted Secret changes by a symlink: all files are to be of one version.
    place = folder / "..data"
    base = place.resolve() if place.is_symlink() else folder
    found = []
    for name in names:
        try:
            found.append((base / name).read_bytes())
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from error
    return found


def expiry(certificate: "ssl._PeerCertRetDictType") -> float:
    """Until when a certificate holds, seconds since the Unix epoch."""
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def load_chain(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Have `context` show a certificate, PEM. OSError, ssl.SSLError where it cannot."""
    # ssl reads from files only. One in memory, where the system has that, needs no disk that can be written: with a
    # full one nothing could be started any more.
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("pem"), "wb") if in_memory else tempfile.NamedTemporaryFile() as pair:
        pair.write(chain + b"\n" + key)
        pair.flush()
        path = f"/proc/self/fd/{pair.fileno()}" if in_memory else pair.name
        context.load_cert_chain(path, password=_refuse_password)


def _refuse_password() -> str:
    """OpenSSL would ask on the terminal, and the process wait for somebody to answer."""
    raise ssl.SSLError("the key is locked with a password, which nobody can be asked for")


def load_authorities(context: ssl.SSLContext, authorities: bytes) -> None:
    """Have `context` trust certificates, PEM; what else stands there is left out. ValueError, ssl.SSLError: none do."""
    # Whoever is trusted by name need not be an authority, nor proven by another one: so it is with gRPC.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))


def shake_hands(trusted: bytes, chain: bytes, key: bytes) -> "ssl._PeerCertRetDictType":
    """What a certificate says of itself, as a client reads it that trusts `trusted`; all PEM.

    ValueError where that client does not trust it, or the key is another one's. It may have expired.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= NO_CHECK_TIME  # who is late with renewing it is told by a metric, and by those who refuse it
    try:
        load_chain(server, chain, key)
        load_authorities(client, trusted)
        return _handshake(server, client)
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        raise ValueError(f"ca.crt, tls.crt and tls.key do not belong together: {reason}") from error


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> "ssl._PeerCertRetDictType":
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(up, down, server_side=True)
    dialling = client.wrap_bio(down, up)
    for _ in range(4):
        for side in (dialling, accepting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return dialling.getpeercert() or {}

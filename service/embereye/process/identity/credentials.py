"""The process's own certificate, read from a folder and read again when it changes.

`Credentials.follow` compares the files every few seconds. New files are used if a handshake in memory shows that they
belong together, and if they name the same identity. Otherwise the previous certificate remains in use, and the reason
is logged once. Servers fetch the current certificate for each handshake. Clients wait for the event `changed` and
reconnect. An expired certificate is still read: a metric warns about it.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embereye.process.condition import Condition
from embereye.process.identity.names import Identity, parse_uri
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep

logger = logging.getLogger(__name__)
FILES = ("ca.crt", "tls.crt", "tls.key")  # as in Secrets of the type kubernetes.io/tls
PERIOD = 5.0  # seconds between checks of the folder
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which Python has no name


@dataclass(frozen=True)
class Certificate:
    """The contents of the files when they were last read."""

    identity: Identity
    expires: float  # seconds since the Unix epoch
    trusted: bytes  # PEM
    chain: bytes  # PEM
    key: bytes  # PEM

    def for_servers(self) -> grpc.ServerCertificateConfiguration:
        """The configuration for a gRPC server."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.chain)], self.trusted)


class Credentials:
    """The identity of this process. Use it on the event loop; handshakes read it on gRPC's threads.

    `follow` polls the files. Servers use a changed certificate from the next handshake on; `changed` is set, and
    replaced, so that clients of this process reconnect.
    """

    def __init__(self, folder: Path) -> None:
        """Read the identity in `folder`; UserError if there is none."""
        self._folder = folder
        self._failing = Condition(logger)
        try:
            self.current = read_certificate(folder)
        except ValueError as error:
            raise UserError(f"--identity {folder}: {error}") from error
        self.changed = asyncio.Event()
        logger.info("identity: %s", self.current.identity)

    @property
    def identity(self) -> Identity:
        """The identity of this process."""
        return self.current.identity

    async def follow(self, period: float = PERIOD) -> None:
        """Read the files when they change, until cancelled. Invalid files are logged and not used."""
        while True:
            await aligned_sleep(period)
            self.reload()

    def reload(self) -> None:
        """Use the present contents of the files, if they are valid."""
        try:
            if read_files(self._folder, FILES) == [self.current.trusted, self.current.chain, self.current.key]:
                self._failing.clear()
                return
            latest = read_certificate(self._folder)
            if latest.identity != self.identity:
                raise ValueError(f"tls.crt is for {latest.identity}, but this process is {self.identity}")
        except ValueError as error:
            self._failing.fail(str(error), "%s: %s; the previous certificate remains in use", self._folder, error)
            return
        self._failing.clear()
        self.current = latest
        logger.info("identity: the certificate was renewed")
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def for_server(self) -> grpc.ServerCredentials:
        """Credentials for a gRPC server that requires certificates; renewed ones apply to new connections."""
        used = self.current
        lock = threading.Lock()

        def fetch() -> Any:  # called for every handshake by gRPC's threads; None: unchanged
            nonlocal used
            with lock:
                if used is self.current:
                    return None
                used = self.current
                return used.for_servers()

        return grpc.dynamic_ssl_server_credentials(used.for_servers(), fetch, True)

    def channel(self, target: str, server_name: str, options: Sequence[tuple[str, int]]) -> grpc.aio.Channel:
        """A channel to the process at `target`, whose certificate has to name `server_name`."""
        current = self.current
        proof = grpc.ssl_channel_credentials(current.trusted, current.key, current.chain)
        names = [("grpc.ssl_target_name_override", server_name), ("grpc.default_authority", server_name)]
        return grpc.aio.secure_channel(target, proof, options=[*options, *names])


def read_certificate(folder: Path) -> Certificate:
    """Read the certificate in `folder`, which may be expired; ValueError if its files are missing or do not match."""
    trusted, chain, key = read_files(folder, FILES)
    certificate = verify_certificate(trusted, chain, key)
    uris = [str(name[1]) for name in certificate.get("subjectAltName", ()) if name[0] == "URI"]
    if len(uris) != 1:
        raise ValueError(f"tls.crt has {len(uris)} URIs: it needs exactly one, spiffe://embereye/ns/…")
    return Certificate(parse_uri(uris[0]), expiry(certificate), trusted, chain, key)


def read_files(folder: Path, names: Sequence[str]) -> list[bytes]:
    """Read files of the same version; ValueError if one cannot be read."""
    # A mounted Secret changes by a symlink. Resolve it once, so that all files are from one version.
    place = folder / "..data"
    base = place.resolve() if place.is_symlink() else folder
    contents = []
    for name in names:
        try:
            contents.append((base / name).read_bytes())
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from error
    return contents


def expiry(certificate: "ssl._PeerCertRetDictType") -> float:
    """The expiry of a certificate, seconds since the Unix epoch."""
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def load_chain(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load a certificate (PEM) into `context`. OSError or ssl.SSLError if that fails."""
    # ssl reads only files. A file in memory works even if the disk is full.
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("pem"), "wb") if in_memory else tempfile.NamedTemporaryFile() as pair:
        pair.write(chain + b"\n" + key)
        pair.flush()
        path = f"/proc/self/fd/{pair.fileno()}" if in_memory else pair.name
        context.load_cert_chain(path, password=_refuse_password)


def _refuse_password() -> str:
    """Raise ssl.SSLError: otherwise OpenSSL would ask for the password on the terminal and wait."""
    raise ssl.SSLError("the key is encrypted with a password: store it without one")


def load_authorities(context: ssl.SSLContext, authorities: bytes) -> None:
    """Have `context` trust the certificates in `authorities` (PEM). ValueError or ssl.SSLError if there are none."""
    # As in gRPC, a trusted certificate need not be an authority's, nor verified by another one.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))


def verify_certificate(trusted: bytes, chain: bytes, key: bytes) -> "ssl._PeerCertRetDictType":
    """Verify a certificate by a handshake with a client that trusts `trusted`, and return its fields; all PEM.

    ValueError if the client does not trust it, or the key does not belong to it. It may be expired.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= NO_CHECK_TIME  # a metric warns about expiry
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

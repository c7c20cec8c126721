"""TLS as a client: trusted authorities and the client's certificate. Files are read for each connection."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from embereye.process.grpc_server import CHANNEL_OPTIONS, channel
from embereye.process.http.bearer import interceptors
from embereye.process.identity.credentials import load_chain
from embereye.process.lifecycle import UserError
from embereye.process.tls.trust import trusting


@dataclass(frozen=True)
class ClientTls:
    """The TLS settings of a client."""

    ca: Path | None = None  # PEM file of the trusted authorities; None: the system's
    certificate: Path | None = None  # PEM file of the client's certificate, with intermediate certificates
    key: Path | None = None  # PEM file
    server_name: str = ""  # name that the server's certificate must have; '': the first dialled host

    @classmethod
    def in_folder(cls, folder: Path | None) -> "ClientTls":
        """The settings with those of ca.crt, tls.crt and tls.key that exist in `folder`; None: the defaults.

        UserError if none exist, for example while a Secret is being mounted: there is no fallback to the system's.
        """
        if folder is None:
            return cls()
        ca, certificate = folder / "ca.crt", folder / "tls.crt"
        if not ca.exists() and not certificate.exists():
            raise UserError(f"TLS: {folder} contains neither ca.crt nor tls.crt")
        pair = (certificate, folder / "tls.key") if certificate.exists() else (None, None)
        return cls(ca if ca.exists() else None, *pair)

    def check(self) -> None:
        """Raise UserError if a file cannot be used."""
        self.context()

    def context(self) -> ssl.SSLContext:
        """The context for a connection without gRPC. UserError if a file cannot be used."""
        try:
            context = trusting(self.ca)
            if self.certificate:
                load_chain(context, self.certificate.read_bytes(), self.key.read_bytes() if self.key else b"")
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca, self.certificate, self.key) if file)
            raise UserError(f"TLS with {files}: {getattr(error, 'strerror', '') or error}") from error
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials for gRPC. OSError if a file cannot be read."""
        ca, certificate, key = (
            file.read_bytes() if file else None for file in (self.ca, self.certificate, self.key or self.certificate)
        )
        return grpc.ssl_channel_credentials(ca, key if certificate else None, certificate)


def dial(
    target: str,
    tls: ClientTls | None = None,
    options: Sequence[tuple[str, int]] = (),
    *,
    server_name: str = "",
    token: str = "",
) -> grpc.aio.Channel:
    """A channel to `target` ("host:port") whose calls carry `token`; plain TCP without `tls`.

    The server's certificate must have the name `tls.server_name`, else `server_name`, else the host of `target`.
    """
    if tls is None:
        return channel(target, options, token=token)
    name = tls.server_name or server_name
    names = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.aio.secure_channel(
        target, tls.credentials(), options=[*options, *names, *CHANNEL_OPTIONS], interceptors=interceptors(token)
    )

"""TLS for who dials: whom it trusts, and the certificate that it shows. Files are read anew for each connection."""

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
    """How a client speaks TLS."""

    ca: Path | None = None  # PEM file of the authorities that it trusts; None: the system's
    certificate: Path | None = None  # PEM file that it shows, with those between it and its authority
    key: Path | None = None  # PEM file
    server_name: str = ""  # that the server's certificate has to have; '': the host that is dialled first

    @classmethod
    def in_folder(cls, folder: Path | None) -> "ClientTls":
        """With ca.crt, tls.crt and tls.key of `folder`, as Secrets have them, as far as they are there; None: none.

        UserError where none are there, as for a moment while it is mounted: whoever the system trusts was not meant.
        """
        if folder is None:
            return cls()
        ca, certificate = folder / "ca.crt", folder / "tls.crt"
        if not ca.exists() and not certificate.exists():
            raise UserError(f"TLS: {folder} holds neither ca.crt nor tls.crt")
        shown = (certificate, folder / "tls.key") if certificate.exists() else (None, None)
        return cls(ca if ca.exists() else None, *shown)

    def check(self) -> None:
        """Raise UserError where a file cannot be used."""
        self.context()

    def context(self) -> ssl.SSLContext:
        """For a connection without gRPC. UserError where a file cannot be used."""
        try:
            context = trusting(self.ca)
            if self.certificate:
                load_chain(context, self.certificate.read_bytes(), self.key.read_bytes() if self.key else b"")
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca, self.certificate, self.key) if file)
            raise UserError(f"TLS with {files}: {getattr(error, 'strerror', '') or error}") from error
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """For gRPC. OSError where a file cannot be read."""
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
    """A channel to `target` ("host:port") that each call shows `token` on; without `tls` as `channel` makes it.

    The server has to prove `tls.server_name`, or else `server_name`, or else the host of `target`.
    """
    if tls is None:
        return channel(target, options, token=token)
    name = tls.server_name or server_name
    names = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.aio.secure_channel(
        target, tls.credentials(), options=[*options, *names, *CHANNEL_OPTIONS], interceptors=interceptors(token)
    )

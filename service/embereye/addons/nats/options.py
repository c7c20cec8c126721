"""The options of the bus: NATS servers, stream and credentials.

`read_bus` checks the options once, at the start of the hub. Credentials and certificates are folders, whose files are
read again for each connection, so that changed secrets take effect without a restart.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embereye.process.addresses import server_url
from embereye.process.tls.client import ClientTls

PORTS: Mapping[str, int] = {"nats": 4222, "tls": 4222}
STREAM = re.compile(r"[A-Za-z0-9_-]{1,200}")
MAX_COPIES = 5  # of a stream, JetStream's limit


@dataclass(frozen=True)
class BusOptions:
    """One NATS cluster. Secrets are in files, which are read again for each connection."""

    servers: Sequence[str]  # "nats://HOST:PORT" or "tls://HOST:PORT", all of one cluster
    stream: str = "embereye"  # each hub needs a separate stream
    copies: int = 1  # servers that store the stream, if the hub creates it
    credentials: Path | None = None  # folder with username and password, or token; None: NATS needs no credentials
    certificates: Path | None = None  # folder with ca.crt and, if NATS requires them, tls.crt and tls.key

    @property
    def subject(self) -> str:
        """The subject of published reports."""
        return f"{self.stream}.evidence"

    @property
    def tls(self) -> bool:
        """True if every connection has to use TLS."""
        return urlsplit(self.servers[0]).scheme == "tls"

    def secrets(self) -> Mapping[str, str]:
        """Read user and password, or the token, from their files. OSError if they cannot be read."""
        if self.credentials is None:
            return {}
        token = self.credentials / "token"
        names = {"token": token} if token.exists() else {
            "user": self.credentials / "username", "password": self.credentials / "password",
        }  # fmt: skip
        return {name: file.read_text(encoding="utf-8").strip("\r\n") for name, file in names.items()}

    def tls_context(self) -> ssl.SSLContext | None:
        """Make the context with the trusted authority and the client certificate; None without TLS."""
        return ClientTls.in_folder(self.certificates).context() if self.tls else None


def read_bus(
    addresses: str,
    *,
    stream: str = "embereye",
    copies: int = 1,
    credentials: Path | None = None,
    certificates: Path | None = None,
) -> BusOptions:
    """Read the options; `addresses` are separated by commas. ValueError says what is wrong."""
    servers = [_address(address.strip()) for address in addresses.split(",") if address.strip()]
    if not servers:
        raise ValueError(f'nats: "{addresses[:80]}" names no server. Use nats://HOST:{PORTS["nats"]}')
    if len({urlsplit(server).scheme for server in servers}) > 1:
        raise ValueError("nats: some servers have nats:// and some tls://. Use the same scheme for all of them.")
    if not STREAM.fullmatch(stream):
        raise ValueError(f'nats-stream: "{stream[:80]}" is not 1 to 200 letters, digits, _ and -')
    if not 1 <= copies <= MAX_COPIES:
        raise ValueError(f"nats-copies: {copies} is not from 1 to {MAX_COPIES}")
    options = BusOptions(servers, stream, copies, credentials, certificates)
    if certificates and not options.tls:
        raise ValueError(f'nats: "{servers[0]}" is used without TLS although certificates are set. Use tls://')
    return options


def _address(text: str) -> str:
    scheme, host, port = server_url("nats", text, PORTS)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

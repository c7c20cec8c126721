"""Which NATS the hub passes evidence through, and which stream is its own there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embereye.process.addresses import server_url
from embereye.process.tls.client import ClientTls

PORTS: Mapping[str, int] = {"nats": 4222, "tls": 4222}
STREAM = re.compile(r"[A-Za-z0-9_-]{1,200}")
MOST_COPIES = 5  # that JetStream keeps of a stream


@dataclass(frozen=True)
class BusOptions:
    """One NATS. What is secret is in files, which are read again for each connection."""

    servers: Sequence[str]  # "nats://HOST:PORT" or "tls://HOST:PORT", all of one cluster
    stream: str = "embereye"  # one hub's own: two hubs at one NATS need two
    copies: int = 1  # of the stream, on as many servers, where the hub makes it
    credentials: Path | None = None  # folder with username and password, or token; None: NATS asks for nothing
    certificates: Path | None = None  # folder with ca.crt and, where NATS asks for them, tls.crt and tls.key

    @property
    def subject(self) -> str:
        """What reports are published to."""
        return f"{self.stream}.evidence"

    @property
    def tls(self) -> bool:
        """Whether every connection has to be TLS."""
        return urlsplit(self.servers[0]).scheme == "tls"

    def secrets(self) -> Mapping[str, str]:
        """User and password, or token, as they are in their files now. OSError where they cannot be read."""
        if self.credentials is None:
            return {}
        token = self.credentials / "token"
        names = {"token": token} if token.exists() else {
            "user": self.credentials / "username", "password": self.credentials / "password",
        }  # fmt: skip
        return {name: file.read_text(encoding="utf-8").strip("\r\n") for name, file in names.items()}

    def client_tls(self) -> ClientTls:
        """Whom to trust, and what to show."""
        return ClientTls.in_folder(self.certificates)


def read_bus(
    addresses: str,
    *,
    stream: str = "embereye",
    copies: int = 1,
    credentials: Path | None = None,
    certificates: Path | None = None,
) -> BusOptions:
    """The NATS at `addresses`, one or several with commas between them; ValueError says what is wrong."""
    servers = [_address(one.strip()) for one in addresses.split(",") if one.strip()]
    if not servers:
        raise ValueError(f'nats: "{addresses[:80]}" names no server: say nats://HOST:{PORTS["nats"]}')
    if len({urlsplit(one).scheme for one in servers}) > 1:
        raise ValueError("nats: some servers are named with nats:// and some with tls://: say the same of all of them")
    if not STREAM.fullmatch(stream):
        raise ValueError(f'nats-stream: "{stream[:80]}" is not 1 to 200 letters, digits, _ and -')
    if not 1 <= copies <= MOST_COPIES:
        raise ValueError(f"nats-copies: {copies} is not from 1 to {MOST_COPIES}")
    options = BusOptions(servers, stream, copies, credentials, certificates)
    if certificates and not options.tls:
        raise ValueError(f'nats: "{servers[0]}" is spoken to without TLS, and certificates are named: say tls://')
    return options


def _address(text: str) -> str:
    scheme, host, port = server_url("nats", text, PORTS)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

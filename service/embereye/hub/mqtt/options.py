"""Which broker the hub keeps up to date, and how it is known there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embereye.process.addresses import server_url
from embereye.process.tls.client import ClientTls

PORTS: Mapping[str, int] = {"mqtt": 1883, "mqtts": 8883}
PREFIX = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
MOST = 100  # characters of a prefix


@dataclass(frozen=True)
class MqttOptions:
    """One broker. What is secret is in files, which are read again for each connection."""

    host: str
    port: int
    tls: bool = False
    prefix: str = "embereye"  # of all topics, and what tells two hubs at one broker apart
    discovery: str = "homeassistant"  # prefix under which Home Assistant looks for entities; '': none are described
    credentials: Path | None = None  # folder with the files username and password; None: the broker asks for none
    certificates: Path | None = None  # folder with ca.crt and, where the broker asks for them, tls.crt and tls.key

    @property
    def address(self) -> str:
        """As people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    @property
    def client(self) -> str:
        """The client's id: always the same, so that the broker ends a connection that the hub has lost already."""
        return f"{self.prefix.replace('/', '-')}-hub"

    def login(self) -> tuple[str, str] | None:
        """User and password; None: there are none. OSError, or ValueError, where they cannot be read."""
        if self.credentials is None:
            return None
        user, password = (
            (self.credentials / name).read_text(encoding="utf-8").strip("\r\n") for name in ("username", "password")
        )
        return user, password

    def client_tls(self) -> ClientTls:
        """Whom to trust, and what to show."""
        return ClientTls.in_folder(self.certificates)


def read_broker(
    address: str,
    *,
    prefix: str = "embereye",
    discovery: str = "homeassistant",
    credentials: Path | None = None,
    certificates: Path | None = None,
) -> MqttOptions:
    """The broker at `address`, mqtt://HOST[:PORT] or mqtts://HOST[:PORT]; ValueError says what is wrong."""
    scheme, host, port = server_url("broker", address, PORTS)
    tls = scheme == "mqtts"
    if certificates and not tls:
        raise ValueError(f'broker: "{address[:80]}" is spoken to without TLS, and certificates are named: say mqtts://')
    for name, value in (("prefix", prefix), ("discovery", discovery)):
        if not (PREFIX.fullmatch(value) and len(value) <= MOST) and (value or name == "prefix"):
            raise ValueError(f'{name}: "{value[:80]}" is not letters, digits, _ and -, in levels between slashes')
    return MqttOptions(host, port, tls, prefix, discovery, credentials, certificates)

"""The broker that the hub publishes to, and the hub's identity there."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embereye.process.addresses import server_url
from embereye.process.login_folder import Pair, read_pairs
from embereye.process.tls.client import ClientTls

PORTS: Mapping[str, int] = {"mqtt": 1883, "mqtts": 8883}
PREFIX = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
MAX_PREFIX = 100  # characters of a prefix


@dataclass(frozen=True)
class MqttOptions:
    """One broker. Secrets are in files, which are read again for each connection."""

    host: str
    port: int
    tls: bool = False
    prefix: str = "embereye"  # of all topics; it separates two hubs at one broker
    discovery: str = "homeassistant"  # prefix of Home Assistant's entities; '': publish no descriptions
    credentials: Path | None = None  # folder with the files username and password; None: the broker needs none
    certificates: Path | None = None  # folder with ca.crt and, if the broker needs them, tls.crt and tls.key

    @property
    def address(self) -> str:
        """The address as people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    @property
    def client(self) -> str:
        """The client's id: always the same, so that the broker ends a connection that the hub has already lost."""
        return f"{self.prefix.replace('/', '-')}-hub"

    def login(self) -> Pair | None:
        """Read the user and the password; None: there are none. OSError or ValueError if they cannot be read."""
        return read_pairs(self.credentials)[0] if self.credentials else None

    def tls_context(self) -> ssl.SSLContext | None:
        """Make the context with the trusted authority and the client certificate; None without TLS."""
        return ClientTls.in_folder(self.certificates).context() if self.tls else None


def read_broker(
    address: str,
    *,
    prefix: str = "embereye",
    discovery: str = "homeassistant",
    credentials: Path | None = None,
    certificates: Path | None = None,
) -> MqttOptions:
    """Read the address mqtt://HOST[:PORT] or mqtts://HOST[:PORT]; ValueError says what is wrong."""
    scheme, host, port = server_url("broker", address, PORTS)
    tls = scheme == "mqtts"
    if certificates and not tls:
        raise ValueError(f'broker: "{address[:80]}" is without TLS, but there are certificates. Use mqtts://.')
    for name, value in (("prefix", prefix), ("discovery", discovery)):
        if not (PREFIX.fullmatch(value) and len(value) <= MAX_PREFIX) and (value or name == "prefix"):
            raise ValueError(f'{name}: "{value[:80]}" is not made of letters, digits, _ and -, in levels between /')
    return MqttOptions(host, port, tls, prefix, discovery, credentials, certificates)

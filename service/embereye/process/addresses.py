"""Parse addresses of options, URLs and peers, and find free ports.

Parsing is strict, and its errors name the option and the right form, but never a password. Limits per client count by
`place_of`: a client with an IPv6 address usually has its whole /64.

Free ports are tried in random order below the range that the system gives to outgoing connections, so that no
connection takes a port before its server listens. Ports that were returned recently come last.
"""

import contextlib
import ipaddress
import os
import random
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from embereye.process.lifecycle import UserError
from embereye.units import split_address

LOOPBACK = "127.0.0.1"
_returned: dict[int, float] = {}  # port that `free_ports` returned → when last, monotonic seconds
PORTS_VARIABLE = "EMBEREYE_PORTS"  # a range, such as 20000-20999, from which ports are chosen


def address_option(option: str, text: str, *, any_port: bool = False) -> tuple[str, int]:
    """Host and port of the HOST:PORT in `option`; UserError if it is invalid."""
    try:
        host, port = split_address(text, any_port=any_port)
    except ValueError as error:
        raise UserError(f"{option} {error}") from error
    try:
        host.encode("idna")  # as name resolution does
    except UnicodeError as error:
        raise UserError(f'{option} {text}: "{host}" is not a valid host name: {error}') from error
    return host, port


def server_url(name: str, text: str, ports: Mapping[str, int]) -> tuple[str, str, int]:
    """Scheme, host and port of a URL that has nothing else; `ports` has the usual port of each scheme.

    ValueError says what is wrong with `text`, and begins with `name`.
    """
    shown = text.rpartition("@")[2][:80]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # its message may contain a password
        raise ValueError(f'{name}: "{shown}" is not a valid URL') from None
    if parts.username is not None:
        raise ValueError(f"{name}: it contains a user: put user and password into files of the credentials' folder")
    if parts.scheme not in ports or not host or parts.path.strip("/") or parts.query or parts.fragment:
        forms = " or ".join(f"{scheme}://HOST:{usual}" for scheme, usual in ports.items())
        raise ValueError(f'{name}: "{shown}" is not of the form {forms}')
    return parts.scheme, host, port or ports[parts.scheme]


def peer_host(peer: str) -> str:
    """The host of a gRPC peer such as "ipv4:127.0.0.1:5000" or "ipv6:[::1]:5000"; any other `peer` unchanged."""
    family, _, rest = unquote(peer).partition(":")
    if family not in {"ipv4", "ipv6"}:
        return peer
    host = rest.rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:") if "." in host else host


def is_in_networks(address: str, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """True if `address` is an address in one of `networks`."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return any(mapped in network for network in networks)


def place_of(address: str) -> str:
    """The part of `address` that identifies one client: IPv4 whole, IPv6 /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def outward_address() -> str:
    """The address from which this machine connects to others; loopback if it has no other. Nothing is sent."""
    for family, target in (
        (socket.AF_INET, "192.0.2.1"),
        (socket.AF_INET6, "2001:db8::1"),
    ):  # addresses reserved for documentation
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    return LOOPBACK


def free_ports(count: int, *, kind: socket.SocketKind = socket.SOCK_STREAM, taken: Collection[int] = ()) -> list[int]:
    """Find `count` different free ports on loopback that are not in `taken`.

    The ports are not reserved, but they are outside the range that the system gives to outgoing connections. Ports that
    were returned before come last, because a listener may not be open yet. OSError if the system has no more ports,
    UserError if the range in EMBEREYE_PORTS has no more.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        candidates = _candidates()
        while len(ports) < count:
            # Keep each probe open until all ports are found, or the system may give the same port again.
            probe = stack.enter_context(socket.socket(type=kind))
            candidate = next(candidates, 0)
            if not candidate and _configured_ports():
                configured = os.environ[PORTS_VARIABLE]
                raise UserError(f"{PORTS_VARIABLE}={configured} has fewer than {count} free ports: name a larger range")
            try:
                probe.bind((LOOPBACK, candidate))
            except OSError:
                if not candidate:
                    raise
                continue
            port = int(probe.getsockname()[1])
            if port not in taken:
                ports.append(port)
        _returned.update(dict.fromkeys(ports, time.monotonic()))
        return ports


def _candidates() -> Iterator[int]:
    """Ports of EMBEREYE_PORTS, or below those that the system gives to connections, in random order."""
    ports = _configured_ports() or _unassigned_ports()
    # SystemRandom, because hypothesis gives all test processes the same seed.
    chosen = random.SystemRandom().sample(ports, min(len(ports), 500))
    yield from sorted(chosen, key=lambda port: _returned.get(port, 0.0))


def _configured_ports() -> range:
    """The range in EMBEREYE_PORTS, empty if it is not set; UserError if it is invalid."""
    text = os.environ.get(PORTS_VARIABLE, "")
    first, dash, last = text.partition("-")
    if not text:
        return range(0)
    if not (dash and first.isdecimal() and last.isdecimal() and 1024 <= int(first) < int(last) <= 65535):
        raise UserError(f'{PORTS_VARIABLE}="{text[:40]}" is not a range of ports: write for example 20000-20999')
    return range(int(first), int(last) + 1)


def _unassigned_ports() -> range:
    """The ports from 10,000 to the first that the system gives to connections; empty if there are too few."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return range(0)
    return range(10_000, lowest if lowest >= 11_000 else 10_000)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Find one free port; see `free_ports`."""
    return free_ports(1, kind=kind)[0]

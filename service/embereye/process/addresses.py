"""Addresses on a command line, and ports that are free to listen on."""

import contextlib
import ipaddress
import os
import random
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from embereye.process.lifecycle import UserError
from embereye.units import split_address

LOOPBACK = "127.0.0.1"
_given: dict[int, float] = {}  # port that this process was given → when last, monotonic seconds
PORTS_VARIABLE = "EMBEREYE_PORTS"  # a range, such as 20000-20999, that ports are chosen from


def address_option(option: str, text: str, *, any_port: bool = False) -> tuple[str, int]:
    """Host and port of the HOST:PORT that a person gave with `option`; UserError where it is none."""
    try:
        host, port = split_address(text, any_port=any_port)
    except ValueError as error:
        raise UserError(f"{option} {error}") from error
    try:
        host.encode("idna")  # as whoever looks for it does
    except UnicodeError as error:
        raise UserError(f'{option} {text}: "{host}" is no name of a host: {error}') from error
    return host, port


def server_url(name: str, text: str, ports: Mapping[str, int]) -> tuple[str, str, int]:
    """Scheme, host and port of a URL without anything else in it; `ports` has the usual port of each scheme.

    ValueError says what is wrong with `text`, which it calls `name`.
    """
    shown = text.rpartition("@")[2][:80]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # whose words may have a password in them
        raise ValueError(f'{name}: "{shown}" is no address') from None
    if parts.username is not None:
        raise ValueError(f"{name}: it has a user in it: user and password belong into files of the credentials' folder")
    if parts.scheme not in ports or not host or parts.path.strip("/") or parts.query or parts.fragment:
        forms = " or ".join(f"{scheme}://HOST:{usual}" for scheme, usual in ports.items())
        raise ValueError(f'{name}: "{shown}" is not of the form {forms}')
    return parts.scheme, host, port or ports[parts.scheme]


def peer_host(peer: str) -> str:
    """The address in what gRPC calls a peer, "ipv4:127.0.0.1:5000" or "ipv6:[::1]:5000"; else `peer` itself."""
    family, _, rest = unquote(peer).partition(":")
    if family not in {"ipv4", "ipv6"}:
        return peer
    host = rest.rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:") if "." in host else host


def place_of(address: str) -> str:
    """What of `address` one party is taken to have for itself."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def outward_address() -> str:
    """The address that this machine calls others from; loopback where it has no other. Nothing is sent."""
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):  # for documentation
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    return LOOPBACK


def free_ports(count: int, *, kind: socket.SocketKind = socket.SOCK_STREAM, taken: Collection[int] = ()) -> list[int]:
    """`count` different ports on loopback that nothing listens on now and that are not among those `taken`.

    They are not reserved, but the system gives none of them to connections of its own accord, now or while
    who listens on them is started anew. What this process was given before comes last, as it may not be listened on
    yet; pass as `taken` what must not come at all. OSError where the system has no more, UserError where
    EMBEREYE_PORTS has none.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        candidates = _candidates()
        while len(found) < count:
            # Held until all are found: the system gives a port that was let go to the next who asks.
            probe = stack.enter_context(socket.socket(type=kind))
            candidate = next(candidates, 0)
            if not candidate and _told_ports():
                told = os.environ[PORTS_VARIABLE]
                raise UserError(f"{PORTS_VARIABLE}={told} has not {count} ports that are free: name a larger range")
            try:
                probe.bind((LOOPBACK, candidate))
            except OSError:
                if not candidate:
                    raise
                continue
            port = int(probe.getsockname()[1])
            if port not in taken:
                found.append(port)
        _given.update(dict.fromkeys(found, time.monotonic()))
        return found


def _candidates() -> Iterator[int]:
    """Ports below those that the system gives away itself, or of those told, in an order of this call's own."""
    ports = _told_ports() or _quiet_ports()
    # Others choose as well, and hypothesis has all begin with the same seed.
    chosen = random.SystemRandom().sample(ports, min(len(ports), 500))
    yield from sorted(chosen, key=lambda port: _given.get(port, 0.0))


def _told_ports() -> range:
    """Those of EMBEREYE_PORTS; UserError where they are none."""
    text = os.environ.get(PORTS_VARIABLE, "")
    first, dash, last = text.partition("-")
    if not text:
        return range(0)
    if not (dash and first.isdecimal() and last.isdecimal() and 1024 <= int(first) < int(last) <= 65535):
        raise UserError(f'{PORTS_VARIABLE}="{text[:40]}" is no range of ports: write for example 20000-20999')
    return range(int(first), int(last) + 1)


def _quiet_ports() -> range:
    """Those from 10,000 to the first that the system gives to connections; none where these are few."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return range(0)
    return range(10_000, lowest if lowest >= 11_000 else 10_000)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One of `free_ports`."""
    return free_ports(1, kind=kind)[0]

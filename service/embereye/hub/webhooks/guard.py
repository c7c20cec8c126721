"""Which addresses webhooks may call.

A webhook has the hub call what its address names, from where the hub stands. So that nobody can have it talk to what is
reachable from there alone, the machine itself and a cloud's metadata service among them, the address is checked when it
is dialled, whatever its name resolved to before, and no redirect is followed.
"""

import ipaddress
import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from embereye.hub.webhooks.options import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# What gives a machine its secrets and is not at a link-local address: metadata and pods' identities of AWS over IPv6,
# metadata of Google over IPv6, Azure's host, Oracle's and Alibaba's metadata.
METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "192.0.0.192", "100.100.100.200"),
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class RefusedAddressError(OSError):
    """The address is none that webhooks may call."""


def check_address(text: str, allow: Sequence[Network]) -> None:
    """RefusedAddressError where `text`, an IP address, may not be called."""
    address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
    if any(address in network for network in allow):
        return
    for refused, why in (
        (address.is_loopback, "this machine's own"),
        (address.is_link_local, "link-local, where clouds keep what is secret"),
        (address in METADATA, "a cloud's metadata service"),
        (address.is_unspecified, "no host's"),
        (address.is_multicast, "of many hosts"),
        (address.is_reserved, "reserved"),
    ):
        if refused:
            raise RefusedAddressError(f'{address} is {why}: if it is meant, add "{address}" to the webhook\'s allow')


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, where it does."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address.sixtofour:
            return address.sixtofour
        if address in NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


class GuardedResolver(AbstractResolver):
    """Resolves names, and leaves out the addresses that webhooks may not call."""

    def __init__(self, allow: Sequence[Network]) -> None:
        self._resolver = ThreadedResolver()
        self._allow = allow

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """As aiohttp asks; RefusedAddressError where nothing is left."""
        permitted, refusal = list[ResolveResult](), None
        for found in await self._resolver.resolve(host, port, family):
            try:
                check_address(found["host"], self._allow)
            except RefusedAddressError as error:
                refusal = error
            else:
                permitted.append(found)
        if refusal and not permitted:
            raise refusal
        return permitted

    async def close(self) -> None:
        """Let go of it."""
        await self._resolver.close()

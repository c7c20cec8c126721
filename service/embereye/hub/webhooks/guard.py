"""The addresses that webhooks may call.

A webhook's address is called from the hub's place in the network. It must not reach services that only the hub can
reach, such as the machine itself or a cloud's metadata service. Therefore the address is checked when it is dialled,
after its name was resolved, and no redirect is followed.
"""

import ipaddress
import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

from embereye.process.fields import Network
from embereye.process.http.resolver import RememberingResolver

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that give a machine its secrets and are not link-local: AWS's metadata and pod identities over IPv6,
# Google's metadata over IPv6, Azure's host, Oracle's and Alibaba's metadata.
METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "192.0.0.192", "100.100.100.200"),
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class RefusedAddressError(OSError):
    """Webhooks are not allowed to call this address."""


def check_address(text: str, allow: Sequence[Network]) -> None:
    """Raise RefusedAddressError if webhooks are not allowed to call `text`, an IP address."""
    address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
    if any(address in network for network in allow):
        return
    for refused, why in (
        (address.is_loopback, "this machine's address"),
        (address.is_link_local, "link-local, where clouds serve secrets"),
        (address in METADATA, "a cloud's metadata service"),
        (address.is_unspecified, "no host's address"),
        (address.is_multicast, "a multicast address"),
        (address.is_reserved, "reserved"),
    ):
        if refused:
            raise RefusedAddressError(f'{address} is {why}. To permit it, add "{address}" to the webhook\'s allow.')


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, if there is one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address.sixtofour:
            return address.sixtofour
        if address in NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


class GuardedResolver(AbstractResolver):
    """Resolves names, and leaves out the addresses that webhooks are not allowed to call."""

    def __init__(self, allow: Sequence[Network]) -> None:
        self._resolver = RememberingResolver()
        self._allow = allow

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve `host` for aiohttp; RefusedAddressError if no address is allowed."""
        permitted, refusal = list[ResolveResult](), None
        for result in await self._resolver.resolve(host, port, family):
            try:
                check_address(result["host"], self._allow)
            except RefusedAddressError as error:
                refusal = error
            else:
                permitted.append(result)
        if refusal and not permitted:
            raise refusal
        return permitted

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()

"""The names that the hub answers to, and the pages that are allowed to act on it.

A page of another site can let its name resolve to the hub's address ("DNS rebinding"). The browser then treats the hub
as a part of that site. But it still sends that site's name in `Host`, and so the hub can refuse it.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.http.base_path import below_base
from embereye.hub.http.refused import Refused

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.ASCII)
NAME = re.compile(r"(?:\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII)
UNGUARDED = {"/healthz"}  # load balancers call it by other names; it reveals nothing
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
PORTS = {"http": ":80", "https": ":443"}  # browsers leave it out in Host and Origin; some proxies add it to Host


class AllowedHosts:
    """The allowed names of the hub: addresses, loopback's names, and `names` ("*.example.com" too).

    An address is always allowed: a browser that was misled by a name sends that name. ValueError for an invalid name
    in `names`.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._suffixes: tuple[str, ...] = (".localhost",)
        for name in names:
            plain = name.strip().lower().rstrip(".")
            if not NAME.fullmatch(plain):
                raise ValueError(f'"{name}" is not a host name such as fire.example.com or *.example.com')
            if plain.startswith("*."):
                self._suffixes += (plain[1:],)
            else:
                self._names.add(plain)

    def permit(self, host: str) -> bool:
        """True if `host`, the value of a Host header, is allowed; its port does not matter."""
        match = HOST.fullmatch(host.lower())
        if not match:
            return False
        name = match[1].strip("[]").rstrip(".")
        if name == "localhost" or name in self._names or name.endswith(self._suffixes):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def is_own_name(host: str) -> bool:
    """True if `host`, the value of a Host header, is a name by which every machine calls itself."""
    name = host.lower().partition(":")[0]
    return name == "localhost" or name.endswith(".localhost")


def guard(allowed: AllowedHosts) -> Middleware:
    """Make a middleware that refuses unknown names (421), and changes by other sites' pages (403)."""

    @web.middleware
    async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if below_base(request) not in UNGUARDED and (len(hosts) != 1 or not allowed.permit(hosts[0])):
            name = hosts[0][:100] if hosts else ""
            raise Refused(
                421, f'"{name}" is not a name of this hub. To allow it, start the hub with --allowed-host NAME.'
            )
        if request.method not in SAFE_METHODS:
            check_origin(request)
        return await handler(request)

    return refuse_strangers


def check_origin(request: web.Request) -> None:
    """Raise Refused for a page of another site. Programs send no Origin; browsers always do with a POST."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    # Without the scheme: a proxy that ends TLS in front of the hub does not change the Host header.
    host = request.host.lower()
    if parts.scheme not in PORTS or parts.netloc.lower() not in {host, host.removesuffix(PORTS[parts.scheme])}:
        raise Refused(403, f'"{origin[:200]}" is another site. Only pages of {request.host} may do this.')

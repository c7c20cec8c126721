"""Which names the hub answers to, and which pages may act on it.

A page of another site can have its own name resolve to the hub's address ("DNS rebinding"): its browser then takes the
hub for a part of that site. What it cannot do is send another name than its own in `Host`.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.http.refused import Refused

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.ASCII)
NAME = re.compile(r"(?:\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII)
UNGUARDED = {"/healthz"}  # asked by load balancers in names of their own; tells nothing
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
PORTS = {"http": ":80", "https": ":443"}  # that a browser leaves out, in Host and Origin; some proxies add it to Host


class AllowedHosts:
    """The names that a request may call the hub by: addresses, loopback's names, and `names` ("*.example.com" too).

    An address is always allowed: whoever could be led here by a name does not send one. ValueError names what is no
    name in `names`.
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
        """Whether `host`, the value of a Host header, is one of them; its port does not matter."""
        found = HOST.fullmatch(host.lower())
        if not found:
            return False
        name = found[1].strip("[]").rstrip(".")
        if name == "localhost" or name in self._names or name.endswith(self._suffixes):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def is_own_name(host: str) -> bool:
    """Whether `host`, the value of a Host header, is one by which every machine calls itself."""
    name = host.lower().partition(":")[0]
    return name == "localhost" or name.endswith(".localhost")


def guard(allowed: AllowedHosts) -> Middleware:
    """A middleware that refuses other names (421), and other sites' pages wherever something is changed (403)."""

    @web.middleware
    async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if request.path not in UNGUARDED and (len(hosts) != 1 or not allowed.permit(hosts[0])):
            name = hosts[0][:100] if hosts else ""
            raise Refused(421, f'the hub is not called "{name}": if it is to be, start it with --allowed-host NAME')
        if request.method not in SAFE_METHODS:
            check_origin(request)
        return await handler(request)

    return refuse_strangers


def check_origin(request: web.Request) -> None:
    """Raise Refused where a page of another site asks. Programs send no Origin; browsers always do with a POST."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    # Not the scheme: in front of the hub, what ends TLS leaves the Host header as it is.
    own = request.host.lower()
    if parts.scheme not in PORTS or parts.netloc.lower() not in {own, own.removesuffix(PORTS[parts.scheme])}:
        raise Refused(403, f'"{origin[:200]}" is another site: only pages of {request.host} may do this')

"""Authenticates requests: by a token in the Authorization header, or by the cookie of a signed-in browser.

The middleware runs in front of every handler, after the check of Host and Origin. It prefers the token, stores the
proved principal in the request, and compares its role with the route's. Browsers attach the cookie to any page's
request. A change by cookie therefore needs an Origin, which was checked to be the hub's.
"""

from collections.abc import Collection, Mapping
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.access.keeper import Access, DeniedError
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.base_path import base_of, below_base
from embereye.hub.http.refused import Refused
from embereye.hub.roles import Principal, Role

PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
COOKIE = "embereye"
ENCRYPTED = {"https", "wss"}  # Traefik sends wss for the request of a WebSocket


def authenticate(
    access: Access, roles: Mapping[web.AbstractRoute, Role | None], scoped: Collection[web.AbstractRoute]
) -> Middleware:
    """Make a middleware that admits requests with the role that their route needs; None: everybody.

    A request that matches no route needs the role viewer or, if its method changes something, operator. Callers that
    are limited to some zones can use only the routes in `scoped`.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        default = Role.VIEWER if request.method in SAFE_METHODS else Role.OPERATOR
        needed = roles.get(request.match_info.route, default)
        if needed is None:
            return await handler(request)
        try:
            request[PRINCIPAL] = principal = _identify(access, request)
        except DeniedError:
            if below_base(request) == "/" and request.method == "GET":
                base = base_of(request)
                after = f"?next={quote(f'{base}/?{request.query_string}')}" if request.query else ""
                raise web.HTTPSeeOther(f"{base}/login{after}") from None
            raise
        principal.check_role(needed)
        if (route := request.match_info.route) in roles and route not in scoped:
            principal.check_unlimited()
        return await handler(request)

    return check


def _identify(access: Access, request: web.Request) -> Principal:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    address = request.remote or ""
    if scheme.lower() == "bearer" and token.strip():
        return access.identify(token.strip(), address)
    cookie = request.cookies.get(cookie_name(request), "")
    if not cookie:
        raise DeniedError("not signed in")
    principal = access.resume(cookie, address)
    # Browsers attach cookies to requests from any page. A change must therefore come from our page, as Origin shows.
    if request.method not in SAFE_METHODS and "Origin" not in request.headers:
        raise Refused(403, "a request with a cookie must have the Origin of its page. Programs send a token instead.")
    return principal


def is_secure(request: web.Request) -> bool:
    """True if the browser's connection is encrypted, as far as the hub can know."""
    # With several proxies, the first entry is about the browser.
    protocol = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    return request.secure or protocol in ENCRYPTED


def cookie_name(request: web.Request) -> str:
    """The name of the session's cookie.

    Browsers send cookies to all ports of a host and to all paths below the cookie's, so each port and base path has
    another name. The prefix __Host- is for cookies of a whole host only.
    """
    port, base = request.host.rpartition(":")[2], base_of(request)
    name = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE
    name += base.replace("/", "_")
    return f"{'__Secure-' if base else '__Host-'}{name}" if is_secure(request) else name


def cookie_path(request: web.Request) -> str:
    """The path of the hub's cookies: other programs at this host name are sent none of them."""
    return base_of(request) or "/"

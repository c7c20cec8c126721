"""Authenticates requests: by a token in the Authorization header, or by the cookie of a signed-in browser.

The middleware runs in front of every handler, after the check of Host and Origin. It prefers the token, stores the
proved principal in the request, and compares its role with the route's. Browsers attach the cookie to any page's
request. A change by cookie therefore needs an Origin, which was checked to be the hub's.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.access.keeper import Access, DeniedError, SlowDownError
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.base_path import base_of, below_base
from embereye.hub.http.refused import Refused
from embereye.hub.roles import Principal, Role

T = TypeVar("T")
PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
COOKIE = "embereye"
REMEDY = "sign in at /login, or send the header Authorization: Bearer TOKEN"


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
        except Refused as refused:
            if refused.status == 401 and below_base(request) == "/" and request.method == "GET":
                base = base_of(request)
                after = f"?next={quote(f'{base}/?{request.query_string}')}" if request.query else ""
                raise web.HTTPSeeOther(f"{base}/login{after}") from None
            raise
        if principal.role < needed:
            raise Refused(403, f"{principal.name} is {principal.role.word}: this takes the role {needed.word}")
        if principal.scope.is_limited and (route := request.match_info.route) in roles and route not in scoped:
            raise Refused(403, f"{limited(principal)}: this is about all zones")
        return await handler(request)

    return check


def limited(principal: Principal) -> str:
    """Say to which zones `principal` is limited."""
    return f"{principal.name} is limited to {principal.scope.words}"


def check_zone(request: web.Request, namespace: str, zone: str) -> None:
    """Refuse if the caller is limited to other zones."""
    principal = request[PRINCIPAL]
    if not principal.scope.has_zone(namespace, zone):
        raise Refused(403, f"{limited(principal)}: {namespace[:80]}/{zone[:80]} is none of them")


def _identify(access: Access, request: web.Request) -> Principal:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    address = request.remote or ""
    if scheme.lower() == "bearer" and token.strip():
        return proved(lambda: access.identify(token.strip(), address))
    cookie = request.cookies.get(cookie_name(request), "")
    if not cookie:
        raise denied("not signed in")
    principal = proved(lambda: access.resume(cookie, address))
    # Browsers attach cookies to requests from any page. A change must therefore come from our page, as Origin shows.
    if request.method not in SAFE_METHODS and "Origin" not in request.headers:
        raise Refused(403, "a request with a cookie must have the Origin of its page. Programs send a token instead.")
    return principal


def proved(prove: Callable[[], T]) -> T:
    """Return the result of `prove`; turn its errors into Refused."""
    try:
        return prove()
    except DeniedError as error:
        raise denied(str(error)) from error
    except SlowDownError as error:
        raise Refused(429, str(error), {"Retry-After": str(int(error.seconds) + 1)}) from error


def denied(sentence: str) -> Refused:
    """Make a 401 with its remedy."""
    return Refused(401, f"{sentence}; {REMEDY}", {"WWW-Authenticate": 'Bearer realm="EmberEye"'})


def is_secure(request: web.Request) -> bool:
    """True if the browser's connection is encrypted, as far as the hub can know."""
    # With several proxies, the first entry is about the browser.
    return request.secure or request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower() == "https"


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

"""Authenticates requests: by a token in the Authorization header, or by the cookie of a signed-in browser."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.access.keeper import Access, DeniedError, SlowDownError
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.refused import Refused
from embereye.hub.roles import Principal, Role

T = TypeVar("T")
PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
COOKIE = "embereye"
OPEN_FOLDERS = ("/static/", "/runbooks/")  # with the same content for everybody
REMEDY = "sign in at /login, or send the header Authorization: Bearer TOKEN"


def needed_role(method: str, path: str, open_paths: frozenset[str], roles: Mapping[str, Role]) -> Role | None:
    """Return the role needed for `method` on `path`; None: none. The tables are those of `authenticate`."""
    if path in open_paths or path.startswith(OPEN_FOLDERS):
        return None
    default = Role.VIEWER if method in SAFE_METHODS else Role.OPERATOR
    keys = (path, f"{method} {path}")
    return next((role for start, role in roles.items() if any(key.startswith(start) for key in keys)), default)


def authenticate(access: Access, open_paths: frozenset[str], roles: Mapping[str, Role]) -> Middleware:
    """Make a middleware that admits requests with the role that their path needs.

    `open_paths` need none. `roles` has the roles of paths by their start, or by the start of "METHOD PATH". Other
    paths are for viewers or, if the method changes something, for operators.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        needed = needed_role(request.method, path, open_paths, roles)
        if needed is None:
            return await handler(request)
        try:
            request[PRINCIPAL] = principal = _identify(access, request)
        except Refused as refused:
            if refused.status == 401 and path == "/" and request.method == "GET":
                raise web.HTTPSeeOther(f"/login?next={quote(request.path_qs)}" if request.query else "/login") from None
            raise
        if principal.role < needed:
            raise Refused(403, f"{principal.name} is {principal.role.word}: this takes the role {needed.word}")
        return await handler(request)

    return check


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
    """The name of the session's cookie. Browsers send cookies to all ports of a host, so each port has another name."""
    port = request.host.rpartition(":")[2]
    name = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE
    return f"__Host-{name}" if is_secure(request) else name

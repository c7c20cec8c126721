"""Who asks over HTTP: a token in the Authorization header, or the cookie of a browser that has signed in."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from embereye.hub.access.keeper import Access, DeniedError, SlowDownError
from embereye.hub.access.roles import Principal, Role
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.refused import Refused

T = TypeVar("T")
PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
COOKIE = "embereye"
OPEN_FOLDERS = ("/static/", "/runbooks/")  # the same for everybody
REMEDY = "sign in at /login, or send the header Authorization: Bearer TOKEN"


def needed_role(method: str, path: str, open_paths: frozenset[str], roles: Mapping[str, Role]) -> Role | None:
    """The role that `method` on `path` takes; None: it is open to all. Arguments as of `authenticate`."""
    if path in open_paths or path.startswith(OPEN_FOLDERS):
        return None
    default = Role.VIEWER if method in SAFE_METHODS else Role.OPERATOR
    asked = (path, f"{method} {path}")
    return next((role for start, role in roles.items() if any(one.startswith(start) for one in asked)), default)


def authenticate(access: Access, open_paths: frozenset[str], roles: Mapping[str, Role]) -> Middleware:
    """A middleware that lets pass who has proved to have the role that a path needs.

    `open_paths` need none, `roles` says which others need by how they begin, or by "METHOD PATH"; the
    rest is for viewers, or for operators
    where something is changed.
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
        raise denied("nobody is signed in")
    principal = proved(lambda: access.resume(cookie, address))
    # A cookie is sent by itself, whoever asks: what changes something has to come from a page of ours, which says so.
    if request.method not in SAFE_METHODS and "Origin" not in request.headers:
        raise Refused(403, "a request with a cookie has to say the Origin of its page; programs send a token instead")
    return principal


def proved(prove: Callable[[], T]) -> T:
    """What `prove` returns; Refused in the words of HTTP where it proves nobody, or asks for too much."""
    try:
        return prove()
    except DeniedError as error:
        raise denied(str(error)) from error
    except SlowDownError as error:
        raise Refused(429, str(error), {"Retry-After": str(int(error.seconds) + 1)}) from error


def denied(sentence: str) -> Refused:
    """401, with what to do about it."""
    return Refused(401, f"{sentence}; {REMEDY}", {"WWW-Authenticate": 'Bearer realm="EmberEye"'})


def is_secure(request: web.Request) -> bool:
    """Whether the browser's connection is encrypted, as far as this can be known."""
    # Of several proxies the first one tells of the browser.
    return request.secure or request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower() == "https"


def cookie_name(request: web.Request) -> str:
    """Of a session's cookie. Browsers send a cookie to every port of a host: each has its own."""
    port = request.host.rpartition(":")[2]
    name = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE
    return f"__Host-{name}" if is_secure(request) else name

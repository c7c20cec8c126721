"""Turns errors into JSON, and adds the security headers to every answer.

It is the outermost middleware, so handlers raise errors instead of building answers for them, and need not handle those
of the hub's parts: STATUSES has their statuses. `Refused` has its own one.
"""

from aiohttp import web
from aiohttp.typedefs import Handler

from embereye.hub.access.keeper import DeniedError, SlowDownError
from embereye.hub.clips.store import ClipsUnreadError
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.feeds.feed import TooManyError
from embereye.hub.http.access.origin import is_own_name
from embereye.hub.http.refused import Refused
from embereye.hub.refusals import ConflictError, ForbiddenError, InvalidError, UnknownNameError
from embereye.zone.state import NotAllowedError

STATUSES: dict[type[Exception], int] = {
    InvalidError: 400,
    DeniedError: 401,
    ForbiddenError: 403,
    UnknownNameError: 404,
    ConflictError: 409,
    NotAllowedError: 409,
    SlowDownError: 429,
    StoreError: 503,
    StoreFailingError: 503,
    ClipsUnreadError: 503,
    TooManyError: 503,
}
REMEDY = "sign in at /login, or send the header Authorization: Bearer TOKEN"  # of a 401
HSTS_SECONDS = 365 * 86_400  # after an HTTPS answer, browsers call this name by HTTPS only, for this time
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into JSON, and add the security headers and a ban on caching to every answer."""
    response: web.StreamResponse
    try:
        response = await handler(request)
    except Refused as refused:
        response = web.json_response({"error": str(refused)}, status=refused.status, headers=refused.headers)
    except tuple(STATUSES) as error:
        response = _refusal(error)
    except ConnectionError:
        if request.transport is not None and not request.transport.is_closing():
            raise  # another connection than the client's
        response = web.Response()  # the client has left
    except web.HTTPRedirection as redirection:
        response = web.Response(status=redirection.status, headers={"Location": redirection.headers["Location"]})
    except web.HTTPException as error:
        sentence = f"{error.status} {error.reason}: {request.path}"
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        response = web.json_response({"error": sentence}, status=error.status, headers=allowed)
    if not response.prepared:
        for header, value in SECURITY.items():
            response.headers.setdefault(header, value)  # a page may have another policy
        # Not for this machine's names: all other servers on it would then have to use TLS.
        if request.secure and not is_own_name(request.host):
            response.headers["Strict-Transport-Security"] = f"max-age={HSTS_SECONDS}"
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def _refusal(error: Exception) -> web.Response:
    status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
    if isinstance(error, DeniedError):
        headers = {"WWW-Authenticate": 'Bearer realm="EmberEye"'}
        return web.json_response({"error": f"{error}; {REMEDY}"}, status=status, headers=headers)
    headers = {"Retry-After": str(int(error.seconds) + 1)} if isinstance(error, SlowDownError) else {}
    return web.json_response({"error": str(error)}, status=status, headers=headers)

"""Turns errors into JSON, and adds the security headers to every answer.

It is the outermost middleware, so handlers raise errors instead of building answers for them: `Refused` has its status,
and a failing store becomes 503.
"""

from aiohttp import web
from aiohttp.typedefs import Handler

from embereye.hub.clips.store import ClipsUnreadError
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.http.access.origin import is_own_name
from embereye.hub.http.refused import Refused

HSTS_SECONDS = 365 * 86_400  # after an HTTPS answer, browsers call this name by HTTPS only, for this time
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
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
    except (StoreError, StoreFailingError, ClipsUnreadError) as error:
        response = web.json_response({"error": str(error)}, status=503)
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

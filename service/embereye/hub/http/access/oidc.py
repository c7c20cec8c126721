"""The way to the identity provider and back: /login/oidc and its callback."""

import html
import logging
import secrets
import time
from typing import TYPE_CHECKING

from aiohttp import web

from embereye.hub.access.keeper import SlowDownError
from embereye.hub.access.roles import Principal
from embereye.hub.http.access.authenticate import cookie_name, is_secure
from embereye.hub.http.access.routes import set_cookie
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
from embereye.hub.oidc import attempt as attempts
from embereye.hub.oidc.errors import NotProvedError, ProviderError

if TYPE_CHECKING:  # it loads cryptography, which a hub without a provider has no use for
    from embereye.hub.oidc.provider import Provider

logger = logging.getLogger(__name__)
START, CALLBACK = "/login/oidc", "/login/oidc/callback"
MAX_PATH = 1_000  # characters of the page that somebody wanted
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>EmberEye</title>{head}
<link rel="stylesheet" href="/static/console.css"></head>
<body class="login"><main><form><p role="alert">{sentence}</p><p><a href="{address}">{link}</a></p></form></main></body>
</html>
"""


class OidcRoutes:
    """`routes()`; without a provider they answer 404."""

    def __init__(self, hub: Hub, provider: "Provider | None") -> None:
        self._hub = hub
        self._provider = provider
        self._key = secrets.token_bytes(32)  # of this process: an attempt does not outlive it

    def routes(self) -> list[web.RouteDef]:
        """Where people go to sign in, and where the provider sends them back to."""
        return [
            web.get("/v1/session", self._ways),
            web.get(START, self._start),
            web.get(CALLBACK, self._come_back),
        ]

    async def sign_out_url(self, request: web.Request) -> str:
        """Where somebody signs out of the provider, and comes back from to sign in; '': nowhere."""
        return await self._provider.end_session_url(f"{origin(request)}/login") if self._provider else ""

    async def _ways(self, _: web.Request) -> web.Response:
        return web.json_response({"provider": self._provider.options.host if self._provider else ""})

    def _known(self) -> "Provider":
        if self._provider is None:
            raise Refused(404, "this hub has no identity provider: start it with --oidc-issuer, or use a token")
        return self._provider

    async def _start(self, request: web.Request) -> web.StreamResponse:
        provider = self._known()
        redirect = f"{origin(request)}{CALLBACK}"
        attempt = attempts.begin(redirect, _local_path(request.query.get("next", "")), time.monotonic())
        try:
            address = await provider.authorize_url(attempt)
        except ProviderError as error:
            return _problem(502, f"Nobody can sign in there now: {error}.")
        response = web.Response(status=303, headers={"Location": address})
        # The provider's page leads back here: what is SameSite=Strict would be left out then.
        response.set_cookie(
            _cookie(request), attempts.seal(attempt, self._key), path="/", secure=is_secure(request), httponly=True,
            samesite="Lax", max_age=attempts.ATTEMPT_SECONDS,
        )  # fmt: skip
        return response

    async def _come_back(self, request: web.Request) -> web.StreamResponse:
        provider, address = self._known(), request.remote or ""
        name, state = _cookie(request), request.query.get("state", "")
        try:
            # Nobody guesses what we have sealed: who has begun nothing costs nothing, and keeps nobody else out.
            begun = attempts.unseal(request.cookies.get(name, ""), self._key, state, time.monotonic())
        except NotProvedError as error:
            return _problem(403, f"You are not signed in: {error}.")
        try:
            with self._hub.access.count_failures(address, NotProvedError):
                person = await provider.identify(begun, request.query)
            called = self._hub.access.external_name(person.name, provider.options.host)
            principal = Principal(called, person.role, "", address)
            session = self._hub.access.sign_in(principal, provider.options.host)
        except NotProvedError as error:
            logger.warning("signing in from %s through %s is refused: %s", address, provider.options.host, error)
            response = _problem(403, f"You are not signed in: {error}.")
        except SlowDownError as error:
            response = _problem(429, f"You are not signed in: {error}.")
            response.headers["Retry-After"] = str(int(error.seconds) + 1)
        except ProviderError as error:
            logger.warning("nobody can sign in through %s: %s", provider.options.issuer, error)
            response = _problem(502, f"You are not signed in: {error}.")
        else:
            # A page, not a redirection: the browser would follow one without the cookie, as another site led here.
            response = _page(200, f"Signed in as {principal.name}.", begun.after, "Go on", refresh=True)
            set_cookie(request, response, session)
        response.del_cookie(name, path="/", secure=is_secure(request), httponly=True, samesite="Lax")
        return response


def origin(request: web.Request) -> str:
    """Where this hub is for whoever asks, as far as this can be known."""
    # Its Host was let pass: it is a name of ours.
    return f"{'https' if is_secure(request) else 'http'}://{request.host}"


def _cookie(request: web.Request) -> str:
    return f"{cookie_name(request)}_oidc"


def _local_path(text: str) -> str:
    """`text` where it is a path of this hub, else '/': nobody is led elsewhere by it."""
    plain = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if plain and len(text) <= MAX_PATH else "/"


def _problem(status: int, sentence: str) -> web.Response:
    return _page(status, sentence, "/login", "Back to the sign-in page")


def _page(status: int, sentence: str, address: str, link: str, *, refresh: bool = False) -> web.Response:
    escaped = html.escape(address)
    head = f'<meta http-equiv="refresh" content="0;url={escaped}">' if refresh else ""
    text = PAGE.format(head=head, sentence=html.escape(sentence), address=escaped, link=link)
    return web.Response(text=text, status=status, content_type="text/html")

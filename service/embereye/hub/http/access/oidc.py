"""Routes to the identity provider and back: /login/oidc and its callback.

/login/oidc begins an attempt, seals it into a cookie of the browser, and redirects to the provider. The callback opens
the cookie, lets `Provider` exchange the returned code for a person, and starts a session as for any other sign-in. In
between the hub stores nothing.

The attempt's cookie is SameSite=Lax, because the browser returns from another site; the session's is Strict.
"""

import html
import logging
import secrets
import time
from typing import TYPE_CHECKING

from aiohttp import web

from embereye.hub.access.keeper import SlowDownError
from embereye.hub.http.access.authenticate import cookie_name, cookie_path, is_secure
from embereye.hub.http.access.routes import set_cookie
from embereye.hub.http.base_path import base_of, with_base
from embereye.hub.http.openapi.parts import WORD, answer, file_of, query, record
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.oidc import attempt as attempts
from embereye.hub.oidc.errors import NotProvedError, ProviderError
from embereye.hub.roles import Principal

if TYPE_CHECKING:  # it loads cryptography, which a hub without a provider does not need
    from embereye.hub.oidc.provider import Provider

logger = logging.getLogger(__name__)
CALLBACK = "/login/oidc/callback"
MAX_PATH = 1_000  # characters of the page to return to
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>EmberEye</title>{head}
<link rel="stylesheet" href="/static/console.css"></head>
<body class="login"><main><form><p role="alert">{sentence}</p><p><a href="{address}">{link}</a></p></form></main></body>
</html>
"""
RESULT = file_of("a page with the result", "text/html")


class OidcRoutes:
    """Serves signing in with the provider; without one, these routes answer 404."""

    def __init__(self, hub: Hub, provider: "Provider | None") -> None:
        self._hub = hub
        self._provider = provider
        self._key = secrets.token_bytes(32)  # of this process: attempts end with it

    async def sign_out_url(self, request: web.Request) -> str:
        """The address where a person signs out of the provider, and then returns to the login page; '': none."""
        return await self._provider.end_session_url(f"{address_of(request)}/login") if self._provider else ""

    @Route(
        "GET", "/v1/session", None, "How people can sign in other than with a token",
        {200: answer("the identity provider's host; empty: there is none", record({"provider": WORD}))},
    )  # fmt: skip
    async def _ways(self, _: web.Request) -> web.Response:
        return web.json_response({"provider": self._provider.options.host if self._provider else ""})

    def _require_provider(self) -> "Provider":
        if self._provider is None:
            raise Refused(404, "this hub has no identity provider. Start it with --oidc-issuer, or use a token.")
        return self._provider

    @Route(
        "GET", "/login/oidc", None, "Sign in with the identity provider",
        {303: answer("its page"), 502: RESULT},
        takes=[query("next", WORD, "path of the page to open afterwards")],
        fails=[404],
    )  # fmt: skip
    async def _start(self, request: web.Request) -> web.StreamResponse:
        provider = self._require_provider()
        redirect = f"{address_of(request)}{CALLBACK}"
        attempt = attempts.begin(redirect, _local_path(request), time.monotonic())
        try:
            address = await provider.authorize_url(attempt)
        except ProviderError as error:
            return _problem(request, 502, f"The identity provider does not work: {error}.")
        response = web.Response(status=303, headers={"Location": address})
        # The provider's page leads back here. Browsers would not send a SameSite=Strict cookie then.
        response.set_cookie(
            _cookie(request), attempts.seal(attempt, self._key), path=cookie_path(request), secure=is_secure(request),
            httponly=True, samesite="Lax", max_age=attempts.ATTEMPT_SECONDS,
        )  # fmt: skip
        return response

    @Route(
        "GET", CALLBACK, None, "The address to which the identity provider sends browsers back",
        {200: RESULT, 403: RESULT, 429: RESULT, 502: RESULT},
        takes=[query(name, WORD, "as in OpenID Connect") for name in ("code", "state", "iss", "error")],
        fails=[404],
    )  # fmt: skip
    async def _come_back(self, request: web.Request) -> web.StreamResponse:
        provider, address = self._require_provider(), request.remote or ""
        name, state = _cookie(request), request.query.get("state", "")
        try:
            # Nobody can guess a sealed attempt. Without one, a request counts as no failure and locks out nobody.
            attempt = attempts.unseal(request.cookies.get(name, ""), self._key, state, time.monotonic())
        except NotProvedError as error:
            return _problem(request, 403, f"You are not signed in: {error}.")
        try:
            with self._hub.access.count_failures(address, NotProvedError):
                person = await provider.identify(attempt, request.query)
            display_name = self._hub.access.external_name(person.name, provider.options.host)
            principal = Principal(display_name, person.role, "", address, scope=person.scope)
            session = self._hub.access.sign_in(principal, provider.options.host)
        except NotProvedError as error:
            logger.warning("%s: signing in through %s is refused: %s", address, provider.options.host, error)
            response = _problem(request, 403, f"You are not signed in: {error}.")
        except SlowDownError as error:
            response = _problem(request, 429, f"You are not signed in: {error}.")
            response.headers["Retry-After"] = str(int(error.seconds) + 1)
        except ProviderError as error:
            logger.warning("%s: nobody can sign in: %s", provider.options.issuer, error)
            response = _problem(request, 502, f"You are not signed in: {error}.")
        else:
            # A page, not a redirection: after another site's link, the browser would follow that without the cookie.
            response = _page(request, 200, f"Signed in as {principal.name}.", attempt.after, "Continue", refresh=True)
            set_cookie(request, response, session)
        response.del_cookie(name, path=cookie_path(request), secure=is_secure(request), httponly=True, samesite="Lax")
        return response


def address_of(request: web.Request) -> str:
    """The hub's address for this client, as far as the hub can know, without a slash at the end."""
    # The Host header was checked: it is a name of this hub.
    return f"{'https' if is_secure(request) else 'http'}://{request.host}{base_of(request)}"


def _cookie(request: web.Request) -> str:
    return f"{cookie_name(request)}_oidc"


def _local_path(request: web.Request) -> str:
    """Return the requested page if it is one of this hub, else the console: it must not lead to another site."""
    text, console = request.query.get("next", ""), f"{base_of(request)}/"
    below = text.removeprefix(base_of(request)) if text.startswith(console) else ""
    plain = below.startswith("/") and not below.startswith(("//", "/\\")) and text.isprintable()
    return text if plain and len(text) <= MAX_PATH else console


def _problem(request: web.Request, status: int, sentence: str) -> web.Response:
    return _page(request, status, sentence, f"{base_of(request)}/login", "Back to the sign-in page")


def _page(
    request: web.Request, status: int, sentence: str, address: str, link: str, *, refresh: bool = False
) -> web.Response:
    escaped = html.escape(address)
    head = f'<meta http-equiv="refresh" content="0;url={escaped}">' if refresh else ""
    page = with_base(PAGE, base_of(request))
    text = page.format(head=head, sentence=html.escape(sentence), address=escaped, link=link)
    return web.Response(text=text, status=status, content_type="text/html")

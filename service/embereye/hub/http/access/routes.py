"""Routes of the login page, sessions, tokens and the audit trail."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from embereye.hub.access.keeper import NameTakenError
from embereye.hub.committer import StoreFailingError
from embereye.hub.http.access.authenticate import PRINCIPAL, cookie_name, is_secure, proved
from embereye.hub.http.parameters import number_of, read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role, role_named

ProviderSignOut = Callable[[web.Request], Awaitable[str]]

OPEN_PATHS = frozenset({"/healthz", "/login", "/login/oidc", "/login/oidc/callback", "/runbooks", "/v1/session"})
ROLES = {
    "/v1/access/me": Role.VIEWER,
    "/v1/access/logout": Role.VIEWER,
    "/v1/access/links": Role.VIEWER,
    "/v1/access/": Role.ADMIN,
    "/v1/audit": Role.ADMIN,
    "PUT /v1/plans/": Role.ADMIN,  # a wrong plan sends people to the wrong place
    "DELETE /v1/plans/": Role.ADMIN,
}


class AccessRoutes:
    """Serves sessions, tokens, links and the audit trail: `routes()`."""

    def __init__(self, hub: Hub, provider_sign_out: ProviderSignOut) -> None:
        """`provider_sign_out` returns the address for signing out of the identity provider; '': none."""
        self._hub = hub
        self._provider_sign_out = provider_sign_out

    def routes(self) -> list[web.RouteDef]:
        """List all routes except those of the login page's files."""
        return [
            web.post("/v1/session", self._sign_in),
            web.post("/v1/access/logout", self._sign_out),
            web.get("/v1/access/me", self._me),
            web.get("/v1/access/tokens", self._tokens),
            web.post("/v1/access/tokens", self._create_token),
            web.delete("/v1/access/tokens/{name}", self._revoke_token),
            web.post("/v1/access/links", self._create_link),
            web.get("/v1/audit", self._audit),
        ]

    async def _sign_in(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        token, code = text_of(body, "token"), text_of(body, "code")
        if not (token or code):
            raise Refused(400, 'the body is not of the form {"token": "TOKEN"} or {"code": "CODE"}')
        access, address = self._hub.access, request.remote or ""
        if code:
            principal = proved(lambda: access.use_link(code, address))
        else:
            principal = proved(lambda: access.identify(token.strip(), address))
        response = web.json_response(_identity(principal))
        set_cookie(request, response, proved(lambda: access.sign_in(principal, "link" if code else "token")))
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        principal = request[PRINCIPAL]
        self._hub.access.sign_out(principal)
        address = await self._provider_sign_out(request) if principal.session and not principal.token else ""
        response = web.json_response({"next": address or "/login"})
        response.del_cookie(cookie_name(request), path="/", secure=is_secure(request), httponly=True, samesite="Strict")
        return response

    async def _me(self, request: web.Request) -> web.Response:
        return web.json_response(_identity(request[PRINCIPAL]))

    async def _tokens(self, _: web.Request) -> web.Response:
        tokens = [
            {"name": token.name, "role": token.role.word, "madeNs": str(token.made_ns), "madeBy": token.made_by}
            for token in self._hub.access.tokens()
        ]
        return web.json_response({"tokens": tokens})

    async def _create_token(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        try:
            name, role = text_of(body, "name"), role_named(text_of(body, "role"))
            token = await self._hub.access.create_token(request[PRINCIPAL], name, role)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except NameTakenError as error:
            raise Refused(409, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response({"name": name, "role": role.word, "token": token}, status=201)

    async def _revoke_token(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            revoked = await self._hub.access.revoke(request[PRINCIPAL], name)
        except StoreFailingError as error:
            raise Refused(503, f"revoked, but a restart of the hub undoes that until it is stored: {error}") from error
        if not revoked:
            raise Refused(404, f'there is no token "{name[:80]}"')
        return web.json_response({})

    async def _create_link(self, request: web.Request) -> web.Response:
        body, caller = await read_json(request), request[PRINCIPAL]
        name = text_of(body, "name") or caller.name
        if name != caller.name and caller.role < Role.ADMIN:
            raise Refused(403, f"{caller.name} is {caller.role.word}: only an admin creates links for others")
        try:
            role = role_named(wanted) if (wanted := text_of(body, "role")) else caller.role
            code = proved(lambda: self._hub.access.create_link(caller, name, role))
        except ValueError as error:
            raise Refused(400, str(error)) from error
        return web.json_response({"path": f"/login#{code}"}, status=201)

    async def _audit(self, request: web.Request) -> web.Response:
        before, limit = number_of(request, "before", 0), number_of(request, "limit", 0)
        entries = [
            {
                "number": str(entry.number), "timeNs": str(entry.time_ns), "who": entry.who, "role": entry.role.word,
                "address": entry.address, "action": entry.action, "subject": entry.subject, "detail": entry.detail,
            }
            for entry in await self._hub.history.audit(before, limit)
        ]  # fmt: skip
        return web.json_response({"entries": entries})


def set_cookie(request: web.Request, response: web.StreamResponse, session: str) -> None:
    """Store `session` in the browser until it is closed, hidden from scripts and other sites' pages."""
    response.set_cookie(
        cookie_name(request), session, path="/", secure=is_secure(request), httponly=True, samesite="Strict"
    )


def _identity(principal: Principal) -> dict[str, str]:
    return {"name": principal.name, "role": principal.role.word}

"""The login page, sessions, tokens and the audit trail over HTTP."""

from typing import Any

from aiohttp import web

from embereye.hub.access.keeper import NameTakenError
from embereye.hub.access.roles import Principal, Role, role_named
from embereye.hub.committer import StoreFailingError
from embereye.hub.http.authenticate import PRINCIPAL, cookie_name, is_secure, proved
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub

MAX_DIGITS = 19
OPEN_PATHS = frozenset({"/healthz", "/login", "/runbooks", "/v1/session"})
ROLES = {
    "/v1/access/me": Role.VIEWER,
    "/v1/access/logout": Role.VIEWER,
    "/v1/access/links": Role.VIEWER,
    "/v1/access/": Role.ADMIN,
    "/v1/audit": Role.ADMIN,
}


class AccessRoutes:
    """Routes of people's access: `routes()`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[web.RouteDef]:
        """All of them but the login page's files."""
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
        token, code = body.get("token", ""), body.get("code", "")
        if not isinstance(token, str) or not isinstance(code, str) or not (token or code):
            raise Refused(400, 'the body is not of the form {"token": "TOKEN"} or {"code": "CODE"}')
        access, address = self._hub.access, request.remote or ""
        if code:
            principal = proved(lambda: access.use_link(code, address))
        else:
            principal = proved(lambda: access.identify(token.strip(), address))
        response = web.json_response(_identity(principal))
        set_cookie(request, response, access.sign_in(principal, "link" if code else "token"))
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        self._hub.access.sign_out(request[PRINCIPAL])
        response = web.json_response({})
        response.del_cookie(cookie_name(request), path="/", secure=is_secure(request), httponly=True, samesite="Strict")
        return response

    async def _me(self, request: web.Request) -> web.Response:
        return web.json_response(_identity(request[PRINCIPAL]))

    async def _tokens(self, _: web.Request) -> web.Response:
        tokens = [
            {"name": one.name, "role": one.role.word, "madeNs": str(one.made_ns), "madeBy": one.made_by}
            for one in self._hub.access.tokens()
        ]
        return web.json_response({"tokens": tokens})

    async def _create_token(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        try:
            name, role = str(body.get("name", "")), role_named(str(body.get("role", "")))
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
            found = await self._hub.access.revoke(request[PRINCIPAL], name)
        except StoreFailingError as error:
            raise Refused(503, f"revoked, but only until the hub restarts: {error}") from error
        if not found:
            raise Refused(404, f'there is no token "{name[:80]}": GET /v1/access/tokens lists them')
        return web.json_response({})

    async def _create_link(self, request: web.Request) -> web.Response:
        body, caller = await read_json(request), request[PRINCIPAL]
        name = str(body.get("name", "")) or caller.name
        if name != caller.name and caller.role < Role.ADMIN:
            raise Refused(403, f"{caller.name} is {caller.role.word}: only an admin makes links for others")
        try:
            role = role_named(str(body["role"])) if body.get("role") else caller.role
            code = self._hub.access.create_link(caller, name, role)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        return web.json_response({"path": f"/login#{code}"}, status=201)

    async def _audit(self, request: web.Request) -> web.Response:
        numbers = {}
        for name in ("before", "limit"):
            text = request.query.get(name, "0")
            if len(text) > MAX_DIGITS or not text.isascii() or not text.isdigit() or int(text) >= 2**63:
                raise Refused(400, f'{name}: "{text[:50]}" is not a whole number from 0 to {2**63 - 1}')
            numbers[name] = int(text)
        entries = [
            {
                "number": str(one.number), "timeNs": str(one.time_ns), "who": one.who, "role": one.role.word,
                "address": one.address, "action": one.action, "subject": one.subject, "detail": one.detail,
            }
            for one in await self._hub.history.audit(numbers["before"], numbers["limit"])
        ]  # fmt: skip
        return web.json_response({"entries": entries})


def set_cookie(request: web.Request, response: web.StreamResponse, session: str) -> None:
    """Have the browser keep `session` until it is closed; no script and no other site's page gets at it."""
    response.set_cookie(
        cookie_name(request), session, path="/", secure=is_secure(request), httponly=True, samesite="Strict"
    )


async def read_json(request: web.Request) -> dict[str, Any]:
    """The object that a request's body is; Refused where it is none."""
    # A form of another site cannot send this type without asking first.
    if request.content_type != "application/json":
        raise Refused(415, f'Content-Type "{request.content_type}": send application/json')
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    return body


def _identity(principal: Principal) -> dict[str, str]:
    return {"name": principal.name, "role": principal.role.word}

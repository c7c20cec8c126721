"""Routes of the login page, sessions, tokens and the audit trail.

`Access` owns all of them; these routes call it and turn its errors into statuses. A browser proves itself once, by a
token or by a link's code, and gets a cookie that scripts cannot read. The cookie authenticates its further requests. A
token's secret is in the answer that creates it, and never again.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from embereye.hub.access.keeper import NAME
from embereye.hub.http.access.authenticate import PRINCIPAL, cookie_name, cookie_path, is_secure
from embereye.hub.http.base_path import base_of
from embereye.hub.http.openapi.parts import (
    CHANGES,
    NOTHING,
    ROLE,
    WORD,
    Json,
    answer,
    fields_of,
    json_body,
    list_of,
    query,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import number_of, read_json, text_of, texts_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import MAX_PATTERN, MAX_PATTERNS, PATTERN, Principal, Role, read_scope, role_named

ProviderSignOut = Callable[[web.Request], Awaitable[str]]

ENTRY = ("time_ns", "who", "role", "address", "action", "subject", "detail")  # of the audit trail
ZONES = {
    **list_of({"type": "string", "pattern": f"^{PATTERN.pattern}$", "maxLength": MAX_PATTERN}),
    "maxItems": MAX_PATTERNS,
    "description": "NAMESPACE/ZONE, or NAMESPACE/KIND/NAME for a fleet and its zones, with * for any characters; "
    "empty: all zones",
}
NEW_TOKEN: Json = {
    **record({"name": {"type": "string", "pattern": f"^{NAME.pattern}$"}, "role": ROLE}, zones=ZONES),
    "anyOf": [  # admins cannot be limited
        {"properties": {"role": {**ROLE, "enum": [role.word for role in Role if role is not Role.ADMIN]}}},
        {"properties": {"zones": {**ZONES, "maxItems": 0}}},
    ],
}
PROOF: Json = {
    **record({}, token=WORD, code=WORD),
    "anyOf": [{"required": [name], "properties": {name: {**WORD, "minLength": 1}}} for name in ("token", "code")],
}


class AccessRoutes:
    """Serves sessions, tokens, links and the audit trail."""

    def __init__(self, hub: Hub, provider_sign_out: ProviderSignOut) -> None:
        """`provider_sign_out` returns the address for signing out of the identity provider; '': none."""
        self._hub = hub
        self._provider_sign_out = provider_sign_out

    @Route(
        "POST", "/v1/session", None, "Sign a browser in, with a token or a link's code; the answer sets its cookie",
        {200: answer("the person or program", reference("Identity"))},
        fails=(*CHANGES, 401, 403, 429),
        body=json_body(PROOF),
    )  # fmt: skip
    async def _sign_in(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        token, code = text_of(body, "token"), text_of(body, "code")
        if not (token or code):
            raise Refused(400, 'the body is not of the form {"token": "TOKEN"} or {"code": "CODE"}')
        access, address = self._hub.access, request.remote or ""
        principal = access.use_link(code, address) if code else access.identify(token.strip(), address)
        response = web.json_response(_identity(principal))
        set_cookie(request, response, access.sign_in(principal, "link" if code else "token"))
        return response

    @Route(
        "POST", "/v1/access/logout", Role.VIEWER, "Sign out",
        {200: answer("signed out; the page to open", record({"next": WORD}))},
        scoped=True,
    )  # fmt: skip
    async def _sign_out(self, request: web.Request) -> web.Response:
        principal = request[PRINCIPAL]
        self._hub.access.sign_out(principal)
        address = await self._provider_sign_out(request) if principal.session and not principal.token else ""
        response = web.json_response({"next": address or f"{base_of(request)}/login"})
        response.del_cookie(
            cookie_name(request), path=cookie_path(request), secure=is_secure(request), httponly=True, samesite="Strict"
        )
        return response

    @Route(
        "GET", "/v1/access/me", Role.VIEWER, "The caller",
        {200: answer("name, role, and zones if they are limited", reference("Identity"))},
        scoped=True,
    )  # fmt: skip
    async def _me(self, request: web.Request) -> web.Response:
        return web.json_response(_identity(request[PRINCIPAL]))

    @Route(
        "GET", "/v1/access/tokens", Role.ADMIN, "All tokens",
        {200: answer("without their secrets", record({"tokens": list_of(reference("Token"))}))},
    )  # fmt: skip
    async def _tokens(self, _: web.Request) -> web.Response:
        tokens = [
            {**fields_of(token, "name", "role", "made_ns", "made_by"), "zones": list(token.scope.patterns)}
            for token in self._hub.access.tokens()
        ]
        return web.json_response({"tokens": tokens})

    @Route(
        "POST", "/v1/access/tokens", Role.ADMIN, "Create a token",
        {201: answer("shown only this once", record({"name": WORD, "role": ROLE, "token": WORD, "zones": ZONES}))},
        fails=(*CHANGES, 409, 503),
        body=json_body(NEW_TOKEN),
    )  # fmt: skip
    async def _create_token(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        name, role = text_of(body, "name"), role_named(text_of(body, "role"))
        scope = read_scope(texts_of(body, "zones"))
        token = await self._hub.access.create_token(request[PRINCIPAL], name, role, scope)
        created = {"name": name, "role": role.word, "token": token, "zones": list(scope.patterns)}
        return web.json_response(created, status=201)

    @Route(
        "DELETE", "/v1/access/tokens/{name}", Role.ADMIN, "Revoke a token, and end its sessions and streams",
        {200: answer("it is no longer valid", NOTHING)},
        fails=(404, 503),
    )  # fmt: skip
    async def _revoke_token(self, request: web.Request) -> web.Response:
        await self._hub.access.revoke(request[PRINCIPAL], request.match_info["name"])
        return web.json_response({})

    @Route(
        "POST", "/v1/access/links", Role.VIEWER,
        "Create a link that signs one browser in, once, within the hour; only admins create links for others",
        {201: answer("a path below the hub's address", record({"path": WORD}))},
        fails=CHANGES,
        scoped=True,
        body=json_body(
            record(
                {},
                name={"type": "string", "pattern": f"^({NAME.pattern})?$"},
                role={"type": "string", "enum": ["", *(role.word for role in Role)]},
            )
        ),
    )  # fmt: skip
    async def _create_link(self, request: web.Request) -> web.Response:
        body, caller = await read_json(request), request[PRINCIPAL]
        name = text_of(body, "name") or caller.name
        role = role_named(wanted) if (wanted := text_of(body, "role")) else caller.role
        code = self._hub.access.create_link(caller, name, role)
        return web.json_response({"path": f"/login#{code}"}, status=201)

    @Route(
        "GET", "/v1/audit", Role.ADMIN, "The audit trail, newest first",
        {200: answer("a page", record({"entries": list_of(reference("AuditEntry"))}))},
        takes=[
            query("before", whole(), "only entries with a smaller number; 0: the newest"),
            query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
        ],
        fails=(400, 503),
    )  # fmt: skip
    async def _audit(self, request: web.Request) -> web.Response:
        before, limit = number_of(request, "before", 0), number_of(request, "limit", 0)
        entries = [
            {"number": str(entry.number), **fields_of(entry, *ENTRY)}
            for entry in await self._hub.history.audit(before, limit)
        ]
        return web.json_response({"entries": entries})


def set_cookie(request: web.Request, response: web.StreamResponse, session: str) -> None:
    """Store `session` in the browser until it is closed, hidden from scripts and other sites' pages."""
    response.set_cookie(
        cookie_name(request), session, path=cookie_path(request), secure=is_secure(request), httponly=True,
        samesite="Strict",
    )  # fmt: skip


def _identity(principal: Principal) -> Json:
    zones = {"zones": list(principal.scope.patterns)} if principal.scope.is_limited else {}
    return {"name": principal.name, "role": principal.role.word, **zones}

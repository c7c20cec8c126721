"""Access over gRPC: the check in front of every call, and the Access service.

An interceptor wraps each method's handler. It identifies the caller by its token and compares the caller's role with
that of the method in `ROLES`. A stream also ends when its token is revoked. Only health checks need no token.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from embereye.hub.access.keeper import Access, DeniedError, RevokedError
from embereye.hub.hub import Hub
from embereye.hub.refusals import InvalidError
from embereye.hub.roles import CALLER, Principal, Role, read_scope
from embereye.hub.services.statuses import AnyContext, abort_on_error, end_with_status
from embereye.process.grpc_front import peer_of
from embereye.process.malformed import kind_of
from embereye.v1 import access_pb2 as messages
from embereye.v1.access_pb2_grpc import AccessServicer

Handler = Any  # grpc's RpcMethodHandler, which its stubs do not describe

OPEN = "/grpc.health.v1.Health/"
# All other methods are for viewers.
ROLES = {
    "/embereye.v1.Alarms/Acknowledge": Role.OPERATOR,
    "/embereye.v1.Alarms/Reset": Role.OPERATOR,
    "/embereye.v1.Alarms/Test": Role.OPERATOR,
    "/embereye.v1.Alarms/StoreSubscription": Role.OPERATOR,
    "/embereye.v1.Alarms/RemoveSubscription": Role.OPERATOR,
    "/embereye.v1.Webhooks/Resend": Role.OPERATOR,
    "/embereye.v1.Webhooks/Test": Role.OPERATOR,
    "/embereye.v1.Alarms/MarkFalse": Role.OPERATOR,
    "/embereye.v1.Alarms/BeginSilence": Role.OPERATOR,
    "/embereye.v1.Alarms/EndSilence": Role.OPERATOR,
    "/embereye.v1.Clips/Store": Role.OPERATOR,
    "/embereye.v1.Access/CreateToken": Role.ADMIN,
    "/embereye.v1.Access/ListTokens": Role.ADMIN,
    "/embereye.v1.Access/RevokeToken": Role.ADMIN,
    "/embereye.v1.Access/Audit": Role.ADMIN,
}
# Callers who are limited to zones can use only these: they leave out the other zones, or name none.
SCOPED = frozenset(
    {
        "/embereye.v1.Access/CreateLink",
        "/embereye.v1.Access/WhoAmI",
        "/embereye.v1.Alarms/Acknowledge",
        "/embereye.v1.Alarms/BeginSilence",
        "/embereye.v1.Alarms/Follow",
        "/embereye.v1.Alarms/History",
        "/embereye.v1.Alarms/Reset",
        "/embereye.v1.Alarms/Silences",
        "/embereye.v1.Alarms/Subscribe",
        "/embereye.v1.Alarms/Test",
        "/embereye.v1.Alarms/Zones",
    }
)
WIRE = {Role.VIEWER: messages.ROLE_VIEWER, Role.OPERATOR: messages.ROLE_OPERATOR, Role.ADMIN: messages.ROLE_ADMIN}
REMEDY = 'send the metadata "authorization: Bearer TOKEN"; `embereye access create` creates tokens'


class AccessCheck(grpc.aio.ServerInterceptor):
    """Admits calls with a token of the needed role, and ends streams whose token is revoked."""

    def __init__(self, access: Access, roles: Mapping[str, Role] | None = None) -> None:
        """`roles` adds methods to ROLES."""
        self._access = access
        self._roles = {**ROLES, **(roles or {})}

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """Wrap the handler of a method that needs a token."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(OPEN):
            return handler
        return self._wrapped(handler, method, self._roles.get(method, Role.VIEWER))

    def _wrapped(self, handler: Handler, method: str, role: Role) -> Handler:
        kind = kind_of(handler)
        behaviour = getattr(handler, kind)

        async def answer(request: Any, context: AnyContext) -> Any:
            await self._check(context, method, role)
            return await behaviour(request, context)

        async def stream(request: Any, context: AnyContext) -> None:
            principal = await self._check(context, method, role)
            if handler.request_streaming:  # the front passes on only a part of a call without an answer
                await context.send_initial_metadata(())
            try:
                async with self._access.until_revoked(principal):
                    if inspect.isasyncgenfunction(behaviour):
                        async with contextlib.aclosing(behaviour(request, context)) as responses:
                            async for response in responses:
                                await context.write(response)
                    else:
                        await behaviour(request, context)
            except RevokedError as error:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))

        return handler._replace(**{kind: stream if handler.response_streaming else answer})

    async def _check(self, context: AnyContext, method: str, role: Role) -> Principal:
        async with abort_on_error(context):
            try:
                principal = self._access.identify(_bearer(context), peer_of(context).host)
            except DeniedError as error:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{error}; {REMEDY}")
            principal.check_role(role)
            if method not in SCOPED:
                principal.check_unlimited()
        CALLER.set(principal)
        return principal


def _bearer(context: AnyContext) -> str:
    """Return the token of a call. DeniedError if there is none; that does not count as a guess."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            text = value if isinstance(value, str) else value.decode("latin-1")
            scheme, _, token = text.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return token.strip()
    raise DeniedError("the call carries no token")


@end_with_status
class AccessService(AccessServicer):
    """Tokens, links and the audit trail."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def WhoAmI(self, request: messages.WhoAmIRequest, context: AnyContext) -> messages.Identity:
        """Return the caller's name and role."""
        caller = CALLER.get()
        return messages.Identity(name=caller.name, role=WIRE[caller.role], zones=caller.scope.patterns)

    async def CreateToken(self, request: messages.CreateTokenRequest, context: AnyContext) -> messages.CreatedToken:
        """Create a token."""
        role, scope = _role(request.role), read_scope(request.zones)
        token = await self._hub.access.create_token(CALLER.get(), request.name, role, scope)
        return messages.CreatedToken(token=token)

    async def ListTokens(self, request: messages.ListTokensRequest, context: AnyContext) -> messages.ListTokensResponse:
        """List all tokens."""
        return messages.ListTokensResponse(
            tokens=[
                messages.Token(
                    name=token.name,
                    role=WIRE[token.role],
                    made_ns=token.made_ns,
                    made_by=token.made_by,
                    zones=token.scope.patterns,
                )
                for token in self._hub.access.tokens()
            ]
        )

    async def RevokeToken(
        self, request: messages.RevokeTokenRequest, context: AnyContext
    ) -> messages.RevokeTokenResponse:
        """Revoke a token."""
        await self._hub.access.revoke(CALLER.get(), request.name)
        return messages.RevokeTokenResponse()

    async def CreateLink(self, request: messages.CreateLinkRequest, context: AnyContext) -> messages.Link:
        """Create a link that signs a browser in."""
        caller = CALLER.get()
        role = _role(request.role) if request.role else caller.role
        code = self._hub.access.create_link(caller, request.name or caller.name, role)
        return messages.Link(path=f"/login#{code}")

    async def Audit(self, request: messages.AuditRequest, context: AnyContext) -> messages.AuditResponse:
        """Read the audit trail."""
        entries = await self._hub.history.audit(min(request.before, 2**63 - 1), request.limit)
        return messages.AuditResponse(
            entries=[
                messages.AuditRecord(
                    number=entry.number, time_ns=entry.time_ns, who=entry.who, role=WIRE[entry.role],
                    address=entry.address, action=entry.action, subject=entry.subject, detail=entry.detail,
                )
                for entry in entries
            ]
        )  # fmt: skip


def _role(number: int) -> Role:
    """Read a role; InvalidError if it is not set or unknown."""
    if number not in WIRE.values():
        raise InvalidError("role is not set, or unknown. Use viewer, operator or admin.")
    return Role(number)

"""What stands in front of a service's calls on a control port: who calls is asked for, and whether it may."""

import inspect
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import grpc

from embereye.process.identity.calls import CALLS, refusal
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, parse_uri

# Who makes the call that is being served on a control port; None: nobody had to prove that, or it is another port.
CALLER: ContextVar[Identity | None] = ContextVar("caller", default=None)


@lru_cache(maxsize=1024)
def _parsed(uri: bytes) -> Identity | None:
    try:
        return parse_uri(uri.decode())
    except ValueError:
        return None


def caller(context: Any) -> Identity | None:
    """Who proved to make the call of a servicer's `context`; None where nobody had to, or it is none of ours."""
    uris = context.auth_context().get("peer_uri", ())
    return _parsed(bytes(uris[0])) if len(uris) == 1 else None


class Registrar:
    """Stands for a server where generated code adds a servicer to it, and adds only the calls that belong there.

    `control`: those of the table, each behind the question who calls where there are `credentials`; otherwise all that
    are open. `served` has the names of the services of which anything was added. `namespaces`: see `refusal`.
    """

    def __init__(
        self,
        server: Any,
        *,
        control: bool,
        credentials: Credentials | None = None,
        namespaces: Collection[str] = (),
    ) -> None:
        self._server = server
        self._control = control
        self._credentials = credentials
        self._namespaces = namespaces
        self.served: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Nothing: `add_registered_method_handlers`, which generated code calls next, says the same by name."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Add those of a service's calls that belong here."""
        chosen = {
            method: self._guarded(f"{service}/{method}", handler)
            for method, handler in handlers.items()
            if self._belongs(f"{service}/{method}")
        }
        if chosen:
            self.served.append(service)
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, chosen),))
            self._server.add_registered_method_handlers(service, chosen)

    def _belongs(self, call: str) -> bool:
        rule = CALLS.get(call)
        return rule is not None if self._control else rule is None or rule.open

    def _guarded(self, call: str, handler: Any) -> Any:
        credentials = self._credentials
        if credentials is None:
            return handler

        async def admit(context: Any) -> None:
            who = caller(context)
            if who is None:
                reason = "the caller's certificate names no process of EmberEye"
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
            elif reason := refusal(call, who, credentials.identity, self._namespaces):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
            CALLER.set(who)

        sides = handler.request_streaming, handler.response_streaming
        kind = "_".join("stream" if streaming else "unary" for streaming in sides)
        guarded = _behind(admit, getattr(handler, kind))
        return handler._replace(**{kind: guarded})


def _behind(admit: Callable[[Any], Awaitable[None]], behavior: Any) -> Any:
    """`behavior` once `admit` has let its context in. gRPC tells the two kinds by what they are."""
    if inspect.isasyncgenfunction(behavior):

        async def stream(request: Any, context: Any) -> Any:
            await admit(context)
            async for response in behavior(request, context):
                yield response

        return stream

    async def answer(request: Any, context: Any) -> Any:
        await admit(context)
        return await behavior(request, context)

    return answer

"""Authenticate and authorise the callers of control calls.

A `Registrar` takes the server's place while generated code registers a servicer. On a control port it registers only
the calls in the table of `calls.py`, on other ports all other calls and the `open` ones. So a call that nobody thought
of is not served on a control port. With credentials, each control call first takes the caller's identity from the
certificate of its connection, and asks `refusal` if that role may make the call. Servicers read it from `CALLER`.
"""

import contextlib
from collections.abc import AsyncIterator, Collection
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any

import grpc

from embereye.process.identity.calls import CALLS, refusal
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, parse_uri
from embereye.process.malformed import refusing_malformed, wrapped

# The caller of the control call that is being served; None: callers are not authenticated, or it is another port.
CALLER: ContextVar[Identity | None] = ContextVar("caller", default=None)


@lru_cache(maxsize=1024)
def _parsed(uri: bytes) -> Identity | None:
    try:
        return parse_uri(uri.decode())
    except ValueError:
        return None


def caller(context: Any) -> Identity | None:
    """The authenticated caller of a servicer's `context`; None if it is not one of EmberEye's processes."""
    uris = context.auth_context().get("peer_uri", ())
    return _parsed(bytes(uris[0])) if len(uris) == 1 else None


@dataclass(eq=False)
class Registrar:
    """Takes the place of a server when generated code registers a servicer, and registers only the right calls.

    With `control`, these are the calls of the table, with a check of the caller if there are `credentials`; else all
    open calls. `served` lists the services with at least one registered call. `namespaces`: see `refusal`.
    """

    server: Any
    _: KW_ONLY
    control: bool
    credentials: Credentials | None = None
    namespaces: Collection[str] = ()
    served: list[str] = field(default_factory=list, init=False)

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Do nothing: generated code calls `add_registered_method_handlers` next, which has the names."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Register the calls of a service that this server serves."""
        chosen = {
            method: self._guarded(f"{service}/{method}", refusing_malformed(f"{service}/{method}", handler))
            for method, handler in handlers.items()
            if self._is_served(f"{service}/{method}")
        }
        if chosen:
            self.served.append(service)
            self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, chosen),))
            self.server.add_registered_method_handlers(service, chosen)

    def _is_served(self, call: str) -> bool:
        rule = CALLS.get(call)
        return rule is not None if self.control else rule is None or rule.open

    def _guarded(self, call: str, handler: Any) -> Any:
        credentials = self.credentials
        if credentials is None:
            return handler

        @contextlib.asynccontextmanager
        async def admit(_: Any, context: Any) -> AsyncIterator[None]:
            identity = caller(context)
            if identity is None:
                reason = "the caller's certificate is not for a process of EmberEye"
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
            elif reason := refusal(call, identity, credentials.identity, self.namespaces):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
            CALLER.set(identity)
            yield

        return wrapped(handler, admit)

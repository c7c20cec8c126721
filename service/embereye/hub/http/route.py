"""A route of the hub's HTTP interface, declared once: above the method that serves it.

The router, the check of roles and the OpenAPI document are derived from these declarations:

    class SilenceRoutes(HubRoutes):
        @Route("GET", "/v1/silences", Role.VIEWER, "Present silences", {200: answer(...)})
        async def _list(self, request: web.Request) -> web.Response: ...
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from aiohttp import web

from embereye.hub.http.openapi.parts import Json
from embereye.hub.hub import Hub
from embereye.hub.roles import Role

Handler = TypeVar("Handler", bound=Callable[[Any, web.Request], Awaitable[web.StreamResponse]])
PART = re.compile(r"\{(\w+)(?::((?:[^{}]|\{[^{}]*\})+))?\}")  # of a path: its name, and its regular expression


@dataclass(frozen=True)
class Route:
    """The declaration of one route; a decorator of its handler."""

    method: str
    path: str  # as in aiohttp: "{name}", or "{name:regular expression}"
    role: Role | None  # the lowest one that may call it; None: everybody, without signing in
    summary: str
    answers: Mapping[int, Json]  # by status
    _: KW_ONLY
    takes: Collection[Json] = ()  # parameters of the query, and of the path if its expression does not say enough
    fails: Collection[int] = ()  # statuses of its refusals, beyond those of its role
    body: Json | None = None
    head: bool = True  # a GET that answers HEAD as well
    scoped: bool = False  # True: it serves callers limited to zones, and leaves out the others; False: it refuses them

    def __call__(self, handler: Handler) -> Handler:
        """Declare `handler` to serve this route."""
        vars(handler)["route"] = self
        return handler

    @property
    def template(self) -> str:
        """The path without regular expressions."""
        return PART.sub(r"{\1}", self.path)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the handler serves."""
        return ("HEAD", "GET") if self.method == "GET" and self.head else (self.method,)


class HubRoutes:
    """Routes that need only the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub


def declared(serving: type) -> dict[str, Route]:
    """Return the routes declared in the class `serving`, by the names of their handlers."""
    routes = {name: getattr(member, "route", None) for name, member in vars(serving).items()}
    return {name: route for name, route in routes.items() if isinstance(route, Route)}


def add_routes(
    router: web.UrlDispatcher, serving: object, prefixes: Collection[str] = ("",)
) -> dict[web.AbstractRoute, Route]:
    """Add the routes that `serving` declares to `router`, after each of `prefixes`; return their declarations."""
    return {
        router.add_route(method, prefix + route.path, getattr(serving, name)): route
        for name, route in declared(type(serving)).items()
        for method in route.methods
        for prefix in prefixes
    }

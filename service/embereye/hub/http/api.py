"""The hub over HTTP: JSON for programs, a WebSocket of alarm events, and the console for people.

`Api` makes one part for each topic; an add-on contributes more. A part declares its routes next to their handlers
(`Route`). The router, the roles and the OpenAPI document are derived from these declarations.

A request passes three middlewares, from the outside in: errors become JSON, foreign hosts and pages are refused, and
the caller is identified and compared with the route's role. When the server stops, the feed is closed, which ends the
WebSockets.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry

from embereye.hub.addon import Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.evidence_bus import EvidenceBus
from embereye.hub.http.access.authenticate import authenticate
from embereye.hub.http.access.oidc import OidcRoutes
from embereye.hub.http.access.origin import AllowedHosts, guard
from embereye.hub.http.access.routes import AccessRoutes
from embereye.hub.http.base_path import BASE, first_segment
from embereye.hub.http.clips import ClipRoutes
from embereye.hub.http.console_files import ConsoleFiles
from embereye.hub.http.devices import DeviceRoutes
from embereye.hub.http.export import ExportRoutes
from embereye.hub.http.feeds.subscriptions import SubscriptionRoutes
from embereye.hub.http.feeds.webhooks import WebhookRoutes
from embereye.hub.http.feeds.websocket import FeedSocket
from embereye.hub.http.fleets.canaries import CanaryRoutes
from embereye.hub.http.fleets.routes import FleetRoutes
from embereye.hub.http.middleware import error_middleware
from embereye.hub.http.openapi.describe import describe
from embereye.hub.http.openapi.parts import NOTHING, answer, file_of
from embereye.hub.http.overlays import OverlayRoutes
from embereye.hub.http.pages import PageRoutes
from embereye.hub.http.past import PastRoutes
from embereye.hub.http.plans import PlanRoutes
from embereye.hub.http.quality import QualityRoutes
from embereye.hub.http.route import Route, add_routes, declared
from embereye.hub.http.runbooks import RunbookRoutes
from embereye.hub.http.silences import SilenceRoutes
from embereye.hub.http.zones import ZoneRoutes
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.process.http.pages import metrics_pages
from embereye.process.http.server import page_response
from embereye.process.lifecycle import UserError

if TYPE_CHECKING:
    from embereye.hub.oidc.provider import Provider


class Api:
    """All routes: `Api(hub, clips).app(registry)`; without `clips`, the hub stores none."""

    def __init__(
        self,
        hub: Hub,
        clips: ClipStore | None = None,
        hosts: AllowedHosts | None = None,
        provider: "Provider | None" = None,
        bus: EvidenceBus | None = None,
        addons: Sequence[Parts] = (),
        base_path: str = "",
    ) -> None:
        """`base_path` is the path below which browsers see the hub, such as "/fire"; "": the root.

        UserError if it begins like a page of an add-on.
        """
        self._hub = hub
        self.base_path = base_path
        self._hosts = hosts or AllowedHosts()
        oidc = OidcRoutes(hub, provider)
        routes = [*chain.from_iterable(addon.routes for addon in addons)]
        self._parts = (
            PageRoutes([part for part in routes if isinstance(part, ConsoleFiles)]),
            RunbookRoutes(),
            AccessRoutes(hub, oidc.sign_out_url),
            oidc,
            ZoneRoutes(hub, lambda: clips.failing.why if clips is not None else "", lambda: bus.failing if bus else ""),
            FleetRoutes(hub),
            DeviceRoutes(hub),
            CanaryRoutes(hub),
            PastRoutes(hub, clips),
            ExportRoutes(hub, clips),
            QualityRoutes(hub),
            ClipRoutes(hub, clips),
            FeedSocket(hub),
            SubscriptionRoutes(hub),
            WebhookRoutes(hub),
            SilenceRoutes(hub),
            PlanRoutes(hub),
            OverlayRoutes(hub),
            *routes,
        )
        self.schemas = dict(chain.from_iterable(addon.schemas.items() for addon in addons))  # of add-ons, by name
        if base_path and (first := first_segment(base_path)) in {first_segment(route.path) for route in self.routes()}:
            raise UserError(f"the base path {base_path} begins with /{first}, which is a page of an add-on")

    def app(self, registry: CollectorRegistry) -> web.Application:
        """Make the application, with the metrics of `registry`."""
        app, roles, scoped = web.Application(), dict[web.AbstractRoute, Role | None](), set[web.AbstractRoute]()
        for part in (*self._parts, _MachineRoutes(registry, self)):
            added = add_routes(app.router, part, {"", self.base_path})
            roles |= {route: declaration.role for route, declaration in added.items()}
            scoped |= {route for route, declaration in added.items() if declaration.scoped}
        app[BASE] = self.base_path
        if self.base_path:
            for method in ("GET", "HEAD"):
                roles[app.router.add_route(method, self.base_path, _add_slash)] = None
        app.middlewares.extend([error_middleware, guard(self._hosts), authenticate(self._hub.access, roles, scoped)])
        app.on_shutdown.append(self._close_feed)
        return app

    def routes(self) -> Iterable[Route]:
        """List the declarations of all routes."""
        for serving in (*map(type, self._parts), _MachineRoutes):
            yield from declared(serving).values()

    async def _close_feed(self, _: web.Application) -> None:
        self._hub.feed.close()


async def _add_slash(request: web.Request) -> web.Response:
    query = f"?{request.query_string}" if request.query_string else ""
    raise web.HTTPSeeOther(f"{request.app[BASE]}/{query}")


class _MachineRoutes:
    """Serves what only programs read."""

    def __init__(self, registry: CollectorRegistry, api: Api) -> None:
        # /v1/zones and a metric report a failing store; /healthz does not. A hub that watches but cannot write is
        # better than one that is restarted for that, or loses its shards.
        self._pages = metrics_pages(registry)
        self._api = api

    @Route("GET", "/healthz", None, "Check that the hub is alive", {200: file_of("it is", "text/plain")})
    async def _healthz(self, _: web.Request) -> web.Response:
        return page_response(self._pages["/healthz"])

    @Route("GET", "/metrics", Role.VIEWER, "Metrics for Prometheus", {200: file_of("its text format", "text/plain")})
    async def _metrics(self, _: web.Request) -> web.Response:
        return page_response(self._pages["/metrics"])

    @Route(
        "GET", "/v1/openapi.json", Role.VIEWER, "This description", {200: answer("OpenAPI 3.1", NOTHING)}, scoped=True
    )  # fmt: skip
    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(describe(self._api.routes(), self._api.schemas, self._api.base_path))

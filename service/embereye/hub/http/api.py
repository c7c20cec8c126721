"""The hub over HTTP: JSON for programs, a WebSocket of alarm events, and the console for people."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from embereye.hub.actions import Action, UnknownZoneError, check_action
from embereye.hub.clips.store import SUFFIXES, ClipStore, ClipsUnreadError
from embereye.hub.committer import StoreFailingError
from embereye.hub.control.actuators import Actuators
from embereye.hub.coverage.book import Watched
from embereye.hub.database import StoreError
from embereye.hub.evidence_bus import EvidenceBus
from embereye.hub.history import MAX_EVENTS, EventQuery, history_limit
from embereye.hub.http import runbooks
from embereye.hub.http.access.authenticate import PRINCIPAL, authenticate, needed_role
from embereye.hub.http.access.oidc import OidcRoutes
from embereye.hub.http.access.origin import AllowedHosts, guard, is_own_name
from embereye.hub.http.access.routes import OPEN_PATHS, ROLES, AccessRoutes
from embereye.hub.http.feeds.subscriptions import SubscriptionRoutes, selection_of
from embereye.hub.http.feeds.webhooks import WebhookRoutes
from embereye.hub.http.feeds.websocket import FeedSocket
from embereye.hub.http.files import STATIC, file_response
from embereye.hub.http.fleets.actuators import describe_actuators
from embereye.hub.http.fleets.canaries import heartbeats
from embereye.hub.http.fleets.devices import DeviceEntries
from embereye.hub.http.fleets.lists import Facts, Json, SharedList, Source, written
from embereye.hub.http.fleets.routes import FleetRoutes
from embereye.hub.http.openapi.describe import describe
from embereye.hub.http.overlays import OverlayRoutes
from embereye.hub.http.parameters import number_of, read_json, text_of
from embereye.hub.http.past import PastRoutes, listed_clip
from embereye.hub.http.plans import PlanRoutes
from embereye.hub.http.refused import Refused
from embereye.hub.http.replay import GONE, Replays, frame_at, replay
from embereye.hub.http.silences import SilenceRoutes
from embereye.hub.hub import Hub
from embereye.levels import ZoneState
from embereye.process.http.server import metrics_app
from embereye.v1.alarms_pb2 import Zone
from embereye.v1.clips_pb2 import Clip
from embereye.zone.state import NotAllowedError

if TYPE_CHECKING:
    from embereye.hub.oidc.provider import Provider

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DEVICES_SECONDS = 0.5  # a list of devices is shared by all requests of this time
HEARTBEAT_SECONDS = 10.0
MAX_CLIPS = 200  # in one list
CONTENT_TYPES = {
    Clip.MEDIA_CLIP: "video/matroska",
    Clip.MEDIA_STILL: "image/jpeg",
    Clip.MEDIA_VIDEO: "video/mp4",
    Clip.MEDIA_LINES: "application/jsonl",
}
HSTS_SECONDS = 365 * 86_400  # after an HTTPS answer, browsers call this name by HTTPS only, for this time
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def _fields(message: Message) -> Json:
    return json_format.MessageToDict(message)


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into JSON, and add the security headers and a ban on caching to every answer."""
    response: web.StreamResponse
    try:
        response = await handler(request)
    except Refused as refused:
        response = web.json_response({"error": str(refused)}, status=refused.status, headers=refused.headers)
    except (StoreError, ClipsUnreadError) as error:
        response = web.json_response({"error": str(error)}, status=503)
    except web.HTTPRedirection as redirection:
        response = web.Response(status=redirection.status, headers={"Location": redirection.headers["Location"]})
    except web.HTTPException as error:
        sentence = f"{error.status} {error.reason}: {request.path}"
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        response = web.json_response({"error": sentence}, status=error.status, headers=allowed)
    if not response.prepared:
        response.headers.update(SECURITY)
        # Not for this machine's names: all other servers on it would then have to use TLS.
        if request.secure and not is_own_name(request.host):
            response.headers["Strict-Transport-Security"] = f"max-age={HSTS_SECONDS}"
        response.headers.setdefault("Cache-Control", "no-store")
    return response


class Api:
    """All routes: `Api(hub, actuators, clips).app(registry)`; without `clips` there are no routes of clips."""

    def __init__(
        self,
        hub: Hub,
        actuators: Actuators,
        clips: ClipStore | None = None,
        hosts: AllowedHosts | None = None,
        provider: "Provider | None" = None,
        bus: EvidenceBus | None = None,
    ) -> None:
        self._bus = bus
        self._oidc = OidcRoutes(hub, provider)
        self._hosts = hosts or AllowedHosts()
        self._hub = hub
        self._clips = clips
        self._replays = Replays()
        self._actuators = actuators
        self._entries = DeviceEntries(hub)
        self._device_list = SharedList("devices", self._entries.entries, self._entries.fields, period=DEVICES_SECONDS)
        self._listed_zones: list[Zone] = []
        self._zone_list = SharedList("zones", self._zone_entries, self._zones_envelope)

    def app(self, registry: CollectorRegistry) -> web.Application:
        """Make the application, with /metrics and /healthz among its routes."""
        # /v1/zones and a metric report a failing store; /healthz does not. A hub that watches but cannot write is
        # better than one that is restarted for that, or loses its shards.
        app = metrics_app(registry)
        access = authenticate(self._hub.access, OPEN_PATHS, ROLES)
        app.middlewares.extend([_error_middleware, guard(self._hosts), access])
        app.on_shutdown.append(self._close_feed)
        device = "/v1/devices/{namespace}/{kind}/{fleet}/{device}"
        app.add_routes(
            [
                *AccessRoutes(self._hub, self._oidc.sign_out_url).routes(),
                *self._oidc.routes(),
                *SubscriptionRoutes(self._hub).routes(),
                *WebhookRoutes(self._hub).routes(),
                *runbooks.routes(),
                *PastRoutes(self._hub, self._clips).routes(),
                *SilenceRoutes(self._hub).routes(),
                *PlanRoutes(self._hub).routes(),
                *OverlayRoutes(self._hub).routes(),
                *FleetRoutes(self._hub).routes(),
                web.get("/", self._page),
                web.get("/login", self._login),
                web.get("/static/{name}", self._static),
                web.get("/v1/openapi.json", self._describe),
                web.get("/v1/zones", self._zones),
                web.post("/v1/zones/{namespace}/{zone}/{action:acknowledge|reset|test}", self._act),
                web.get("/v1/devices", self._devices),
                web.get("/v1/canaries", self._canaries),
                web.get(f"{device}/snapshot.jpg", self._device_snapshot),
                web.get(f"{device}/thermal", self._device_thermal),
                web.get("/v1/snapshot/{device}.jpg", self._snapshot),
                web.get("/v1/alarms/{alarm}/{device}/{kind:[0-9][0-9]?}.jpg", self._alarm_picture),
                web.get("/v1/alarms/{alarm}/clips", self._alarm_clips),
                web.get("/v1/clips/{name:[0-9a-f]{64}}.{form:mkv|jpg|mp4|jsonl}", self._clip),
                web.get("/v1/clips/{name:[0-9a-f]{64}}.mjpg", self._replay, allow_head=False),
                web.get("/v1/clips/{name:[0-9a-f]{64}}/frame.jpg", self._frame),
                web.get("/v1/history", self._history),
                web.get("/v1/actuators", self._list_actuators),
                web.get("/v1/alarms/ws", FeedSocket(self._hub).serve),
            ]
        )
        return app

    # The console

    @staticmethod
    async def _page(_: web.Request) -> web.Response:
        return file_response("index.html", "text/html")

    @staticmethod
    async def _login(_: web.Request) -> web.Response:
        return file_response("login.html", "text/html")

    @staticmethod
    async def _static(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in STATIC:
            raise web.HTTPNotFound
        return file_response(name, STATIC[name])

    @staticmethod
    def description() -> Json:
        """Describe all routes as OpenAPI."""
        return describe(lambda method, path: needed_role(method, path, OPEN_PATHS, ROLES))

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(self.description())

    # The present state

    async def _canaries(self, _: web.Request) -> web.Response:
        return web.json_response(heartbeats(self._hub))

    async def _zones(self, request: web.Request) -> web.Response:
        return await self._zone_list.answer(request)

    def _zone_entries(self) -> Iterator[Source]:
        self._listed_zones = self._hub.zones.messages()
        for zone in self._listed_zones:
            key = f"{zone.namespace}/{zone.name}"
            yield Source(key, partial(_fields, zone), Facts(ZoneState(zone.state).severity, key.lower()))

    def _zones_envelope(self) -> Json:
        zones = self._listed_zones
        return {
            "cursor": str(self._hub.feed.latest),
            "timeNs": str(time.time_ns()),
            "declared": sum(zone.declared for zone in zones),
            "covered": sum(zone.covered for zone in zones),
            "failing": self._hub.committer.failing,
            "databaseLoss": self._hub.database_loss,
            "clipsFailing": self._clips.failing.why if self._clips is not None else "",
            "busFailing": self._bus.failing if self._bus else "",
            "openFleets": sorted(name for name, fleet in self._hub.coverage.book.fleets.items() if fleet.open),
        }

    async def _devices(self, request: web.Request) -> web.Response:
        return await self._device_list.answer(request)

    def _find(self, request: web.Request) -> Watched:
        names = request.match_info
        fleet = f"{names['namespace']}/{names['kind']}/{names['fleet']}"
        declared = self._hub.coverage.book.find(fleet, names["device"])
        watched = declared[1] if declared else self._hub.coverage.book.undeclared_device(fleet, names["device"])
        if watched is None:
            raise Refused(404, f"{fleet} declares no device {names['device']}")
        return watched

    async def _device_snapshot(self, request: web.Request) -> web.Response:
        return _jpeg(self._find(request).picture)

    async def _snapshot(self, request: web.Request) -> web.Response:
        for _, watched in self._hub.coverage.book.devices():
            if watched.device.id == request.match_info["device"] and watched.picture:
                return _jpeg(watched.picture)
        return _jpeg(b"")

    async def _device_thermal(self, request: web.Request) -> web.Response:
        watched = self._find(request)
        if watched.thermal is None:
            raise Refused(404, f"there is no thermal picture of {watched.device.id}")
        return web.json_response(
            {
                "celsius": [round(value, 1) if math.isfinite(value) else None for value in watched.thermal.celsius],
                "relative": watched.thermal.relative,
                "timeNs": self._entries.label(watched.thermal_ns),
            }
        )

    async def _alarm_picture(self, request: web.Request) -> web.Response:
        names = request.match_info
        return _jpeg(await self._hub.history.picture(names["alarm"], names["device"], int(names["kind"])) or b"")

    async def _alarm_clips(self, request: web.Request) -> web.Response:
        """List the newest first, each with the addresses of its content and of a form that browsers can show."""
        episodes = await self._hub.history.episodes(request.match_info["alarm"])
        clips = await self._clips.of_episodes(episodes) if self._clips is not None else []
        pictures = [clip for clip in clips if clip.media != Clip.MEDIA_LINES][:MAX_CLIPS]
        lines = [clip for clip in clips if clip.media == Clip.MEDIA_LINES][:MAX_CLIPS]
        return web.json_response(
            {"clips": [listed_clip(clip) for clip in pictures], "lines": [listed_clip(clip) for clip in lines]}
        )

    async def _known_clip(self, request: web.Request) -> Clip:
        clip = await self._clips.find(request.match_info["name"]) if self._clips is not None else None
        if clip is None or request.match_info.get("form", SUFFIXES[clip.media]) != SUFFIXES[clip.media]:
            raise Refused(404, "there is no such clip: it is too old, or still at the shard that recorded it")
        return clip

    async def _clip(self, request: web.Request) -> web.StreamResponse:
        assert self._clips is not None
        clip = await self._known_clip(request)
        path = self._clips.path(clip)
        if not await asyncio.to_thread(path.is_file):
            raise Refused(404, GONE)
        # The name is a digest of the content, so the content never changes. It may still be deleted for its age.
        headers = {"Cache-Control": "private, max-age=3600", **SECURITY}
        headers["Content-Type"] = CONTENT_TYPES[clip.media]
        if clip.media != Clip.MEDIA_STILL:
            started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(clip.from_ns / 1e9))
            name = f"{_plain(clip.device)}-{started}.{SUFFIXES[clip.media]}"
            headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return web.FileResponse(path, headers=headers)

    async def _replay(self, request: web.Request) -> web.StreamResponse:
        """Play a clip's frames at their pace, several times: browsers cannot play Motion JPEG in Matroska."""
        assert self._clips is not None
        clip = await self._known_clip(request)
        if clip.media != Clip.MEDIA_CLIP:
            raise Refused(404, "this clip is not Motion JPEG: show it directly")
        with self._replays.enter(request.remote or "", clip.bytes):
            return await replay(request, self._clips.path(clip), SECURITY)

    async def _list_actuators(self, _: web.Request) -> web.Response:
        return web.json_response({"actuators": describe_actuators(self._actuators)})

    async def _frame(self, request: web.Request) -> web.StreamResponse:
        """Send one frame of a clip: the last at or before a time, else its first."""
        assert self._clips is not None
        clip, at_ns = await self._known_clip(request), number_of(request, "at", 0)
        if clip.media != Clip.MEDIA_CLIP:
            raise Refused(404, "this clip is not Motion JPEG: show it directly")
        with self._replays.enter(request.remote or "", clip.bytes):
            jpeg = await frame_at(self._clips.path(clip), at_ns)
        return web.Response(
            body=jpeg, content_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600", **SECURITY}
        )

    # History

    async def _history(self, request: web.Request) -> web.Response:
        latest = self._hub.feed.latest
        names = ("newest", "after", "before", "limit", "since", "until")
        newest, after, before, limit, since, until = (number_of(request, name, 0) for name in names)
        page = await self._hub.history.search(
            EventQuery(
                selection_of(request, self._hub.subscriptions), after, before, since, until,
                bool(newest), min(newest, MAX_EVENTS) if newest else history_limit(limit),
            )
        )  # fmt: skip
        more = {"next": str(page.next)} if page.next else {}
        return await written("events", map(_fields, page.events), {"latest": str(latest), **more})

    # Actions

    async def _act(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        who, note = text_of(body, "who"), text_of(body, "note")
        if problem := check_action(who, note):
            raise Refused(400, problem)
        names = request.match_info
        try:
            event = await self._hub.actions.perform(
                Action(names["action"]), request[PRINCIPAL], names["namespace"], names["zone"], who, note
            )
        except UnknownZoneError as error:
            raise Refused(404, str(error)) from error
        except NotAllowedError as error:
            raise Refused(409, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(_fields(event))

    async def _close_feed(self, _: web.Application) -> None:
        self._hub.feed.close()


def _plain(name: str) -> str:
    """Make `name` safe as a part of a file's name."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name)


def _jpeg(picture: bytes) -> web.Response:
    if not picture:
        raise Refused(404, "there is no such picture")
    return web.Response(body=picture, content_type="image/jpeg")

"""Routes of zones: their list, and people's actions on them.

One `SharedList` serves the list to all requests; its other fields, such as the feed's cursor, are of the same moment,
so a client can follow the feed from there. Actions go to `Actions` and are answered with their event, once it is
durable.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.actions import Action
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.lists import TAKES, Facts, SharedList, Source
from embereye.hub.http.openapi.parts import CHANGES, EVENT, WHO, Json, answer, json_body, record, reference
from embereye.hub.http.parameters import read_json, text_of
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role, Scope
from embereye.levels import ZoneState
from embereye.process.timing.zone import zone_name
from embereye.v1.alarms_pb2 import Zone


class ZoneRoutes:
    """Serves zones."""

    def __init__(self, hub: Hub, clips_failing: Callable[[], str], bus_failing: Callable[[], str]) -> None:
        """The last two say why clips cannot be stored, and why the bus accepts nothing; '': they can, and it does."""
        self._hub = hub
        self._clips_failing = clips_failing
        self._bus_failing = bus_failing
        self._listed: list[Zone] = []
        self._list = SharedList("zones", self._entries, self._envelope, scoped_fields=self._scoped_fields)

    @Route(
        "GET", "/v1/zones", Role.VIEWER, "All zones, with their open alarms",
        {200: answer("the most urgent first", reference("Zones"))},
        takes=TAKES,
        fails=[400],
        scoped=True,
    )  # fmt: skip
    async def _zones(self, request: web.Request) -> web.Response:
        return await self._list.answer(request)

    def _entries(self) -> Iterator[Source]:
        self._listed = self._hub.zones.messages()
        for zone in self._listed:
            key = f"{zone.namespace}/{zone.name}"
            make = partial(json_format.MessageToDict, zone)
            severity = ZoneState(zone.state).severity
            yield Source(key, make, Facts(severity, key.lower(), severity=severity, zone=key))

    def _envelope(self) -> Json:
        return {
            "cursor": str(self._hub.feed.latest),
            "timeNs": str(time.time_ns()),
            "timeZone": zone_name(),
            "declared": sum(zone.declared for zone in self._listed),
            "covered": sum(zone.covered for zone in self._listed),
            "failing": self._hub.committer.failing,
            "databaseLoss": self._hub.database_loss,
            "clipsFailing": self._clips_failing(),
            "busFailing": self._bus_failing(),
            "openFleets": sorted(name for name, fleet in self._hub.coverage.book.fleets.items() if fleet.open),
        }

    def _scoped_fields(self, scope: Scope) -> Json:
        listed = [zone for zone in self._listed if scope.has_zone(zone.namespace, zone.name)]
        counts = {"declared": sum(zone.declared for zone in listed), "covered": sum(zone.covered for zone in listed)}
        return {**counts, "openFleets": []}

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/{action:acknowledge|escalate|reset|test}", Role.OPERATOR,
        "Acknowledge an alarm, notify people of it again, reset an acknowledged one, start or end a test",
        EVENT,
        fails=(*CHANGES, 404, 409, 503),
        body=json_body(record({}, who=WHO, note={"type": "string", "maxLength": 2000})),
        scoped=True,
    )  # fmt: skip
    async def _act(self, request: web.Request) -> web.Response:
        body, names, caller = await read_json(request), request.match_info, request[PRINCIPAL]
        who, note = text_of(body, "who"), text_of(body, "note")
        caller.check_zone(names["namespace"], names["zone"])
        event = await self._hub.actions.perform(
            Action(names["action"]), caller, names["namespace"], names["zone"], who, note
        )
        return web.json_response(json_format.MessageToDict(event))

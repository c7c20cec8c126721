"""Routes of silences.

`Silences` owns them and makes each change durable; a route checks its request and turns errors into statuses. The
answer to a change is the zone's event, once it is durable.
"""

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import CHANGES, EVENT, REASON, WHO, answer, json_body, list_of, record, reference
from embereye.hub.http.parameters import read_json, text_of, whole_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role
from embereye.hub.silences import MAX_MINUTES
from embereye.v1.alarms_pb2 import Silence


class SilenceRoutes(HubRoutes):
    """Serves silences."""

    @Route(
        "GET", "/v1/silences", Role.VIEWER, "Present silences",
        {200: answer("the one that ends first comes first", record({"silences": list_of(reference("Silence"))}))},
        scoped=True,
    )  # fmt: skip
    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"silences": [json_format.MessageToDict(silence) for silence in self._seen(request)]})

    def _seen(self, request: web.Request) -> list[Silence]:
        """The silences of the caller's zones."""
        scope, silences = request[PRINCIPAL].scope, self._hub.silences.all(self._hub.timeline.stepped_ns())
        return [silence for silence in silences if scope.has_zone(silence.namespace, silence.zone)]

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/silences", Role.OPERATOR,
        "Pause notifications for faults, pre-alarms and updates to the current alarm, of a zone or a device in it; "
        "replaces an older silence of the same. New alarms still notify",
        EVENT,
        fails=(*CHANGES, 404, 409, 503),
        body=json_body(
            record(
                {"reason": REASON, "minutes": {"type": "integer", "minimum": 1, "maximum": MAX_MINUTES}},
                device={"type": "string", "description": "id of a device in the zone; empty: the whole zone"},
                who=WHO,
            )
        ),
        scoped=True,
    )  # fmt: skip
    async def _begin(self, request: web.Request) -> web.Response:
        body, names, caller = await read_json(request), request.match_info, request[PRINCIPAL]
        who, reason, device = (text_of(body, name) for name in ("who", "reason", "device"))
        minutes = whole_of(body, "minutes")
        caller.check_zone(names["namespace"], names["zone"])
        event = await self._hub.silences.begin(
            caller, names["namespace"], names["zone"], reason=reason, minutes=minutes, device=device, who=who
        )
        return web.json_response(json_format.MessageToDict(event))

    @Route(
        "DELETE", "/v1/silences/{silence:[0-9a-f]{16}}", Role.OPERATOR, "End a silence early", EVENT, fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _end(self, request: web.Request) -> web.Response:
        name, scope = request.match_info["silence"], request[PRINCIPAL].scope
        if scope.is_limited and name not in {silence.id for silence in self._seen(request)}:
            raise Refused(404, f"there is no silence {name}")
        event = await self._hub.silences.end(request[PRINCIPAL], name)
        return web.json_response(json_format.MessageToDict(event))

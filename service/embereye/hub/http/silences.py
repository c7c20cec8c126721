"""Routes of silences."""

import json
from typing import Any

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.actions import check_action
from embereye.hub.committer import StoreFailingError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.parameters import read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
from embereye.hub.silences import TooManySilencesError, UnknownSilenceError


class SilenceRoutes:
    """Serves silences: `routes()`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[web.RouteDef]:
        """List all routes of silences."""
        return [
            web.get("/v1/silences", self._list),
            web.post("/v1/zones/{namespace}/{zone}/silences", self._begin),
            web.delete("/v1/silences/{silence:[0-9a-f]{16}}", self._end),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        silences = self._hub.silences.all(self._hub.timeline.stepped_ns())
        return web.json_response({"silences": [json_format.MessageToDict(silence) for silence in silences]})

    async def _begin(self, request: web.Request) -> web.Response:
        body, names = await read_json(request), request.match_info
        who, reason, device = (text_of(body, name) for name in ("who", "reason", "device"))
        if problem := check_action(who, reason, "reason"):
            raise Refused(400, problem)
        try:
            event = await self._hub.silences.begin(
                request[PRINCIPAL], names["namespace"], names["zone"], reason=reason, minutes=_minutes(body),
                device=device, who=who,
            )  # fmt: skip
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except UnknownSilenceError as error:
            raise Refused(404, str(error)) from error
        except TooManySilencesError as error:
            raise Refused(409, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(json_format.MessageToDict(event))

    async def _end(self, request: web.Request) -> web.Response:
        try:
            event = await self._hub.silences.end(request[PRINCIPAL], request.match_info["silence"])
        except UnknownSilenceError as error:
            raise Refused(404, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(json_format.MessageToDict(event))


def _minutes(body: dict[str, Any]) -> int:
    minutes = body.get("minutes")
    # JSON Schema counts 5.0 as an integer, and so does this.
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes != minutes // 1:
        raise Refused(400, f"minutes: {json.dumps(minutes)[:80]} is not a whole number")
    return int(minutes)

"""The heartbeat of every shard: the time of its latest canary's alarm, and whether one is overdue."""

from aiohttp import web

from embereye.hub.canaries import Heartbeat
from embereye.hub.http.openapi.parts import Json, answer, list_of, record, reference
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role
from embereye.units import SECOND


class CanaryRoutes(HubRoutes):
    """Serves the heartbeats; times in seconds, and in seconds since the Unix epoch."""

    @Route(
        "GET", "/v1/canaries", Role.VIEWER, "The heartbeat of every shard",
        {200: answer("by shard", record({"canaries": list_of(reference("Heartbeat"))}))},
    )  # fmt: skip
    async def _heartbeats(self, _: web.Request) -> web.Response:
        beats = self._hub.canaries.heartbeats(self._hub.timeline.stepped_ns())
        return web.json_response({"canaries": [_listed(beat) for beat in beats]})


def _listed(beat: Heartbeat) -> Json:
    namespace, kind, fleet = [*beat.key.fleet.split("/"), "", ""][:3]
    return {
        "namespace": namespace,
        "kind": kind,
        "fleet": fleet,
        "shard": beat.key.shard,
        "interval": beat.interval_ns / SECOND,
        "within": beat.within_ns / SECOND,
        "alarmed": beat.latest.alarmed_ns / SECOND if beat.latest else None,
        "delay": beat.latest.delay_ns / SECOND if beat.latest else None,
        "overdue": beat.overdue,
    }

"""Fleets over HTTP: what is watched, how busy their shards are, how many they need and why."""

import math
from datetime import datetime

from aiohttp import web

from embereye.hub.coverage.book import Fleet
from embereye.hub.http.fleets.lists import Json
from embereye.hub.hub import Hub
from embereye.hub.scaling import ToldScaling
from embereye.units import SECOND
from embereye.v1.roster_pb2 import ScaleChange, ShardLoad
from embereye.v1.shard_pb2 import Load


class FleetRoutes:
    """Routes of fleets: `routes()`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [web.get("/v1/fleets", self._list)]

    async def _list(self, _: web.Request) -> web.Response:
        fleets = self._hub.coverage.book.fleets
        return web.json_response({"fleets": [self._listed(fleets[name]) for name in sorted(fleets)]})

    def _listed(self, fleet: Fleet) -> Json:
        told, shards, covered = self._hub.scaling.find(fleet.name), dict[str, list[int]](), 0
        for watched in fleet.devices.values():
            good = not self._hub.coverage.darkness(fleet, watched)
            covered += good
            for shard, sighting in watched.sightings.items():
                counts = shards.setdefault(shard, [0, 0])
                counts[0] += 1
                counts[1] += sighting.status.covered
        members = {one.shard: one for one in told.scaling.members} if told else dict[str, ShardLoad]()
        entry: Json = {
            "fleet": fleet.name,
            "declared": len(fleet.devices),
            "covered": covered,
            "shards": [
                {
                    "name": shard,
                    "state": (members[shard].why_not_ready or "ready") if shard in members else "reports",
                    "devices": shards.get(shard, [0, 0])[0],
                    "covered": shards.get(shard, [0, 0])[1],
                    **_loads(members.get(shard)),
                }
                for shard in sorted({*shards, *members})
            ],
        }
        return {**entry, "scaling": _scaling(told)} if told else entry


def _loads(member: ShardLoad | None) -> Json:
    return {"load": _load(member.load)} if member is not None and member.HasField("load") else {}


def _scaling(told: ToldScaling) -> Json:
    scaling = told.scaling
    entry: Json = {
        "timeNs": str(told.time_ns),
        "mode": scaling.mode,
        "minShards": scaling.min_shards,
        "maxShards": scaling.max_shards,
        "shards": scaling.shards,
        "readyShards": scaling.ready_shards,
        "known": scaling.known,
        "requiredShards": scaling.required_shards,
        "reason": scaling.reason,
    }
    if scaling.HasField("load"):
        entry["load"] = _load(scaling.load)
    if scaling.HasField("last"):
        entry["last"] = _change(scaling.last)
    return entry


def _load(load: Load) -> Json:
    return {
        "arrivalRate": _number(load.arrival_rate),
        "utilization": _number(load.utilization),
        "queueDepth": load.queue_depth,
        "oldestAge": load.oldest_age_ns / SECOND,
    }


def _number(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _change(change: ScaleChange) -> Json:
    try:
        time_ns = int(datetime.fromisoformat(change.time).timestamp()) * SECOND
    except ValueError:
        time_ns = 0
    return {"timeNs": str(time_ns), "before": change.before, "after": change.after, "reason": change.reason}

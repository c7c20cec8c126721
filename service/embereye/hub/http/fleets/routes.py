"""Routes of fleets: their coverage, the load of their shards, and the number of shards they need.

The coverage book has each fleet's devices and the shards that report them; `scaling` has the operator's latest report.
One `SharedList` serves all requests. It calls `_sources`, which counts every fleet at one moment, and makes the entries
from these counts later.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from aiohttp import web

from embereye.hub.coverage.book import Fleet
from embereye.hub.http.fleets.lists import TAKES, Facts, SharedList, Source
from embereye.hub.http.openapi.parts import NEXT, Json, answer, fields_of, list_of, record, reference, whole
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.hub.scaling import ReportedScaling
from embereye.units import SECOND
from embereye.v1.roster_pb2 import ScaleChange, ShardLoad
from embereye.v1.shard_pb2 import Load


@dataclass(frozen=True)
class _Counted:
    """Counts of a fleet's devices."""

    covered: int
    shards: Mapping[str, Sequence[int]]  # per reporting shard: its devices, and those of them that it covers


class FleetRoutes:
    """Serves fleets."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._list = SharedList("fleets", self._sources, dict)

    @Route(
        "GET", "/v1/fleets", Role.VIEWER,
        "Fleets: their coverage, the load of their shards, and the number of shards they need",
        {
            200: answer(
                "by name, or in the requested order",
                record({"fleets": list_of(reference("Fleet"))}, next=NEXT, total=whole()),
            )
        },
        takes=TAKES,
        fails=[400],
    )  # fmt: skip
    async def _fleets(self, request: web.Request) -> web.Response:
        return await self._list.answer(request)

    def _sources(self) -> Iterator[Source]:
        """Yield the source of each fleet's entry. Dark devices are the most urgent, then unready shards."""
        for name, fleet in sorted(self._hub.coverage.book.fleets.items()):
            report, counted = self._hub.coverage.scaling.find(name), self._count(fleet)
            members = {load.shard: load for load in report.scaling.members} if report else dict[str, ShardLoad]()
            dark = len(fleet.devices) - counted.covered
            waiting = [load.why_not_ready for load in members.values() if load.why_not_ready]
            words = (name, report.scaling.reason if report else "", *waiting, "dark" * bool(dark))
            facts = Facts(10 * bool(dark) + bool(waiting), " ".join(words).lower())
            yield Source(name, partial(_listed, fleet, counted, report, members), facts)

    def _count(self, fleet: Fleet) -> _Counted:
        shards, covered = dict[str, list[int]](), 0
        for watched in fleet.devices.values():
            covered += not self._hub.coverage.darkness(fleet, watched)
            for shard, sighting in watched.sightings.items():
                counts = shards.setdefault(shard, [0, 0])
                counts[0] += 1
                counts[1] += sighting.status.covered
        return _Counted(covered, shards)


def _listed(fleet: Fleet, counted: _Counted, report: ReportedScaling | None, members: Mapping[str, ShardLoad]) -> Json:
    entry: Json = {
        "fleet": fleet.name,
        "declared": len(fleet.devices),
        "covered": counted.covered,
        "shards": [
            {
                "name": shard,
                "state": (members[shard].why_not_ready or "ready") if shard in members else "reports",
                "devices": counted.shards.get(shard, (0, 0))[0],
                "covered": counted.shards.get(shard, (0, 0))[1],
                **_loads(members.get(shard)),
            }
            for shard in sorted({*counted.shards, *members})
        ],
    }
    return {**entry, "scaling": _scaling(report)} if report else entry


def _loads(member: ShardLoad | None) -> Json:
    return {"load": _load(member.load)} if member is not None and member.HasField("load") else {}


def _scaling(report: ReportedScaling) -> Json:
    scaling = report.scaling
    entry: Json = {
        "timeNs": str(report.time_ns),
        **fields_of(scaling, "mode", "min_shards", "max_shards", "shards", "ready_shards", "known", "required_shards"),
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

"""Routes of the past: events, alarms, a day's timeline; and marks of false alarms.

`History` reads the database on a separate thread, so even a long search delays no alarm. Pages continue at a cursor.
The timeline is computed in a thread from the events of its span, and from some later ones, which end what was open at
its end.

A mark is stored by `FalseAlarms` and answered once it is durable.
"""

import asyncio
import time
from dataclasses import replace
from functools import partial

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.clips.store import ClipStore
from embereye.hub.history import MAX_EVENTS, EventQuery, history_limit
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.clips import check_alarm, find_alarm, is_clip_in, listed_clip
from embereye.hub.http.feeds.subscriptions import TAKES, selection_of
from embereye.hub.http.fleets.lists import written
from embereye.hub.http.openapi.parts import (
    CHANGES,
    CURSOR,
    EVENT,
    NEXT,
    REASON,
    WHO,
    WORD,
    Json,
    answer,
    fields_of,
    json_body,
    list_of,
    query,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import number_of, read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role, Scope
from embereye.hub.tables.alarms import CATEGORIES, AlarmQuery
from embereye.hub.tables.events import ENDLESS
from embereye.units import DAY
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm
from embereye.v1.clips_pb2 import Clip
from embereye.zone.timeline import Lane, PastAlarm, Timeline

MAX_ALARMS = 1_000  # in one answer
DEFAULT_ALARMS = 100
MAX_SPAN_NS = 8 * DAY  # of one timeline
MAX_TIMELINE_EVENTS = 20_000  # of one timeline; later events are reported as missing
LATER_EVENTS = 2_000  # read after its end, to find the ends of what was still open
MAX_TIMELINE_CLIPS = 2_000
ALARM = "/v1/alarms/{alarm:[0-9a-f]{16}}"
TIME = "nanoseconds since the Unix epoch"


class PastRoutes:
    """Serves the past."""

    def __init__(self, hub: Hub, clips: ClipStore | None) -> None:
        self._hub = hub
        self._clips = clips

    @Route(
        "GET", "/v1/history", Role.VIEWER, "Past events, ascending",
        {
            200: answer(
                "a page, the newest cursor, and `next`: the `after` of the next page or, with `newest`, its `before`; "
                "missing: there is none",
                record({"events": list_of(reference("AlarmEvent")), "latest": CURSOR}, next=CURSOR),
            )
        },
        takes=[
            query("after", whole(), "cursor of the last known event"),
            query("before", whole(), "only events before this cursor; 0: all"),
            query("since", whole(), f"only events from this time on, {TIME}"),
            query("until", whole(), f"only events before this time, {TIME}; 0: all"),
            query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
            query("newest", whole(), "instead of `limit`: number of the newest events"),
            *TAKES,
        ],
        fails=(400, 404, 503),
        scoped=True,
    )  # fmt: skip
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
        return await written("events", map(json_format.MessageToDict, page.events), {"latest": str(latest), **more})

    # Alarms

    @Route(
        "GET", "/v1/alarms", Role.VIEWER, "Past and open alarms",
        {200: answer("newest first", record({"alarms": list_of(reference("PastAlarm"))}, next=NEXT))},
        takes=[
            query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
            query("before", whole(), "continue after a page: its `next`"),
            query("from", whole(), f"only alarms that ended later or are open: {TIME}"),
            query("until", whole(), f"only alarms that started earlier: {TIME}; 0: all"),
            query("zone", WORD, "ZONE or NAMESPACE/ZONE; empty: all"),
            query("of", {"type": "string", "enum": list(CATEGORIES)}, "only of this sort; empty: all"),
        ],
        fails=(400, 503),
        scoped=True,
    )  # fmt: skip
    async def _alarms(self, request: web.Request) -> web.Response:
        category = request.query.get("of", "")
        if category not in CATEGORIES:
            raise Refused(400, f'of: "{category[:50]}" is not one of {", ".join(filter(None, CATEGORIES))}')
        limit = min(number_of(request, "limit", 0) or DEFAULT_ALARMS, MAX_ALARMS)
        wanted = AlarmQuery(
            limit=limit + 1,
            before=number_of(request, "before", 0),
            from_ns=number_of(request, "from", 0),
            until_ns=number_of(request, "until", 0),
            zone=request.query.get("zone", ""),
            category=category,
        )
        alarms = await self._alarms_in(request[PRINCIPAL].scope, wanted)
        body: Json = {"alarms": [self._listed(alarm) for alarm in alarms[:limit]]}
        if len(alarms) > limit:
            body["next"] = str(alarms[limit - 1].first)
        return web.json_response(body)

    async def _alarms_in(self, scope: Scope, wanted: AlarmQuery) -> list[PastAlarm]:
        """Search for alarms of the zones in `scope`, page by page until enough are known."""
        alarms = await self._hub.history.alarms(wanted)
        if not scope.is_limited:
            return alarms
        chosen = list[PastAlarm]()
        while alarms:
            chosen += [alarm for alarm in alarms if scope.has_zone(alarm.namespace, alarm.zone)]
            if len(chosen) >= wanted.limit or len(alarms) < wanted.limit:
                break
            alarms = await self._hub.history.alarms(replace(wanted, before=alarms[-1].first))
        return chosen[: wanted.limit]

    def _listed(self, alarm: PastAlarm) -> Json:
        entry = fields_of(alarm, "alarm", "namespace", "zone", "began_ns", "ended_ns", "why")
        entry["worst"] = f"ZONE_STATE_{alarm.worst.name}"
        if mark := self._hub.false_alarms.find(alarm.alarm):
            entry["falseAlarm"] = json_format.MessageToDict(mark)
        return entry

    @Route(
        "GET", ALARM, Role.VIEWER, "One alarm with all its events",
        {200: answer("the alarm", reference("ExplainedAlarm"))},
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _alarm(self, request: web.Request) -> web.Response:
        name = request.match_info["alarm"]
        alarm, events = await find_alarm(self._hub, request), await self._hub.history.alarm_events(name)
        return await written("events", map(json_format.MessageToDict, events), self._listed(alarm))

    @Route(
        "POST", f"{ALARM}/false", Role.OPERATOR,
        "Mark an alarm as false: similar detections raise a pre-alarm only, unless stronger or confirmed",
        EVENT,
        fails=(*CHANGES, 404, 409, 503),
        body=json_body(record({"reason": REASON}, who=WHO)),
        scoped=True,
    )  # fmt: skip
    async def _mark_false(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        who, reason = text_of(body, "who"), text_of(body, "reason")
        await check_alarm(self._hub, request)
        event = await self._hub.false_alarms.mark(request[PRINCIPAL], request.match_info["alarm"], reason, who)
        return web.json_response(json_format.MessageToDict(event))

    @Route(
        "DELETE", f"{ALARM}/false", Role.OPERATOR, "Remove the mark of a false alarm", EVENT, fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _remove_mark(self, request: web.Request) -> web.Response:
        await check_alarm(self._hub, request)
        event = await self._hub.false_alarms.take_back(request[PRINCIPAL], request.match_info["alarm"])
        return web.json_response(json_format.MessageToDict(event))

    @Route(
        "GET", "/v1/false-alarms", Role.VIEWER, "Alarms that are marked as false",
        {200: answer("newest first", record({"falseAlarms": list_of(reference("FalseAlarm"))}))},
        scoped=True,
    )  # fmt: skip
    async def _false_alarms(self, request: web.Request) -> web.Response:
        scope, marks = request[PRINCIPAL].scope, list[FalseAlarm](self._hub.false_alarms.all())
        listed = [json_format.MessageToDict(mark) for mark in marks if scope.has_zone(mark.namespace, mark.zone)]
        return web.json_response({"falseAlarms": listed})

    # A span of time

    @Route(
        "GET", "/v1/timeline", Role.VIEWER, "The events of a span of time by zone, and its clips",
        {200: answer("zones in order of their names", reference("Timeline"))},
        takes=[
            query("from", whole(), f"{TIME}; missing: a day before `until`; at most 8 days before it"),
            query("until", whole(), f"{TIME}; 0: now"),
        ],
        fails=(400, 503),
        scoped=True,
    )  # fmt: skip
    async def _timeline(self, request: web.Request) -> web.Response:
        until_ns = number_of(request, "until", 0) or time.time_ns()
        from_ns = min(max(number_of(request, "from", until_ns - DAY), until_ns - MAX_SPAN_NS), until_ns)
        history, scope = self._hub.history, request[PRINCIPAL].scope
        events = await history.events_between(from_ns, until_ns, MAX_TIMELINE_EVENTS + 1)
        later = await history.events_between(until_ns, ENDLESS, LATER_EVENTS)
        alarms = await history.alarms(AlarmQuery(limit=MAX_ALARMS, from_ns=from_ns, until_ns=until_ns))
        faults = {(zone.namespace, zone.name): list(zone.faults) for zone in self._hub.zones.messages()}
        timeline = Timeline(from_ns, until_ns)
        lanes = await asyncio.to_thread(partial(_lanes, timeline, [*events[:MAX_TIMELINE_EVENTS], *later]))
        body = {
            "fromNs": str(from_ns),
            "untilNs": str(until_ns),
            "zones": [_lane(key, lane) for key, lane in lanes.lanes(alarms, faults).items() if scope.has_zone(*key)],
            "clips": await self._clips_between(scope, from_ns, until_ns),
            "truncated": len(events) > MAX_TIMELINE_EVENTS,
        }
        return web.json_response(body)

    async def _clips_between(self, scope: Scope, from_ns: int, until_ns: int) -> list[Json]:
        clips = await self._clips.between(from_ns, until_ns) if self._clips is not None else []
        clips = [clip for clip in clips if clip.media != Clip.MEDIA_LINES and is_clip_in(scope, clip)]
        clips = clips[:MAX_TIMELINE_CLIPS]
        return [{**listed_clip(clip), "namespace": clip.fleet.partition("/")[0]} for clip in clips]


def _lanes(timeline: Timeline, events: list[AlarmEvent]) -> Timeline:
    for event in events:
        timeline.add(event)
    return timeline


def _lane(key: tuple[str, str], lane: Lane) -> Json:
    return {
        "namespace": key[0],
        "zone": key[1],
        "states": [
            {"state": f"ZONE_STATE_{span.state.name}", **fields_of(span, "alarm", "from_ns", "until_ns", "why")}
            for span in lane.states
        ],
        "dark": [fields_of(span, "device", "reason", "from_ns", "until_ns") for span in lane.dark],
    }

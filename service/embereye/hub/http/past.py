"""Routes of the past: alarms, a day's timeline, single frames of clips; and marks of false alarms."""

import asyncio
import time
from functools import partial

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.actions import check_action
from embereye.hub.clips.store import SUFFIXES, ClipStore
from embereye.hub.committer import StoreFailingError
from embereye.hub.false_alarms import NotMarkedError, UnknownAlarmError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.lists import Json, written
from embereye.hub.http.parameters import number_of, read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
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
ALARM = "{alarm:[0-9a-f]{16}}"


def listed_clip(clip: Clip) -> Json:
    """List a clip with the addresses of its content and of a form that browsers can show."""
    address = f"/v1/clips/{clip.sha256}.{SUFFIXES[clip.media]}"
    return {**json_format.MessageToDict(clip), "url": address, "view": address.replace(".mkv", ".mjpg")}


class PastRoutes:
    """Serves the past: `routes()`."""

    def __init__(self, hub: Hub, clips: ClipStore | None) -> None:
        self._hub = hub
        self._clips = clips

    def routes(self) -> list[web.RouteDef]:
        """List all routes of the past."""
        return [
            web.get("/v1/alarms", self._alarms),
            web.get(f"/v1/alarms/{ALARM}", self._alarm),
            web.post(f"/v1/alarms/{ALARM}/false", self._mark_false),
            web.delete(f"/v1/alarms/{ALARM}/false", self._remove_mark),
            web.get("/v1/false-alarms", self._false_alarms),
            web.get("/v1/timeline", self._timeline),
        ]

    # Alarms

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
        alarms = await self._hub.history.alarms(wanted)
        body: Json = {"alarms": [self._listed(alarm) for alarm in alarms[:limit]]}
        if len(alarms) > limit:
            body["next"] = str(alarms[limit - 1].first)
        return web.json_response(body)

    def _listed(self, alarm: PastAlarm) -> Json:
        entry: Json = {
            "alarm": alarm.alarm,
            "namespace": alarm.namespace,
            "zone": alarm.zone,
            "beganNs": str(alarm.began_ns),
            "endedNs": str(alarm.ended_ns),
            "worst": f"ZONE_STATE_{alarm.worst.name}",
            "why": alarm.why,
        }
        if mark := self._hub.false_alarms.find(alarm.alarm):
            entry["falseAlarm"] = json_format.MessageToDict(mark)
        return entry

    async def _alarm(self, request: web.Request) -> web.Response:
        name = request.match_info["alarm"]
        alarms = await self._hub.history.alarms(AlarmQuery(limit=1, alarm=name))
        if not alarms:
            raise Refused(404, f"there is no alarm {name}")
        (alarm,), events = alarms, await self._hub.history.alarm_events(name)
        return await written("events", map(json_format.MessageToDict, events), self._listed(alarm))

    async def _mark_false(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        who, reason = text_of(body, "who"), text_of(body, "reason").strip()
        if problem := check_action(who, reason, "reason"):
            raise Refused(400, problem)
        if not reason:
            raise Refused(400, "reason is empty. Say what looked like a fire.")
        marking = self._hub.false_alarms.mark(request[PRINCIPAL], request.match_info["alarm"], reason, who)
        try:
            event = await marking
        except UnknownAlarmError as error:
            raise Refused(404, str(error)) from error
        except NotMarkedError as error:
            raise Refused(409, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(json_format.MessageToDict(event))

    async def _remove_mark(self, request: web.Request) -> web.Response:
        try:
            event = await self._hub.false_alarms.take_back(request[PRINCIPAL], request.match_info["alarm"])
        except UnknownAlarmError as error:
            raise Refused(404, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(json_format.MessageToDict(event))

    async def _false_alarms(self, _: web.Request) -> web.Response:
        marks: list[FalseAlarm] = self._hub.false_alarms.all()
        return web.json_response({"falseAlarms": [json_format.MessageToDict(mark) for mark in marks]})

    # A span of time

    async def _timeline(self, request: web.Request) -> web.Response:
        until_ns = number_of(request, "until", 0) or time.time_ns()
        from_ns = min(max(number_of(request, "from", until_ns - DAY), until_ns - MAX_SPAN_NS), until_ns)
        history = self._hub.history
        events = await history.events_between(from_ns, until_ns, MAX_TIMELINE_EVENTS + 1)
        later = await history.events_between(until_ns, ENDLESS, LATER_EVENTS)
        alarms = await history.alarms(AlarmQuery(limit=MAX_ALARMS, from_ns=from_ns, until_ns=until_ns))
        faults = {(zone.namespace, zone.name): list(zone.faults) for zone in self._hub.zones.messages()}
        timeline = Timeline(from_ns, until_ns)
        lanes = await asyncio.to_thread(partial(_lanes, timeline, [*events[:MAX_TIMELINE_EVENTS], *later]))
        body = {
            "fromNs": str(from_ns),
            "untilNs": str(until_ns),
            "zones": [_lane(key, lane) for key, lane in lanes.lanes(alarms, faults).items()],
            "clips": await self._clips_between(from_ns, until_ns),
            "truncated": len(events) > MAX_TIMELINE_EVENTS,
        }
        return web.json_response(body)

    async def _clips_between(self, from_ns: int, until_ns: int) -> list[Json]:
        clips = await self._clips.between(from_ns, until_ns) if self._clips is not None else []
        clips = [clip for clip in clips if clip.media != Clip.MEDIA_LINES][:MAX_TIMELINE_CLIPS]
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
            {
                "state": f"ZONE_STATE_{span.state.name}",
                "alarm": span.alarm,
                "fromNs": str(span.from_ns),
                "untilNs": str(span.until_ns),
                "why": span.why,
            }
            for span in lane.states
        ],
        "dark": [
            {
                "device": span.device,
                "reason": span.reason,
                "fromNs": str(span.from_ns),
                "untilNs": str(span.until_ns),
            }
            for span in lane.dark
        ],
    }

"""The route that explains why a device raised no alarm: see `embereye.zone.quiet`."""

import time

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.history import EventQuery
from embereye.hub.http.devices import DEVICE, KIND, find_device
from embereye.hub.http.openapi.parts import NANOSECONDS, WORD, Json, answer, list_of, query, record, reference, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.past import TIME
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.http.terms import REAL, TERM, term_of
from embereye.hub.hub import Hub
from embereye.hub.margins.store import MarginStore, NotStoredError
from embereye.hub.roles import Role
from embereye.hub.tables.selection import TYPES, Selection
from embereye.margins import Margin, Peak
from embereye.units import DAY, MINUTE, SECOND
from embereye.zone.quiet import explain, marks_of, profile_reason, silences_in

DELAY_NS = 60 * SECOND  # until the margins of a moment have arrived
MAX_EVENTS = 1_000
SUPPRESSED = record(
    {
        "by": {
            "type": "string",
            "description": "blind, familiar, marked, colourless, confirmation, test, uncalibrated, shed, rejected, "
            "mask, silence or profile",
        },
        "why": WORD,
    }
)
PEAK = record(
    {"kind": WORD, "level": WORD, "score": REAL, "terms": list_of(TERM), "suppressed": list_of(SUPPRESSED)},
    nearest={**TERM, "description": "the value that decides about an alarm, beside the limit of an alarm"},
    note=WORD,
)
COUNTS: Json = {"type": "object", "additionalProperties": {"type": "integer"}}
MARGIN = record(
    {
        "fromNs": NANOSECONDS, "untilNs": NANOSECONDS, "analysed": whole(), "shed": COUNTS, "rejected": COUNTS,
        "peaks": list_of(PEAK),
    }
)  # fmt: skip


class MarginRoutes:
    """Serves the explanation."""

    def __init__(self, hub: Hub, store: MarginStore) -> None:
        self._hub = hub
        self._store = store

    @Route(
        "GET", f"{DEVICE}/quiet", Role.VIEWER, "The reasons why a device raised no alarm in a minute",
        {
            200: answer(
                "for each kind of fire the result that was nearest to an alarm, what was suppressed, and all results "
                "of the minute; missing: why there are none",
                record(
                    {
                        "fleet": WORD, "device": WORD, "zone": WORD, "fromNs": NANOSECONDS, "untilNs": NANOSECONDS,
                        "nearest": list_of(record({"atNs": NANOSECONDS, "words": WORD, "peak": PEAK})),
                        "suppressed": list_of(SUPPRESSED), "margins": list_of(MARGIN),
                        "events": list_of(reference("AlarmEvent")),
                    },
                    missing=WORD,
                ),
            )
        },
        takes=[KIND, query("at", whole(), f"a moment of the minute, until now, {TIME}; 0: the newest complete one")],
        fails=(400, 404, 503),
        scoped=True,
    )  # fmt: skip
    async def _quiet(self, request: web.Request) -> web.Response:
        fleet, watched, _ = find_device(self._hub, request)
        now_ns = time.time_ns()
        at_ns = min(number_of(request, "at", 0) or now_ns - MINUTE - DELAY_NS, now_ns)
        from_ns = at_ns - at_ns % MINUTE
        until_ns, device, zone = from_ns + MINUTE, watched.device.id, watched.device.zone
        try:
            margins = await self._store.find(fleet.name, device, from_ns, until_ns)
            profiles = await self._store.profiles(fleet.name, zone, from_ns, until_ns)
        except NotStoredError as error:
            raise Refused(503, str(error)) from error
        explanation = explain(margins)
        selection = Selection(zones=frozenset({f"{fleet.namespace}/{zone}"}))
        silences = EventQuery(
            Selection(zones=selection.zones, types=frozenset({TYPES["silence"]})),
            since_ns=max(1, from_ns - DAY), until_ns=until_ns, limit=MAX_EVENTS,
        )  # fmt: skip
        history = self._hub.history
        paused = (await history.search(silences)).events
        events = (
            await history.search(EventQuery(selection, since_ns=from_ns, until_ns=until_ns, limit=MAX_EVENTS))
        ).events
        marks = self._hub.false_alarms.all()
        suppressed = [
            *explanation.suppressed,
            *marks_of(marks, fleet.name, device, until_ns),
            *silences_in(paused, device, from_ns, until_ns),
            *map(profile_reason, profiles),
        ]
        body: Json = {
            "fleet": fleet.name,
            "device": device,
            "zone": zone,
            "fromNs": str(from_ns),
            "untilNs": str(until_ns),
            "nearest": [
                {"atNs": str(nearest.at_ns), "words": nearest.words, "peak": _peak(nearest.peak)}
                for nearest in explanation.nearest
            ],
            "suppressed": suppressed,
            "margins": list(map(_margin, margins)),
            "events": [json_format.MessageToDict(event) for event in events],
        }
        if not margins:
            body["missing"] = self._why_missing(from_ns, until_ns, now_ns)
        return web.json_response(body)

    def _why_missing(self, from_ns: int, until_ns: int, now_ns: int) -> str:
        oldest_ns = self._store.oldest_ns
        if until_ns + DELAY_NS > now_ns:
            return "this minute is not complete yet: results arrive up to a minute later"
        if self._store.failing:
            return f"results cannot be stored: {self._store.failing.why}"
        if not oldest_ns or until_ns < oldest_ns:
            return "results of this minute were deleted, or none were stored yet"
        return "nothing of this device arrived in this minute, or its shard could not reach the hub for too long"


def _peak(peak: Peak) -> Json:
    body: Json = {
        "kind": peak["kind"], "level": peak["level"], "score": peak["score"],
        "terms": [term_of(term) for term in peak.get("terms", ())], "suppressed": list(peak.get("suppressed", ())),
    }  # fmt: skip
    if term := peak.get("nearest"):
        body["nearest"] = term_of(term)
    if note := peak.get("note"):
        body["note"] = note
    return body


def _margin(margin: Margin) -> Json:
    body: Json = {
        "fromNs": str(margin["fromNs"]), "untilNs": str(margin["untilNs"]), "analysed": margin.get("analysed", 0),
        "shed": margin.get("shed", {}), "rejected": margin.get("rejected", {}),
        "peaks": [_peak(peak) for peak in margin.get("peaks", ())],
    }  # fmt: skip
    return body

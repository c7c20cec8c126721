"""The route of the rates of false alarms: see `embereye.zone.quality`.

`hub.quality` computes the figures when they are asked for.
"""

import time

from aiohttp import web

from embereye.hub.http.openapi.parts import NANOSECONDS, WORD, Json, answer, list_of, query, record, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.past import TIME
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.quality import SPAN_NS
from embereye.hub.roles import Role
from embereye.units import SECOND
from embereye.zone.quality import Row

SCOPES = ("site", "kind", "zone", "device")
RATE: Json = {"type": "number", "minimum": 0, "description": "false alarms per device-day"}
ROW = record(
    {
        "scope": {"type": "string", "enum": list(SCOPES)},
        "version": WORD,
        "deviceDays": {"type": "number", "minimum": 0, "description": "watched, added up over the devices"},
        "alarms": whole(),
        "falseAlarms": {**whole(), "description": "those that a person marked as false"},
    },
    kind={"type": "string", "enum": ["sensor", "camera"]}, namespace=WORD, zone=WORD, fleet=WORD, device=WORD,
    perDay=RATE,
    low={**RATE, "description": "lower exact 95 % limit"},
    high={**RATE, "description": "upper exact 95 % limit"},
)  # fmt: skip


class QualityRoutes(HubRoutes):
    """Serves the rates of false alarms."""

    @Route(
        "GET", "/v1/quality", Role.VIEWER, "False alarms per day of watching, with exact limits",
        {
            200: answer(
                "a row for the site, each kind, zone and device, under each version; without any time of watching, "
                "a row has no rate",
                record(
                    {
                        "fromNs": NANOSECONDS, "untilNs": NANOSECONDS, "rows": list_of(ROW),
                        "truncated": {"type": "boolean", "description": "too many events: the last part is missing"},
                    }
                ),
            )
        },
        takes=[
            query("from", whole(), f"{TIME}; missing: 30 days before `until`"),
            query("until", whole(), f"{TIME}; 0: now"),
        ],
        fails=(400, 503),
    )  # fmt: skip
    async def _quality(self, request: web.Request) -> web.Response:
        until_ns = min(number_of(request, "until", 0) or time.time_ns(), time.time_ns())
        from_ns = min(number_of(request, "from", until_ns - SPAN_NS), until_ns)
        figures = await self._hub.quality.figures(from_ns, until_ns)
        body = {
            "fromNs": str(from_ns),
            "untilNs": str(until_ns),
            "rows": [_row(row) for row in figures.rows],
            "truncated": figures.truncated,
        }
        return web.json_response(body)


def _row(row: Row) -> Json:
    match row.subject:
        case ():
            body: Json = {"scope": "site"}
        case (kind,):
            body = {"scope": "kind", "kind": kind}
        case ("zone", namespace, zone):
            body = {"scope": "zone", "namespace": namespace, "zone": zone}
        case (_, fleet, device):
            body = {"scope": "device", "fleet": fleet, "device": device}
    body |= {
        "version": row.version,
        "deviceDays": row.days,
        "alarms": row.alarms,
        "falseAlarms": row.false_alarms,
    }
    if (limits := row.limits) is not None and row.watched_ns > SECOND:
        body |= {"perDay": row.per_day, "low": limits[0], "high": limits[1]}
    return body

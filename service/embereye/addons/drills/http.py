"""Routes of drills: the one that runs, its start and end, and the reports."""

from typing import Any

from aiohttp import web

from embereye.addons.drills.keeper import Drill, Drills
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    NANOSECONDS,
    WHO,
    WORD,
    Json,
    answer,
    file_of,
    json_body,
    list_of,
    part,
    record,
)
from embereye.hub.http.parameters import amount_of, read_json, text_of, texts_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.roles import Role

JSON = "application/json"
LISTED = 100  # reports
MAX_FAULTS, MAX_NAME, MAX_WORDS = 50, 30, 500
TEXTS = ("fault", "target", "started", "outcome")  # of a result
SECONDS: Json = {"type": "number", "minimum": 0}
LIMITED: Json = {"type": "string", "maxLength": MAX_WORDS}
FLEET: Json = {"type": "string", "minLength": 1, "maxLength": MAX_WORDS}
FAULTS: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_FAULTS,
    "items": {"type": "string", "maxLength": MAX_NAME},
}
FAULT = record(
    {"fault": LIMITED, "target": LIMITED, "started": LIMITED, "outcome": LIMITED, "uncoveredSeconds": SECONDS,
     "allowedSeconds": SECONDS},
    recoveredAfterSeconds={"type": ["number", "null"], "minimum": 0},
)  # fmt: skip
RUNNING = record(
    {"drill": WORD, "who": WORD, "fleet": WORD, "startedNs": NANOSECONDS, "faults": list_of(WORD)}
)  # fmt: skip
REPORT = record(
    {"drill": WORD, "fleet": WORD, "started": WORD, "ended": WORD, "startedBy": WORD, "complete": {"type": "boolean"}}
)
NAME = part("drill", {"type": "string", "pattern": "^[0-9a-f]{16}$"})


class DrillRoutes:
    """Serves drills."""

    def __init__(self, drills: Drills) -> None:
        self._drills = drills

    @Route(
        "GET", "/v1/drills", Role.VIEWER, "The drill that runs, and the newest reports",
        {
            200: answer(
                "with the public key of reports in hexadecimal",
                record({"key": WORD, "running": list_of(RUNNING), "reports": list_of(REPORT)}),
            )
        },
        fails=(503,),
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        running = [_running(self._drills.running)] if self._drills.running else []
        reports = await self._drills.reports(LISTED)
        return web.json_response({"key": self._drills.key(), "running": running, "reports": reports})

    @Route(
        "POST", "/v1/drills", Role.OPERATOR, "Announce a drill, which the console shows until it ends",
        {200: answer("it is announced", RUNNING)},
        fails=(*CHANGES, 409, 503),
        body=json_body(record({"fleet": FLEET, "faults": FAULTS}, who=WHO)),
    )  # fmt: skip
    async def _start(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        faults, fleet = texts_of(body, "faults"), text_of(body, "fleet")
        if not 0 < len(faults) <= MAX_FAULTS or any(len(fault) > MAX_NAME for fault in faults):
            raise Refused(400, f"faults: a drill needs 1 to {MAX_FAULTS}, of up to {MAX_NAME} characters")
        if not 0 < len(fleet) <= MAX_WORDS:
            raise Refused(400, f"fleet: a drill needs one, of up to {MAX_WORDS} characters")
        return web.json_response(
            _running(await self._drills.start(request[PRINCIPAL], text_of(body, "who"), fleet, faults))
        )

    @Route(
        "POST", "/v1/drills/{drill}/end", Role.OPERATOR,
        "End a drill; the answer is the signed report, byte for byte",
        {200: file_of("the report", JSON)},
        takes=[NAME],
        fails=(*CHANGES, 409, 503),
        body=json_body(record({"faults": {**list_of(FAULT), "maxItems": MAX_FAULTS}}, who=WHO)),
    )  # fmt: skip
    async def _end(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        faults = body.get("faults")
        if not isinstance(faults, list) or len(faults) > MAX_FAULTS:
            raise Refused(400, f"faults: is not a list of up to {MAX_FAULTS} results")
        results = [_result(each) for each in faults]
        name = request.match_info["drill"]
        data = await self._drills.end(request[PRINCIPAL], name, text_of(body, "who"), results)
        return web.Response(body=data, content_type=JSON)

    @Route(
        "GET", "/v1/drills/{drill}", Role.VIEWER, "The signed report of a drill, byte for byte",
        {200: file_of("the report", JSON)},
        takes=[NAME],
        fails=(404, 503),
    )  # fmt: skip
    async def _file(self, request: web.Request) -> web.Response:
        headers = {"Content-Disposition": 'attachment; filename="drill.json"'}
        data = await self._drills.find(request.match_info["drill"])
        return web.Response(body=data, content_type=JSON, headers=headers)


def _running(drill: Drill) -> Json:
    return {
        "drill": drill.id, "who": drill.who, "fleet": drill.fleet, "startedNs": str(drill.started_ns),
        "faults": drill.faults,
    }  # fmt: skip


def _result(given: Any) -> dict[str, Any]:
    """Check the result of a fault; Refused."""
    if not isinstance(given, dict):
        raise Refused(400, "faults: a result is not a JSON object")
    texts = {name: text_of(given, name) for name in TEXTS if name in given}
    if missing := [name for name in TEXTS if name not in texts]:
        raise Refused(400, f"faults: a result has no {missing[0]}")
    for name, text in texts.items():
        if len(text) > MAX_WORDS:
            raise Refused(400, f"{name}: {len(text)} characters, at most {MAX_WORDS} are allowed")
    numbers: dict[str, float | None] = {name: _seconds(given, name) for name in ("uncoveredSeconds", "allowedSeconds")}
    is_open = given.get("recoveredAfterSeconds") is None
    numbers["recoveredAfterSeconds"] = None if is_open else _seconds(given, "recoveredAfterSeconds")
    return {**texts, **numbers}


def _seconds(given: dict[str, Any], name: str) -> float:
    if (seconds := amount_of(given, name)) < 0:
        raise Refused(400, f"{name}: {seconds:g} is less than 0")
    return seconds

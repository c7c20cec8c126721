"""Routes of walk tests: what runs, what is due, the reports, and what people do with them."""

from aiohttp import web

from embereye.addons.walktest.keeper import WalkTests
from embereye.addons.walktest.page import page
from embereye.addons.walktest.plan import WalkTest, ZoneKey
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
    whole,
)
from embereye.hub.http.parameters import read_json, text_of
from embereye.hub.http.route import Route
from embereye.hub.roles import Role
from embereye.process.sealed_page import POLICY

HTML, JSON = "text/html", "application/json"
LISTED = 100  # reports
FLAG: Json = {"type": "boolean"}
DEVICE = record({"fleet": WORD, "device": WORD})
RUNNING = record(
    {
        "walktest": WORD, "namespace": WORD, "zone": WORD, "who": WORD, "note": WORD, "startedNs": NANOSECONDS,
        "triggered": list_of(record({"fleet": WORD, "device": WORD, "timeNs": NANOSECONDS, "kind": WORD})),
        "untested": list_of(DEVICE),
    }
)  # fmt: skip
DUE = record({"namespace": WORD, "zone": WORD, "dueNs": NANOSECONDS, "overdue": list_of(DEVICE)})
REPORT = record(
    {
        "walktest": WORD, "namespace": WORD, "zone": WORD, "started": WORD, "ended": WORD, "startedBy": WORD,
        "complete": FLAG, "devices": whole(), "tested": whole(),
    }
)  # fmt: skip
NAME = part("walktest", {"type": "string", "pattern": "^[0-9a-f]{16}$"})


class WalkTestRoutes:
    """Serves walk tests."""

    def __init__(self, tests: WalkTests) -> None:
        self._tests = tests

    @Route(
        "GET", "/v1/walktests", Role.VIEWER, "Running walk tests, due dates of zones, and the newest reports",
        {
            200: answer(
                "with the public key of reports in hexadecimal",
                record({"key": WORD, "running": list_of(RUNNING), "due": list_of(DUE), "reports": list_of(REPORT)}),
            )
        },
        fails=(503,),
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        due = [
            {"namespace": each.zone[0], "zone": each.zone[1], "dueNs": str(each.due_ns),
             "overdue": [{"fleet": fleet, "device": device} for fleet, device in each.untested]}
            for each in self._tests.due()
        ]  # fmt: skip
        running = [_running(zone, test) for zone, test in sorted(self._tests.running.items())]
        reports = await self._tests.reports(LISTED)
        return web.json_response({"key": self._tests.key(), "running": running, "due": due, "reports": reports})

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/walktest", Role.OPERATOR,
        "Start a walk test of a zone, which is under test from then on",
        {200: answer("it runs", RUNNING)},
        fails=(*CHANGES, 404, 409, 503),
        body=json_body(record({}, note={"type": "string", "maxLength": 2_000}, who=WHO)),
    )  # fmt: skip
    async def _start(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        who, note = text_of(body, "who"), text_of(body, "note")
        zone = _zone(request)
        test = await self._tests.start(request[PRINCIPAL], zone, who, note)
        return web.json_response(_running(zone, test))

    @Route(
        "POST", "/v1/zones/{namespace}/{zone}/walktest/end", Role.OPERATOR,
        "End the walk test of a zone, and its test; the answer is the signed report, byte for byte",
        {200: file_of("the report", JSON)},
        fails=(*CHANGES, 409, 503),
        body=json_body(record({}, who=WHO)),
    )  # fmt: skip
    async def _end(self, request: web.Request) -> web.Response:
        who = text_of(await read_json(request), "who")
        data = await self._tests.end(request[PRINCIPAL], _zone(request), who)
        return web.Response(body=data, content_type=JSON)

    @Route(
        "GET", "/v1/walktests/{walktest}", Role.VIEWER, "The signed report of a walk test, byte for byte",
        {200: file_of("the report", JSON)},
        takes=[NAME],
        fails=(404, 503),
    )  # fmt: skip
    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["walktest"]
        headers = {"Content-Disposition": 'attachment; filename="walktest.json"'}
        return web.Response(body=await self._tests.find(name), content_type=JSON, headers=headers)

    @Route(
        "GET", "/v1/walktests/{walktest}/page", Role.VIEWER, "The report of a walk test as a page to print",
        {200: file_of("the page", HTML)},
        takes=[NAME],
        fails=(404, 503),
    )  # fmt: skip
    async def _page(self, request: web.Request) -> web.Response:
        data = await self._tests.find(request.match_info["walktest"])
        return web.Response(text=page(data), content_type=HTML, headers={"Content-Security-Policy": POLICY})


def _zone(request: web.Request) -> ZoneKey:
    return request.match_info["namespace"], request.match_info["zone"]


def _running(zone: ZoneKey, test: WalkTest) -> Json:
    triggered = [
        {"fleet": fleet, "device": device, "timeNs": str(trigger.time_ns), "kind": trigger.kind}
        for fleet, device in test.devices
        if (trigger := test.triggers.get(f"{fleet}/{device}"))
    ]
    return {
        "walktest": test.id, "namespace": zone[0], "zone": zone[1], "who": test.who, "note": test.note,
        "startedNs": str(test.started_ns), "triggered": triggered,
        "untested": [{"fleet": fleet, "device": device} for fleet, device in test.untested],
    }  # fmt: skip

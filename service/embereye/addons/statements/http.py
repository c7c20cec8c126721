"""Routes of statements: the list, a statement's file, and a page with its content."""

from datetime import date

from aiohttp import web

from embereye.addons.statements.keeper import Statements
from embereye.addons.statements.page import page
from embereye.hub.http.openapi.parts import WORD, Json, answer, file_of, list_of, part, query, record, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.roles import Role
from embereye.process.sealed_page import POLICY

HTML, JSON = "text/html", "application/json"
LAST = "9999-99-99"  # after every day
MAX_LISTED = 400
DAY: Json = {"type": "string", "format": "date", "description": "such as 2026-11-28"}
SECONDS: Json = {**whole(), "description": "added up over the devices"}
LISTED = record(
    {
        "day": DAY, "sha256": {**WORD, "description": "of the file"}, "zones": whole(), "devices": whole(),
        "seconds": SECONDS, "coveredSeconds": SECONDS,
        "awaySeconds": {**whole(), "description": "without a hub"}, "alarms": whole(), "unacknowledged": whole(),
    }
)  # fmt: skip


class StatementRoutes:
    """Serves statements of watch."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    @Route(
        "GET", "/v1/statements", Role.VIEWER, "Signed statements of watch, a day each, the newest first",
        {
            200: answer(
                "with the public key in hexadecimal",
                record({"site": WORD, "key": WORD, "statements": list_of(LISTED)}),
            )
        },
        takes=[
            query("before", DAY, "only days before this one"),
            query("limit", whole(MAX_LISTED), "at most; missing: 31"),
        ],
        fails=(400, 503),
    )  # fmt: skip
    async def _list(self, request: web.Request) -> web.Response:
        before = request.query.get("before")
        days = await self._statements.newest_first(
            LAST if before is None else _day(before), number_of(request, "limit", 31, MAX_LISTED)
        )
        return web.json_response(
            {"site": self._statements.site.name, "key": self._statements.key(), "statements": days}
        )

    @Route(
        "GET", "/v1/statements/{day}", Role.VIEWER, "The signed statement of a day, byte for byte",
        {200: file_of("the file", JSON)},
        takes=[part("day", DAY)],
        fails=(400, 404, 503),
    )  # fmt: skip
    async def _file(self, request: web.Request) -> web.Response:
        day = _day(request.match_info["day"])
        headers = {"Content-Disposition": f'attachment; filename="{day}.json"'}
        return web.Response(body=await self._statements.find(day), content_type=JSON, headers=headers)

    @Route(
        "GET", "/v1/statements/{day}/page", Role.VIEWER, "The statement of a day as a page",
        {200: file_of("the page", HTML)},
        takes=[part("day", DAY)],
        fails=(400, 404, 503),
    )  # fmt: skip
    async def _page(self, request: web.Request) -> web.Response:
        data = await self._statements.find(_day(request.match_info["day"]))
        return web.Response(text=page(data), content_type=HTML, headers={"Content-Security-Policy": POLICY})


def _day(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:  # Python reads 20261128, too
            return text
    except ValueError:
        pass
    raise Refused(400, f'"{text[:50]}" is not a day such as 2026-11-28')

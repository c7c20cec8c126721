"""Routes of webhooks: their state, their dead letters, and a test.

The routes read the hub's `Webhooks`, or ask it to send something; deliveries run there. Dead letters come in pages by
cursor. A request to send them again is answered with their number, before they are sent.
"""

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.lists import written
from embereye.hub.http.openapi.parts import (
    CHANGES,
    CURSOR,
    WORD,
    Json,
    answer,
    json_body,
    list_of,
    query,
    record,
    reference,
    whole,
)
from embereye.hub.http.parameters import number_of, read_json
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role
from embereye.hub.tables.webhooks import DeadLetter
from embereye.hub.webhooks.keeper import Webhook

MAX_CURSORS = 10_000  # in one request


class WebhookRoutes(HubRoutes):
    """Serves webhooks."""

    @Route(
        "GET", "/v1/webhooks", Role.VIEWER, "All webhooks and their state",
        {200: answer("by name", record({"webhooks": list_of(reference("Webhook"))}))},
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        latest = self._hub.feed.latest
        return web.json_response({"webhooks": [_fields(webhook, latest) for webhook in self._hub.webhooks.all()]})

    @Route(
        "GET", "/v1/webhooks/{name}/dead-letters", Role.VIEWER, "A webhook's dead letters",
        {200: answer("ascending", record({"deadLetters": list_of(reference("DeadLetter"))}))},
        takes=[
            query("after", whole(), "cursor of the last known one"),
            query("limit", whole(), "maximum number, up to 1,000; 0: 100"),
        ],
        fails=(400, 404, 503),
    )  # fmt: skip
    async def _dead_letters(self, request: web.Request) -> web.Response:
        after, limit = number_of(request, "after", 0), number_of(request, "limit", 0)
        letters = await self._hub.webhooks.dead_letters(request.match_info["name"], after, limit)
        return await written("deadLetters", map(_letter, letters), {})

    @Route(
        "POST", "/v1/webhooks/{name}/resend", Role.OPERATOR,
        "Send dead letters again; those that fail again remain dead letters",
        {202: answer("their number", record({"resent": whole()}))},
        fails=(*CHANGES, 404, 503),
        body=json_body(record({}, cursors={**list_of(CURSOR), "description": "none: all", "maxItems": MAX_CURSORS})),
    )  # fmt: skip
    async def _resend(self, request: web.Request) -> web.Response:
        cursors = _cursors(await read_json(request))
        number = await self._hub.webhooks.resend(request[PRINCIPAL], request.match_info["name"], cursors)
        return web.json_response({"resent": number}, status=202)

    @Route(
        "POST", "/v1/webhooks/{name}/test", Role.OPERATOR, "Send a harmless test event by a webhook",
        {200: answer("why it failed; empty: the receiver accepted it", record({"failed": WORD}))},
        fails=(*CHANGES, 404, 503),
        body=json_body(record({})),
    )  # fmt: skip
    async def _test(self, request: web.Request) -> web.Response:
        await read_json(request)
        return web.json_response(
            {"failed": await self._hub.webhooks.test(request[PRINCIPAL], request.match_info["name"])}
        )


def _fields(webhook: Webhook, latest: int) -> Json:
    options = webhook.options
    return {
        "name": options.name, "format": options.format, "select": options.selection.words,
        "cursor": str(webhook.position), "behind": latest - webhook.position, "deadLetters": webhook.dead,
        "failing": webhook.failing.why, "deliveredNs": str(webhook.delivered_ns),
    }  # fmt: skip


def _letter(letter: DeadLetter) -> Json:
    return {
        "cursor": str(letter.cursor), "diedNs": str(letter.died_ns), "attempts": letter.attempts, "why": letter.why,
        "event": json_format.MessageToDict(letter.event),
    }  # fmt: skip


def _cursors(body: dict[str, object]) -> list[int]:
    listed = body.get("cursors", [])
    texts = listed if isinstance(listed, list) and len(listed) <= MAX_CURSORS else None
    if texts is None or not all(
        isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20 for text in texts
    ):
        raise Refused(400, f'cursors: not a list of at most {MAX_CURSORS} cursors such as ["17"]')
    return [int(text) for text in texts]

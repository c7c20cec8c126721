"""Selections in the query of a request, and routes of selections stored under a name.

`selection_of` reads the same parameters for the WebSocket and for the history: either a selection, or the name of a
stored one, but not both. The routes change the hub's `Subscriptions`, which makes a change durable before it is
answered.
"""

from aiohttp import web

from embereye.hub.feeds.subscriptions import NAME, Subscriptions
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    NOTHING,
    WORD,
    Json,
    answer,
    json_body,
    list_of,
    part,
    query,
    record,
    reference,
)
from embereye.hub.http.parameters import read_json
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role
from embereye.hub.tables.selection import KINDS, LEVELS, TYPES, Selection, read_selection
from embereye.hub.tables.subscriptions import StoredSubscription

NAME_PART = part("name", {"type": "string", "pattern": f"^{NAME.pattern}$"})
TAKES = [
    query("zone", list_of(WORD), "ZONE or NAMESPACE/ZONE, can be repeated; none: all"),
    query("level", list_of({"type": "string", "enum": list(LEVELS)}), "of the zone, can be repeated; none: all"),
    query("kind", list_of({"type": "string", "enum": list(KINDS)}), "of a sign, can be repeated; none: all"),
    query("device", list_of(WORD), "id, can be repeated; none: all"),
    query("type", list_of({"type": "string", "enum": list(TYPES)}), "of event, can be repeated; none: all"),
    query("subscription", WORD, "instead of these: the name of a stored subscription"),
]
FIELDS = {"zone": "zones", "level": "levels", "kind": "kinds", "device": "devices", "type": "types"}


def selection_of(request: web.Request, subscriptions: Subscriptions) -> Selection:
    """Read the query's `zone`, `level`, `kind`, `device` and `type`, or the name of a stored `subscription`.

    The selection has the scope of the caller, so it matches no event of another zone.
    """
    return _read(request, subscriptions).within(request[PRINCIPAL].scope)


def _read(request: web.Request, subscriptions: Subscriptions) -> Selection:
    fields = {field: request.query.getall(name, []) for name, field in FIELDS.items()}
    for field in ("zones", "devices"):  # empty inputs of a page's form
        fields[field] = [value for value in fields[field] if value]
    selection = read_selection(fields)
    name = request.query.get("subscription", "")
    if not name:
        return selection
    stored = subscriptions.find(name).selection
    if any(fields.values()):
        raise Refused(400, f"subscription: it already has a selection. Leave out {', '.join(FIELDS)}.")
    return stored


def _listed(stored: StoredSubscription) -> Json:
    return {
        "name": stored.name, "select": stored.selection.words, "madeNs": str(stored.made_ns), "madeBy": stored.made_by,
    }  # fmt: skip


class SubscriptionRoutes(HubRoutes):
    """Serves stored subscriptions."""

    @Route(
        "GET", "/v1/subscriptions", Role.VIEWER, "Stored subscriptions",
        {200: answer("by name", record({"subscriptions": list_of(reference("Subscription"))}))},
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        stored = self._hub.subscriptions.all()
        return web.json_response({"subscriptions": [_listed(subscription) for subscription in stored]})

    @Route(
        "PUT", "/v1/subscriptions/{name}", Role.OPERATOR, "Store a selection under a name; it replaces an older one",
        {200: answer("it is durable", reference("Subscription"))},
        takes=[NAME_PART],
        fails=(*CHANGES, 503),
        body=json_body(reference("Selection")),
    )  # fmt: skip
    async def _store(self, request: web.Request) -> web.Response:
        selection = read_selection(await read_json(request))
        stored = await self._hub.subscriptions.store(request[PRINCIPAL], request.match_info["name"], selection)
        return web.json_response(_listed(stored))

    @Route(
        "DELETE", "/v1/subscriptions/{name}", Role.OPERATOR, "Remove a stored subscription",
        {200: answer("it is removed", NOTHING)},
        takes=[NAME_PART],
        fails=(404, 503),
    )  # fmt: skip
    async def _remove(self, request: web.Request) -> web.Response:
        await self._hub.subscriptions.remove(request[PRINCIPAL], request.match_info["name"])
        return web.json_response({})

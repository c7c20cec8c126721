"""Selections in the query of a request, and routes of selections stored under a name."""

from aiohttp import web

from embereye.hub.committer import StoreFailingError
from embereye.hub.feeds.subscriptions import Subscriptions, UnknownSubscriptionError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.lists import Json
from embereye.hub.http.parameters import read_json
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
from embereye.hub.tables.selection import Selection, read_selection
from embereye.hub.tables.subscriptions import StoredSubscription

FIELDS = {"zone": "zones", "level": "levels", "kind": "kinds", "device": "devices", "type": "types"}


def selection_of(request: web.Request, subscriptions: Subscriptions) -> Selection:
    """Read the query's `zone`, `level`, `kind`, `device` and `type`, or the name of a stored `subscription`."""
    fields = {field: request.query.getall(name, []) for name, field in FIELDS.items()}
    for field in ("zones", "devices"):  # empty inputs of a page's form
        fields[field] = [value for value in fields[field] if value]
    try:
        selection = read_selection(fields)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    name = request.query.get("subscription", "")
    if not name:
        return selection
    try:
        stored = subscriptions.find(name).selection
    except UnknownSubscriptionError as error:
        raise Refused(404, str(error)) from error
    if any(fields.values()):
        raise Refused(400, f"subscription: it already has a selection. Leave out {', '.join(FIELDS)}.")
    return stored


def _listed(stored: StoredSubscription) -> Json:
    return {
        "name": stored.name, "select": stored.selection.words, "madeNs": str(stored.made_ns), "madeBy": stored.made_by,
    }  # fmt: skip


class SubscriptionRoutes:
    """Serves stored subscriptions: `routes()`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[web.RouteDef]:
        """List all routes of stored subscriptions."""
        return [
            web.get("/v1/subscriptions", self._list),
            web.put("/v1/subscriptions/{name}", self._store),
            web.delete("/v1/subscriptions/{name}", self._remove),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        stored = self._hub.subscriptions.all()
        return web.json_response({"subscriptions": [_listed(subscription) for subscription in stored]})

    async def _store(self, request: web.Request) -> web.Response:
        try:
            selection = read_selection(await read_json(request))
            stored = await self._hub.subscriptions.store(request[PRINCIPAL], request.match_info["name"], selection)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(_listed(stored))

    async def _remove(self, request: web.Request) -> web.Response:
        try:
            await self._hub.subscriptions.remove(request[PRINCIPAL], request.match_info["name"])
        except UnknownSubscriptionError as error:
            raise Refused(404, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response({})

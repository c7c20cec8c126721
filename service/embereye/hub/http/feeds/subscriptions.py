"""What of the feed somebody asks for over HTTP, and selections stored under a name."""

from aiohttp import web

from embereye.hub.feeds.records import StoredSubscription
from embereye.hub.feeds.selection import Selection, read_selection
from embereye.hub.feeds.subscriptions import Subscriptions, UnknownSubscriptionError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.lists import Json
from embereye.hub.http.parameters import read_json
from embereye.hub.http.refused import Refused
from embereye.hub.hub import Hub
from embereye.hub.storage.committer import StoreFailingError

FIELDS = {"zone": "zones", "level": "levels", "kind": "kinds", "device": "devices", "type": "types"}


def selection_of(request: web.Request, subscriptions: Subscriptions) -> Selection:
    """What the query asks for, by `zone`, `level`, `kind`, `device` and `type`, or by the name of a `subscription`."""
    asked = {field: request.query.getall(name, []) for name, field in FIELDS.items()}
    for field in ("zones", "devices"):  # an input of a page that nobody filled in
        asked[field] = [one for one in asked[field] if one]
    try:
        selection = read_selection(asked)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    name = request.query.get("subscription", "")
    if not name:
        return selection
    try:
        stored = subscriptions.find(name).selection
    except UnknownSubscriptionError as error:
        raise Refused(404, str(error)) from error
    if any(asked.values()):
        raise Refused(400, f"subscription: it says what is wanted already; leave out {', '.join(FIELDS)}")
    return stored


def _told(stored: StoredSubscription) -> Json:
    return {
        "name": stored.name, "select": stored.selection.words, "madeNs": str(stored.made_ns), "madeBy": stored.made_by,
    }  # fmt: skip


class SubscriptionRoutes:
    """Routes of stored subscriptions: `routes()`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.get("/v1/subscriptions", self._list),
            web.put("/v1/subscriptions/{name}", self._store),
            web.delete("/v1/subscriptions/{name}", self._remove),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"subscriptions": [_told(one) for one in self._hub.subscriptions.all()]})

    async def _store(self, request: web.Request) -> web.Response:
        try:
            selection = read_selection(await read_json(request))
            stored = await self._hub.subscriptions.store(request[PRINCIPAL], request.match_info["name"], selection)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response(_told(stored))

    async def _remove(self, request: web.Request) -> web.Response:
        try:
            await self._hub.subscriptions.remove(request[PRINCIPAL], request.match_info["name"])
        except UnknownSubscriptionError as error:
            raise Refused(404, str(error)) from error
        except StoreFailingError as error:
            raise Refused(503, str(error)) from error
        return web.json_response({})

"""Routes of plans: pictures of the building's floors and the places of devices on them.

`Plans` owns plans and places; the coverage of a placed device is looked up at each request. An uploaded picture is
limited in size and time, and only a few arrive at once. It is made again in a separate process before it is stored,
because the file may be malicious. A picture's address contains its digest, so browsers may cache it.
"""

import json
from typing import Any
from urllib.parse import quote

from aiohttp import web

from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import (
    CHANGES,
    NOTHING,
    SHARE,
    WORD,
    Json,
    answer,
    fields_of,
    file_of,
    json_body,
    list_of,
    part,
    query,
    record,
    reference,
)
from embereye.hub.http.parameters import arriving, read_json
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.plans.images import MAX_BYTES, MEDIA, make_plan_image
from embereye.hub.plans.keeper import NAME
from embereye.hub.roles import Role, Scope
from embereye.hub.tables.plans import DeviceKey, Place, Plan

UPLOAD_SECONDS = 60.0  # for a whole image
AT_ONCE = 2  # images that are uploaded at the same time
PLAN = "/v1/plans/{name}"
NAME_PART = part("name", {"type": "string", "pattern": f"^{NAME.pattern}$"})
DEVICE = PLAN + "/devices/{namespace}/{kind:sensors|cameras}/{fleet}/{device}"


class PlanRoutes:
    """Serves plans."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._uploads = 0

    @Route(
        "GET", "/v1/plans", Role.VIEWER, "Plans of the building",
        {200: answer("in their order", record({"plans": list_of(reference("Plan"))}))},
        scoped=True,
    )  # fmt: skip
    async def _list(self, request: web.Request) -> web.Response:
        scope = request[PRINCIPAL].scope
        return web.json_response(
            {"plans": [_listed(plan) for plan in self._hub.plans.all() if self._is_shown(plan, scope)]}
        )

    def _is_shown(self, plan: Plan, scope: Scope) -> bool:
        """True if a device in `scope` is on the plan."""
        return not scope.is_limited or any(self._is_in(key, scope) for key in plan.devices)

    def _is_in(self, key: DeviceKey, scope: Scope) -> bool:
        declared = self._hub.coverage.book.find(*key)
        if declared is None:
            return not scope.is_limited
        return scope.has_device(key[0], declared[1].device.zone)

    @Route(
        "GET", PLAN, Role.VIEWER, "One plan, with the places of its devices and their coverage",
        {200: answer("the plan", reference("FurnishedPlan"))},
        takes=[NAME_PART],
        fails=[404],
        scoped=True,
    )  # fmt: skip
    async def _plan(self, request: web.Request) -> web.Response:
        plan, scope = self._find(request), request[PRINCIPAL].scope
        devices = [self._device(key, place) for key, place in sorted(plan.devices.items()) if self._is_in(key, scope)]
        return web.json_response({**_listed(plan), "devices": devices})

    def _device(self, key: DeviceKey, place: Place) -> Json:
        fleet, name = key
        entry: Json = {"fleet": fleet, "id": name, "x": place.x, "y": place.y, "namespace": fleet.partition("/")[0]}
        declared = self._hub.coverage.book.find(fleet, name)
        if declared is None:
            reason = "it is no longer declared"
            return {**entry, "zone": "", "declared": False, "covered": False, "reason": reason, "hasPicture": False}
        reason, (_, watched) = self._hub.coverage.darkness(*declared), declared
        return {
            **entry, "zone": watched.device.zone, "declared": True, "covered": not reason, "reason": reason,
            "hasPicture": bool(watched.picture),
        }  # fmt: skip

    @Route(
        "GET", f"{PLAN}/image", Role.VIEWER, "The picture of a plan",
        {200: file_of("the picture", *MEDIA)},
        takes=[NAME_PART, query("version", WORD, "as in the plan's `image`: the answer can then be cached")],
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _image(self, request: web.Request) -> web.Response:
        plan = self._find(request)
        data = await self._hub.plans.image(plan.name)
        # The version in the address names the content, which never changes.
        named = request.query.get("version", "") == plan.digest
        caching = "private, max-age=604800, immutable" if named else "no-cache"
        return web.Response(body=data, content_type=plan.media, headers={"Cache-Control": caching})

    @Route(
        "PUT", PLAN, Role.ADMIN,  # a wrong plan sends people to the wrong place
        "Store the picture of a plan; it replaces an older one, and devices remain at their places",
        {200: answer("it is durable", reference("Plan"))},
        takes=[NAME_PART],
        fails=(*CHANGES, 503),
        body={
            "required": True,
            "content": {media: {"schema": {"type": "string", "format": "binary"}} for media in MEDIA},
        },
    )  # fmt: skip
    async def _store(self, request: web.Request) -> web.Response:
        if request.content_type not in MEDIA:
            raise Refused(415, f'Content-Type "{request.content_type[:80]}": send one of {", ".join(MEDIA)}')
        if self._uploads >= AT_ONCE:
            raise Refused(503, f"{AT_ONCE} plans are being uploaded. Try again in a moment.")
        self._uploads += 1
        try:
            data = await _read(request)
            image = await make_plan_image(data)
        finally:
            self._uploads -= 1
        plan = await self._hub.plans.store(request[PRINCIPAL], request.match_info["name"], image)
        return web.json_response(_listed(plan))

    @Route(
        "DELETE", PLAN, Role.ADMIN, "Remove a plan and the places of its devices",
        {200: answer("it is removed", NOTHING)},
        takes=[NAME_PART],
        fails=(404, 503),
    )  # fmt: skip
    async def _remove(self, request: web.Request) -> web.Response:
        await self._hub.plans.remove(request[PRINCIPAL], request.match_info["name"])
        return web.json_response({})

    @Route(
        "PUT", DEVICE, Role.ADMIN, "Place a device on a plan, or move it there",
        {200: answer("it is durable", reference("PlacedDevice"))},
        takes=[NAME_PART],
        fails=(*CHANGES, 404, 503),
        body=json_body(record({"x": SHARE, "y": SHARE})),
    )  # fmt: skip
    async def _place(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        place = Place(_share(body, "x"), _share(body, "y"))
        plan, key = self._find(request), _key(request)
        if key not in plan.devices and self._hub.coverage.book.find(*key) is None:
            raise Refused(404, f"{key[0]} declares no device {key[1]}")
        await self._hub.plans.place(request[PRINCIPAL], plan.name, key, place)
        return web.json_response(self._device(key, place))

    @Route(
        "DELETE", DEVICE, Role.ADMIN, "Remove a device from a plan",
        {200: answer("it is removed", NOTHING)},
        takes=[NAME_PART],
        fails=(404, 503),
    )  # fmt: skip
    async def _remove_device(self, request: web.Request) -> web.Response:
        await self._hub.plans.remove_device(request[PRINCIPAL], request.match_info["name"], _key(request))
        return web.json_response({})

    def _find(self, request: web.Request) -> Plan:
        plan = self._hub.plans.find(request.match_info["name"])
        if not self._is_shown(plan, request[PRINCIPAL].scope):
            raise Refused(404, f"there is no plan {plan.name}")
        return plan


async def _read(request: web.Request) -> bytes:
    parts, size = list[bytes](), 0
    async with arriving(request, "the image", UPLOAD_SECONDS):
        async for part in request.content.iter_any():
            size += len(part)
            if size > MAX_BYTES:
                raise Refused(413, f"the image is larger than {MAX_BYTES // 2**20} MiB")
            parts.append(part)
    return b"".join(parts)


def _listed(plan: Plan) -> Json:
    image = f"/v1/plans/{quote(plan.name, safe='')}/image?version={plan.digest}"
    return {**fields_of(plan, "name", "width", "height", "made_ns", "made_by"), "image": image}


def _key(request: web.Request) -> DeviceKey:
    names = request.match_info
    return f"{names['namespace']}/{names['kind']}/{names['fleet']}", names["device"]


def _share(body: dict[str, Any], name: str) -> float:
    share = body.get(name)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise Refused(400, f"{name}: {json.dumps(share)[:80]} is not a number from 0 to 1")
    return float(share)

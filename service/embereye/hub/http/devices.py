"""Routes of devices: their list and their latest pictures.

One `SharedList` serves the list to all requests of half a second; `DeviceEntries` makes its entries. Pictures came with
shards' coverage reports. The coverage book has the latest ones in memory, so these routes read no disk.
"""

import math
from collections.abc import Iterator

from aiohttp import web
from google.protobuf import json_format

from embereye.hub.coverage.book import Fleet, Watched
from embereye.hub.coverage.measured import DAY_SLOT, SLOT
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.fleets.devices import DeviceEntries
from embereye.hub.http.fleets.lists import TAKES, SharedList
from embereye.hub.http.openapi.parts import (
    JPEG,
    NANOSECONDS,
    NEXT,
    Json,
    answer,
    file_of,
    list_of,
    part,
    record,
    reference,
    whole,
)
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.v1.types_pb2 import Area, Device

DEVICES_SECONDS = 0.5  # a list of devices is shared by all requests of this time
DEVICE = "/v1/devices/{namespace}/{kind}/{fleet}/{device}"
KIND = part("kind", {"type": "string", "enum": ["sensors", "cameras"]})


class DeviceRoutes:
    """Serves devices."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._entries = DeviceEntries(hub)
        self._list = SharedList("devices", self._entries.entries, self._entries.fields, period=DEVICES_SECONDS)

    @Route(
        "GET", "/v1/devices", Role.VIEWER, "All devices: coverage, latest values, ledgers",
        {
            200: answer(
                "declared ones first, or in the requested order",
                record({"devices": list_of(reference("Device")), "timeNs": NANOSECONDS}, next=NEXT, total=whole()),
            )
        },
        takes=TAKES,
        fails=[400],
        scoped=True,
    )  # fmt: skip
    async def _devices(self, request: web.Request) -> web.Response:
        return await self._list.answer(request)

    @Route(
        "GET", DEVICE, Role.VIEWER, "One device, its settings, and what it measured over the last hour and day",
        {200: answer("each value is the highest of its time", reference("DeviceDetails"))},
        takes=[KIND],
        fails=[404],
        scoped=True,
    )  # fmt: skip
    async def _device(self, request: web.Request) -> web.Response:
        fleet, watched, declared = self._find(request)
        series, day = self._hub.coverage.measured(watched)
        return web.json_response(
            {
                "device": self._entries.entry(fleet, watched, declared=declared),
                "measured": [vars(quantity) for quantity in series],
                "slotNs": str(SLOT),
                "day": [vars(quantity) for quantity in day],
                "daySlotNs": str(DAY_SLOT),
                "login": watched.device.credentials,
                "regions": list(_regions(watched.device)),
                "judged": [json_format.MessageToDict(judged) for judged in watched.judged],
            }
        )

    @Route(
        "GET", f"{DEVICE}/snapshot.jpg", Role.VIEWER, "A device's latest picture",
        {200: file_of("the picture", JPEG)},
        takes=[KIND],
        fails=[404],
        scoped=True,
    )  # fmt: skip
    async def _snapshot(self, request: web.Request) -> web.Response:
        return picture_response(self._find(request)[1].picture)

    @Route(
        "GET", "/v1/snapshot/{device}.jpg", Role.VIEWER, "The latest picture of the first device with that id",
        {200: file_of("the picture", JPEG)},
        fails=[404],
        scoped=True,
    )  # fmt: skip
    async def _first_snapshot(self, request: web.Request) -> web.Response:
        scope = request[PRINCIPAL].scope
        for fleet, watched in self._hub.coverage.book.devices():
            named = watched.device.id == request.match_info["device"]
            if named and watched.picture and scope.has_device(fleet.name, watched.device.zone):
                return picture_response(watched.picture)
        return picture_response(b"")

    @Route(
        "GET", f"{DEVICE}/thermal", Role.VIEWER, "A sensor's latest thermal picture",
        {200: answer("24 rows of 32", reference("Thermal"))},
        takes=[KIND],
        fails=[404],
        scoped=True,
    )  # fmt: skip
    async def _thermal(self, request: web.Request) -> web.Response:
        watched = self._find(request)[1]
        if watched.thermal is None:
            raise Refused(404, f"there is no thermal picture of {watched.device.id}")
        return web.json_response(
            {
                "celsius": [round(value, 1) if math.isfinite(value) else None for value in watched.thermal.celsius],
                "relative": watched.thermal.relative,
                "timeNs": self._entries.label(watched.thermal_ns),
                "areas": [_area(area) for area in watched.thermal.areas],
            }
        )

    def _find(self, request: web.Request) -> tuple[Fleet, Watched, bool]:
        return find_device(self._hub, request)


def _regions(device: Device) -> Iterator[Json]:
    """Yield the masks of a camera, and the measuring areas of a device."""
    for kind, outlines in (("mask", device.masks), ("privacy", device.privacy_masks)):
        for outline in outlines:
            yield _area(Area(outline=outline)) | {"kind": kind}
    yield from map(_area, device.areas)


def find_device(hub: Hub, request: web.Request) -> tuple[Fleet, Watched, bool]:
    """Find the fleet and the device that the path names; True if it is declared.

    Refused if there is none, or none in the caller's scope.
    """
    names, scope = request.match_info, request[PRINCIPAL].scope
    name, book = f"{names['namespace']}/{names['kind']}/{names['fleet']}", hub.coverage.book
    declared = book.find(name, names["device"])
    if declared and scope.has_device(name, declared[1].device.zone):
        return (*declared, True)
    undeclared = None if declared else book.undeclared_device(name, names["device"])
    if undeclared is None or not scope.has_device(name, undeclared.device.zone):
        raise Refused(404, f"{name} declares no device {names['device']}")
    return book.fleets[name], undeclared, False


def picture_response(picture: bytes) -> web.Response:
    """Answer with a JPEG; Refused if it is empty."""
    if not picture:
        raise Refused(404, "there is no such picture")
    return web.Response(body=picture, content_type=JPEG)


def _area(area: Area) -> Json:
    """A measuring area as declared; its corners in shares of the picture."""
    return {
        "name": area.name,
        "kind": Area.Kind.Name(area.kind).removeprefix("KIND_").lower(),
        "limit": round(area.limit, 2),
        "x": [round(x, 4) for x in area.outline.x],
        "y": [round(y, 4) for y in area.outline.y],
    }

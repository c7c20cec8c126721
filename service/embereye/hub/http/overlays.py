"""Routes of overlays: thermal pictures over cameras' pictures.

Both devices have to be declared when an overlay is stored. `Overlays` owns all overlays, makes a change durable before
it is answered, and checks position and scale.
"""

from dataclasses import asdict

from aiohttp import web

from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import CHANGES, NOTHING, SHARE, WORD, answer, json_body, list_of, record, reference
from embereye.hub.http.parameters import amount_of, read_json, text_of
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import HubRoutes, Route
from embereye.hub.roles import Role
from embereye.hub.tables.overlays import CameraKey, Overlay

OVERLAY = "/v1/overlays/{namespace}/{fleet}/{device}"


class OverlayRoutes(HubRoutes):
    """Serves overlays."""

    @Route(
        "GET", "/v1/overlays", Role.VIEWER, "Thermal pictures over cameras' pictures",
        {200: answer("by camera", record({"overlays": list_of(reference("Overlay"))}))},
        scoped=True,
    )  # fmt: skip
    async def _list(self, request: web.Request) -> web.Response:
        overlays = [
            {"camera": {"fleet": fleet, "id": camera}, **asdict(overlay)}
            for (fleet, camera), overlay in self._hub.overlays.all()
            if self._is_visible(request, fleet, camera) and self._is_visible(request, overlay.fleet, overlay.sensor)
        ]
        return web.json_response({"overlays": overlays})

    def _is_visible(self, request: web.Request, fleet: str, device: str) -> bool:
        """True if the device is in the caller's scope."""
        scope, declared = request[PRINCIPAL].scope, self._hub.coverage.book.find(fleet, device)
        if declared is None:
            return not scope.is_limited
        return scope.has_device(fleet, declared[1].device.zone)

    @Route(
        "PUT", OVERLAY, Role.OPERATOR, "Lay a sensor's thermal picture over a camera's; it replaces an older one",
        {200: answer("it is durable", reference("Overlay"))},
        fails=(*CHANGES, 404, 503),
        body=json_body(
            record(
                {
                    "fleet": {"type": "string", "description": "of the sensor: NAMESPACE/KIND/NAME"}, "sensor": WORD,
                    "x": SHARE, "y": SHARE,
                    "scale": {"type": "number", "minimum": 0.05, "maximum": 4}, "opacity": SHARE,
                }
            )
        ),
        scoped=True,
    )  # fmt: skip
    async def _store(self, request: web.Request) -> web.Response:
        body, camera, find = await read_json(request), _camera(request), self._hub.coverage.book.find
        overlay = Overlay(
            text_of(body, "fleet"), text_of(body, "sensor"),
            *(amount_of(body, name) for name in ("x", "y", "scale", "opacity")),
        )  # fmt: skip
        for fleet, device in (camera, (overlay.fleet, overlay.sensor)):
            if find(fleet, device) is None or not self._is_visible(request, fleet, device):
                raise Refused(404, f"{fleet[:300]} declares no device {device[:80]}")
        await self._hub.overlays.store(request[PRINCIPAL], camera, overlay)
        return web.json_response({"camera": {"fleet": camera[0], "id": camera[1]}, **asdict(overlay)})

    @Route(
        "DELETE", OVERLAY, Role.OPERATOR, "Remove the overlay",
        {200: answer("it is removed", NOTHING)},
        fails=(404, 503),
        scoped=True,
    )  # fmt: skip
    async def _remove(self, request: web.Request) -> web.Response:
        fleet, camera = _camera(request)
        if not self._is_visible(request, fleet, camera):
            raise Refused(404, f"{fleet[:300]} has no overlay at {camera[:80]}")
        await self._hub.overlays.remove(request[PRINCIPAL], (fleet, camera))
        return web.json_response({})


def _camera(request: web.Request) -> CameraKey:
    names = request.match_info
    return f"{names['namespace']}/cameras/{names['fleet']}", names["device"]

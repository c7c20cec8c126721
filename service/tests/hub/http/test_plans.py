"""Plans over HTTP: upload, devices, pictures and roles."""

from collections.abc import Mapping

import cv2
import numpy as np
import pytest

from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store
from embereye.hub.http import plans
from embereye.hub.roles import Principal, Role

from .served import Served

PNG = bytes(cv2.imencode(".png", np.full((60, 100, 3), 200, np.uint8))[1])
OTHER = bytes(cv2.imencode(".png", np.full((60, 100, 3), 20, np.uint8))[1])
ADA = Principal("Ada", Role.ADMIN, "Ada")
URL = "/v1/plans/Ground%20floor"
PLACED = f"{URL}/devices/default/sensors/hall/s-01"


async def upload(
    served: Served, data: bytes = PNG, media: str = "image/png", shown: Mapping[str, str] | None = None
) -> tuple[int, str]:
    headers = {"Content-Type": media, **(shown or {})}
    async with served.session.put(served.base + URL, data=data, headers=headers) as response:
        return response.status, await response.text()


async def test_a_plan_is_uploaded_furnished_and_served(served: Served) -> None:
    served.coverage()
    assert (await upload(served))[0] == 200
    _, listed = await served.get("/v1/plans")
    (plan,) = listed["plans"]
    assert (plan["name"], plan["width"], plan["height"], plan["madeBy"]) == ("Ground floor", 100, 60, "admin")
    async with served.session.get(served.base + plan["image"]) as response:
        assert (response.status, response.content_type) == (200, "image/png")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "immutable" in response.headers["Cache-Control"]
        assert (await response.read()).startswith(b"\x89PNG")
    async with served.session.get(f"{served.base}{URL}/image") as response:
        assert response.headers["Cache-Control"] == "no-cache"
    status, placed = await served.put(PLACED, {"x": 0.25, "y": 1})
    assert (status, placed["zone"], placed["covered"]) == (200, "hall", True)
    _, furnished = await served.get(URL)
    assert furnished["devices"] == [placed]
    async with served.session.delete(served.base + PLACED) as response:
        assert response.status == 200
    async with served.session.delete(served.base + URL) as response:
        assert response.status == 200
    assert (await served.get(URL))[0] == (await served.get(f"{URL}/image"))[0] == 404


async def test_a_picture_that_is_not_stored_yet_is_neither_served_nor_cached(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(served)

    def fail(store: Store, transaction: object) -> None:
        raise StoreError("database or disk is full")

    async def picture() -> tuple[int, bool]:
        _, listed = await served.get("/v1/plans")
        async with served.session.get(served.base + listed["plans"][0]["image"]) as response:
            return response.status, "immutable" in response.headers["Cache-Control"]

    with monkeypatch.context() as fault:
        fault.setattr(Store, "commit", fail)
        assert (await upload(served, OTHER))[0] == 503
        assert await picture() == (503, False), "the previous plan's picture under the new address"
    assert await served.hub.committer.flush(10)
    assert await picture() == (200, True)


async def test_an_invalid_plan_is_refused_with_a_reason(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.coverage()
    assert "is an SVG" in (await upload(served, b"<svg/>"))[1]
    assert (await upload(served, b"<svg/>"))[0] == 400
    assert (await upload(served, PNG, "image/svg+xml"))[0] == 415
    await upload(served)
    monkeypatch.setattr(plans, "MAX_BYTES", 64)
    assert (await upload(served))[0] == 413
    for body, why in (
        ({"x": 2, "y": 0}, "x: 2 is not a number from 0 to 1"),
        ({"x": 0}, "y: null"),
        ({"x": True}, "x:"),
    ):
        status, refusal = await served.put(PLACED, body)
        assert (status, why in str(refusal["error"])) == (400, True)
    status, refusal = await served.put(PLACED.replace("s-01", "s-99"), {"x": 0, "y": 0})
    assert (status, refusal["error"]) == (
        404, "default/sensors/hall declares no device s-99"
    )  # fmt: skip


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.OPERATOR, 403), (Role.ADMIN, 200)])
async def test_everybody_sees_plans_and_only_admins_change_them(served: Served, role: Role, status: int) -> None:
    served.coverage()
    await upload(served)
    shown = {"Authorization": f"Bearer {await served.hub.access.create_token(ADA, 'somebody', role)}"}
    assert (await served.get(URL, **shown))[0] == 200
    assert (await upload(served, shown=shown))[0] == status
    for method, path, body in (("PUT", PLACED, {"x": 0, "y": 0}), ("DELETE", PLACED, None), ("DELETE", URL, None)):
        async with served.session.request(method, served.base + path, json=body, headers=shown) as response:
            assert (method, path, response.status) == (method, path, status)


@pytest.mark.parametrize("number", ["1" + 400 * "0", "1e999", "NaN", "true", '"1"', "null"])
async def test_an_overlay_needs_finite_numbers(served: Served, number: str) -> None:
    body = f'{{"fleet": "default/sensors/hall", "sensor": "s-01", "x": {number}, "y": 0, "scale": 1, "opacity": 1}}'
    served.coverage()
    async with served.session.put(
        f"{served.base}/v1/overlays/default/hall/c", data=body, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status in {400, 404}, await response.text()

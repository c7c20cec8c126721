"""Two fleets that declare the same device or port: both say so, until one of them changes or goes."""

from dataclasses import replace
from typing import Any

import pytest

from embereye_operator.decide.claims import Claims

from ..api.test_schema import manifest
from ..fakes import SETTINGS, World


def fleet(name: str, claims: Claims, *ids: str, namespace: str = "default", **spec: Any) -> World:
    spec = {"sensors": [{"id": device, "zone": "hall"} for device in ids], "shards": 1, **spec}
    world = World(manifest(name=name, namespace=namespace, spec=spec))
    world.settings = replace(SETTINGS, claims=claims)
    return world


def degraded(world: World) -> tuple[str, str]:
    conditions = world.runtime.statuses[-1]["conditions"]
    return next((entry["reason"], entry["message"]) for entry in conditions if entry["type"] == "Degraded")


async def both(*worlds: World) -> None:
    for _ in range(6):
        for world in worlds:
            await world.step()


async def test_both_fleets_name_the_device_that_they_share_and_an_event_does() -> None:
    claims = Claims()
    hall, yard = fleet("hall", claims, "s-1", "s-2"), fleet("yard", claims, "s-2", "s-3")
    await both(hall, yard)
    for world, other in ((hall, "yard"), (yard, "hall")):
        expected = (
            f"s-2 is also declared by default/sensors/{other}: both watch it, and it could confirm its own alarm. "
            "Remove it from one of them"
        )
        assert degraded(world) == ("DeviceShared", expected)
        assert world.runtime.events.count(f"Warning DeviceShared: {expected}") == 1
    yard.manifest["spec"]["sensors"].pop(0)
    await both(hall, yard)
    assert [degraded(world)[0] for world in (hall, yard)] == ["AsExpected", "AsExpected"]


async def test_a_deleted_fleet_shares_nothing_any_more() -> None:
    claims = Claims()
    hall, yard = fleet("hall", claims, "s-1"), fleet("yard", claims, "s-1")
    await both(hall, yard)
    assert degraded(hall)[0] == "DeviceShared"
    claims.release("default/sensors/yard")
    await both(hall)
    assert degraded(hall)[0] == "AsExpected"


async def test_copies_of_a_manifest_in_other_namespaces_share_no_device() -> None:
    claims = Claims()
    worlds = [fleet("hall", claims, "s-1", namespace=namespace) for namespace in ("north", "south")]
    await both(*worlds)
    assert [degraded(world)[0] for world in worlds] == ["AsExpected", "AsExpected"]


def exposed(**ports: int) -> dict[str, Any]:
    return {"type": "NodePort", "advertisedHost": "10.0.0.1", "ports": ports}


async def test_both_fleets_name_the_node_port_that_they_share_but_no_foreign_fleet() -> None:
    claims = Claims()
    north = fleet("hall", claims, "s-1", namespace="north", expose=exposed(grpc=30051, shards=30060))
    south = fleet("hall", claims, "s-1", namespace="south", expose=exposed(tcp=30060))
    await both(north, south)
    for world in (north, south):
        assert degraded(world) == (
            "PortShared",
            "node port 30060 is also declared by a fleet elsewhere: only one of them can have it. Choose another port",
        )


@pytest.mark.parametrize(("listener", "reason"), [("text", "PortShared"), ("other", "AsExpected")])
async def test_a_gateways_listener_belongs_to_one_fleet(listener: str, reason: str) -> None:
    claims = Claims()
    worlds = [
        fleet(name, claims, device, expose={
            "type": "Gateway", "advertisedHost": "{name}.x", "gateway": {"name": "edge", "tcpListener": port},
        })
        for name, device, port in (("hall", "s-1", "text"), ("yard", "s-2", listener))
    ]  # fmt: skip
    await both(*worlds)
    assert {degraded(world)[0] for world in worlds} == {reason}

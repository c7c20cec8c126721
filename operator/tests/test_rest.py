"""Idle fleets among many: how often they get passes, and that they are not forgotten."""

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import Load
from embereye_operator.controller import MAX_PERIOD, PERIOD, FleetRecord, rest_period

from .api.test_schema import manifest
from .fakes import World

STABILIZATION = 60


def fleet(**autoscaling: object) -> World:
    limits = {"minShards": 1, "maxShards": 4, "scaleDown": {"stabilization": f"{STABILIZATION}s"}, **autoscaling}
    sensors = [{"id": f"s-{number}", "zone": "hall"} for number in range(4)]
    return World(manifest(spec={"sensors": sensors, "shards": 2, "autoscaling": limits}))


def load(world: World, cores: float) -> None:
    for shard in world.runtime.shards.values():
        share = cores / len(world.runtime.shards)
        shard.load = Load(arrival_rate=1000 * share, cost_seconds=0.001, utilization=share)


async def watched(world: World, record: FleetRecord, seconds: float, fleets: int, *, cores: float) -> tuple[int, int]:
    """Run passes as the controller does, with a test clock; return their number, and when shards were first removed."""
    passes, shrunk = 0, -1
    for tick in range(int(seconds / PERIOD)):
        if record.is_resting(world.now / SECOND, fleets):
            world.now += int(PERIOD * SECOND)
            continue
        load(world, cores)
        outcome = await world.step()
        record.note_success(outcome, world.now / SECOND)
        passes += 1
        if shrunk < 0 and any("scale from 2" in action for action in outcome.actions):
            shrunk = int(tick * PERIOD)
    return passes, shrunk


@pytest.mark.parametrize("fleets", [1, 1000, 5000])
async def test_an_idle_fleet_among_many_shrinks_soon_after_its_stabilization(fleets: int) -> None:
    world, record = fleet(targetUtilization=0.2), FleetRecord()
    await watched(world, record, 40, fleets, cores=0.3)
    passes, shrunk = await watched(world, record, 600, fleets, cores=0.3)
    assert shrunk < 0, "it needs both"
    assert passes <= 600 / rest_period(fleets) + 2, "it is at rest"
    _, shrunk = await watched(world, record, STABILIZATION + 2 * MAX_PERIOD, fleets, cores=0.001)
    assert 0 <= shrunk <= STABILIZATION + 60


@pytest.mark.parametrize("mode", [{"mode": "none"}, {"mode": "hpa"}, {"observe": True}])
async def test_an_idle_fleet_that_we_do_not_scale_rests(mode: dict[str, object]) -> None:
    world, record = fleet(**mode), FleetRecord()
    world.runtime.missing.discard("HorizontalPodAutoscaler")
    await watched(world, record, 60, 1000, cores=0.001)
    passes, shrunk = await watched(world, record, 600, 1000, cores=0.001)
    assert passes <= 22
    assert shrunk < 0

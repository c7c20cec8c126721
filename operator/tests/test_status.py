"""Statuses that cannot be written, and what a new operator or shard still says about silent devices."""

import logging
import random

import pytest

from embereye.units import SECOND, utc
from embereye.v1.roster_pb2 import FleetLedger
from embereye.v1.shard_pb2 import Assignment, Load
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.shared import Autoscaling
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.ownership.staleness import RefusedStatus, why_stale
from embereye_operator.decide.scaling.law import measure, terms
from embereye_operator.decide.status import read_status

from .api.test_schema import manifest
from .fakes import FakeShard, World

NOT_WRITTEN = "the status cannot be written: forbidden"


@pytest.fixture
def world() -> World:
    return World(
        manifest(spec={"sensors": [{"id": f"s-{number}", "zone": "hall"} for number in range(4)], "shards": 2})
    )


def shard_of(world: World, device: str) -> FakeShard:
    return world.runtime.shards[world.owners()[device][0]]


def reason(world: World, device: str) -> str:
    dark = world.runtime.statuses[-1]["devices"]["dark"]
    return next((entry["reason"] for entry in dark if entry["id"] == device), "")


async def test_a_forbidden_status_is_logged_and_becomes_an_event_and_a_condition(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.run_until_complete()
    world.runtime.refused["Status", "hall"] = NOT_WRITTEN
    shard_of(world, "s-1").dark["s-1"] = "blind"
    stored, known = len(world.runtime.statuses), len(world.runtime.events)
    with caplog.at_level(logging.INFO):
        outcomes = [await world.step() for _ in range(20)]
    assert len(world.runtime.statuses) == stored
    covered, degraded = (outcomes[-1].status.condition(type_) for type_ in ("Covered", "Degraded"))
    assert covered is not None
    assert covered.status == "False", "metrics have the present status"
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "StatusNotWritten")
    assert sum("the status cannot be written" in message for message in caplog.messages) == 1
    assert f"Warning StatusNotWritten: {NOT_WRITTEN}" in world.runtime.events
    assert sum(event.startswith("Warning NotCovered") for event in world.runtime.events[known:]) == 1


async def test_once_it_is_allowed_the_status_is_written_with_the_present_time(world: World) -> None:
    await world.run_until_complete()
    stored = len(world.runtime.statuses)
    world.runtime.refused["Status", "hall"] = NOT_WRITTEN
    shard_of(world, "s-1").dark["s-1"] = "blind"
    await world.step()
    shard_of(world, "s-1").dark.clear()  # as in the stored status
    await world.step()
    del world.runtime.refused["Status", "hall"]
    for _ in range(10):  # refused writes are repeated after a while
        await world.step()
    status = world.runtime.statuses[-1]
    assert status["lastObserved"] > utc(world.now - 20 * SECOND)
    assert world.memory.unwritten is None
    assert len(world.runtime.statuses) == stored + 1


def fleet_with(status: dict[str, object]) -> Fleet:
    world = World(manifest())
    world.runtime.statuses.append(status)
    return world.fleet


@pytest.mark.parametrize(("time", "stale"), [("2027-01-01T00:00:01Z", True), ("2027-01-01T00:00:00Z", False)])
def test_commands_doubt_a_status_older_than_the_event_about_it(time: str, stale: bool) -> None:
    fleet = fleet_with({"lastObserved": "2027-01-01T00:00:00Z"})
    now = 1_798_761_610 * SECOND
    why = why_stale(fleet, {}, now, {fleet.uid: RefusedStatus(NOT_WRITTEN, time)})
    assert why == (f"nobody has observed the fleet since 2027-01-01T00:00:00Z: {NOT_WRITTEN}" if stale else "")


async def silence(world: World, device: str) -> int:
    """Restart the shard of `device`, which is silent from now on; return when it was last heard."""
    shard, heard = shard_of(world, device), world.now - 5 * SECOND
    shard.heard_ns = heard
    await world.step()
    shard.heard_ns = 0
    shard.dark[device] = "never heard"
    return heard


async def test_a_restarted_shard_does_not_make_a_silent_device_never_heard(world: World) -> None:
    await world.run_until_complete()
    heard = await silence(world, "s-1")
    await world.step()
    assert reason(world, "s-1") == f"silent since {utc(heard)}"


async def test_a_restarted_operator_repeats_since_when_a_device_is_silent(world: World) -> None:
    await world.run_until_complete()
    heard = await silence(world, "s-1")
    await world.step()
    for _ in range(3):
        world.memory = FleetMemory()
        await world.step()
        assert reason(world, "s-1") == f"silent since {utc(heard)}"


async def test_after_a_restart_of_both_a_device_is_not_called_never_heard(world: World) -> None:
    await world.run_until_complete()
    await silence(world, "s-1")
    for _ in range(3):
        world.memory = FleetMemory()
        await world.step()
        assert reason(world, "s-1") == "not heard since its shard started"


async def test_a_device_that_sleeps_is_not_unheard_either_after_restarts(world: World) -> None:
    await world.run_until_complete()
    await silence(world, "s-1")
    shard_of(world, "s-1").dark["s-1"] = "no check-in yet, one is expected every 8 h"
    for _ in range(3):
        world.memory = FleetMemory()
        await world.step()
        assert reason(world, "s-1") == "not heard since its shard started, one is expected every 8 h"


async def test_a_new_device_is_never_heard(world: World) -> None:
    await world.run_until_complete()
    world.manifest["spec"]["sensors"].append({"id": "s-9", "zone": "hall"})
    await world.step()
    shard_of(world, "s-9").dark["s-9"] = "never heard; no connection"
    for _ in range(3):
        await world.step()
        assert reason(world, "s-9") == "never heard; no connection"


async def test_ten_minutes_of_a_load_around_a_boundary_write_no_status() -> None:
    sensors = [{"id": f"s-{number}", "zone": "hall"} for number in range(6)]
    world = World(manifest(spec={"sensors": sensors, "shards": 2, "autoscaling": {"minShards": 1, "maxShards": 4}}))
    await world.run_until_complete()
    randomly, required = random.Random(27), set[int]()

    async def step() -> None:
        load = Load(arrival_rate=randomly.uniform(338, 354), cost_seconds=0.001, utilization=0.3)
        measured = measure([load, load])
        assert measured is not None
        required.add(terms(measured, Autoscaling(), lead=world.memory.lead).shards)
        for shard in world.runtime.shards.values():
            shard.load = load
        await world.step()

    for _ in range(5):
        await step()
    world.runtime.statuses.clear()
    for _ in range(300):
        await step()
    assert world.runtime.statuses == []
    assert required == {1, 2}, "the load is around the boundary"


@pytest.mark.parametrize("mode", ["none", "hpa"])
async def test_ten_minutes_of_wobbling_figures_write_no_status(mode: str) -> None:
    sensors = [{"id": f"s-{number}", "zone": "hall"} for number in range(6)]
    scaling = {"mode": mode, "minShards": 2, "maxShards": 4}
    world = World(manifest(spec={"sensors": sensors, "shards": 2, "autoscaling": scaling}))
    world.runtime.missing.discard("HorizontalPodAutoscaler")
    await world.run_until_complete()
    randomly = random.Random(49)

    def wobble(number: int) -> None:
        for shard in world.runtime.shards.values():
            shard.heard_ns = world.now - randomly.randrange(SECOND)
            shard.load = Load(
                arrival_rate=randomly.uniform(150, 180), cost_seconds=randomly.uniform(0.0009, 0.0011),
                utilization=randomly.uniform(0.15, 0.2), queue_depth=randomly.randrange(20),
                oldest_age_ns=randomly.randrange(SECOND // 10),
            )  # fmt: skip
        late = randomly.uniform(10, 99)
        shard_of(world, "s-1").dark["s-1"] = f"heard, but last analysed {late:.1f} s ago, deadline 5 s"
        shard_of(world, "s-2").degraded["s-2"] = f"{randomly.randrange(9, 99)} of 768 thermal pixels are noisy"
        offered = 100_000 + 40 * number
        world.runtime.ledger = FleetLedger(
            time_ns=world.now, offered=offered, analysed=offered - 50, shed=40 + number // 60, duplicate=number
        )

    for _ in range(30):  # the first figures are news
        wobble(0)
        await world.step()
    world.runtime.statuses.clear()
    actions = []
    for number in range(300):
        wobble(number)
        actions += (await world.step()).actions
    assert actions == []
    assert world.runtime.statuses == []


async def test_a_password_in_a_manifest_is_a_condition_until_it_is_gone() -> None:
    cameras = [
        {"id": "gate", "zone": "yard", "source": "rtsp://viewer:secret@10.0.0.7/live"},
        {"id": "door", "zone": "yard", "source": "rtsp://10.0.0.8:554/live?x=a@b:c"},
    ]
    world = World(manifest("CameraFleet", spec={"cameras": cameras, "shards": 1}))
    await world.run_until_complete()
    outcome = await world.step()
    condition = outcome.status.condition("PasswordsSeparate")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "InManifest")
    assert condition.message.startswith("the source of gate contains a password")
    assert "secret" not in condition.message
    cameras[0]["source"] = "rtsp://10.0.0.7/live"
    await world.run_until_complete()
    outcome = await world.step()
    assert outcome.status.condition("PasswordsSeparate") is None


async def test_trouble_that_passes_within_seconds_is_not_written(world: World) -> None:
    await world.run_until_complete()
    stored = len(world.runtime.statuses)
    for _ in range(3):
        world.runtime.hub_is_down = True
        outcomes = [await world.step() for _ in range(2)]
        assert answer(outcomes[-1].status, "Degraded") == "True", "metrics have the present status"
        world.runtime.hub_is_down = False
        await world.step()
    assert len(world.runtime.statuses) == stored


async def test_trouble_that_lasts_is_written_once_and_its_end_at_once(world: World) -> None:
    await world.run_until_complete()
    stored = len(world.runtime.statuses)
    world.runtime.hub_is_down = True
    for _ in range(10):
        await world.step()
    assert len(world.runtime.statuses) == stored + 1
    assert answer(read_status(world.runtime.statuses[-1]), "Degraded") == "True"
    world.runtime.hub_is_down = False
    await world.step()
    assert len(world.runtime.statuses) == stored + 2
    assert answer(read_status(world.runtime.statuses[-1]), "Degraded") == "False"


async def test_a_new_operator_corrects_the_status_in_its_first_pass(world: World) -> None:
    await world.run_until_complete()
    world.runtime.hub_is_down = True
    await world.step()
    assert answer(read_status(world.runtime.statuses[-1]), "Degraded") == "False"
    world.memory = FleetMemory()
    await world.step()
    assert answer(read_status(world.runtime.statuses[-1]), "Degraded") == "True"


async def test_a_dark_device_is_written_at_once_also_while_others_are_dark(world: World) -> None:
    await world.run_until_complete()
    for device in ("s-1", "s-2"):
        stored = len(world.runtime.statuses)
        shard_of(world, device).dark[device] = "blind"
        await world.step()
        assert len(world.runtime.statuses) == stored + 1
        assert reason(world, device) == "blind"
    del shard_of(world, "s-2").dark["s-2"]
    await world.step()
    assert reason(world, "s-2") == "blind", "that it is watched again may wait: s-1 is still dark"
    shard_of(world, "s-3").dark["s-3"] = "blind"
    await world.step()
    assert reason(world, "s-3") == "blind", "as many are dark as in the stored status, but not the same"


async def test_a_shard_that_restarts_costs_two_writes_of_the_status(world: World) -> None:
    await world.run_until_complete()
    stored, shard = len(world.runtime.statuses), shard_of(world, "s-1")
    shard.reachable = False
    await world.step()
    assignment, shard.reachable, shard.assignment = shard.assignment, True, Assignment()
    shard.slow = 2
    await world.step()
    shard.accept(assignment)
    for _ in range(6):
        await world.step()
    covered = [answer(read_status(status), "Covered") for status in world.runtime.statuses[stored:]]
    assert covered == ["False", "True"]


async def test_numbers_alone_are_written_only_once_they_have_lasted_for_a_minute(world: World) -> None:
    await world.run_until_complete()
    world.runtime.ledger = FleetLedger(offered=1000, analysed=1000, time_ns=world.now)
    shard = shard_of(world, "s-1")
    stored = len(world.runtime.statuses)
    for number in range(60):
        shard.load = Load(arrival_rate=500 if number % 20 < 10 else 5)
        await world.step()
    assert len(world.runtime.statuses) <= stored + 1, "the first ledger is news"
    for _ in range(40):
        await world.step()
    assert read_status(world.runtime.statuses[-1]).load == world.memory.status.load if world.memory.status else False
    assert len(world.runtime.statuses) <= stored + 2


async def test_more_messages_without_losses_are_no_news(world: World) -> None:
    await world.run_until_complete()
    world.runtime.ledger = FleetLedger(offered=1000, analysed=1000, time_ns=world.now)
    for _ in range(40):
        await world.step()
    stored = len(world.runtime.statuses)
    for number in range(1, 100):
        world.runtime.ledger = FleetLedger(offered=1000 * number, analysed=1000 * number, time_ns=world.now)
        await world.step()
    assert len(world.runtime.statuses) == stored


def answer(status: FleetStatus, type_: str) -> str:
    condition = status.condition(type_)
    return condition.status if condition else ""

"""Passes against a runtime in memory."""

import json
import random
import re
from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetLedger
from embereye.v1.shard_pb2 import Load
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.device_lists import decode_lists
from embereye_operator.decide.fleet_memory import REFUSED, FleetMemory
from embereye_operator.decide.manifests.config_map import PLACEMENT_KEY
from embereye_operator.decide.manifests.services import push_name
from embereye_operator.decide.status import LASTING_SECONDS, NUMBERS_SECONDS

from .api.test_schema import camera, manifest
from .fakes import World

PLACEMENT = ("ConfigMap", "hall-sensors-placement")


def fleet_of(count: int = 12, shards: int = 1, **spec: Any) -> dict[str, Any]:
    sensors = [{"id": f"s-{number:02}", "zone": "hall"} for number in range(count)]
    return manifest(spec={"sensors": sensors, "shards": shards, **spec}, uid="u-1", generation=1)


def condition(status: Any, type_: str) -> tuple[str, str, str]:
    entry = status.condition(type_)
    return entry.status, entry.reason, entry.message


def record(world: World) -> Any:
    return json.loads(world.runtime.objects[PLACEMENT]["data"][PLACEMENT_KEY])


async def test_a_new_fleet_gets_its_children_the_placement_first() -> None:
    world = World(fleet_of(shards=2))
    await world.step()
    assert world.runtime.log == [
        "apply ConfigMap hall-sensors-placement",
        "apply Service hall-sensors-0",
        "apply Service hall-sensors-1",
        "apply Service hall-sensors",
        "apply PodDisruptionBudget hall-sensors",
        "apply Deployment hall-sensors-0",
        "apply Deployment hall-sensors-1",
        "status",
    ]
    for child in world.runtime.objects.values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("SensorFleet", "u-1", True)


async def test_a_complete_fleet_is_covered_and_nothing_more_is_written() -> None:
    world = World(fleet_of(shards=2))
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Covered") == ("True", "AllCovered", "all 12 devices are watched")
    assert condition(outcome.status, "Ready")[0] == "True"
    assert outcome.status.devices.summary == "12/12"
    assert outcome.status.ready_shards == outcome.status.shards == 2
    assert all(len(owners) == 1 for owners in world.owners().values())
    assert len(world.owners()) == 12
    world.runtime.log.clear()
    for _ in range(3):
        await world.step()
    assert world.runtime.log == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("its picture does not change", "s-00 (its picture does not change)"),
        ("silent for 7.0 s, deadline 5 s", "s-00 (silent since 2027-01-15T07:00:"),
    ],
)
async def test_a_shards_slow_clock_makes_no_device_silent(reason: str, expected: str) -> None:
    world = World(fleet_of(1))
    await world.run_until_complete()
    (shard,) = world.runtime.shards.values()
    shard.heard_ns, shard.dark["s-00"] = world.now - 3_600 * SECOND, reason
    outcome = await world.step()
    assert expected in condition(outcome.status, "Covered")[2]


async def test_a_fleet_of_one_device_is_described_in_the_singular() -> None:
    world = World(fleet_of(1))
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Covered") == ("True", "AllCovered", "the one device is watched")
    assert condition(outcome.status, "Ready") == ("True", "AllShardsReady", "1 of 1 shard is ready")


async def test_a_new_shard_owns_nothing_until_it_answers() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.manifest = fleet_of(shards=3)
    world.runtime.starts_shards = False
    outcome = await world.step()
    await world.step()
    assert set(world.runtime.objects) >= {("Deployment", "hall-sensors-1"), ("Deployment", "hall-sensors-2")}
    assert {owner for owners in world.owners().values() for owner in owners} == {"hall-sensors-0"}
    assert condition(outcome.status, "Covered")[0] == "True"
    assert condition(outcome.status, "Progressing")[:2] == ("True", "ShardsComing")
    assert record(world)["epoch"] == 1, "a shard without devices does not change the others' epoch"
    world.runtime.starts_shards = True
    for name in ("hall-sensors-1", "hall-sensors-2"):
        await world.runtime.apply(world.runtime.objects["Deployment", name])
    await world.run_until_complete()
    assert {owner for owners in world.owners().values() for owner in owners} == {
        "hall-sensors-0",
        "hall-sensors-1",
        "hall-sensors-2",
    }
    assert record(world)["epoch"] == 3, "one to give devices to both, one to take them from the old owner"


async def test_shards_that_gain_devices_are_assigned_before_those_that_lose_them() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.manifest = fleet_of(shards=2)
    await world.step()
    world.runtime.log.clear()
    await world.run_until_complete()
    assigns = [entry for entry in world.runtime.log if entry.startswith("assign")]
    assert assigns[:2] == ["assign hall-sensors-1", "assign hall-sensors-0"]


async def test_a_leaving_shard_is_deleted_only_after_the_others_took_over() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    world.manifest = fleet_of(shards=1)
    world.runtime.shards["hall-sensors-0"].reachable = False
    for _ in range(3):
        outcome = await world.step()
    assert ("Deployment", "hall-sensors-1") in world.runtime.objects
    assert condition(outcome.status, "Progressing")[1] == "ShardsLeaving"
    world.runtime.shards["hall-sensors-0"].reachable = True
    world.runtime.log.clear()
    outcome = await world.run_until_complete()
    log = world.runtime.log
    assert log.index("assign hall-sensors-0") < log.index("delete Deployment hall-sensors-1")
    assert ("Service", "hall-sensors-1") in world.runtime.objects, "its address stays: the shard may return"
    world.manifest["spec"]["autoscaling"] = {"maxShards": 1}
    await world.run_until_complete()
    assert ("Service", "hall-sensors-1") not in world.runtime.objects
    assert set(world.runtime.objects[PLACEMENT]["data"]) == {"hall-sensors-0.json", PLACEMENT_KEY}
    assert world.owners() == {f"s-{number:02}": ["hall-sensors-0"] for number in range(12)}
    assert outcome.status.shards == 1
    assert outcome.status.last_scale is not None
    assert (outcome.status.last_scale.from_, outcome.status.last_scale.to) == (2, 1)


async def test_a_leaving_shard_that_runs_nowhere_is_not_awaited() -> None:
    world = World(fleet_of(shards=3), starts_shards=False)
    await world.step()
    world.manifest = fleet_of(shards=1)
    await world.step()
    assert [name for kind, name in world.runtime.objects if kind == "Deployment"] == ["hall-sensors-0"]


async def test_another_leader_moves_nothing() -> None:
    world = World(fleet_of(shards=3))
    await world.run_until_complete()
    owners, epoch = world.owners(), record(world)["epoch"]
    second = World(fleet_of(shards=3))
    second.runtime = world.runtime
    second.runtime.log.clear()
    await second.step()
    assert second.runtime.log == []
    assert (second.owners(), record(second)["epoch"]) == (owners, epoch)


@pytest.mark.parametrize("status_is_lost", [False, True])
async def test_a_lost_record_is_rebuilt_with_an_epoch_that_shards_accept(status_is_lost: bool) -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    world.manifest = fleet_of(count=13, shards=2)
    await world.run_until_complete()
    owners = world.owners()
    assert record(world)["epoch"] == 2
    del world.runtime.objects[PLACEMENT]
    if status_is_lost:
        world.runtime.statuses.clear()
    outcome = await world.run_until_complete()
    assert record(world)["epoch"] == 3
    assert world.owners() == owners
    assert condition(outcome.status, "Covered")[0] == "True"


@pytest.mark.parametrize(
    "broken",
    [
        {PLACEMENT_KEY: "not json"},
        {PLACEMENT_KEY: "[]"},
        {PLACEMENT_KEY: '{"epoch": "many"}'},
        {"hall-sensors-0.json": "{}"},
        {"hall-sensors-0.json": "garbage"},
        {"hall-sensors-1.json": '{"epoch": "999"}'},
        {"hall-sensors-7.json": "{}"},
        {"note": "left here by somebody"},
    ],
)
async def test_an_edited_record_is_repaired(broken: dict[str, str]) -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    owners = world.owners()
    world.runtime.objects[PLACEMENT]["data"].update(broken)
    outcome = await world.run_until_complete()
    assert set(world.runtime.objects[PLACEMENT]["data"]) == {
        "hall-sensors-0.json",
        "hall-sensors-1.json",
        PLACEMENT_KEY,
    }
    assert world.owners() == owners
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_a_setting_reaches_shards_without_touching_their_deployments() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    world.runtime.log.clear()
    world.manifest = fleet_of(shards=2, deadline="7s")
    await world.run_until_complete()
    assert not [entry for entry in world.runtime.log if "Deployment" in entry]
    for shard in world.runtime.shards.values():
        assert shard.assignment.sensor.deadline_ns == 7 * SECOND
        assert shard.assignment.epoch == 2


async def test_a_restarted_shard_gets_its_assignment_again() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].assignment.Clear()
    outcome = await world.run_until_complete()
    assert world.runtime.shards["hall-sensors-0"].assignment.epoch == 1
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_an_unreachable_shard_darkens_its_devices_and_is_named() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-1"].reachable = False
    outcome = await world.step()
    status, reason, message = condition(outcome.status, "Covered")
    assert (status, reason) == ("False", "ShardUnreachable")
    assert "hall-sensors-1" in message
    assert outcome.status.devices.covered == len(world.runtime.shards["hall-sensors-0"].assignment.devices)
    assert condition(outcome.status, "MetricsAvailable")[0] == "False"
    assert record(world)["epoch"] == 1, "an owner that is absent for a moment stays the owner"


async def test_a_shard_one_epoch_behind_still_covers_its_devices() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].refusal = "not now"
    world.manifest = fleet_of(deadline="7s")
    outcome = await world.step()
    assert condition(outcome.status, "Ready")[0] == "False"
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_a_redeclared_device_is_dark_until_its_shard_knows_it() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    behind = world.runtime.shards["hall-sensors-0"]
    behind.refusal = "not now"
    world.manifest = fleet_of()
    world.manifest["spec"]["sensors"][3]["zone"] = "yard"
    for _ in range(3):
        outcome = await world.step()
        assert condition(outcome.status, "Covered") == (
            "False",
            "DevicesDark",
            "1 of 12 devices is dark: s-03 (hall-sensors-0 works under epoch 1, not yet 2)",
        )
    behind.refusal = ""
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_a_shard_does_not_cover_devices_that_were_taken_from_it() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    behind, second = (world.runtime.shards[f"hall-sensors-{index}"] for index in (0, 1))
    behind.refusal = "not now"
    placement = record(world)
    taken = next(device for device, owner in placement["devices"].items() if owner == behind.name)
    placement["devices"][taken] = second.name
    world.runtime.objects[PLACEMENT]["data"][PLACEMENT_KEY] = json.dumps(placement)
    second.dark[taken] = "never heard"
    outcome = await world.step()
    assert taken in {device.id for device in behind.assignment.devices}, "it still reports the device"
    assert condition(outcome.status, "Covered") == (
        "False",
        "DevicesDark",
        f"1 of 12 devices is dark: {taken} (never heard)",
    )


async def test_a_dark_device_is_named_with_its_reason() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].dark["s-03"] = "never heard"
    outcome = await world.step()
    assert condition(outcome.status, "Covered") == (
        "False",
        "DevicesDark",
        "1 of 12 devices is dark: s-03 (never heard)",
    )
    assert outcome.status.devices.summary == "11/12"


async def test_a_growing_silence_is_written_once() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    shard = world.runtime.shards["hall-sensors-0"]
    shard.dark["s-03"] = "blurred: sharpness 0.31"
    await world.step()
    world.runtime.log.clear()
    for number in range(5):
        shard.dark["s-03"] = f"blurred: sharpness 0.{number}"
        await world.step()
    assert world.runtime.log == []


async def test_noise_in_the_load_is_not_written() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    shard = world.runtime.shards["hall-sensors-0"]
    shard.load = Load(arrival_rate=1000, cost_seconds=0.0001, utilization=0.5, queue_depth=10)
    outcome = await world.last(NUMBERS_SECONDS)
    assert outcome.status.load is not None
    assert outcome.status.load.arrival_rate == 1000
    world.runtime.log.clear()
    for rate in (950, 1040, 1100, 905, 600, 1700, 510):
        shard.load = Load(arrival_rate=rate, cost_seconds=0.0001, utilization=0.5 + rate / 1e5, queue_depth=rate // 100)
        outcome = await world.step()
        assert outcome.actions == ()
        assert outcome.load is not None
        assert outcome.load.arrival_rate == pytest.approx(rate, rel=0.06), "metrics have the load as measured"
    assert world.runtime.log == []
    shard.load = Load(arrival_rate=2100, cost_seconds=0.0001, utilization=0.5)
    outcome = await world.last(NUMBERS_SECONDS)
    assert outcome.actions == ("status: load",)


def degraded_answer(world: World) -> str:
    (condition,) = [entry for entry in world.runtime.statuses[-1]["conditions"] if entry["type"] == "Degraded"]
    return str(condition["status"])


async def test_the_text_of_degraded_is_written_once_it_lasted_for_a_minute() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    shard = world.runtime.shards["hall-sensors-0"]
    shard.degraded = {"s-01": "2 of 10 pictures a second are analysed"}
    await world.last(LASTING_SECONDS)
    assert degraded_answer(world) == "True"
    world.runtime.log.clear()
    for others in (("s-02",), (), ("s-02", "s-03"), ("s-04",)):
        shard.degraded = dict.fromkeys(("s-01", *others), "3 of 10 pictures a second are analysed")
        await world.last(LASTING_SECONDS)
    assert world.runtime.log == []
    await world.last(NUMBERS_SECONDS)
    assert world.runtime.log == ["status"]
    shard.degraded = {}
    await world.last(LASTING_SECONDS)
    assert degraded_answer(world) == "False"


async def test_a_fleet_at_rest_writes_its_status_every_fifteen_minutes() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    shard = world.runtime.shards["hall-sensors-0"]
    for rate in (1000, 700):
        shard.load = Load(arrival_rate=rate, cost_seconds=0.0001, utilization=0.5)
        await world.last(NUMBERS_SECONDS)
    world.runtime.statuses.clear()
    for _ in range(40):
        world.now += 60 * SECOND
        outcome = await world.step()
        assert outcome.actions == ()
    assert [status["lastObserved"] for status in world.runtime.statuses] == sorted(
        {status["lastObserved"] for status in world.runtime.statuses}
    )
    assert len(world.runtime.statuses) == 2


async def test_the_log_says_which_parts_of_a_status_changed() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].dark["s-03"] = "never heard"
    outcome = await world.step()
    (change,) = outcome.actions
    assert change.startswith("status: Covered is False (DevicesDark)")
    assert "11/12 devices covered" in change


async def test_the_ledger_is_written_with_news_and_with_other_changes() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    written = []

    async def write_ledger(**counts: Any) -> None:
        world.runtime.ledger = FleetLedger(time_ns=world.now, **counts)
        before = len(world.runtime.statuses)
        await world.last(NUMBERS_SECONDS)
        written.append(world.runtime.statuses[-1]["ledger"]["offered"] if world.runtime.statuses[before:] else None)

    await write_ledger(offered=100, analysed=100)
    await write_ledger(offered=199, analysed=199)
    await write_ledger(offered=200, analysed=200)
    await write_ledger(offered=210, analysed=205, shed=5)
    await write_ledger(offered=211, analysed=205, shed=6)
    await write_ledger(offered=212, analysed=205, shed=6, rejected=1)
    world.runtime.shards["hall-sensors-0"].dark["s-03"] = "never heard"
    await write_ledger(offered=213, analysed=206, shed=6, rejected=1)
    await write_ledger(offered=5, analysed=5)
    assert written == [100, None, None, 210, None, 212, 213, 5]
    world.runtime.hub_is_down = True
    await world.step()
    assert world.runtime.statuses[-1]["ledger"]["offered"] == 5


async def test_the_hub_gets_a_fleets_load_and_required_shards() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    for shard in world.runtime.shards.values():
        shard.load = Load(arrival_rate=50, cost_seconds=0.001, utilization=0.25, queue_depth=7, oldest_age_ns=SECOND)
    await world.step()
    scaling = world.runtime.scaling
    assert scaling is not None
    assert (scaling.fleet, scaling.shards, scaling.ready_shards, scaling.known) == ("default/sensors/hall", 2, 2, True)
    assert (scaling.load.arrival_rate, scaling.load.queue_depth, scaling.load.utilization) == (100, 14, 0.25)
    assert [(member.shard, member.why_not_ready, member.load.queue_depth) for member in scaling.members] == [
        ("hall-sensors-0", "", 7), ("hall-sensors-1", "", 7),
    ]  # fmt: skip
    world.runtime.hub_is_down = True
    await world.step()  # only the hub needs it


async def test_a_fleet_without_any_messages_writes_its_ledger_once() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    for _ in range(3):
        world.runtime.ledger = FleetLedger(time_ns=world.now)
        await world.last(NUMBERS_SECONDS)
    assert world.runtime.log.count("status") == len(world.runtime.statuses)
    assert sum("ledger" in status for status in world.runtime.statuses) == 1


async def test_a_shard_with_limited_work_degrades_the_fleet() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    for shard in world.runtime.shards.values():
        shard.falls_short = "telemetry.archive: raw readings are not stored: arro3 is missing"
    status, reason, message = condition((await world.step()).status, "Degraded")
    assert (status, reason) == ("True", "ShardDegraded")
    assert message == f"hall-sensors-0, hall-sensors-1: {shard.falls_short}"


async def test_times_of_conditions_change_only_with_their_status() -> None:
    world = World(fleet_of())
    first = (await world.run_until_complete()).status.condition("Covered")
    world.runtime.shards["hall-sensors-0"].dark["s-03"] = "never heard"
    dark = (await world.step()).status.condition("Covered")
    world.runtime.shards["hall-sensors-0"].dark["s-04"] = "never heard"
    darker = (await world.step()).status.condition("Covered")
    assert first is not None
    assert dark is not None
    assert darker is not None
    assert first.last_transition_time < dark.last_transition_time == darker.last_transition_time
    assert darker.message.startswith("2 of 12")


async def test_lost_and_regained_coverage_is_announced() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.events.clear()
    world.runtime.shards["hall-sensors-0"].dark["s-03"] = "never heard"
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].dark.clear()
    await world.run_until_complete()
    assert world.runtime.events == [
        "Warning NotCovered: 1 of 12 devices is dark: s-03 (never heard)",
        "Normal Covered: all 12 devices are watched",
    ]


async def test_a_paused_fleet_is_reported_and_left_alone() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.manifest = fleet_of(count=13, shards=3, paused=True)
    world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["replicas"] = 0
    world.runtime.log.clear()
    outcome = await world.step()
    await world.step()
    assert world.runtime.log == ["status"]
    assert condition(outcome.status, "Progressing")[:2] == ("False", "Paused")
    assert condition(outcome.status, "Covered")[0] == "False", "the thirteenth has no owner"
    assert outcome.status.devices.covered == 12


async def test_a_fleet_without_devices_is_not_covered() -> None:
    outcome = await World(fleet_of(count=0)).run_until_complete()
    assert condition(outcome.status, "Covered")[:2] == ("False", "NothingDeclared")
    listed = await World(fleet_of(count=0, sensorsFrom=[{"configMapRef": {"name": "more"}}])).run_until_complete()
    assert condition(listed.status, "Covered")[2] == "no sensors are declared: ConfigMap more does not exist"


async def test_the_hub_gets_the_roster() -> None:
    world = World(fleet_of(count=2))
    await world.run_until_complete()
    roster = world.runtime.rosters[-1]
    assert (roster.fleet, roster.epoch, roster.deadline_ns) == ("default/sensors/hall", 1, 5 * SECOND)
    assert [device.id for device in roster.devices] == ["s-00", "s-01"]


async def test_an_absent_hub_degrades_the_fleet_and_stops_nothing() -> None:
    world = World(fleet_of())
    world.runtime.hub_is_down = True
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Degraded")[:2] == ("True", "HubUnreachable")
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_a_refused_child_is_reported_and_the_others_are_created() -> None:
    world = World(fleet_of(shards=2))
    world.runtime.refused["Deployment", "hall-sensors-0"] = "Deployment default/hall-sensors-0 is refused: quota"
    outcome = await world.step()
    assert condition(outcome.status, "Degraded")[:2] == ("True", "ApplyRefused")
    assert ("Deployment", "hall-sensors-1") in world.runtime.objects


async def test_without_a_record_nothing_else_is_created_and_an_event_says_so() -> None:
    world = World(fleet_of())
    world.runtime.refused[PLACEMENT] = "ConfigMap default/hall-sensors-placement is refused: quota"
    for _ in range(3):
        outcome = await world.step()
    assert not world.runtime.objects
    assert condition(outcome.status, "Degraded")[:2] == ("True", "ApplyRefused")
    assert condition(outcome.status, "Covered")[0] == "False"
    assert [event for event in world.runtime.events if "quota" in event], "recorded each time"


async def test_a_refused_record_leaves_the_placement_in_force() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    owners = world.owners()
    world.runtime.refused[PLACEMENT] = "quota"
    world.manifest = fleet_of(count=13)
    outcome = await world.step()
    assert world.owners() == owners
    assert outcome.status.devices.declared == 13
    assert condition(outcome.status, "Covered")[:2] == ("False", "DevicesDark"), "the new device has no owner"
    world.runtime.refused.clear()
    for _ in range(REFUSED // (2 * SECOND) + 3):
        outcome = await world.step()
    assert condition(outcome.status, "Degraded")[0] == "False"
    assert condition(outcome.status, "Covered")[0] == "True"


async def test_a_refusal_is_not_retried_at_every_pass_unless_the_fleet_changes() -> None:
    world = World(fleet_of())
    world.runtime.refused[PLACEMENT] = "quota"

    def refusals() -> int:
        return sum("quota" in event for event in world.runtime.events)

    for _ in range(5 * REFUSED // SECOND):
        await world.step()
    assert 10 <= refusals() <= 10 + 4
    before = refusals()
    world.manifest = fleet_of(count=13)
    outcome = await world.step()
    assert refusals() == before + 1
    assert condition(outcome.status, "Degraded")[:2] == ("True", "ApplyRefused")


async def test_the_record_replaces_only_the_version_it_is_based_on() -> None:
    world = World(fleet_of())
    await world.run_until_complete()
    world.runtime.objects[PLACEMENT]["metadata"]["resourceVersion"] = "77"
    world.manifest = fleet_of(count=13)
    await world.step()
    assert world.runtime.objects[PLACEMENT]["metadata"]["resourceVersion"] == "77", "apply was given the version read"


class TestDeviceLists:
    def world(self) -> World:
        world = World(fleet_of(count=1, sensorsFrom=[{"configMapRef": {"name": "more"}}]))
        world.runtime.maps["more"] = {"list": "- {id: x-1, zone: yard}\n- {id: x-2, zone: yard}"}
        return world

    async def test_are_added_to_the_manifests_devices(self) -> None:
        world = self.world()
        await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "x-1", "x-2"}

    @pytest.mark.parametrize(
        ("lists", "expected"),
        [
            ({}, "DeviceListMissing"),
            ({"more": {}}, "DeviceListMissing"),
            ({"more": {"list": "- {id: x-1}"}}, "DeviceListInvalid"),
            ({"more": {"list": "{"}}, "DeviceListInvalid"),
        ],
    )
    async def test_that_become_unreadable_remove_no_device(
        self, lists: dict[str, dict[str, str]], expected: str
    ) -> None:
        world = self.world()
        await world.run_until_complete()
        world.runtime.maps = dict(lists)
        outcome = await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "x-1", "x-2"}
        status, reason, message = condition(outcome.status, "Degraded")
        assert (status, reason) == ("True", expected)
        assert "ConfigMap more" in message

    @pytest.mark.parametrize("restarted", [False, True])
    @pytest.mark.parametrize("lists", [{}, {"more": {"list": "{"}}])
    async def test_that_are_lost_with_the_placement_remove_no_device(
        self, restarted: bool, lists: dict[str, dict[str, str]]
    ) -> None:
        world = self.world()
        await world.run_until_complete()
        world.runtime.maps = dict(lists)
        await world.run_until_complete()
        del world.runtime.objects[PLACEMENT]
        if restarted:
            world.memory = FleetMemory()
        await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "x-1", "x-2"}
        assert {device.id for device in world.runtime.rosters[-1].devices} == {"s-00", "x-1", "x-2"}
        world.runtime.maps["more"] = {"list": "[]"}
        outcome = await world.run_until_complete()
        assert set(world.owners()) == {"s-00"}
        assert condition(outcome.status, "Covered") == ("True", "AllCovered", "the one device is watched")

    async def test_of_cameras_that_are_lost_with_their_sources_leave_dark_cameras(self) -> None:
        spec = {"cameras": [{"id": "c-1", "zone": "a", "source": "rtsp://c-1/"}], "shards": 1}
        spec["camerasFrom"] = [{"configMapRef": {"name": "more"}}]
        world = World({**fleet_of(), "kind": "CameraFleet", "spec": spec})
        world.runtime.maps["more"] = {"list": "[{id: c-2, zone: b, source: 'rtsp://u:secret@c-2/'}]"}
        await world.run_until_complete()
        assert "secret" not in json.dumps(world.runtime.statuses)
        del world.runtime.maps["more"], world.runtime.objects["ConfigMap", "hall-cameras-placement"]
        world.memory = FleetMemory()
        outcome = await world.run_until_complete()
        assert (outcome.status.devices.summary, outcome.status.devices.dark[0].id) == ("1/2", "c-2")
        assert condition(outcome.status, "Covered")[0] == "False"
        assert [(device.id, device.zone) for device in world.runtime.rosters[-1].devices][-1] == ("c-2", "b")
        assert set(world.owners()) == {"c-1"}, "a shard refuses a camera without a source"
        world.runtime.maps["more"] = {"list": "[{id: c-2, zone: b, source: 'rtsp://u:secret@c-2/'}]"}
        outcome = await world.run_until_complete()
        assert condition(outcome.status, "Covered")[0] == "True"

    async def test_that_are_lost_with_everything_else_leave_the_devices_of_shards(self) -> None:
        world = self.world()
        await world.run_until_complete()
        world.runtime.maps = {}
        del world.runtime.objects[PLACEMENT]
        world.memory = FleetMemory()
        world.runtime.statuses = []
        outcome = await world.run_until_complete()
        assert outcome.status.devices.declared == 3
        outcome = await world.run_until_complete()
        assert outcome.status.devices.declared == 3
        assert condition(outcome.status, "Covered")[0] == "False"

    async def test_that_were_never_read_leave_the_fleet_not_covered(self) -> None:
        world = self.world()
        world.runtime.maps = {}
        outcome = await world.run_until_complete()
        status, reason, message = condition(outcome.status, "Covered")
        assert (status, reason) == ("False", "DeviceListMissing")
        assert "ConfigMap more does not exist" in message

    async def test_that_the_fleet_does_not_name_any_more_are_forgotten(self) -> None:
        world = World(fleet_of(count=1, sensorsFrom=[{"configMapRef": {"name": name}} for name in ("more", "other")]))
        world.runtime.maps = {"more": {"list": "[{id: x-1, zone: y}]"}, "other": {"list": "[{id: o-1, zone: y}]"}}
        await world.run_until_complete()
        world.runtime.maps = {}
        await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "x-1", "o-1"}
        world.manifest["spec"]["sensorsFrom"] = [{"configMapRef": {"name": "other"}}]
        await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "o-1"}

    @pytest.mark.parametrize("text", ["", "x", "eA==", "eJwDAAAAAAE=", "eJyrVkrJTy1WslJQSszJyS9XqgUAM2QFtQ=="])
    def test_that_somebody_edited_in_a_status_say_nothing(self, text: str) -> None:
        assert decode_lists(text) == {}

    async def test_that_shrink_do_remove_devices(self) -> None:
        world = self.world()
        await world.run_until_complete()
        world.runtime.maps["more"] = {"list": "- {id: x-1, zone: yard}"}
        await world.run_until_complete()
        assert set(world.owners()) == {"s-00", "x-1"}

    async def test_that_repeat_a_device_are_reported(self) -> None:
        world = self.world()
        world.runtime.maps["more"] = {"list": "- {id: s-00, zone: yard}"}
        outcome = await world.run_until_complete()
        assert "s-00 declared twice" in condition(outcome.status, "Degraded")[2]
        assert world.runtime.shards["hall-sensors-0"].assignment.devices[0].zone == "hall"


async def test_a_placement_too_large_for_a_config_map_is_reported_and_not_applied() -> None:
    chance = random.Random(1)
    sensors = [{"id": f"s-{n}", "zone": "z", "location": f"{chance.getrandbits(800):0200x}"} for n in range(9000)]
    world = World(fleet_of(count=1, sensorsFrom=[{"configMapRef": {"name": name}} for name in "ab"]))
    world.runtime.maps = {"a": {"list": json.dumps(sensors[:5000])}, "b": {"list": json.dumps(sensors[5000:])}}
    outcome = await world.step()
    assert condition(outcome.status, "Degraded")[:2] == ("True", "PlacementTooLarge")
    assert PLACEMENT not in world.runtime.objects


async def test_a_secret_is_used_only_with_its_owners_permission() -> None:
    cameras = [camera(credentialsRef={"name": "lobby"}), camera(id="c-2", credentialsRef={"name": "yard"})]
    world = World(manifest("CameraFleet", {"cameras": cameras}, uid="u"))
    world.runtime.allowed = {"yard"}
    await world.run_until_complete()

    def mounted() -> set[str]:
        pod = world.runtime.objects["Deployment", "hall-cameras-0"]["spec"]["template"]["spec"]
        return {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}

    def problems_of() -> list[str]:
        return [device.credentials for device in world.runtime.shards["hall-cameras-0"].assignment.devices]

    assert mounted() == {"hall-cameras-0-identity", "yard"}
    assert problems_of() == ["", "yard"]
    degraded = world.runtime.statuses[-1]["conditions"]
    (sentence,) = [entry["message"] for entry in degraded if entry["reason"] == "SecretNotAllowed"]
    assert "label secret lobby embereye.dev/allow-fleet-use=true): no credentials for c-1" in sentence
    world.runtime.allowed = {"yard", "lobby"}
    await world.run_until_complete()
    assert mounted() == {"hall-cameras-0-identity", "lobby", "yard"}
    assert problems_of() == ["lobby", "yard"]
    world.runtime.allowed = set()
    await world.run_until_complete()
    assert mounted() == {"hall-cameras-0-identity"}, "the permission was withdrawn"


async def test_each_shard_has_a_certificate_before_its_creation_and_until_its_deletion() -> None:
    world = World(fleet_of(shards=2))
    await world.run_until_complete()
    assert world.runtime.identified == {"hall-sensors-0", "hall-sensors-1"}
    world.runtime.unidentified = "no certificates for shards: Secret embereye-ca: forbidden"
    await world.last(LASTING_SECONDS)
    conditions = world.runtime.statuses[-1]["conditions"]
    assert [entry["message"] for entry in conditions if entry["reason"] == "IdentityMissing"] == [
        world.runtime.unidentified
    ]


async def test_a_camera_fleet_has_no_text_port_and_mounts_its_cameras_secrets() -> None:
    cameras = [camera(credentialsRef={"name": "lobby.cam"}), camera(id="c-2", fps={"target": 3})]
    world = World(manifest("CameraFleet", {"cameras": cameras}, uid="u"))
    await world.run_until_complete()
    pod = world.runtime.objects["Deployment", "hall-cameras-0"]["spec"]["template"]["spec"]
    assert {port["name"] for port in pod["containers"][0]["ports"]} == {"grpc", "control", "metrics"}
    assert {"name": "credentials-lobby-cam", "mountPath": "/etc/embereye/credentials/lobby.cam", "readOnly": True} in (
        pod["containers"][0]["volumeMounts"]
    )
    first, second = world.runtime.shards["hall-cameras-0"].assignment.devices
    assert first.credentials == "lobby.cam"
    assert (first.fps_target, first.fps_min) == (15, 5)
    assert (second.fps_target, second.fps_min) == (3, 3), "a slow camera's floor is its own rate"


def pushing(count: int) -> dict[str, Any]:
    cameras = [camera(id=f"Gate:{number}", source=f"rtp://:{5004 + number}?width=640") for number in range(count)]
    return manifest("CameraFleet", {"cameras": [*cameras, camera(id="group", source="rtp://239.0.0.1:5004")]}, uid="u")


def push_services(world: World) -> dict[str, tuple[str, int]]:
    services = [child for (kind, name), child in world.runtime.objects.items() if kind == "Service" and "gate" in name]
    return {
        child["metadata"]["annotations"]["embereye.dev/device"]: (
            child["spec"]["selector"]["embereye.dev/shard"],
            child["spec"]["ports"][0]["targetPort"],
        )
        for child in services
    }


async def test_a_pushing_camera_retains_its_address_when_its_owner_changes() -> None:
    world = World(pushing(4))
    await world.run_until_complete()
    assert push_services(world) == {f"Gate:{n}": ("hall-cameras-0", 5004 + n) for n in range(4)}
    world.manifest["spec"]["shards"] = 2
    await world.run_until_complete()
    owners = {device: owner for device, (owner,) in world.owners().items()}
    assert {device: owner for device, (owner, _) in push_services(world).items()} == {
        device: owner for device, owner in owners.items() if device != "group"
    }
    assert len(set(owners.values())) == 2
    world.manifest = {**pushing(3), "spec": {**pushing(3)["spec"], "shards": 2}}
    await world.run_until_complete()
    assert set(push_services(world)) == {"Gate:0", "Gate:1", "Gate:2"}


def test_names_of_push_services_are_labels_and_differ() -> None:
    fleet = parse_fleet(manifest("CameraFleet", {}, uid="u", name="f" * 40))
    names = {push_name(fleet, device) for device in ("a.b", "a:b", "A-b", "x" * 63)}
    assert len(names) == 4
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names)
    assert all(fleet.names.index(name) is None for name in names)

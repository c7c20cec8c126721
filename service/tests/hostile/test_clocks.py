"""Wall clocks set during fires: no alarm is lost or doubled, and coverage stays true."""

import asyncio

import pytest
from google.protobuf import json_format
from harness.eventually import eventually
from harness.settings import camera_settings

from embereye.levels import ZoneState
from embereye.process.addresses import free_ports
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

from .site import CALM, HOST, SMOKE, STEPPED, Site

HOUR, YEAR = 3_600.0, 31_536_000.0
STEPS = (1.0, -1.0, HOUR, -HOUR, YEAR, -YEAR)


@pytest.mark.parametrize("processes", [("hub",), ("shard-0",), ("hub", "shard-0")], ids="+".join)
async def test_each_fire_alarms_once_and_coverage_stays_true_under_any_clock(
    site: Site, processes: tuple[str, ...]
) -> None:
    fires = [f"fire-{number}" for number in range(len(STEPS))]
    site.start("hub")
    # Longer than this machine may stall: a stall would be a fault, too.
    site.assign("shard-0", *fires, "calm", "dead", deadline="6s")
    site.start("shard-0")
    speakers = {name: site.speaker("shard-0", name) for name in (*fires, "calm", "dead")}
    await site.covered(speakers)
    speakers["dead"].silent = True
    honest = {*fires, "calm"}
    await site.covered(honest)
    for step, fire in zip(STEPS, fires, strict=True):
        for process in processes:
            site.set_clock(process, step)
        speakers[fire].line = SMOKE
        await site.alarmed(fire)
        await site.covered(honest)
    # All fires burn on. An alarm that is acknowledged and reset returns, under any clock.
    for process in processes:
        site.set_clock(process, -HOUR)
    await site.act("Acknowledge", fires[0])
    await site.act("Reset", fires[0])
    await site.alarmed(fires[0], 2)
    speakers[fires[1]].line = CALM
    await site.act("Acknowledge", fires[1])

    async def restored() -> bool:
        states = {zone["name"]: zone["state"] for zone in (await site.get("/v1/zones"))["zones"]}
        return bool(states[fires[1]] == "ZONE_STATE_RESTORED")

    await eventually(restored, goal="its sign has ended")
    await site.act("Reset", fires[1])
    await site.covered(honest)
    history = await site.history()
    for fire in fires:
        raised = {event.alarm for event in history if event.zone == fire and event.state == ZoneState.ALARM}
        assert len(raised) == (2 if fire == fires[0] else 1), f"{fire}: {raised}"
    faults = [event.fault.device for event in history if event.type == AlarmEvent.TYPE_FAULT]
    assert faults == ["dead"]


@pytest.mark.parametrize("step", [HOUR, -HOUR, YEAR, -YEAR])
async def test_a_hub_restarted_under_another_clock_retains_its_history_and_alarms(site: Site, step: float) -> None:
    # The retention exceeds the time that the hub may have been away: a step up to that is believed.
    site.start("hub", "--retention", "2h")
    site.assign("shard-0", "old", "new")
    site.start("shard-0")
    old, new = site.speaker("shard-0", "old"), site.speaker("shard-0", "new")
    await site.covered(["old", "new"])
    old.line = SMOKE
    await site.alarmed("old")
    await site.act("Acknowledge", "old")
    before = await site.history()
    site.end("hub")
    site.set_clock("hub", step)
    site.start("hub", "--retention", "2h")
    new.line = SMOKE
    await site.alarmed("new")
    await site.covered(["old", "new"])
    after = await site.history()
    assert after[: len(before)] == before, "nothing was forgotten"
    assert [event.zone for event in after[len(before) :] if event.state == ZoneState.ALARM] == ["new"]
    assert ("the newest time that this hub stored" in site.log("hub")) == (step != HOUR)


@pytest.mark.slow
async def test_a_camera_shard_whose_clock_is_set_alarms_once_and_covers_its_cameras(site: Site) -> None:
    site.start("hub")
    grpc, control, metrics = free_ports(3)
    step = site.folder / "yard-0.step"
    step.write_bytes(bytes(8))
    cameras = ("early", "late", "calm")
    assignment = Assignment(
        fleet="default/cameras/yard", shard="yard-0", epoch=1, camera=camera_settings(deadline="5s"),
        devices=[Device(id=name, zone=name, source="push", fps_target=10, fps_min=3) for name in cameras],
    )  # fmt: skip
    (site.folder / "yard-0.json").write_text(json_format.MessageToJson(assignment))
    fires = [
        option for at, name in ((12, "early"), (24, "late")) for option in ("--fire", f"at={at},for=600,device={name}")
    ]
    commands = {
        "yard-0": [
            str(STEPPED), str(step), "shard", "camera", "--shard", "yard-0", "--host", HOST, "--hub", site.control,
            "--grpc-port", str(grpc), "--control-port", str(control), "--metrics-port", str(metrics),
            "--data", str(site.folder / "yard-0"), "--assignment", str(site.folder / "yard-0.json"),
        ],
        "cameras": [
            "-m", "embereye_cli", "simulate", "cameras", "--push", f"{HOST}:{grpc}", "--fps", "10", "--size", "320x240",
            "--cameras", ",".join(f"{name}={name}" for name in cameras), *fires,
        ],
    }  # fmt: skip
    for name, command in commands.items():
        site.launch(name, *command)
    await site.covered(cameras, 40)
    site.set_clock("yard-0", HOUR)
    await eventually(lambda: site.has_alarmed("early", 1), goal="the early fire", seconds=60)
    site.set_clock("yard-0", -YEAR)
    await eventually(lambda: site.has_alarmed("late", 1), goal="the late fire", seconds=60)
    for seconds in STEPS:
        site.set_clock("yard-0", seconds)
        await asyncio.sleep(1)
        await site.covered(cameras, 10)
    history = await site.history()
    raised = [event.zone for event in history if event.state == ZoneState.ALARM and event.type == AlarmEvent.TYPE_STATE]
    assert raised == ["early", "late"]
    assert [event.fault.device for event in history if event.type == AlarmEvent.TYPE_FAULT] == []

"""Wall clocks that are set while it burns: no alarm is lost or doubled, and what is called covered is."""

import asyncio

import pytest

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent

from .site import CALM, SMOKE, Site

HOUR, YEAR = 3_600.0, 31_536_000.0
STEPS = (1.0, -1.0, HOUR, -HOUR, YEAR, -YEAR)


@pytest.mark.parametrize("processes", [("hub",), ("shard-0",), ("hub", "shard-0")], ids="+".join)
async def test_every_fire_is_one_alarm_and_coverage_stays_true_whatever_the_clocks_are_set_to(
    site: Site, processes: tuple[str, ...]
) -> None:
    fires = [f"fire-{number}" for number in range(len(STEPS))]
    site.start("hub")
    site.assign("shard-0", *fires, "calm", "dead")
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
    # All burn on. Whoever acknowledges and resets one of them gets it back, under whatever clock.
    for process in processes:
        site.set_clock(process, -HOUR)
    await site.act("Acknowledge", fires[0])
    await site.act("Reset", fires[0])
    await site.alarmed(fires[0], 2)
    speakers[fires[1]].line = CALM
    await site.act("Acknowledge", fires[1])
    await asyncio.sleep(4)  # longer than a sign is held
    states = {zone["name"]: zone["state"] for zone in (await site.get("/v1/zones"))["zones"]}
    assert states[fires[1]] == "ZONE_STATE_RESTORED"
    await site.act("Reset", fires[1])
    await site.covered(honest)
    history = await site.history()
    for fire in fires:
        raised = {event.alarm for event in history if event.zone == fire and event.state == ZoneState.ALARM}
        assert len(raised) == (2 if fire == fires[0] else 1), f"{fire}: {raised}"
    faults = [event.fault.device for event in history if event.type == AlarmEvent.TYPE_FAULT]
    assert faults == ["dead"]


@pytest.mark.parametrize("step", [HOUR, -HOUR, YEAR, -YEAR])
async def test_a_hub_that_starts_again_under_another_clock_keeps_its_history_and_its_alarms(
    site: Site, step: float
) -> None:
    site.start("hub", "--retention", "1h")
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
    site.start("hub", "--retention", "1h")
    new.line = SMOKE
    await site.alarmed("new")
    await site.covered(["old", "new"])
    after = await site.history()
    assert after[: len(before)] == before, "nothing was forgotten"
    assert [event.zone for event in after[len(before) :] if event.state == ZoneState.ALARM] == ["new"]
    assert ("the clock is" in site.log("hub")) == (step != HOUR)

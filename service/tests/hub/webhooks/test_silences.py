"""Silences of a hub: start, events, end and restarts, in either database; and their effect on webhooks."""

import time

import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.hub.hub import Hub
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import MINUTE, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device, Term

from .receiver import Receiver, run

ADA = Principal("Ada", Role.OPERATOR, "Ada")
FLEET = "default/sensors/hall"


async def furnish(hub: Hub) -> None:
    devices = [Device(id="s-01", zone="kitchen"), Device(id="s-02", zone="kitchen")]
    await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=600 * SECOND, devices=devices))


async def see(hub: Hub, level: Level = Level.ALARM, device: str = "s-01") -> None:
    now = time.time_ns()
    item = EvidenceItem(
        id=f"{now}", episode=f"{device}", fleet=FLEET, device=device, zone="kitchen", kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=level.wire, since_ns=now, until_ns=now,
        why=[Term(name="smoke.level", value=61.0, threshold=57, unit="%")],
    )  # fmt: skip
    hub.inbox.admit(item, lambda _: None)
    assert await hub.committer.flush(10)


async def go_dark(hub: Hub, device: str = "s-01") -> None:
    await hub.committer.commit(
        lambda draft: hub.zones.open_fault(draft, ("default", "kitchen"), FLEET, device, "no data")
    )


async def history(hub: Hub) -> list[AlarmEvent]:
    return await hub.history.events(0, 1000)


async def expire(hub: Hub) -> None:
    """Let every silence expire."""
    for silence in hub.zones.silences["default", "kitchen"].values():
        silence.until_ns = hub.timeline.now_ns()
    await hub.committer.commit(hub.silences.pass_time)


async def test_a_silence_has_person_reason_and_end_and_survives_a_restart(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        event = await hub.silences.begin(ADA, "default", "kitchen", reason=" welding ", minutes=60, who="Bob")
        assert event.type == AlarmEvent.TYPE_SILENCE
        assert event.why == "zone kitchen is silenced for 60 min by Bob (Ada): welding"
        before = hub.silences.all()
        (zone,) = hub.zones.messages()
        assert [silence.id for silence in zone.silences] == [event.silence.id]
        assert zone.silences[0].until_ns - zone.silences[0].since_ns == 60 * MINUTE
    async with run(stored) as hub:
        assert hub.silences.all() == before
        ended = await hub.silences.end(ADA, before[0].id)
        assert ended.why == "the silence of zone kitchen by Bob (Ada) (welding) was ended by Ada"
        trail = [entry.action for entry in await hub.history.audit(0, 10)]
        assert trail[:2] == ["end silence", "silence"]
    async with run(stored) as hub:
        assert (hub.silences.all(), len(hub.zones.messages()[0].silences)) == ([], 0)
        kinds = [event.silence.reason for event in await history(hub) if event.type == AlarmEvent.TYPE_SILENCE]
        assert kinds == ["welding", "welding"], "history has start and end"


async def test_when_a_silence_expires_its_remaining_faults_are_published_again(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", reason="repair", minutes=1)
        await go_dark(hub)
        await go_dark(hub, "s-02")
        await hub.committer.commit(
            lambda draft: hub.zones.clear_fault(draft, ("default", "kitchen"), FLEET, "s-02", "is watched again")
        )
        assert [event.silence.who for event in await history(hub) if event.type == AlarmEvent.TYPE_FAULT] == [
            "Ada",
            "Ada",
        ]
        await expire(hub)
        over, again = (await history(hub))[-2:]
        assert over.why == "the silence of zone kitchen by Ada (repair) is over"
        assert (again.type, again.why) == (AlarmEvent.TYPE_FAULT, "s-01 is still dark: no data")
        assert not again.HasField("silence")
        assert hub.silences.all() == []


async def test_an_alarm_in_a_silenced_zone_notifies_and_can_then_be_silenced(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", reason="welding", minutes=60)
        await see(hub)
        event = (await history(hub))[-1]
        assert (ZoneState(event.state), event.HasField("silence")) == (ZoneState.ALARM, False)
        (zone,) = hub.zones.messages()
        assert not zone.silenced
        await hub.silences.begin(ADA, "default", "kitchen", reason="we are there", minutes=60)
        assert len(hub.silences.all()) == 1, "the new one replaces the old one"
        assert hub.zones.messages()[0].silenced
        await see(hub, device="s-02")
        assert (await history(hub))[-1].silence.reason == "we are there"
        await see(hub, Level.CRITICAL, "s-02")
        assert not (await history(hub))[-1].HasField("silence"), "it is more serious than the silenced alarm"


async def test_a_silence_of_one_device_does_not_cover_others(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", device="s-01", reason="being cleaned", minutes=60)
        await go_dark(hub)
        await go_dark(hub, "s-02")
        assert [(event.fault.device, event.HasField("silence")) for event in (await history(hub))[-2:]] == [
            ("s-01", True), ("s-02", False),
        ]  # fmt: skip


async def test_an_impossible_silence_is_refused_with_a_reason(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        begin = hub.silences.begin
        with pytest.raises(UnknownNameError, match="there is no zone default/attic"):
            await begin(ADA, "default", "attic", reason="r", minutes=5)
        with pytest.raises(UnknownNameError, match="no device s-09 is declared in zone default/kitchen"):
            await begin(ADA, "default", "kitchen", device="s-09", reason="r", minutes=5)
        with pytest.raises(ValueError, match="reason: is empty"):
            await begin(ADA, "default", "kitchen", reason=" ", minutes=5)
        for minutes in (0, -1, 1441):
            with pytest.raises(ValueError, match="is not from 1 to 1440"):
                await begin(ADA, "default", "kitchen", reason="r", minutes=minutes)
        with pytest.raises(UnknownNameError, match="there is no silence 0123"):
            await hub.silences.end(ADA, "0123")


async def test_webhooks_get_the_silence_and_worse_events_but_no_silenced_ones(
    stored: Stored, receiver: Receiver
) -> None:
    async with run(stored, receiver.options()) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", reason="welding", minutes=60)
        await go_dark(hub)
        await see(hub, Level.PRE_ALARM)
        await see(hub)
        await hub.committer.commit(
            lambda draft: hub.zones.clear_fault(draft, ("default", "kitchen"), FLEET, "s-01", "is watched again")
        )
        await expire(hub)
        latest = hub.feed.latest
        await eventually(lambda: hub.webhooks.all()[0].position == latest)
    sent = [(body["event"]["type"], body["event"].get("state")) for body in receiver.accepted]
    assert sent == [
        ("TYPE_SILENCE", "ZONE_STATE_NORMAL"),
        ("TYPE_STATE", "ZONE_STATE_ALARM"),
        ("TYPE_FAULT_CLEARED", "ZONE_STATE_ALARM"),
        ("TYPE_SILENCE", "ZONE_STATE_ALARM"),
    ]

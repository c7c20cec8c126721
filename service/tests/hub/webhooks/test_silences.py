"""Silences of a hub: begun, told, ended, over restarts, in either database; and what webhooks are sent meanwhile."""

import asyncio
import time
from collections.abc import Callable

import pytest
from harness.stored import Stored

from embereye.hub.access.roles import Principal, Role
from embereye.hub.hub import Hub
from embereye.hub.silences import UnknownSilenceError
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import MINUTE, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device, Term

from .receiver import Receiver, run

ADA = Principal("Ada", Role.OPERATOR, "Ada")
FLEET = "default/sensors/hall"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


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


async def told(hub: Hub) -> list[AlarmEvent]:
    return await hub.history.events(0, 1000)


async def expire(hub: Hub) -> None:
    """As if the time of every silence were over."""
    for silence in hub.zones.silences["default", "kitchen"].values():
        silence.until_ns = hub.timeline.now_ns()
    await hub.committer.commit(hub.silences.pass_time)


async def test_a_silence_says_who_why_and_until_when_and_survives_a_restart(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        event = await hub.silences.begin(ADA, "default", "kitchen", reason=" welding ", minutes=60, who="Bob")
        assert event.type == AlarmEvent.TYPE_SILENCE
        assert event.why == "zone kitchen is silenced for 60 min by Bob (Ada): welding"
        before = hub.silences.all()
        (zone,) = hub.zones.messages()
        assert [one.id for one in zone.silences] == [event.silence.id]
        assert zone.silences[0].until_ns - zone.silences[0].since_ns == 60 * MINUTE
    async with run(stored) as hub:
        assert hub.silences.all() == before
        ended = await hub.silences.end(ADA, before[0].id)
        assert ended.why == "the silence of zone kitchen by Bob (Ada) (welding) was ended by Ada"
        trail = [entry.action for entry in await hub.history.audit(0, 10)]
        assert trail[:2] == ["end silence", "silence"]
    async with run(stored) as hub:
        assert (hub.silences.all(), len(hub.zones.messages()[0].silences)) == ([], 0)
        kinds = [event.silence.reason for event in await told(hub) if event.type == AlarmEvent.TYPE_SILENCE]
        assert kinds == ["welding", "welding"], "history keeps both ends"


async def test_it_ends_by_itself_and_what_it_covered_and_is_still_so_is_told_anew(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", reason="repair", minutes=1)
        await go_dark(hub)
        await go_dark(hub, "s-02")
        await hub.committer.commit(
            lambda draft: hub.zones.clear_fault(draft, ("default", "kitchen"), FLEET, "s-02", "is watched again")
        )
        assert [event.silence.who for event in await told(hub) if event.type == AlarmEvent.TYPE_FAULT] == ["Ada", "Ada"]
        await expire(hub)
        over, again = (await told(hub))[-2:]
        assert over.why == "the silence of zone kitchen by Ada (repair) is over"
        assert (again.type, again.why) == (AlarmEvent.TYPE_FAULT, "s-01 is still dark: no data")
        assert not again.HasField("silence")
        assert hub.silences.all() == []


async def test_an_alarm_is_told_in_a_silenced_zone_and_can_then_be_silenced_itself(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", reason="welding", minutes=60)
        await see(hub)
        event = (await told(hub))[-1]
        assert (ZoneState(event.state), event.HasField("silence")) == (ZoneState.ALARM, False)
        (zone,) = hub.zones.messages()
        assert not zone.silenced
        await hub.silences.begin(ADA, "default", "kitchen", reason="we are there", minutes=60)
        assert len(hub.silences.all()) == 1, "one takes the place of the other"
        assert hub.zones.messages()[0].silenced
        await see(hub, device="s-02")
        assert (await told(hub))[-1].silence.reason == "we are there"
        await see(hub, Level.CRITICAL, "s-02")
        assert not (await told(hub))[-1].HasField("silence"), "it has become worse"


async def test_a_silence_of_one_device_leaves_the_others_alone(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        await hub.silences.begin(ADA, "default", "kitchen", device="s-01", reason="being cleaned", minutes=60)
        await go_dark(hub)
        await go_dark(hub, "s-02")
        assert [(event.fault.device, event.HasField("silence")) for event in (await told(hub))[-2:]] == [
            ("s-01", True), ("s-02", False),
        ]  # fmt: skip


async def test_what_cannot_be_silenced_is_refused_in_a_sentence(stored: Stored) -> None:
    async with run(stored) as hub:
        await furnish(hub)
        begin = hub.silences.begin
        with pytest.raises(UnknownSilenceError, match="there is no zone default/attic"):
            await begin(ADA, "default", "attic", reason="r", minutes=5)
        with pytest.raises(UnknownSilenceError, match="no device s-09 is declared in zone default/kitchen"):
            await begin(ADA, "default", "kitchen", device="s-09", reason="r", minutes=5)
        with pytest.raises(ValueError, match="reason: is empty"):
            await begin(ADA, "default", "kitchen", reason=" ", minutes=5)
        for minutes in (0, -1, 1441):
            with pytest.raises(ValueError, match="is not from 1 to 1440"):
                await begin(ADA, "default", "kitchen", reason="r", minutes=minutes)
        with pytest.raises(UnknownSilenceError, match="there is no silence 0123"):
            await hub.silences.end(ADA, "0123")


async def test_webhooks_are_not_sent_what_is_silenced_but_that_it_is_and_everything_worse(
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
        await until(lambda: hub.webhooks.all()[0].position == latest)
    sent = [(one["event"]["type"], one["event"].get("state")) for one in receiver.taken]
    assert sent == [
        ("TYPE_SILENCE", "ZONE_STATE_NORMAL"),
        ("TYPE_STATE", "ZONE_STATE_ALARM"),
        ("TYPE_FAULT_CLEARED", "ZONE_STATE_ALARM"),
        ("TYPE_SILENCE", "ZONE_STATE_ALARM"),
    ]

"""Expected signs are a pre-alarm in a zone with a profile, until it ends or nobody confirms it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness.clock import Clock
from harness.stored import Stored

from embereye.addons.profiles.keeper import Profiles
from embereye.addons.profiles.options import ProfilesOptions, parse_profiles
from embereye.addons.profiles.switch import ProfileSwitch
from embereye.hub.hub import Hub
from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.fields import DeclaredError
from embereye.units import MINUTE, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye_cli.declared import parse_declared

ADA = Principal("ada", Role.OPERATOR, "ada")
HALL = "default", "hall"
FILE = """
timeZone: UTC
profiles:
  - {name: welding, zones: ["ha*"], expected: [flame, smoke], longest: 4h, confirmEvery: 1h, watchman: true}
  - name: kitchen-hours
    zones: kitchen
    expected: [smoke]
    confirmEvery: 28d
    hours: [{days: [mon-fri], from: "22:00", to: "23:00"}]
  - {name: oven, zones: bakery, limits: {smoke: 20}, longest: 2h, confirmEvery: 7d, mqtt: true}
  - {name: night, zones: [bakery, store], alarmAlone: [smoke, camera/flame], confirmEvery: 12h}
"""


def options(text: str = FILE) -> ProfilesOptions:
    return parse_declared(text, parse_profiles)


@dataclass
class Running:
    """A hub with profiles, whose clocks a test advances."""

    hub: Hub
    profiles: Profiles
    clock: "Clock"
    count: int = 0

    async def report(self, zone: str, kind: Kind, level: Level = Level.ALARM) -> ZoneState:
        """Report a sign in `zone`; return the zone's state."""
        self.count += 1
        self.clock.ns += SECOND
        now, durable = self.hub.timeline.now_ns(), asyncio.get_running_loop().create_future()
        self.hub.inbox.admit(
            EvidenceItem(
                id=f"{self.count}", episode=f"{zone}-{kind}", fleet="default/sensors/all", device=f"{kind}-{zone}",
                zone=zone, kind=kind.wire, sense=Sense.CAMERA.wire, level=level.wire, score=1, since_ns=now,
                until_ns=now,
            ),
            lambda _: durable.set_result(None),
        )  # fmt: skip
        await durable
        return self.state(zone)

    def state(self, zone: str) -> ZoneState:
        return self.hub.zones.states()["default", zone]

    async def pass_minutes(self, minutes: float) -> None:
        """Let time pass, and everything happen that is due."""
        self.clock.ns += int(minutes * MINUTE)
        await self.hub.committer.commit(self.profiles.pass_time)
        await self.hub.committer.commit(self.hub.zones.pass_time)

    async def weld(self, minutes: int = 120, **changed: Any) -> AlarmEvent:
        permit = {"reason": "permit 17", "watchman": "Bea", **changed}
        return await self.profiles.begin(ADA, HALL, "welding", minutes=minutes, **permit)


@contextlib.asynccontextmanager
async def running(stored: Stored, clock: Clock | None = None, text: str = FILE) -> AsyncIterator[Running]:
    clock = clock or Clock()
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18, clock=clock.wall, steady=clock.steady, leases=clock.steady)
    await hub.open()
    profiles = Profiles(options(text), hub, leases=clock.steady)
    hub.add_part(profiles)
    task = asyncio.ensure_future(hub.committer.run())
    try:
        yield Running(hub, profiles, clock)
    finally:
        await hub.committer.flush(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def test_expected_signs_are_a_pre_alarm_and_any_other_confirms_them(stored: Stored) -> None:
    async with running(stored) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        event = await site.weld()
        assert event.why == "profile welding for 2 h by ada, watchman Bea: permit 17"
        assert await site.report("hall", Kind.HEAT, Level.CLEAR) is ZoneState.NORMAL
        assert await site.report("hall", Kind.FLAME) is ZoneState.PRE_ALARM
        (zone,) = site.hub.zones.messages()
        assert "as expected in the profile welding; a sign of another kind, or a stronger one, would" in zone.why
        assert await site.report("hall", Kind.SMOKE) is ZoneState.PRE_ALARM, "both are expected"
        assert await site.report("hall", Kind.HEAT, Level.PRE_ALARM) is ZoneState.ALARM


async def test_a_critical_sign_and_other_kinds_are_an_alarm_under_every_profile(stored: Stored) -> None:
    async with running(stored) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        await site.report("hangar", Kind.HEAT, Level.PRE_ALARM)
        await site.weld()
        await site.profiles.begin(ADA, ("default", "hangar"), "welding", reason="x", minutes=9, watchman="Bea")
        assert await site.report("hall", Kind.SMOKE, Level.CRITICAL) is ZoneState.ALARM
        assert await site.report("hangar", Kind.HEAT) is ZoneState.ALARM
        assert await site.report("cellar", Kind.SMOKE) is ZoneState.ALARM, "another zone"


async def test_a_sign_that_continues_is_judged_again_when_the_permit_ends(stored: Stored) -> None:
    async with running(stored) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        await site.weld(minutes=30)
        await site.report("hall", Kind.HEAT, Level.CLEAR)
        await site.pass_minutes(29.9)
        assert await site.report("hall", Kind.FLAME) is ZoneState.PRE_ALARM
        await site.pass_minutes(0.2)
        assert site.state("hall") is ZoneState.ALARM
        assert not site.profiles.permits
        assert not site.profiles.lapsed, "it ended as agreed"


async def test_without_a_confirmation_the_zone_is_normal_again_and_says_so(stored: Stored) -> None:
    async with running(stored) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        await site.weld(minutes=240)
        await site.pass_minutes(59)
        await site.profiles.confirm(ADA, HALL)
        await site.pass_minutes(59)
        assert site.profiles.permits
        await site.pass_minutes(2)
        assert not site.profiles.permits
        (sentence,) = [each for each in site.profiles.unconfirmed() if "hall" in each]
        assert "nobody confirmed the profile welding by ada (permit 17) within 60 min: the zone is normal" in sentence
        assert await site.report("hall", Kind.FLAME) is ZoneState.ALARM
        await site.profiles.end(ADA, HALL)
        assert not [each for each in site.profiles.unconfirmed() if "hall" in each]


async def test_permits_and_confirmations_survive_a_restart(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        await site.weld()
        await site.profiles.confirm_schedule(ADA, "kitchen-hours")
    async with running(stored, clock) as site:
        assert site.profiles.permits[HALL].watchman == "Bea"
        assert await site.report("hall", Kind.FLAME) is ZoneState.PRE_ALARM
        assert await site.report("kitchen", Kind.SMOKE) is ZoneState.PRE_ALARM
    fewer = "profiles: [{name: other, zones: hall, expected: gas, confirmEvery: 5m}]"
    async with running(stored, clock, fewer) as site:
        await site.pass_minutes(0)
        assert not site.profiles.permits, "a profile that is not declared any more ends"


async def test_hours_apply_only_once_a_person_has_confirmed_them(stored: Stored) -> None:
    async with running(stored) as site:
        assert await site.report("kitchen", Kind.SMOKE) is ZoneState.ALARM
        assert "nobody has confirmed them" in site.profiles.unconfirmed()[0]
        await site.profiles.confirm_schedule(ADA, "kitchen-hours")
        key = "default", "kitchen"
        profile = site.profiles.profile_of(key)
        assert profile
        assert profile.name == "kitchen-hours"
        await site.pass_minutes(60)
        assert site.profiles.profile_of(key) is None, "23:13 is after the hours"
        await site.pass_minutes(6 * 24 * 60 - 60)
        assert site.profiles.profile_of(key), "Monday"
        await site.pass_minutes(28 * 24 * 60)
        assert site.profiles.profile_of(key) is None, "the confirmation is too old"


async def test_a_message_begins_a_profile_only_while_a_person_confirms_that(stored: Stored) -> None:
    async with running(stored) as site:
        await site.report("bakery", Kind.HEAT, Level.PRE_ALARM)
        key, switch = ("default", "bakery"), ProfileSwitch(site.profiles)
        assert switch.choices(key) == ["normal", "oven"]
        assert switch.choices(HALL) == []
        assert "nobody has confirmed the switch" in await switch.switch(key, "oven")
        await site.profiles.confirm_schedule(ADA, "oven")
        assert await switch.switch(key, '{"profile": "oven", "minutes": 30, "reason": "bread"}') == ""
        assert switch.state(key) == "oven"
        assert "which a person can confirm" in await switch.switch(key, "oven"), "a message extends nothing"
        assert await switch.switch(key, "normal") == ""
        assert (switch.state(key), await switch.switch(key, "normal")) == ("normal", "")
        await site.pass_minutes(7 * 24 * 60 - 60)
        assert await switch.switch(key, "oven") == ""
        await site.pass_minutes(61)
        assert switch.state(key) == "normal", "the person's confirmation is too old"
        assert "nobody has confirmed the switch" in await switch.switch(key, "oven")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("night", '"night" is not one of normal, oven'),
        ("{", "is not JSON"),
        ('{"profile": "oven", "minutes": "60"}', "minutes: it is not a whole number"),
        ('{"profile": "oven", "minutes": 121}', "minutes: 121 is not from 1 to 120"),
    ],
)
async def test_a_wrong_message_changes_nothing(stored: Stored, message: str, sentence: str) -> None:
    async with running(stored) as site:
        await site.report("bakery", Kind.HEAT, Level.PRE_ALARM)
        await site.profiles.confirm_schedule(ADA, "oven")
        key, switch = ("default", "bakery"), ProfileSwitch(site.profiles)
        assert sentence in await switch.switch(key, message)
        await site.profiles.begin(ADA, key, "night", reason="closed", minutes=60)
        assert "may not end" in await switch.switch(key, "normal")
        assert switch.state(key) == "night"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"reason": " "}, "reason: is empty"),
        ({"watchman": ""}, "needs the name of a watchman"),
        ({"minutes": 241}, "minutes: 241 is not from 1 to 240, the longest for welding"),
    ],
)
async def test_an_incomplete_permit_is_refused(stored: Stored, changed: dict[str, Any], sentence: str) -> None:
    async with running(stored) as site:
        await site.report("hall", Kind.HEAT, Level.PRE_ALARM)
        with pytest.raises(ValueError, match=sentence):
            await site.weld(**changed)
        with pytest.raises(UnknownNameError, match="has no permit"):
            await site.profiles.end(ADA, HALL)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("profiles: []", "profiles has 0 entries"),
        ("profiles: [{name: x, zones: a, expected: sound, confirmEvery: 5m}]", '"sound" is not one of smoke, flame'),
        ("profiles: [{name: x, zones: a, expected: gas, alarmAlone: sensor/gas, confirmEvery: 5m}]", "expected, too"),
        ("profiles: [{name: x, zones: a, limits: {dust: 2}, confirmEvery: 5m}]", '"dust" is not one of smoke, flame'),
        ("profiles: [{name: x, zones: a, limits: {smoke: 120}, confirmEvery: 5m}]", "not a number of % up to 100"),
        ("profiles: [{name: x, zones: a, watchman: true, mqtt: true, confirmEvery: 5m}]", "names no watchman"),
        ("profiles: [{name: x, expected: gas, confirmEvery: 5m}]", "zones is missing"),
        (
            "profiles: [{name: x, zones: a, expected: [smoke, flame, gas, heat]}]",
            "leave at least one kind of sign that is an alarm",
        ),
        ("profiles: [{name: x, zones: a, expected: gas}]", "confirmEvery is missing"),
        (
            "profiles: [{name: x, zones: a, expected: gas, confirmEvery: 30h}]",
            "is not between 1m and 1d",
        ),
        ("profiles: [{name: normal, zones: a, expected: gas, confirmEvery: 5m}]", "is the name of having no profile"),
        (
            "profiles: [{name: x, zones: a, expected: gas, confirmEvery: 5m, hours: [{from: 25:00, to: 12:00}]}]",
            "is not a time of day. Use for example 18:00.",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, sentence: str) -> None:
    with pytest.raises(DeclaredError, match=None) as caught:
        options(text)
    assert sentence in str(caught.value)

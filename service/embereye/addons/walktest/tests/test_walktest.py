"""A walk test notes each device that is triggered, names the others, and says when zones are due."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from harness.clock import Clock
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.walktest.keeper import WalkTestOptions, WalkTests
from embereye.addons.walktest.page import page, text
from embereye.addons.walktest.plan import Interval, read_interval
from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.process.signing import InvalidError, open_sealed, public_key
from embereye.units import DAY, HOUR, MINUTE, SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

PRIVATE = bytes(range(32))
ADA = Principal("ada", Role.OPERATOR, "ada")
HALL, FLEET = ("default", "hall"), "default/sensors/all"


@dataclass
class Running:
    """A hub with walk tests."""

    hub: Hub
    tests: WalkTests
    clock: Clock
    count: int = 0

    async def declare(self, *devices: str) -> None:
        self.count += 1
        listed = [Device(id=device, zone="hall") for device in devices]
        await self.hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=self.count, devices=listed))

    async def trigger(self, device: str, level: Level = Level.ALARM, episode: str = "") -> None:
        """Report a sign of `device`."""
        self.count += 1
        self.clock.ns += SECOND
        now, durable = self.hub.timeline.now_ns(), asyncio.get_running_loop().create_future()
        item = EvidenceItem(
            id=f"{self.count}", episode=episode or f"{self.count}", fleet=FLEET, device=device, zone="hall",
            kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=now, until_ns=now,
        )  # fmt: skip
        self.hub.inbox.admit(item, lambda _: durable.set_result(None))
        await durable

    async def pass_time(self, nanoseconds: int) -> None:
        """Let time pass, and everything happen that is due."""
        end = self.clock.ns + nanoseconds
        while self.clock.ns < end:
            self.clock.ns = min(end, self.clock.ns + 10 * MINUTE)
            await self.tests.pass_time()
            await self.hub.committer.commit(self.hub.zones.pass_time)

    def is_tested(self, *devices: str) -> bool:
        return set(self.tests.running[HALL].triggers) == {f"{FLEET}/{device}" for device in devices}

    def is_testing(self) -> bool:
        return any(zone.testing for zone in self.hub.zones.messages())


def read(data: bytes) -> dict[str, Any]:
    return open_sealed(data, [public_key(PRIVATE)])


@contextlib.asynccontextmanager
async def running(stored: Stored, clock: Clock, intervals: Sequence[Interval] = ()) -> AsyncIterator[Running]:
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18, clock=clock.wall, steady=clock.steady, leases=clock.steady)
    await hub.open()
    tests = WalkTests(WalkTestOptions("mill", PRIVATE, intervals), hub)
    hub.add_part(tests)
    tasks = [asyncio.ensure_future(hub.committer.run()), asyncio.ensure_future(tests.follow())]
    try:
        yield Running(hub, tests, clock)
    finally:
        hub.feed.close()
        await hub.committer.flush(10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


async def test_triggered_devices_are_noted_and_the_others_are_named(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a", "b", "c")
        await site.tests.start(ADA, HALL, "", "quarterly")
        assert site.is_testing()
        await site.trigger("a", Level.CRITICAL)
        await site.trigger("c", Level.PRE_ALARM)
        await eventually(lambda: site.is_tested("a", "c"))
        made = read(await site.tests.end(ADA, HALL, ""))
        assert (made["complete"], made["untested"], made["site"]) == (False, [f"{FLEET}/b"], "mill")
        tested = {each["device"]: (each["afterSeconds"], each["kind"]) for each in made["devices"]}
        assert tested == {"a": (1, "heat"), "b": (None, ""), "c": (2, "heat")}
        assert (made["startedBy"], made["note"]) == ("ada", "quarterly")
        assert not site.is_testing()
        entries = await site.hub.history.audit(0, 10)
        assert [entry.action for entry in entries] == ["end walk test", "start walk test"]


async def test_a_report_is_found_again_and_noticed_if_it_is_changed(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        test = await site.tests.start(ADA, HALL, "Ada", "")
        await site.trigger("a")
        await eventually(lambda: site.is_tested("a"))
        data = await site.tests.end(ADA, HALL, "Ada")
        assert await site.tests.find(test.id) == data
        (listed,) = await site.tests.reports(10)
        assert (listed["walktest"], listed["complete"], listed["tested"], listed["devices"]) == (test.id, True, 1, 1)
        assert "Complete: all 1 devices were triggered." in text(data)
        assert "Complete: all 1 devices were triggered." in page(data)
        with pytest.raises(InvalidError):
            read(data.replace(b'"complete":true', b'"complete":null'))


async def test_a_sign_from_before_the_test_does_not_count(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a", "b")
        await site.trigger("a", episode="old")
        await site.tests.start(ADA, HALL, "", "")
        await site.trigger("a", Level.CRITICAL, episode="old")
        await site.trigger("b")
        await eventually(lambda: site.is_tested("b"))
        assert read(await site.tests.end(ADA, HALL, ""))["untested"] == [f"{FLEET}/a"]


async def test_a_test_continues_after_a_restart_with_what_it_missed(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.declare("a", "b")
        await site.tests.start(ADA, HALL, "", "")
        await site.trigger("a")
        await eventually(lambda: site.is_tested("a"))
    async with running(stored, clock) as site:
        assert site.is_testing()
        site.count = 100
        await site.trigger("b", Level.CRITICAL)
        await eventually(lambda: site.is_tested("a", "b"))
        assert read(await site.tests.end(ADA, HALL, ""))["complete"]


async def test_the_zone_stays_under_test_until_the_hub_ends_a_forgotten_test(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        test = await site.tests.start(ADA, HALL, "", "")
        await site.pass_time(3 * HOUR)
        assert site.is_testing(), "a test by hand ends after half an hour"
        await site.pass_time(6 * HOUR)
        assert not site.tests.running
        assert not site.is_testing()
        assert read(await site.tests.find(test.id))["endedBy"] == "ended by the hub after 8 h"


async def test_ending_the_test_of_the_zone_ends_the_walk_test(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        test = await site.tests.start(ADA, HALL, "", "")
        await site.hub.actions.perform(Action.TEST, ADA, *HALL)
        await site.pass_time(MINUTE)
        assert read(await site.tests.find(test.id))["endedBy"] == "ended with the zone's test"


async def test_what_cannot_be_tested_is_refused_in_words(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        with pytest.raises(UnknownNameError):
            await site.tests.start(ADA, HALL, "", "")
        await site.declare("a")
        await site.tests.start(ADA, HALL, "", "")
        with pytest.raises(ConflictError, match="runs already, by ada"):
            await site.tests.start(ADA, HALL, "", "")
        await site.tests.end(ADA, HALL, "")
        with pytest.raises(ConflictError, match="no walk test of zone default/hall runs"):
            await site.tests.end(ADA, HALL, "")


async def test_a_zone_is_due_until_each_of_its_devices_was_triggered(stored: Stored) -> None:
    clock, every = Clock(), [Interval("*", 365 * DAY), Interval("hall", 90 * DAY)]
    async with running(stored, clock, every) as site:
        await site.declare("a", "b")
        await site.tests.pass_time()
        (due,) = site.tests.due()
        assert (due.due_ns, due.untested) == (site.clock.wall() + 90 * DAY, [])
        clock.ns += 91 * DAY
        assert site.tests.overdue() == [HALL]
        await site.tests.start(ADA, HALL, "", "")
        await site.trigger("a", Level.CRITICAL)
        await eventually(lambda: site.is_tested("a"))
        assert [each.untested for each in site.tests.due()] == [[(FLEET, "b")]]
        await site.trigger("b")
        await eventually(lambda: site.is_tested("a", "b"))
        await site.tests.end(ADA, HALL, "")
        assert site.tests.overdue() == []
    async with running(stored, clock, every) as site:
        assert site.tests.overdue() == []
        clock.ns += 91 * DAY
        assert site.tests.overdue() == [HALL]


async def test_without_an_interval_no_zone_is_due(stored: Stored) -> None:
    async with running(stored, Clock(), [Interval("yard", DAY)]) as site:
        await site.declare("a")
        await site.tests.pass_time()
        site.clock.ns += 1_000 * DAY
        assert site.tests.due() == []


@pytest.mark.parametrize("words", ["", "90", "0d", "=90d", "hall=", "hall=1w", "9999d", "-1d"])
def test_a_wrong_interval_is_refused_with_the_form(words: str) -> None:
    with pytest.raises(ValueError, match="not of the form 90d or ZONE=90d"):
        read_interval(words)


def test_a_right_interval_is_read() -> None:
    assert read_interval("90d") == Interval("*", 90 * DAY)
    assert read_interval("default/hall-*=7d") == Interval("default/hall-*", 7 * DAY)

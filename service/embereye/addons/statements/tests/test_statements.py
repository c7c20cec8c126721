"""Each past day gets a statement that says what was watched, and every gap, with both databases."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from harness.hubs import few_hubs
from harness.stored import Stored

from embereye.addons.statements.days import Day
from embereye.addons.statements.keeper import ClockError
from embereye.addons.statements.page import page, text
from embereye.addons.statements.tests.chains import FLEET, HALL, TO_MIDNIGHT, Clock, running
from embereye.hub.actions import Action
from embereye.hub.hub import RouteProof
from embereye.hub.roles import Principal, Role
from embereye.process.signing import verify_chain
from embereye.units import DAY, HOUR, MINUTE, SECOND

pytest_generate_tests = few_hubs

ADA = Principal("ada", Role.OPERATOR, "ada")
NOON = TO_MIDNIGHT + 12 * 60


async def test_a_full_day_is_watched_but_for_its_gaps(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a", "b")
        await site.pass_time(TO_MIDNIGHT + 60)
        await site.dark("b", 30, "camera: connection refused")
        await site.pass_time(24 * 60 - 90 + 10)
        assert await site.statements.make_due() == 2
        made = await site.statement("2023-11-15")
        (zone,) = made["zones"]
        a, b = zone["devices"]
        assert (zone["namespace"], zone["zone"], a["fleet"]) == ("default", "hall", FLEET)
        assert (a["device"], a["seconds"], a["coveredSeconds"], a["gaps"]) == ("a", 86_400, 86_400, [])
        assert (b["seconds"], b["coveredSeconds"]) == (86_400, 86_400 - 30 * 60)
        (gap,) = b["gaps"]
        assert (gap["from"], gap["seconds"]) == ("2023-11-15T01:00:00Z", 30 * 60)
        assert gap["reason"] == "camera: connection refused"
        assert zone["coveredSeconds"] == 2 * 86_400 - 30 * 60
        assert made["away"] == []
        assert "camera: connection refused" in page(await site.statements.find("2023-11-15"))


async def test_the_first_day_says_that_nothing_was_recorded_before(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 10)
        await site.statements.make_due()
        made = await site.statement("2023-11-14")
        (away,) = made["away"]
        assert (away["from"], away["reason"]) == ("2023-11-14T00:00:00Z", "nothing was recorded before")
        assert made["zones"][0]["coveredSeconds"] <= 107 * 60
        assert made["previous"] == ""


async def test_days_without_a_hub_are_made_up_for_and_say_so(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.declare("a")
        await site.pass_time(NOON)
    clock.ns += 3 * DAY
    async with running(stored, clock) as site:
        await site.pass_time(1)
        assert await site.statements.make_due() == 4
        files = await site.files()
        assert sorted(files) == ["2023-11-14", "2023-11-15", "2023-11-16", "2023-11-17"]
        assert verify_chain(files, [site.statements.key()]).is_valid
        whole = await site.statement("2023-11-16")
        assert [(each["seconds"], each["reason"]) for each in whole["away"]] == [(86_400, "the hub was not running")]
        assert [(d["seconds"], d["coveredSeconds"]) for d in whole["zones"][0]["devices"]] == [(86_400, 0)]
        half = await site.statement("2023-11-15")
        assert abs(half["zones"][0]["coveredSeconds"] - 12 * 3600) <= 60
        await site.pass_time(12 * 60 + 10)
        assert await site.statements.make_due() == 1
        last = await site.statement("2023-11-18")
        assert abs(last["zones"][0]["coveredSeconds"] - 12 * 3600) <= 120
        assert verify_chain(await site.files(), [site.statements.key()]).is_valid


async def test_a_standstill_within_a_run_is_a_gap(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 60)
        clock.ns += HOUR
        await site.pass_time(22 * 60 + 10)
        await site.statements.make_due()
        (away,) = (await site.statement("2023-11-15"))["away"]
        assert (away["reason"], away["seconds"]) == ("the hub stalled, or its clock was set", 3600 + 60)


async def test_nothing_is_made_twice_or_before_a_day_is_over(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 1)
        assert await site.statements.make_due() == 0, "shards may not have reported everything"
        await site.pass_time(5)
        assert (await site.statements.make_due(), await site.statements.make_due()) == (1, 0)
        before = await site.files()
    async with running(stored, clock) as site:
        await site.pass_time(1)
        assert await site.statements.make_due() == 0
        assert await site.files() == before
        await site.pass_time(24 * 60)
        await site.statements.make_due()
        assert verify_chain(await site.files(), [site.statements.key()]).is_valid


async def test_alarms_say_how_fast_somebody_acknowledged_them(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 60)
        await site.alarm()
        site.clock.ns += 42 * SECOND
        await site.hub.actions.perform(Action.ACKNOWLEDGE, ADA, *HALL)
        await site.hub.actions.perform(Action.RESET, ADA, *HALL)
        await site.hub.actions.perform(Action.TEST, ADA, *HALL)
        await site.alarm()
        (alarm,) = {zone.alarm for zone in site.hub.zones.messages()}
        await site.pass_time(23 * 60 + 10)
        await site.statements.make_due()
        first, second = (await site.statement("2023-11-15"))["zones"][0]["alarms"]
        assert (first["acknowledgedAfterSeconds"], first["test"], first["false"]) == (42, False, False)
        assert (second["acknowledgedAfterSeconds"], second["test"], second["alarm"]) == (None, True, alarm)
        (listed, *_) = await site.statements.newest_first("9999-99-99", 5)
        assert (listed["day"], listed["alarms"], listed["unacknowledged"]) == ("2023-11-15", 2, 1)
        shown = text(await site.statements.find("2023-11-15"))
        assert "acknowledged after 42 s" in shown
        assert "not acknowledged, during a test" in shown


async def test_canary_messages_of_routes_are_counted_by_day(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        proof = RouteProof(0, 0, "waiting")
        site.hub.set_routes(lambda: {"brigade": proof})
        await site.pass_time(TO_MIDNIGHT + 5)
        for confirmed in (True, False):
            now = site.hub.timeline.now_ns()
            proof = RouteProof(
                now, now if confirmed else proof.confirmed_ns, "confirmed" if confirmed else "unconfirmed"
            )
            await site.pass_time(60)
        await site.pass_time(24 * 60)
        await site.statements.make_due()
        assert (await site.statement("2023-11-15"))["routes"] == [
            {"route": "brigade", "sent": 2, "confirmed": 1, "state": "unconfirmed"}
        ]
        assert (await site.statement("2023-11-14"))["routes"][0]["sent"] == 0


async def test_a_removed_and_an_added_device_count_only_while_declared(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a", "b")
        await site.pass_time(NOON)
        await site.declare("b", "c")
        await site.pass_time(12 * 60 + 10)
        await site.statements.make_due()
        (zone,) = (await site.statement("2023-11-15"))["zones"]
        seconds = {device["device"]: device["seconds"] for device in zone["devices"]}
        assert seconds["b"] == 86_400
        assert abs(seconds["a"] - 43_200) <= 60
        assert abs(seconds["c"] - 43_200) <= 60


async def test_the_journal_forgets_days_that_have_a_statement(stored: Stored) -> None:
    async with running(stored, Clock()) as site:
        await site.declare("a")
        await site.pass_time(TO_MIDNIGHT + 10)
        await site.statements.make_due()
        names = {name for kind, name in site.statements.journal.rows if kind in {"devices", "ledgers"}}
        assert names == {"2023-11-15"}
    rows = stored.query("SELECT kind, name FROM statement_journal")
    assert {name for kind, name in rows if kind in {"devices", "ledgers"}} == {"2023-11-15"}


def test_a_day_with_a_change_of_the_clock_has_23_or_25_hours() -> None:
    vienna = ZoneInfo("Europe/Vienna")
    lengths = {name: Day.named(name, vienna).span for name in ("2026-03-29", "2026-10-25", "2026-11-28")}
    assert {name: (end - begin) // HOUR for name, (begin, end) in lengths.items()} == {
        "2026-03-29": 23, "2026-10-25": 25, "2026-11-28": 24,
    }  # fmt: skip
    begin, end = lengths["2026-11-28"]
    assert Day.of(begin, vienna).date == Day.of(end - MINUTE, vienna).date == date(2026, 11, 28)
    assert datetime.fromtimestamp(begin // SECOND, UTC).hour == 23


async def test_a_wrong_clock_does_not_fill_the_database(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as site:
        await site.pass_time(TO_MIDNIGHT + 10)
        await site.statements.make_due()
        clock.ns += 4_000 * DAY
        with pytest.raises(ClockError, match="check the clock"):
            await site.statements.make_due()
        assert site.statements.overdue > 1_000
        assert len(await site.files()) == 1

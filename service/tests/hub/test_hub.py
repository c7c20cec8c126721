"""The hub without servers in this process, on clocks that tests set."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.hub.actions import Action
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.history import EventQuery
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.report_key import report_key
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.events import EVENTS, EventBounds, events_after, search_events
from embereye.hub.tables.evidence import EVIDENCE, committed_keys
from embereye.hub.tables.transaction import Transaction
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import DAY, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

FLEET = "default/sensors/hall"
WALL = 1_700_000_000 * SECOND
UNHEARD = "never heard"

ADA = Principal("Ada", Role.OPERATOR, "Ada")


class Clock:
    """The hub's clocks."""

    def __init__(self) -> None:
        self.now = 5_000 * SECOND
        self.step = 0  # how far the wall clock was set
        self.suspended = 0  # how long the machine was suspended

    def steady(self) -> int:
        return self.now

    def wall(self) -> int:
        return WALL + self.now + self.suspended + self.step

    def leases(self) -> int:
        return self.now + self.suspended


@asynccontextmanager
async def running(stored: Stored, clock: Clock, retention_ns: int = 3600 * SECOND) -> AsyncIterator[Hub]:
    store = stored.threads()
    hub = Hub(store, retention_ns=retention_ns, clock=clock.wall, steady=clock.steady, leases=clock.leases)
    await hub.open()
    task = asyncio.ensure_future(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def advance(hub: Hub, clock: Clock, seconds: float, *, covered: tuple[str, ...] = ()) -> None:
    """Let time pass in half seconds while `covered` devices are reported."""
    for _ in range(int(seconds * 2)):
        clock.now += SECOND // 2
        if covered:
            devices = [DeviceStatus(id=name, zone="hall", covered=True) for name in covered]
            coverage = Coverage(fleet=FLEET, shard="hall-0", epoch=1, time_ns=clock.wall(), devices=devices)
            hub.coverage.report(coverage)
        await hub.pass_time()


def roster(*devices: str, epoch: int = 1, zone: str = "hall") -> FleetRoster:
    declared = [Device(id=name, zone=zone) for name in devices]
    return FleetRoster(fleet=FLEET, epoch=epoch, deadline_ns=2 * SECOND, devices=declared)


def sign(
    name: str,
    clock: Clock,
    *,
    device: str = "s-01",
    zone: str = "hall",
    level: Level = Level.ALARM,
    snapshot: bytes = b"",
) -> EvidenceItem:
    return EvidenceItem(
        id=name,
        episode="e",
        fleet=FLEET,
        device=device,
        zone=zone,
        kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire,
        level=level.wire,
        since_ns=clock.wall(),
        until_ns=clock.wall(),
        snapshot=snapshot,
    )


async def event_reasons(hub: Hub) -> list[tuple[str, str]]:
    """The type and reason of every event."""
    return [
        (AlarmEvent.Type.Name(event.type).removeprefix("TYPE_").lower(), event.why)
        for event in await hub.history.events(0, 1000)
    ]


async def test_a_dark_device_is_one_fault_that_clears_when_it_is_covered_again(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        await advance(hub, clock, 3, covered=("s-01", "s-02"))
        assert await event_reasons(hub) == []
        await advance(hub, clock, 3, covered=("s-01",))
        assert await event_reasons(hub) == []
        await advance(hub, clock, 30, covered=("s-01",))
        assert await event_reasons(hub) == [("fault", "s-02 is dark: no shard reports it")]
        (zone,) = hub.zones.messages()
        assert (zone.declared, zone.covered, [fault.device for fault in zone.faults]) == (2, 1, ["s-02"])
        assert zone.state == ZoneState.NORMAL
        await advance(hub, clock, 1, covered=("s-01", "s-02"))
        assert (await event_reasons(hub))[1:] == [("fault_cleared", "s-02 is watched again")]


async def test_a_fault_that_was_open_before_a_restart_is_not_announced_again(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        await advance(hub, clock, 10, covered=("s-01",))
        assert len(await event_reasons(hub)) == 1
    async with running(stored, clock) as hub:
        (zone,) = hub.zones.messages()
        assert [fault.device for fault in zone.faults] == ["s-02"]
        await advance(hub, clock, 4)  # no shard has connected yet, so there is no fault
        assert len(await event_reasons(hub)) == 1
        await advance(hub, clock, 20, covered=("s-01",))
        assert len(await event_reasons(hub)) == 1
        await advance(hub, clock, 1, covered=("s-01", "s-02"))
        assert (await event_reasons(hub))[-1] == ("fault_cleared", "s-02 is watched again")


async def test_no_device_that_was_heard_is_called_unheard_after_restarts(stored: Stored) -> None:
    clock = Clock()

    def report(hub: Hub, shard: str, **status: Any) -> None:
        devices = [DeviceStatus(id="s-01", zone="hall", **status), DeviceStatus(id="s-02", zone="hall", reason=UNHEARD)]
        hub.coverage.report(Coverage(fleet=FLEET, shard=shard, epoch=1, time_ns=clock.wall(), devices=devices))

    def reasons(hub: Hub) -> list[str]:
        return [hub.coverage.darkness(fleet, watched) for fleet, watched in hub.coverage.book.devices()]

    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        report(hub, "hall-0", covered=True, heard_ns=hub.timeline.now_ns(), analysed_ns=hub.timeline.now_ns())
        hub.coverage.store_ledgers()
        await hub.pass_time()
        clock.now += 240 * SECOND
        report(hub, "hall-1", reason=UNHEARD)  # the shard that took over
        assert reasons(hub) == ["silent for 4 min", UNHEARD]
    async with running(stored, clock) as hub:  # a hub that took over, too
        report(hub, "hall-1", reason=UNHEARD)
        assert reasons(hub) == ["silent for 4 min", UNHEARD]
        await advance(hub, clock, 20)
        await hub.coverage.retain([])
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02", epoch=2))
        report(hub, "hall-1", reason=UNHEARD)
        assert hub.coverage.book.fleets[FLEET].devices["s-01"].heard_ns == 0, "its fleet was removed meanwhile"


async def test_a_fault_clears_when_its_device_is_no_longer_declared(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        await advance(hub, clock, 10)
        await hub.coverage.set_roster(roster("s-01", epoch=2))
        await hub.coverage.retain([])
        assert [why for _, why in await event_reasons(hub)][-2:] == [
            "s-02 is no longer declared",
            "s-01 is no longer declared",
        ]
        assert hub.zones.messages() == []


async def test_a_fault_follows_its_device_to_another_zone(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01"))
        await advance(hub, clock, 10)
        await hub.coverage.set_roster(roster("s-01", epoch=2, zone="attic"))
        await advance(hub, clock, 1)
        assert [(zone.name, len(zone.faults)) for zone in hub.zones.messages()] == [("attic", 1)]


async def test_a_suspension_of_the_hub_does_not_count_as_devices_silence(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01"))
        await advance(hub, clock, 3, covered=("s-01",))
        clock.now += 60 * SECOND
        await hub.pass_time()
        await advance(hub, clock, 10, covered=("s-01",))
        assert await event_reasons(hub) == []


async def test_a_step_queued_before_a_stall_makes_no_device_dark_after_it(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01"))
        hub.inbox.admit(sign("one", clock, level=Level.PRE_ALARM), lambda _: None)
        await advance(hub, clock, 3, covered=("s-01",))
        passing = asyncio.ensure_future(hub.pass_time())
        await asyncio.sleep(0)
        clock.now += 60 * SECOND  # before the committer runs
        await passing
        await advance(hub, clock, 10, covered=("s-01",))
        assert [kind for kind, _ in await event_reasons(hub)] == ["state"]
        (zone,) = hub.zones.messages()
        assert (zone.state, len(zone.faults)) == (ZoneState.PRE_ALARM, 0)


async def test_a_stall_of_the_hub_ends_no_sign(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        for device in ("s-01", "s-02"):
            hub.inbox.admit(sign(f"{device}-1", clock, device=device), lambda _: None)
        await hub.committer.flush(10)
        await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
        await advance(hub, clock, 3)
        clock.now += 60 * SECOND
        hub.inbox.admit(sign("s-01-2", clock, level=Level.CLEAR), lambda _: None)
        await hub.committer.flush(10)
        await advance(hub, clock, 5)
        (zone,) = hub.zones.messages()
        assert zone.state == ZoneState.ACKNOWLEDGED
        await advance(hub, clock, 30)
        (zone,) = hub.zones.messages()
        assert zone.state == ZoneState.RESTORED


async def test_a_suspension_counts_towards_silences_and_tests_but_not_towards_signs(
    stored: Stored,
) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01"))
        await hub.silences.begin(ADA, "default", "hall", reason="welding", minutes=60)
        await hub.actions.perform(Action.TEST, ADA, "default", "hall")
        began_ns = clock.wall()
        await advance(hub, clock, 1, covered=("s-01",))
        hub.inbox.admit(sign("1", clock, level=Level.PRE_ALARM), lambda _: None)
        assert await hub.committer.flush(10)
        clock.suspended += 40 * 60 * SECOND
        await advance(hub, clock, 1, covered=("s-01",))
        (zone,) = hub.zones.messages()
        assert not zone.testing, "half an hour has passed"
        assert zone.state == ZoneState.PRE_ALARM.wire
        (silence,) = hub.silences.all(hub.timeline.stepped_ns())
        assert (silence.since_ns, silence.until_ns) == (began_ns, began_ns + 3600 * SECOND)
        clock.suspended += 20 * 60 * SECOND
        await advance(hub, clock, 1, covered=("s-01",))
        assert hub.silences.all() == []
        (zone,) = hub.zones.messages()
        assert zone.state == ZoneState.PRE_ALARM.wire
        assert [kind for kind, _ in await event_reasons(hub)][-1] in {"silence", "evidence"}


async def test_an_unchanged_roster_is_not_stored_again(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        commits = hub.committer.counters.commits
        for _ in range(3):
            await hub.coverage.set_roster(roster("s-01", "s-02"))
        assert hub.committer.counters.commits == commits
        await hub.coverage.set_roster(roster("s-01", zone="attic"))
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        await hub.coverage.retain([])
        await hub.coverage.set_roster(roster("s-01", "s-02"))
        assert hub.committer.counters.commits > commits
    async with running(stored, clock) as hub:
        assert [watched.device.id for _, watched in hub.coverage.book.devices()] == ["s-01", "s-02"]


async def test_an_outdated_roster_is_refused(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        await hub.coverage.set_roster(roster("s-01", epoch=5))
        with pytest.raises(ConflictError, match="epoch 4 is older than the current epoch 5"):
            await hub.coverage.set_roster(roster("s-01", epoch=4))


async def test_a_resent_report_counts_once_even_after_a_restart(stored: Stored) -> None:
    clock, durable = Clock(), list[str]()
    async with running(stored, clock) as hub:
        hub.inbox.admit(sign("one", clock), durable.append)
        hub.inbox.admit(sign("one", clock), durable.append)
        await hub.committer.flush(10)
        await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
        await hub.actions.perform(Action.RESET, ADA, "default", "hall")
    async with running(stored, clock) as hub:
        clock.now += 60 * SECOND
        hub.inbox.admit(sign("one", clock), durable.append)
        await hub.committer.flush(10)
        assert durable == ["one"] * 3, "a duplicate is acknowledged too"
        assert [kind for kind, _ in await event_reasons(hub)] == ["state"] * 3
        assert hub.zones.messages() == []


async def test_evidence_without_a_zone_goes_to_the_zone_of_its_device(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        hub.inbox.admit(sign("one", clock, zone=""), lambda _: None)
        await hub.committer.flush(10)
        await hub.coverage.set_roster(roster("s-01"))
        hub.inbox.admit(sign("two", clock, zone=""), lambda _: None)
        await hub.committer.flush(10)
        assert {zone.name: zone.state for zone in hub.zones.messages()} == {
            "unassigned": ZoneState.ALARM,
            "hall": ZoneState.ALARM,
        }


@pytest.mark.parametrize("step", [3_600, -3_600])
async def test_events_are_found_by_wall_clock_time_after_the_clock_was_set(stored: Stored, step: int) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        clock.step = step * SECOND
        hub.inbox.admit(sign("one", clock), lambda _: None)
        await hub.committer.flush(10)
        (event,) = await hub.history.events(0, 10)
        assert event.time_ns == clock.wall()
        for query, count in (
            (EventQuery(since_ns=event.time_ns - SECOND), 1),
            (EventQuery(since_ns=event.time_ns + SECOND), 0),
            (EventQuery(until_ns=event.time_ns - SECOND), 0),
            (EventQuery(until_ns=event.time_ns + SECOND), 1),
        ):
            assert len((await hub.history.search(query)).events) == count
        assert len(await hub.history.events_between(event.time_ns - SECOND, event.time_ns + SECOND, 10)) == 1


async def test_the_picture_that_raised_an_alarm_is_stored(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        hub.inbox.admit(sign("one", clock, snapshot=b"first"), lambda _: None)
        clock.now += SECOND
        hub.inbox.admit(sign("two", clock, snapshot=b"second"), lambda _: None)
        await hub.committer.flush(10)
        alarm = hub.zones.messages()[0].alarm
        assert await hub.history.picture(alarm, "s-01", Kind.SMOKE) == b"first"
        assert await hub.history.picture(alarm, "s-02", Kind.SMOKE) is None


async def test_on_a_full_disk_fires_are_shown_but_not_acknowledged(tmp_path: Path) -> None:
    clock, durable = Clock(), list[str]()
    async with running(Stored(tmp_path), clock) as hub:
        store = hub._store
        # SQLite reports a database at its page limit like a full disk.
        await store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1"))
        for number in range(300):
            clock.now += SECOND // 1000
            hub.inbox.admit(sign(f"report with a long name {number:0200}", clock), durable.append)
        await eventually(lambda: hub.committer.failing)
        assert "full" in hub.committer.failing
        await eventually(hub.zones.messages)
        assert hub.zones.messages()[0].state == ZoneState.ALARM
        hub.inbox.admit(sign("attic", clock, zone="attic"), durable.append)
        await eventually(lambda: len(hub.zones.messages()) == 2)
        assert durable == []
        assert hub.feed.latest == 0
        with pytest.raises(StoreFailingError, match="cannot write its database"):
            await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
        await store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1000000"))
        await eventually(lambda: not hub.committer.failing)
        assert await hub.committer.flush(10)
        assert len(durable) == 301
        assert len([kind for kind, _ in await event_reasons(hub) if kind == "state"]) == 2
        await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")


async def test_the_hub_waits_for_a_locked_database(tmp_path: Path) -> None:
    clock, durable = Clock(), list[str]()
    async with running(Stored(tmp_path), clock) as hub:
        other = sqlite3.connect(tmp_path / "hub.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        hub.inbox.admit(sign("one", clock), durable.append)
        await eventually(lambda: hub.committer.failing)
        assert "locked" in hub.committer.failing
        assert durable == []
        other.execute("ROLLBACK")
        other.close()
        await eventually(lambda: durable == ["one"])
        assert hub.committer.failing == ""
        assert len(await event_reasons(hub)) == 1


async def test_a_stall_of_the_hub_interrupts_no_transaction(tmp_path: Path) -> None:
    store, interrupted = Stored(tmp_path).threads(), list[bool]()
    await store.open()
    store._store.interrupt = lambda: interrupted.append(True)  # type: ignore[method-assign]
    patience, store._patience = store._patience, 0.2
    writing = asyncio.ensure_future(store.write(lambda _: time.sleep(1.8)))
    await asyncio.sleep(0)
    time.sleep(1.7)  # noqa: ASYNC251 -- the hub stalls
    await writing
    assert (interrupted, store._patience) == ([], patience)
    await store.close()


async def test_a_report_that_fails_does_not_delay_others(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, durable = Clock(), list[str]()
    async with running(stored, clock) as hub:
        hub.inbox.admit(sign("bad", clock), durable.append)
        monkeypatch.setattr(hub.inbox, "step_zone", _failing_on("bad", hub.inbox.step_zone))
        hub.inbox.admit(sign("good", clock), durable.append)
        await hub.committer.flush(10)
        assert durable == ["good"]


def _failing_on(name: str, step: Callable[..., None]) -> Callable[..., None]:
    def wrapped(item: EvidenceItem, *more: object) -> None:
        if item.id == name:
            raise RuntimeError("broken")
        step(item, *more)

    return wrapped


async def test_an_error_names_the_unknown_zone(stored: Stored) -> None:
    async with running(stored, Clock()) as hub:
        with pytest.raises(UnknownNameError, match="no zone default/attic"):
            await hub.actions.perform(Action.TEST, ADA, "default", "attic")


@pytest.mark.parametrize("step", [365 * DAY, -365 * DAY])
async def test_setting_the_clock_changes_labels_but_not_the_age_of_history(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr("embereye.hub.history.PRUNE_SECONDS", 0.01)
    clock = Clock()
    async with running(stored, clock) as hub:
        hub.inbox.admit(sign("one", clock), lambda _: None)
        await hub.committer.flush(5)
        clock.step = step
        await asyncio.sleep(0.2)
        await hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
        before, after = await hub.history.events(0, 9)
        assert after.time_ns - before.time_ns == step
        assert after.contributions[0].until_ns - before.contributions[0].until_ns == step
    clock.step = 0
    async with running(stored, clock) as hub:
        clock.now += 3599 * SECOND
        await asyncio.sleep(0.2)
        assert len(await hub.history.events(0, 9)) == 2
        clock.now += 2 * SECOND
        async with asyncio.timeout(20):
            while await hub.history.events(0, 9):
                await asyncio.sleep(0.01)


async def test_report_ids_are_retained_for_a_day_and_alarms_as_long_as_history(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye.hub.history.PRUNE_SECONDS", 0.01)
    clock = Clock()
    async with running(stored, clock, retention_ns=90 * DAY) as hub:
        item = sign("one", clock)
        hub.inbox.admit(item, lambda _: None)
        assert await hub.committer.flush(5)
        clock.now += DAY - SECOND
        await asyncio.sleep(0.2)
        assert await hub._store.read(lambda store: committed_keys(store, [report_key(item)]))
        clock.now += 2 * SECOND
        async with asyncio.timeout(20):
            while await hub._store.read(lambda store: committed_keys(store, [report_key(item)])):
                await asyncio.sleep(0.01)
        hub.inbox.admit(item, lambda _: None)
        assert await hub.committer.flush(5)
        assert len(await hub.history.events(0, 9)) == 1


async def test_ids_stored_by_earlier_versions_are_known_after_an_upgrade(stored: Stored) -> None:
    clock = Clock()
    store = stored.open()
    store.commit(Transaction({EVIDENCE: {"one": clock.now}}))
    store.close()
    async with running(stored, clock) as hub:
        durable = list[str]()
        for name in ("one", "two"):
            item = sign(name, clock)
            hub.inbox.admit(item, durable.append, key=report_key(item, "hall-0"))
        assert await hub.committer.flush(5)
        assert (durable, hub.inbox.counters.duplicate) == (["one", "two"], 1)


async def test_a_report_that_was_handed_over_counts_once(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        for shard, name in (("hall-0", "one"), ("hall-1", "hall-0/one"), ("hall-1", "yard-0/one")):
            item = sign(name, clock)
            hub.inbox.admit(item, lambda _: None, key=report_key(item, shard))
        assert await hub.committer.flush(5)
        assert hub.inbox.counters.duplicate == 1


def test_the_cursor_never_decreases_even_if_all_events_are_pruned(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: [AlarmEvent(cursor=n, time_ns=n, zone="z") for n in range(1, 11)]}))
    while store.prune(100, 0):
        pass
    assert events_after(store, 0, 100) == []
    store.close()
    store = stored.open()
    assert store.load().cursor == 10
    store.close()


def test_a_retention_longer_than_the_unix_epoch_prunes_nothing(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: [AlarmEvent(cursor=1, time_ns=1, zone="z")]}))
    assert store.prune(time.time_ns(), 999_999 * DAY) == 0
    assert len(events_after(store, 0, 100)) == 1
    store.close()


def test_a_failed_transaction_stores_nothing(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: [AlarmEvent(cursor=1, zone="z")]}))
    clash = Transaction({EVIDENCE: {"new": 1}, EVENTS: [AlarmEvent(cursor=1, zone="z")]})
    with pytest.raises(StoreError):
        store.commit(clash)
    assert committed_keys(store, ["new"]) == set()
    store.close()


def test_a_search_includes_the_start_of_a_span_and_excludes_its_end(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: [AlarmEvent(cursor=n, time_ns=10 * n, zone="z") for n in range(1, 5)]}))

    def cursors(**bounds: int) -> list[int]:
        return [event.cursor for event in search_events(store, EventBounds(**bounds), 9)]  # type: ignore[arg-type]

    assert (cursors(), cursors(since_ns=20, until_ns=40), cursors(until_ns=0)) == ([1, 2, 3, 4], [2, 3], [])
    assert (cursors(after=3), cursors(before=2), cursors(after=1, until_ns=30)) == ([4], [1], [2])
    store.close()


def test_history_is_found_by_zone_name_with_or_without_namespace(stored: Stored) -> None:
    store = stored.open()
    zones = [("default", "hall"), ("default", "hall/east"), ("other", "hall")]
    events = [AlarmEvent(cursor=n, namespace=space, zone=zone) for n, (space, zone) in enumerate(zones, 1)]
    store.commit(Transaction({EVENTS: events}))

    def cursors(*names: str) -> list[int]:
        return [event.cursor for event in search_events(store, EventBounds(0, 9, zones=names), 9)]

    assert (cursors("hall"), cursors("other/hall"), cursors("hall/east")) == ([1, 3], [3], [2])
    assert (cursors("default/hall/east"), cursors("other/hall", "hall/east")) == ([2], [2, 3])
    store.close()


async def test_subscribers_at_one_cursor_share_a_sign_of_life(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as hub:
        sign = hub.sign_of_life(1)
        assert sign.event == AlarmEvent(type=AlarmEvent.TYPE_ALIVE, cursor=1, time_ns=clock.wall())
        assert hub.sign_of_life(1) is sign
        assert hub.sign_of_life(2).event.cursor == 2
        clock.now += SECOND
        assert hub.sign_of_life(2).event.time_ns == sign.event.time_ns + SECOND
        hub.committer.note_failing("disk full")
        assert hub.sign_of_life(2).event.why == hub.committer.failing

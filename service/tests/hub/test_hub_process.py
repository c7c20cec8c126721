"""The hub as a process on loopback, which is killed while shards report and people act."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pstats
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from harness.eventually import eventually
from harness.hubs import few_hubs
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub.report_key import report_key
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.tasks import Tasks
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.shard.evidence.reporter import Reporter
from embereye.shard.evidence.spool import Spool
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, HistoryRequest, SubscribeRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster, RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device, Term

if TYPE_CHECKING:
    from harness.hubs import Bus, HubProcess

pytest_generate_tests = few_hubs

FLEET = "default/sensors/hall"


def evidence(name: str, *, device: str = "s-01", level: Level = Level.ALARM) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=name,
        episode=device,
        fleet=FLEET,
        device=device,
        zone="hall",
        kind=Kind.HEAT.wire,
        sense=Sense.SENSOR.wire,
        level=level.wire,
        score=1,
        since_ns=now,
        until_ns=now,
        why=[Term(name="temperature.max", value=61.3, threshold=57, unit="°C")],
    )


@pytest.fixture
def hub_process(stored: Stored, bus: Bus, make_hub: Callable[..., HubProcess]) -> HubProcess:
    return make_hub(stored, *bus.arguments)


def stored_keys(hub: HubProcess) -> set[str]:
    return {row[0] for row in hub.stored.query("SELECT id FROM evidence")}


def keys(names: Iterable[str]) -> set[str]:
    """The keys under which the hub stores reports of these names from the shard hall-0."""
    return {report_key(EvidenceItem(fleet=FLEET, id=name), "hall-0") for name in names}


class Shard:
    """A real Reporter with a real spool, for one shard without devices."""

    def __init__(self, hub: HubProcess, spool: Path) -> None:
        self.spool = Spool(spool)
        self.episodes = Episodes(FLEET)
        self.covered = True
        self.reporter = Reporter(Links(hub.control), self.spool, hello=self._hello, coverage=self._coverage)

    def _hello(self) -> ShardHello:
        return ShardHello(fleet=FLEET, shard="hall-0", epoch=1)

    def _coverage(self) -> Coverage:
        devices = [DeviceStatus(id=f"s-0{n}", zone="hall", covered=self.covered, reason="silent") for n in (1, 2)]
        return Coverage(fleet=FLEET, shard="hall-0", epoch=1, time_ns=time.time_ns(), devices=devices)

    def observe(self, level: Level, now_ns: int) -> str:
        sign = Sign("s-01", "hall", Kind.SMOKE, Sense.SENSOR, level, 1.0)
        item = self.episodes.observe(sign, now_ns)
        if item is None:
            return ""
        self.reporter.report(item)
        return item.id


async def zone_state(hub: HubProcess) -> int:
    async with hub.channel() as link:
        zones = (await AlarmsStub(link).Zones(ZonesRequest(), wait_for_ready=True, timeout=10)).zones
    return zones[0].state if zones else ZoneState.UNSPECIFIED


async def test_a_fire_stays_one_alarm_while_the_hub_is_killed_and_restarted(
    hub_process: HubProcess, tmp_path: Path
) -> None:
    hub_process.start()
    await hub_process.ready()
    shard, randomly = Shard(hub_process, tmp_path / "spool"), random.Random(7)
    async with Tasks() as tasks:
        tasks.start(shard.reporter.run(), name="reporter")
        clock = time.time_ns()
        last = ""
        for _ in range(2):
            for _ in range(randomly.randint(5, 25)):
                clock += SECOND  # a report for each second, faster than in reality
                shard.observe(Level.ALARM, clock)
                await asyncio.sleep(randomly.random() * 0.02)
            hub_process.kill()
            clock += SECOND
            last = shard.observe(Level.ALARM, clock)
            hub_process.start()
            await hub_process.ready()
        await eventually(lambda: not len(shard.spool), goal="everything spooled is acknowledged")
        await eventually(lambda: shard.reporter.connected, goal="the shard knows that it is connected")
    assert shard.spool.dropped == 0
    await eventually(lambda: keys([last]) <= stored_keys(hub_process), goal="the last report is stored")
    async with hub_process.channel() as link:
        history = await AlarmsStub(link).History(HistoryRequest(limit=1000), wait_for_ready=True, timeout=10)
    raised = [event for event in history.events if event.state == ZoneState.ALARM]
    assert len([event for event in raised if event.previous != ZoneState.ALARM]) == 1
    assert len({event.alarm for event in raised}) == 1
    assert [event.cursor for event in history.events] == list(range(1, history.latest + 1))
    assert await zone_state(hub_process) == ZoneState.ALARM


async def _report(hub: HubProcess, items: list[EvidenceItem], acknowledged: set[str]) -> None:
    """Send `items` on one stream and collect acknowledgements, until all are there or the stream breaks."""
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True)
        try:
            await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="hall-0", epoch=1)))

            async def send() -> None:
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    for item in items:
                        await call.write(ReportRequest(evidence=item))

            sending = asyncio.ensure_future(send())
            wanted = {item.id for item in items}
            async for response in call:
                acknowledged.update(response.acknowledged)
                if wanted <= acknowledged:
                    break
            sending.cancel()
        finally:
            call.cancel()


async def test_acknowledged_reports_survive_a_kill_at_any_time(hub_process: HubProcess, bus: Bus) -> None:
    randomly = random.Random(11)
    latest = 0
    for attempt in range(3):
        hub_process.start()
        await hub_process.ready()
        acknowledged: set[str] = set()
        items = [evidence(f"{attempt}-{n}", device=f"s-{attempt}-{n:03}") for n in range(400)]
        reporting = asyncio.ensure_future(_report(hub_process, items, acknowledged))
        await asyncio.sleep(randomly.random() * 0.25)
        hub_process.kill()
        with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):  # the hub may be gone before it is reached
            await asyncio.wait_for(reporting, 10)
        query = hub_process.stored.query
        if bus.server:  # the stream has the reports that the hub had not stored yet
            hub_process.start()
            await eventually(
                partial(lambda owed: owed <= stored_keys(hub_process), keys(acknowledged)), goal="it is stored"
            )
            hub_process.kill()
        stored = stored_keys(hub_process)
        cursors = [row[0] for row in query("SELECT cursor FROM events ORDER BY cursor")]
        events = [AlarmEvent.FromString(row[0]) for row in query("SELECT event FROM events")]
        assert keys(acknowledged) <= stored
        assert cursors == list(range(1, len(cursors) + 1))
        assert len(cursors) >= latest
        latest = len(cursors)
        assert len({event.alarm for event in events}) <= 1
        # Each report made exactly one event: evidence and its events are in one transaction.
        assert len(events) == len(stored)


@pytest.fixture
def hub_on_postgres(stored_apart: Stored, bus: Bus, make_hub: Callable[..., HubProcess]) -> HubProcess:
    return make_hub(stored_apart, *bus.arguments)


@pytest.mark.parametrize("fault", ["connections ended", "server crashed", "hub killed", "NATS killed"])
async def test_acknowledged_reports_count_once_and_alarms_continue_over_each_fault(
    hub_on_postgres: HubProcess, own_postgres: Postgres, bus: Bus, fault: str
) -> None:
    hub, randomly, nats = hub_on_postgres, random.Random(5), bus.server
    if fault == "NATS killed" and nats is None:
        pytest.skip("there is no NATS")
    hub.start()
    await hub.ready()
    limit = max(60.0, 6 * hub.start_seconds)  # a hub that starts slowly also restarts slowly

    async def strike() -> None:
        if fault == "connections ended":
            await asyncio.to_thread(own_postgres.break_connections, hub.stored.database)
        elif fault == "server crashed":
            await asyncio.to_thread(own_postgres.stop)
            await asyncio.to_thread(own_postgres.start)
        elif fault == "NATS killed" and nats is not None:
            await asyncio.to_thread(nats.stop, signal.SIGKILL)
            await asyncio.to_thread(nats.start)
        else:
            hub.kill()
            hub.start()

    acknowledged: set[str] = set()
    items = [evidence(f"r-{n}", device=f"s-{n:04}") for n in range(1_000)]
    for item in items:
        item.zone = item.device

    def alarms() -> int:
        with contextlib.suppress(Exception):  # PostgreSQL may be away
            return int(hub.stored.query("SELECT COUNT(*) FROM events")[0][0])
        return 0

    async def report() -> None:
        while len(acknowledged) < len(items):  # as a shard does: reconnect and resend unacknowledged reports
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                owed = [item for item in items if item.id not in acknowledged][:50]
                await asyncio.wait_for(_report(hub, owed, acknowledged), 10)

    reporting = asyncio.ensure_future(report())
    for _ in range(4):
        await asyncio.sleep(0.1 + randomly.random() * 0.4)
        before = await asyncio.to_thread(alarms)
        await strike()
        struck = time.monotonic()
        while await asyncio.to_thread(alarms) <= before < len(items):
            assert time.monotonic() < struck + limit, "alarms continue"
            await asyncio.sleep(0.02)
    await asyncio.wait_for(reporting, 60)
    query = hub.stored.query
    assert acknowledged == {item.id for item in items}
    await eventually(lambda: stored_keys(hub) == keys(acknowledged), goal="all are stored")
    assert [row[0] for row in query("SELECT cursor FROM events ORDER BY cursor")] == list(range(1, len(items) + 1))
    assert query("SELECT COUNT(DISTINCT zone) FROM events") == [(len(items),)], "one alarm each"


async def test_a_terminated_hub_stores_its_reports_and_stops_at_once(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    acknowledged: set[str] = set()
    await _report(hub_process, [evidence("one"), evidence("two")], acknowledged)
    async with hub_process.channel() as link:
        feed = AlarmsStub(link).Subscribe(SubscribeRequest())
        await feed.read()
        assert await asyncio.to_thread(hub_process.terminate) == 0
        feed.cancel()
    assert acknowledged == {"one", "two"}
    assert "Traceback" not in hub_process.log()


def end_reading(pipe: Path) -> bool:
    """Let the reader of `pipe` find its end; False if nobody reads it yet."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


async def test_a_hub_serves_before_its_clips_are_loaded(
    tmp_path: Path, make_hub: Callable[[Stored], HubProcess]
) -> None:
    hub, folder = make_hub(Stored(tmp_path)), tmp_path / "clips" / "00"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "0.json")  # reading it blocks, like a disk that does not answer
    hub.start()
    await eventually(lambda: "hub ready" in hub.log(), goal="the hub serves", seconds=20)
    await eventually(lambda: end_reading(folder / "0.json"), goal="the hub reads its clips")
    await eventually(lambda: not list(folder.iterdir()), goal="files without a clip are removed")


async def test_a_hub_stops_even_if_the_disk_of_its_clips_does_not_answer(
    tmp_path: Path, make_hub: Callable[[Stored], HubProcess]
) -> None:
    hub, folder = make_hub(Stored(tmp_path)), tmp_path / "clips" / "00"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "0.json")
    hub.start()
    await eventually(lambda: "hub ready" in hub.log(), goal="the hub serves", seconds=20)
    assert await asyncio.to_thread(hub.terminate) == 0
    assert "Traceback" not in hub.log()


async def test_a_second_hub_on_the_same_folder_is_refused(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    second = type(hub_process)(hub_process.stored)
    second.start()
    assert second.process is not None
    assert await asyncio.to_thread(second.process.wait, 60) == 2
    assert "is in use by another hub" in hub_process.log()


@pytest.fixture
async def hub(hub_process: HubProcess) -> AsyncIterator[HubProcess]:
    hub_process.start()
    await hub_process.ready()
    yield hub_process
    assert "Traceback" not in hub_process.log()


async def test_a_subscriber_that_resumes_by_cursor_gets_every_event_once(hub: HubProcess) -> None:
    seen: list[int] = []
    reports = [evidence(f"e{n}", device=f"s-{n}") for n in range(30)]

    async def read(count: int) -> None:
        async with hub.channel() as link:
            call = AlarmsStub(link).Subscribe(
                SubscribeRequest(cursor=seen[-1] if seen else 0), wait_for_ready=True, timeout=20
            )
            while len(seen) < count:
                event = await call.read()
                assert isinstance(event, AlarmEvent)
                seen.append(event.cursor)
            call.cancel()

    await _report(hub, reports[:10], set())
    await read(5)
    reading = asyncio.ensure_future(read(20))  # from the history into live events
    await asyncio.sleep(0.05)
    await _report(hub, reports[10:20], set())
    await reading
    hub.kill()
    hub.start()
    await hub.ready()
    await _report(hub, reports[15:], set())
    await read(30)
    assert seen == list(range(1, 31))


async def test_a_newer_roster_replaces_an_older_one_and_is_stored(hub: HubProcess) -> None:
    def roster(epoch: int, *devices: str) -> FleetRoster:
        declared = [Device(id=name, zone="hall") for name in devices]
        return FleetRoster(fleet=FLEET, epoch=epoch, deadline_ns=5_000_000_000, devices=declared)

    async with hub.channel() as link, hub.channel(hub.control) as control:
        rosters = RosterStub(control)
        assert (await rosters.Set(roster(5, "s-01", "s-02"), timeout=10)).epochs == {FLEET: 5}
        for wrong, code in (
            (roster(4, "s-01"), grpc.StatusCode.FAILED_PRECONDITION),
            (roster(6, "s-01", "s-01"), grpc.StatusCode.INVALID_ARGUMENT),
            (FleetRoster(fleet="hall", epoch=6, deadline_ns=1), grpc.StatusCode.INVALID_ARGUMENT),
            (FleetRoster(fleet=FLEET, epoch=6), grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rosters.Set(wrong, timeout=10)
            assert caught.value.code() == code
        hub.kill()
        hub.start()
        await hub.ready()
        (zone,) = (await AlarmsStub(link).Zones(ZonesRequest(), wait_for_ready=True, timeout=10)).zones
        assert (zone.name, zone.declared, zone.covered) == ("hall", 2, 0)
        assert not (await rosters.Retain(RetainRequest(), timeout=10)).epochs
        assert not (await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)).zones


async def test_coverage_reports_of_an_undeclared_fleet_create_its_zones(hub: HubProcess, tmp_path: Path) -> None:
    shard = Shard(hub, tmp_path / "spool")
    async with Tasks() as tasks:
        tasks.start(shard.reporter.run(), name="reporter")
        await eventually(lambda: hub.get("/v1/zones")["covered"] == 2, goal="both devices are covered")
        shard.covered = False
        shard.reporter.coverage_changed()
        await eventually(lambda: hub.get("/v1/zones")["covered"] == 0, goal="neither is covered")
        devices = hub.get("/v1/devices")["devices"]
        assert [device["reason"] for device in devices] == ["silent", "silent"]


async def test_other_users_cannot_read_the_hubs_files(tmp_path: Path, make_hub: Callable[..., HubProcess]) -> None:
    (tmp_path / "clips").mkdir(0o755)  # as created by an earlier version
    hub = make_hub(Stored(tmp_path))
    hub.start()
    await hub.ready()
    files = [path for path in tmp_path.iterdir() if path.name != "log"]
    assert {"hub.sqlite", "hub.sqlite-wal", "clips", "admin-token"} <= {path.name for path in files}
    assert [path.name for path in files if path.lstat().st_mode & 0o007] == []


async def test_a_password_in_the_arguments_is_warned_of_and_not_logged(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    hub = make_hub(Stored(tmp_path))
    hub.start("--database", "postgresql://ada:secret-word@127.0.0.1:1/none")
    await eventually(lambda: "read the password in --database" in hub.log() and "cannot be reached" in hub.log(), 30)
    assert "secret-word" not in hub.log()


async def test_a_hub_writes_its_profile_and_allocations_when_it_stops(hub_process: HubProcess, tmp_path: Path) -> None:
    profile, allocations = tmp_path / "profile", tmp_path / "allocations"
    hub_process.start("--profile", str(profile), "--allocations", str(allocations))
    await hub_process.ready()
    assert hub_process.terminate() == 0
    assert any(name == "serve" for _, _, name in pstats.Stats(str(profile)).stats)  # type: ignore[attr-defined]
    assert "bytes in use" in allocations.read_text()

"""Canaries: from a real shard to a real hub process, and the hub's judgement of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.eventually import eventually
from harness.hubs import few_hubs
from harness.settings import camera_settings, sensor_settings
from harness.stored import Stored

from embereye.camera.shard import CameraShard
from embereye.hub.canaries import GONE_NS, REPLACED_NS, Canaries
from embereye.hub.committer import Draft
from embereye.hub.databases.store import StoreThreads
from embereye.hub.hub import Hub
from embereye.hub.tables.canaries import CANARIES, ShardKey, Success
from embereye.hub.tables.transaction import Transaction
from embereye.levels import Kind, Level, Sense
from embereye.process.telemetry.usage import resident_mb
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardCore
from embereye.units import MILLISECOND, MINUTE, SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, Coverage, EvidenceItem
from embereye.v1.shard_pb2 import Assignment, Canary
from embereye.zone.canary import PREFIX

from .shards import shard_process

if TYPE_CHECKING:
    from harness.hubs import HubProcess

pytest_generate_tests = few_hubs

FLEET, SHARD = "site/sensors/hall", "hall-0"
PLAN = CanaryPlan(process="p", interval_ns=60 * SECOND, within_ns=10 * SECOND)


def heartbeat(hub: HubProcess) -> dict[str, Any] | None:
    canaries: Any = hub.get("/v1/canaries")
    return canaries["canaries"][0] if canaries["canaries"] else None


def value(text: str, series: str) -> float | None:
    """The value in /metrics of the series that starts with `series`; None if there is none."""
    lines = [line for line in text.splitlines() if line.startswith(series)]
    return float(lines[0].rpartition(" ")[2]) if lines else None


def sensors(interval_ns: int = SECOND, within_ns: int = 10 * SECOND) -> Assignment:
    canary = Canary(interval_ns=interval_ns, within_ns=within_ns)
    return Assignment(fleet=FLEET, shard=SHARD, epoch=1, sensor=sensor_settings(), canary=canary)


def cameras() -> Assignment:
    canary = Canary(interval_ns=4 * SECOND, within_ns=20 * SECOND)
    return Assignment(fleet="site/cameras/yard", shard=SHARD, epoch=1, camera=camera_settings(), canary=canary)


@pytest.mark.parametrize(
    ("make", "assignment"), [(SensorShard, sensors()), (lambda: CameraShard(decoders=1), cameras())]
)
async def test_a_canarys_alarm_is_visible_only_as_a_heartbeat(
    hub_process: HubProcess, tmp_path: Path, make: Callable[[], ShardCore], assignment: Assignment
) -> None:
    hub_process.start()
    await hub_process.ready()
    core = make()
    async with shard_process(core, hub_process, tmp_path, assignment):
        await eventually(lambda: (beat := heartbeat(hub_process)) and beat["alarmed"], goal="a heartbeat", seconds=30)
        beat = heartbeat(hub_process)
        assert beat is not None
        namespace, kind, fleet = assignment.fleet.split("/")
        assert (beat["namespace"], beat["kind"], beat["fleet"], beat["shard"]) == (namespace, kind, fleet, SHARD)
        assert beat["overdue"] is False
        assert 0 <= beat["delay"] < 10
        assert core.covered(time.time_ns()) == (0, 0)
        assert core.devices(time.time_ns()) == []
        zones: Any = hub_process.get("/v1/zones")
        assert (zones["zones"], zones["cursor"], zones["declared"], zones["covered"]) == ([], "0", 0, 0)
        devices: Any = hub_process.get("/v1/devices")
        assert devices["devices"] == []
        history: Any = hub_process.get("/v1/history")
        assert history.get("events", []) == []
        text = str(hub_process.get("/metrics"))
        labels = f'namespace="{namespace}",kind="{kind}",fleet="{fleet}",shard="{SHARD}"'
        assert value(text, f"embereye_canary_overdue{{{labels}}}") == 0
        assert value(text, f"embereye_canary_alarmed_timestamp_seconds{{{labels}}}") == pytest.approx(
            time.time(), abs=30
        )
        assert value(text, f'embereye_canary_delay_seconds_count{{kind="{kind}"}}') != 0
        assert value(text, "embereye_hub_evidence_received_total") == 0
        assert value(text, 'embereye_hub_zones{state="alarm"}') == 0
    await eventually(lambda: heartbeat(hub_process) is None, goal="a shard that ended is not asked any more")


class StuckShard(SensorShard):
    """A sensor shard that never analyses its devices' lines."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher._process = lambda batch: None  # type: ignore[method-assign]


async def test_a_shard_whose_analysis_is_stuck_is_overdue(hub_process: HubProcess, tmp_path: Path) -> None:
    hub_process.start()
    await hub_process.ready()
    async with shard_process(StuckShard(), hub_process, tmp_path, sensors(within_ns=SECOND)):
        await eventually(lambda: (beat := heartbeat(hub_process)) and beat["overdue"], goal="overdue")
        beat = heartbeat(hub_process)
        assert beat is not None
        assert beat["alarmed"] is None
        assert value(str(hub_process.get("/metrics")), "embereye_canary_overdue{") == 1


# The hub's judgement, on the test's clocks


class Clock:
    def __init__(self) -> None:
        self.wall, self.steady = 1_700_000_000 * SECOND, 5 * SECOND

    def pass_time(self, nanoseconds: int) -> None:
        self.wall += nanoseconds
        self.steady += nanoseconds


def coverage_report(clock: Clock, process: str = "p", *, fleet: str = FLEET, final: bool = False) -> Coverage:
    plan = CanaryPlan(process=process, interval_ns=PLAN.interval_ns, within_ns=PLAN.within_ns)
    return Coverage(fleet=fleet, shard=SHARD, time_ns=clock.wall, canary=plan, final=final)


def fire(clock: Clock, name: str = "1", *, process: str = "p", level: Level = Level.ALARM) -> EvidenceItem:
    mark = CanaryFire(shard=SHARD, process=process, lit_ns=clock.wall, within_ns=PLAN.within_ns)
    return EvidenceItem(
        id=f"{PREFIX}{name}-{level}", episode=PREFIX, fleet=FLEET, device=f"{PREFIX}{name}", zone="_canary",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=clock.wall,
        until_ns=clock.wall, canary=mark,
    )  # fmt: skip


class Book:
    def __init__(self) -> None:
        self.clock = Clock()
        self.canaries = Canaries(clock=lambda: self.clock.wall, steady=lambda: self.clock.steady)
        self.transaction = Transaction()

    def draft(self) -> Draft:
        return Draft(set(), self.clock.wall, self.transaction)

    def process(self, item: EvidenceItem, *, after_ns: int = 0) -> None:
        """Make `item` durable `after_ns` after it was lit."""
        self.clock.pass_time(after_ns)
        self.canaries.step(item, self.draft())
        self.canaries.note_durable()

    @property
    def overdue(self) -> bool:
        (beat,) = self.canaries.heartbeats()
        return beat.overdue


def test_a_shard_is_overdue_after_one_interval_and_the_time_limit() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    assert not book.overdue
    for _ in range(7):
        book.clock.pass_time(10 * SECOND)
        book.canaries.expect(coverage_report(book.clock))
    assert not book.overdue
    book.clock.pass_time(1)
    assert book.overdue
    book.process(fire(book.clock), after_ns=50 * MILLISECOND)
    assert not book.overdue
    (beat,) = book.canaries.heartbeats()
    assert beat.latest is not None
    assert beat.latest.delay_ns == 50 * MILLISECOND


def test_a_canary_with_a_late_alarm_does_not_count() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    book.process(fire(book.clock), after_ns=PLAN.within_ns + 1)
    (beat,) = book.canaries.heartbeats()
    assert beat.latest is None
    assert book.canaries.late == 1
    assert not book.transaction, "or it would count after the hub's next start"


def test_a_pre_alarm_of_a_canary_does_not_count() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    book.process(fire(book.clock, level=Level.PRE_ALARM))
    assert book.canaries.heartbeats()[0].latest is None
    assert not book.transaction
    book.process(fire(book.clock))
    assert book.canaries.heartbeats()[0].latest is not None


def test_a_canary_that_is_not_durable_does_not_count() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    book.canaries.step(fire(book.clock), book.draft())
    assert book.canaries.heartbeats()[0].latest is None


def test_two_processes_of_one_shard_are_judged_separately() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock, "old"))
    book.canaries.expect(coverage_report(book.clock, "new"))
    for number in range(8):
        book.clock.pass_time(10 * SECOND)
        book.canaries.expect(coverage_report(book.clock, "old"))
        book.canaries.expect(coverage_report(book.clock, "new"))
        book.process(fire(book.clock, str(number), process="new"))
    assert book.overdue
    book.canaries.expect(coverage_report(book.clock, "old", final=True))
    assert not book.overdue


def test_a_killed_process_is_dropped_once_another_has_replaced_it() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock, "killed"))
    book.clock.pass_time(REPLACED_NS + 1)
    book.canaries.expect(coverage_report(book.clock, "successor"))
    book.clock.pass_time(50 * SECOND)
    book.canaries.expect(coverage_report(book.clock, "successor"))
    assert not book.overdue


def test_a_shard_that_is_silent_for_long_is_dropped() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    book.clock.pass_time(2 * MINUTE)
    assert book.overdue
    book.clock.pass_time(GONE_NS)
    assert book.canaries.heartbeats() == []


def test_a_forgotten_fleet_has_no_canaries() -> None:
    book = Book()
    book.canaries.expect(coverage_report(book.clock))
    book.canaries.tidy(book.draft(), [FLEET])
    assert book.canaries.heartbeats() == []


def test_expected_canaries_do_not_retain_devices_pictures_in_memory() -> None:
    book, before = Book(), resident_mb(os.getpid())
    for number in range(640):
        coverage = coverage_report(book.clock, str(number))
        coverage.devices.add(id="cam-1", picture=bytes(100_000))
        book.canaries.expect(coverage)
    assert resident_mb(os.getpid()) - before < 32


def test_a_canary_of_an_unknown_process_changes_nothing() -> None:
    book = Book()
    book.process(fire(book.clock, process="stranger"))
    assert book.canaries.heartbeats() == []
    assert not book.transaction


async def test_a_canarys_mark_does_not_hide_a_device(tmp_path: Path) -> None:
    threads = StoreThreads(tmp_path)
    hub = Hub(threads, retention_ns=SECOND * 3600)
    await hub.open()
    running = asyncio.ensure_future(hub.run())
    durable: list[str] = []
    item = fire(Clock())
    item.id, item.device, item.zone, item.until_ns = "one", "s-01", "attic", time.time_ns()
    hub.inbox.admit(item, durable.append)
    await eventually(lambda: durable, goal="durable")
    (zone,) = hub.zones.messages()
    assert zone.name == "attic"
    assert zone.alarm
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await threads.close()


def test_the_time_of_the_latest_success_survives_a_restart(stored: Stored) -> None:
    store, key, gone = stored.open(), ShardKey(FLEET, SHARD), ShardKey(FLEET, "gone")
    store.commit(Transaction({CANARIES: {key: Success(1, 2), gone: Success(3, 4)}}))
    store.commit(Transaction({CANARIES: {key: Success(5, 6), gone: None}}))
    assert store.load()[CANARIES] == {key: Success(5, 6)}
    store.close()

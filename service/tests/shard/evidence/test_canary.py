"""What a shard does for its canaries, without a hub."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.settings import sensor_settings

from embereye.levels import Level
from embereye.process.addresses import free_port
from embereye.process.tasks import Tasks
from embereye.sensor.shard import SensorShard
from embereye.shard.evidence.canary import Canaries, Fire
from embereye.shard.evidence.spool import Spool
from embereye.shard.service import ShardContext, ShardOptions
from embereye.units import MILLISECOND, SECOND
from embereye.v1.evidence_pb2 import CanaryPlan, EvidenceItem
from embereye.v1.shard_pb2 import AccessRules, Assignment, Canary
from embereye.v1.types_pb2 import Device
from embereye.zone.canary import PREFIX, is_canary

PLAN = CanaryPlan(process="p", interval_ns=SECOND, within_ns=5 * SECOND)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def lit(canaries: Canaries) -> AsyncIterator[None]:
    task = asyncio.ensure_future(canaries.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def canaries_of(
    light: Callable[[Fire], Awaitable[None]],
    *,
    interval_ns: int = 50 * MILLISECOND,
    within_ns: int = 100 * MILLISECOND,
    ready: Callable[[], bool] = lambda: True,
) -> Canaries:
    settings = Canary(interval_ns=interval_ns, within_ns=within_ns)
    return Canaries("hall-0", settings=lambda: settings, ready=ready, light=light, report=lambda _: None)


async def nothing(_: Fire) -> None:
    return None


async def test_a_fire_burns_at_every_interval_under_an_id_of_its_own() -> None:
    seen: list[Fire] = []

    async def light(fire: Fire) -> None:
        seen.append(fire)

    async with lit(canaries_of(light)):
        await until(lambda: len(seen) >= 3)
    assert len({fire.device for fire in seen}) == len(seen)
    assert all(is_canary(fire.device) for fire in seen)


async def test_nothing_burns_where_canaries_are_off_or_the_shard_is_not_ready() -> None:
    off, away = canaries_of(nothing, interval_ns=0), canaries_of(nothing, ready=lambda: False)
    async with lit(off), lit(away):
        await asyncio.sleep(0.3)
    assert (off.sent, away.sent) == (0, 0)
    assert off.plan().interval_ns == 0
    assert away.plan().interval_ns > 0  # a hub that nobody reaches has to miss it


async def test_a_shard_that_ends_says_that_nothing_is_to_be_expected() -> None:
    canaries = canaries_of(nothing)
    assert canaries.plan(ending=True).interval_ns == 0
    assert canaries.plan(ending=True).process == canaries.plan().process


async def test_a_canary_that_is_not_seen_is_logged_once_and_the_next_one_burns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def light(fire: Fire) -> None:
        await fire.reported.wait()

    with caplog.at_level(logging.WARNING):
        canaries = canaries_of(light)
        async with lit(canaries):
            await until(lambda: canaries.sent >= 3)
    assert [record.message for record in caplog.records] == [
        "canary: the shard did not detect it: no evidence within 0.1 s"
    ]


async def test_a_canary_that_fails_ends_nothing() -> None:
    async def light(fire: Fire) -> None:
        raise ConnectionRefusedError("nobody listens")

    canaries = canaries_of(light)
    async with lit(canaries):
        await until(lambda: canaries.sent >= 2)


def test_of_canaries_that_wait_only_the_newest_is_kept() -> None:
    spool = Spool(None)

    def keep(report: EvidenceItem) -> None:
        spool.put(report)

    for number in range(5):
        fire = Fire(PLAN, "hall-0", keep)
        fire.report(EvidenceItem(id=f"{number}-1", episode=f"{number}", device=fire.device, level=Level.ALARM.wire))
    spool.put(EvidenceItem(id="real", episode="real", device="s-1", level=Level.ALARM.wire))
    assert [item.id for _, item in spool.after(0)] == [f"{PREFIX}4-1", "real"]


# The sensor shard's


@pytest.fixture
async def shard() -> AsyncIterator[tuple[SensorShard, list[EvidenceItem], int]]:
    running, evidence, port = SensorShard(), list[EvidenceItem](), free_port()
    async with Tasks() as tasks:
        options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, port, 0, 0, 0)
        await running.start(ShardContext(options, tasks, evidence.append, lambda: None))
        running.apply(
            Assignment(
                fleet="site/sensors/hall", epoch=1, devices=[Device(id="s-1", zone="hall")], sensor=sensor_settings()
            )
        )
        yield running, evidence, port
        await running.stop()


async def test_a_sensor_shards_canary_is_evidence_and_in_no_count(
    shard: tuple[SensorShard, list[EvidenceItem], int],
) -> None:
    running, evidence, _ = shard
    told: list[EvidenceItem] = []
    before = (running.batcher.offered, dict(running.garbage))
    for _ in range(2):
        await running.light_canary(Fire(PLAN, "hall-0", told.append))
    assert evidence == []
    assert [item.level for item in told] == [Level.ALARM.wire] * 2
    assert all(item.canary.shard == "hall-0" and item.canary.lit_ns for item in told)
    assert [status.id for status in running.devices(0)] == ["s-1"]
    assert running.covered(0)[0] == 1
    assert dict(running.garbage) == before[1]
    running._sample()
    running._sample()
    assert running.load().arrival_rate == 0


async def test_a_canary_is_heard_where_text_devices_are_not(
    shard: tuple[SensorShard, list[EvidenceItem], int],
) -> None:
    running, _, port = shard
    settings = sensor_settings()
    settings.access.CopyFrom(AccessRules())
    running.apply(Assignment(fleet="site/sensors/hall", epoch=2, sensor=settings))
    told: list[EvidenceItem] = []
    await running.light_canary(Fire(PLAN, "hall-0", told.append))
    assert told
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()


async def test_a_canarys_id_is_refused_from_elsewhere(shard: tuple[SensorShard, list[EvidenceItem], int]) -> None:
    running, evidence, port = shard
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"#serialno:{PREFIX}guessed!\r\n#Sensor:ADC1=4000!\r\n".encode())
    await until(lambda: running.garbage["reserved id"])
    assert evidence == []
    assert [status.id for status in running.devices(0)] == ["s-1"]
    writer.close()


async def test_a_burnt_out_canary_is_nobody(shard: tuple[SensorShard, list[EvidenceItem], int]) -> None:
    running, _, _ = shard
    first = Fire(PLAN, "hall-0", lambda _: None)
    await running.light_canary(first)
    await running.light_canary(Fire(PLAN, "hall-0", lambda _: None))
    assert running.owned(first.device) is None

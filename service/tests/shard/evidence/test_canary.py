"""The canaries of a shard, without a hub."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
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


async def test_a_fire_burns_at_every_interval_with_a_new_id() -> None:
    seen: list[Fire] = []

    async def light(fire: Fire) -> None:
        seen.append(fire)

    async with lit(canaries_of(light)):
        await eventually(lambda: len(seen) >= 3)
    assert len({fire.device for fire in seen}) == len(seen)
    assert all(is_canary(fire.device) for fire in seen)


async def test_no_fire_burns_if_canaries_are_off_or_the_shard_is_not_ready() -> None:
    off, away = canaries_of(nothing, interval_ns=0), canaries_of(nothing, ready=lambda: False)
    async with lit(off), lit(away):
        await asyncio.sleep(0.3)
    assert (off.sent, away.sent) == (0, 0)
    assert off.plan().interval_ns == 0
    assert away.plan().interval_ns > 0  # an unreachable hub has to notice that it is missing


async def test_a_shard_that_ends_plans_no_canaries() -> None:
    canaries = canaries_of(nothing)
    assert canaries.plan(ending=True).interval_ns == 0
    assert canaries.plan(ending=True).process == canaries.plan().process


async def test_an_undetected_canary_is_logged_once_and_the_next_one_burns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def light(fire: Fire) -> None:
        await fire.reported.wait()

    with caplog.at_level(logging.WARNING):
        canaries = canaries_of(light)
        async with lit(canaries):
            await eventually(lambda: canaries.sent >= 3)
    assert [record.message for record in caplog.records] == [
        "canary: the shard did not detect it: no evidence within 0.1 s"
    ]


async def test_a_canary_that_fails_does_not_end_the_canaries() -> None:
    async def light(fire: Fire) -> None:
        raise ConnectionRefusedError("nobody listens")

    canaries = canaries_of(light)
    async with lit(canaries):
        await eventually(lambda: canaries.sent >= 2)


def test_only_the_newest_of_waiting_canaries_is_stored() -> None:
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


async def test_a_sensor_shards_canary_makes_evidence_but_counts_nowhere(
    shard: tuple[SensorShard, list[EvidenceItem], int],
) -> None:
    running, evidence, _ = shard
    reported: list[EvidenceItem] = []
    before = (running.batcher.offered, dict(running.garbage))
    for _ in range(2):
        await running.light_canary(Fire(PLAN, "hall-0", reported.append))
    assert evidence == []
    assert [item.level for item in reported] == [Level.ALARM.wire] * 2
    assert all(item.canary.shard == "hall-0" and item.canary.lit_ns for item in reported)
    assert [status.id for status in running.devices(0)] == ["s-1"]
    assert running.covered(0)[0] == 1
    assert dict(running.garbage) == before[1]
    running._sample()
    running._sample()
    assert running.load().arrival_rate == 0


async def test_a_canary_is_admitted_even_if_text_devices_are_not(
    shard: tuple[SensorShard, list[EvidenceItem], int],
) -> None:
    running, _, port = shard
    settings = sensor_settings()
    settings.access.CopyFrom(AccessRules())
    running.apply(Assignment(fleet="site/sensors/hall", epoch=2, sensor=settings))
    reported: list[EvidenceItem] = []
    await running.light_canary(Fire(PLAN, "hall-0", reported.append))
    assert reported
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()


async def test_a_canarys_id_is_refused_from_other_senders(shard: tuple[SensorShard, list[EvidenceItem], int]) -> None:
    running, evidence, port = shard
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"#serialno:{PREFIX}guessed!\r\n#Sensor:ADC1=4000!\r\n".encode())
    await eventually(lambda: running.garbage["reserved id"])
    assert evidence == []
    assert [status.id for status in running.devices(0)] == ["s-1"]
    writer.close()


async def test_a_canary_that_has_ended_is_unknown(shard: tuple[SensorShard, list[EvidenceItem], int]) -> None:
    running, _, _ = shard
    first = Fire(PLAN, "hall-0", lambda _: None)
    await running.light_canary(first)
    await running.light_canary(Fire(PLAN, "hall-0", lambda _: None))
    assert running.fleet.owned(first.device) is None

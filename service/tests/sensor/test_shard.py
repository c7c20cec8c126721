import asyncio
import contextlib
import gc
import os
import socket
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from harness.need import CAPTURE, RECORDINGS
from harness.settings import sensor_settings

from embereye.detect.thermal.mlx90640 import Calibration, words_of
from embereye.levels import Kind, Level
from embereye.process import heap
from embereye.process.addresses import free_port
from embereye.process.grpc_server import GrpcServer, channel
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.process.telemetry.usage import resident_mb
from embereye.sensor import relay_service, sessions
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import DeviceStatus, EvidenceItem
from embereye.v1.ingest_pb2 import (
    AskRequest,
    DeviceBatch,
    IngestRequest,
    IngestResponse,
    Reading,
    ReadingColumns,
    RelayedConnection,
)
from embereye.v1.ingest_pb2_grpc import IngestStub, SensorsStub
from embereye.v1.shard_pb2 import (
    AccessRules,
    Assignment,
    Commands,
    Peer,
    SensorSettings,
)
from embereye.v1.types_pb2 import Device
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords
from embereye.wire.device.reader import LineReader
from embereye_cli.devices import request

SETTINGS = sensor_settings(
    smoke={"preAlarmPercent": 40, "alarmPercent": 60}, flame={"preAlarmPercent": 50, "alarmPercent": 70}
)


@dataclass
class Running:
    """A shard core without its process."""

    shard: SensorShard
    tcp: int
    grpc: int
    control: int = 0
    evidence: list[EvidenceItem] = field(default_factory=list)

    def status(self, device: str) -> DeviceStatus:
        import time

        return next(status for status in self.shard.devices(time.time_ns()) if status.id == device)

    def assign(
        self,
        *devices: str,
        epoch: int = 1,
        elsewhere: dict[str, str] | None = None,
        peers: list[Peer] | None = None,
        commands: Commands | None = None,
        access: AccessRules | None = None,
    ) -> None:
        settings = SensorSettings()
        settings.CopyFrom(SETTINGS)
        settings.MergeFrom(SensorSettings(commands=commands, access=access))
        self.shard.apply(
            Assignment(
                fleet="default/sensors/test",
                epoch=epoch,
                devices=[Device(id=name, zone="hall") for name in devices],
                elsewhere=elsewhere or {},
                peers=peers or [],
                sensor=settings,
            )
        )


Start = Callable[..., "asyncio.Future[Running]"]


@pytest.fixture
async def start() -> AsyncIterator[Callable[[], object]]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(host: str = "127.0.0.1") -> Running:
            shard = SensorShard()
            tasks = await stack.enter_async_context(Tasks())
            running = Running(shard, free_port(), 0)
            options = ShardOptions("s", Path("none"), "", None, host, 0, running.tcp, 0, 0, 0)
            await shard.start(ShardContext(options, tasks, running.evidence.append, lambda: None))
            stack.push_async_callback(shard.stop)
            for control in (False, True):
                server = GrpcServer(shard.services(), control=control)
                port = server.listen("127.0.0.1:0")
                running.grpc, running.control = (running.grpc, port) if control else (port, 0)
                await server.start()
                stack.push_async_callback(server.stop, 0)
            return running

        yield begin


async def connect(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", running.tcp)


async def test_a_declared_device_that_sends_is_covered_and_its_readings_are_shown(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    assert running.status("s-01").reason == "never heard"
    reader, writer = await connect(running)
    assert await reader.readexactly(9) == b"PERIOD_ON"
    writer.write(b"#serialno:s-01!\r\n#Sensor:ADC1=283,ADC2=1305,ADC3=2,DIO=0!\r\n")
    await eventually(lambda: running.status("s-01").covered)
    latest = {term.name: term for term in running.status("s-01").latest}
    assert latest["smoke"].value == pytest.approx(100 * 283 / 4095)
    assert running.status("s-01").ledger.analysed == 1
    assert not running.evidence
    writer.close()


async def test_garbage_of_grpc_calls_does_not_pile_up_in_an_idle_shard(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "COLLECT_SECONDS", 0.05)
    running = await start()

    def left() -> int:
        """The number of call objects that gRPC leaves in reference cycles."""
        return sum(type(each).__name__ == "_HandlerCallDetails" for each in gc.get_objects())

    async with channel(f"127.0.0.1:{running.grpc}") as link:
        health = health_pb2_grpc.HealthStub(link)
        for _ in range(300):
            await health.Check(health_pb2.HealthCheckRequest())
    await eventually(lambda: left() < 10)


async def test_many_assignments_need_no_more_memory_than_one() -> None:
    shard = SensorShard()
    before = resident_mb(os.getpid())
    for epoch in range(1, 2_001):
        assignment = Assignment(fleet="site/sensors/hall", shard="hall-0", epoch=epoch, sensor=SETTINGS)
        assignment.sensor.access.networks.extend(
            f"10.{second}.{third}.0/24" for second in range(10) for third in range(200)
        )
        shard.apply(assignment)
    assert resident_mb(os.getpid()) - before < 32


def test_an_undeclared_device_is_shown_with_the_present_settings() -> None:
    shard = SensorShard()
    for epoch, settings in enumerate((SETTINGS, sensor_settings(converter={"bits": 10})), 1):
        shard.apply(Assignment(fleet="site/sensors/hall", shard="hall-0", epoch=epoch, sensor=settings))
        device = shard.fleet.undeclared("stranger")
        assert device is not None
    assert device.readings.thresholds.full_scale == 1023


async def test_no_counter_decreases_when_devices_move_to_other_shards(start: Start) -> None:
    """Prometheus would take a falling counter for a restart."""
    running = await start()
    running.assign("s-01", "s-02")
    _, writer = await connect(running)
    for name in (b"s-01", b"s-02"):
        writer.write(b"#Sensor%s:ADC1=283,ADC2=1305,ADC3=2,DIO=0!\r\n" % name)
    await eventually(lambda: running.status("s-01").covered and running.status("s-02").covered)
    assert running.status("s-02").ledger.analysed

    def counted() -> dict[str, float]:
        return {
            f"{sample.name} {sample.labels}": sample.value
            for metric in running.shard.metrics() if metric.type == "counter" for sample in metric.samples
        }  # fmt: skip

    before = counted()
    running.assign("s-01", epoch=2, elsewhere={"s-02": "other"})
    after = counted()
    assert {name for name, value in before.items() if after.get(name, 0) < value} == set()
    writer.close()


async def test_invalid_bytes_do_not_affect_other_lines(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    _, writer = await connect(running)
    writer.write(b"\x00\xff garbage!#frame:nothex!" + b"x" * 40_000 + b"!#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n")
    await eventually(lambda: running.status("s-01").covered)
    assert sum(running.shard.garbage.values()) == 3
    writer.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_a_connection_of_a_vanished_device_ends_despite_unacknowledged_data(
    start: Start,
) -> None:
    running = await start()
    _, writer = await connect(running)
    await eventually(lambda: len(running.shard._sessions))
    (session,) = running.shard._sessions._open
    assert session._transport is not None
    connection = session._transport.get_extra_info("socket")
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000  # ms
    writer.close()


async def test_an_undeclared_device_is_shown_but_raises_no_alarm(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    _, writer = await connect(running)
    for _ in range(5):
        writer.write(b"#Sensorstranger:ADC1=4000,ADC2=4000,ADC3=4000,DIO=1!\r\n")
    await eventually(lambda: len(running.shard.devices(0)) == 2)
    status = running.status("stranger")
    assert not status.covered
    assert "not declared" in status.reason
    assert not running.evidence
    writer.close()


async def test_smoke_past_its_threshold_becomes_evidence_with_its_terms(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    _, writer = await connect(running)
    for _ in range(3):
        writer.write(b"#Sensors-01:ADC1=3000,ADC2=100,ADC3=2,DIO=0!\r\n")
        await asyncio.sleep(0.05)
    await eventually(lambda: running.evidence)
    evidence = running.evidence[0]
    assert (evidence.device, evidence.zone, evidence.kind) == ("s-01", "hall", Kind.SMOKE)
    assert evidence.level == Level.ALARM
    assert evidence.why[0].value == pytest.approx(100 * 3000 / 4095, abs=0.1)
    assert evidence.why[0].threshold == 60
    writer.close()


async def test_a_device_that_dials_the_wrong_shard_is_relayed_to_its_owner(start: Start) -> None:
    owner, stranger = await start(), await start()
    owner.assign("s-01")
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}", grpc=f"127.0.0.1:{owner.grpc}")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer])
    reader, writer = await connect(stranger)
    assert await reader.readexactly(9) == b"PERIOD_ON"
    writer.write(b"#serialno:s-01!\r\n#Sensor:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n#frame:" + b"FFB8" * 834 + b"!\r\n")
    await eventually(lambda: owner.status("s-01").ledger.analysed == 2)
    assert stranger.shard._sessions.relayed == 2
    assert not stranger.status("s-02").covered
    assert await asyncio.wait_for(reader.readexactly(7), 10) == b"EEPROM1"
    writer.close()


async def relayed(start: Start) -> tuple[Running, Running, asyncio.StreamWriter]:
    """The owner of s-01, the other shard that s-01 dials, and its connection there with a known route."""
    owner, stranger = await start(), await start()
    owner.assign("s-01")
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer])
    _, writer = await connect(stranger)
    writer.write(b"#serialno:s-01!\r\n" + QUIET_LINE)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    return owner, stranger, writer


QUIET_LINE = b"#Sensor:ADC1=283,ADC2=305,ADC3=12,DIO=0!\r\n"
SMOKE_LINE = b"#Sensor:ADC1=3000,ADC2=305,ADC3=12,DIO=0!\r\n"


async def test_quiet_lines_are_relayed_without_a_tick(start: Start) -> None:
    owner, stranger, writer = await relayed(start)
    ticks = stranger.shard.batcher.works.count
    for count in (1, 3, 1):
        writer.write(QUIET_LINE * count)
        await asyncio.sleep(0.01)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 6)
    assert (stranger.shard._sessions.relayed, stranger.shard._sessions.relay_dropped) == (6, 0)
    assert stranger.shard.batcher.works.count == ticks
    assert not owner.shard.garbage
    latest = {term.name: term for term in owner.status("s-01").latest}
    assert latest["smoke"].value == pytest.approx(100 * 283 / 4095)
    writer.close()


async def test_a_line_that_may_start_a_sign_is_relayed_at_once(start: Start) -> None:
    owner, stranger, writer = await relayed(start)
    stranger.shard.relays.later = 3600.0
    stranger.shard.batcher._limits = stranger.shard.batcher._limits._replace(window=3600.0)
    writer.write(QUIET_LINE)
    await eventually(lambda: stranger.shard._sessions.relayed == 2)
    writer.write(SMOKE_LINE)
    await eventually(lambda: owner.evidence)
    assert owner.evidence[0].kind == Kind.SMOKE
    assert owner.status("s-01").ledger.analysed == 3, "the quiet line was relayed with it, and first"
    writer.close()


async def test_quiet_lines_that_cannot_be_relayed_are_counted(start: Start) -> None:
    owner, stranger, writer = await relayed(start)
    stranger.shard.relays.later = 3600.0
    stranger.shard.relays.limits.connection = 2 * len(QUIET_LINE) + 20
    for _ in range(4):
        writer.write(QUIET_LINE)
        await asyncio.sleep(0.02)
    await eventually(lambda: stranger.shard._sessions.relayed + stranger.shard._sessions.relay_dropped == 5)
    assert stranger.shard._sessions.relay_dropped == 2
    writer.close()
    await eventually(lambda: owner.status("s-01").ledger.analysed == 3)


async def test_a_connection_that_changes_its_device_is_relayed_under_the_new_name(start: Start) -> None:
    owner, stranger, writer = await relayed(start)
    owner.assign("s-01", "s-03", epoch=2)
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}")
    stranger.assign("s-02", epoch=2, elsewhere={"s-01": "owner", "s-03": "owner"}, peers=[peer])
    writer.write(QUIET_LINE)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 2)
    writer.write(b"#serialno:s-03!\r\n" + QUIET_LINE)
    await eventually(lambda: owner.status("s-03").ledger.analysed == 1)
    writer.write(QUIET_LINE)
    await eventually(lambda: owner.status("s-03").ledger.analysed == 2)
    assert owner.status("s-01").ledger.analysed == 2
    writer.close()


@pytest.mark.parametrize("newer_is_relayed", [True, False])
async def test_the_newer_of_two_connections_speaks_whichever_shards_they_reach(
    start: Start, newer_is_relayed: bool
) -> None:
    owner, stranger = await start(), await start()
    owner.assign("s-01", peers=[Peer(shard="stranger", control=f"127.0.0.1:{stranger.control}")])
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}", grpc="")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer])
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    _, older = await connect(stranger)
    await asyncio.sleep(0.01)
    _, newer = await connect(stranger if newer_is_relayed else owner)
    newer.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    older.write(line)  # its relay is the newer connection of the owner
    await eventually(lambda: owner.status("s-01").ledger.rejected["a newer connection speaks for it"] == 1)
    assert owner.status("s-01").ledger.takeovers == 0
    newer.close()
    device = owner.shard.fleet.owned("s-01")
    await eventually(lambda: device and device.arrivals.speaker is None)
    older.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 2)
    _, newest = await connect(stranger)
    newest.write(line)
    await eventually(lambda: owner.status("s-01").ledger.takeovers == 1)
    for writer in (older, newest):
        writer.close()


async def test_a_text_connection_cannot_pretend_to_be_a_relay(start: Start) -> None:
    owner, other = await start(), await start()
    owner.assign("s-01", peers=[Peer(shard="other", control=f"127.0.0.1:{other.control}")])
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    _, thief = await connect(owner)
    thief.write(b"#passedon:only:9223372036854775807!\r\n" + line)  # as shards of earlier versions did
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    assert owner.shard.garbage["unknown word"] == 1
    _, device = await connect(owner)
    device.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 2)
    for writer in (thief, device):
        writer.close()


async def test_a_relayed_device_is_pinned_to_its_address_not_to_the_relaying_shard(start: Start) -> None:
    owner, stranger = await start(), await start()
    access = AccessRules(networks=["10.0.0.0/8"])  # and loopback
    owner.assign("s-01", access=access)
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer], access=access)
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    _, device = await connect(stranger)
    device.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    for at in (owner, stranger):
        _, thief = await asyncio.open_connection("127.0.0.1", at.tcp, local_addr=("127.0.0.7", 0))
        refused = owner.status("s-01").ledger.rejected["another address speaks for it"]
        device.write(line)
        thief.write(line)
        await eventually(lambda: owner.status("s-01").ledger.rejected["another address speaks for it"] > refused)  # noqa: B023
        thief.close()
    assert "127.0.0.7 also sends as this device" in owner.status("s-01").state
    assert owner.status("s-01").ledger.takeovers == 0
    device.close()


async def test_a_device_stays_pinned_to_its_address_after_a_long_stall_of_its_shard(
    start: Start,
) -> None:
    owner = await start()
    owner.assign("s-01", access=AccessRules(networks=["10.0.0.0/8"]))
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    _, device = await connect(owner)
    device.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    _, thief = await asyncio.open_connection("127.0.0.1", owner.tcp, local_addr=("127.0.0.7", 0))
    await eventually(lambda: len(owner.shard._sessions) == 2)
    thief.write(line)
    time.sleep(owner.shard.fleet.settings.deadline_ns / SECOND + 1)  # noqa: ASYNC251 -- the shard stalls
    await eventually(lambda: sum(owner.status("s-01").ledger.rejected.values()) + owner.status("s-01").ledger.takeovers)
    assert owner.status("s-01").ledger.rejected["another address speaks for it"] == 1
    assert owner.status("s-01").ledger.takeovers == 0
    for writer in (thief, device):
        writer.close()


async def test_an_unused_stream_between_shards_ends_and_a_new_one_can_start(start: Start) -> None:
    owner, stranger = await start(), await start()
    stranger.shard.relays.limits.idle = 0.1
    owner.assign("s-01")
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer])
    for count in (1, 2, 3):
        _, writer = await connect(stranger)
        writer.write(b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n")
        await eventually(lambda: owner.status("s-01").ledger.analysed == count)  # noqa: B023
        assert len(stranger.shard.relays) == 1
        writer.close()
        await eventually(lambda: len(owner.shard._sessions) == 0)
        await eventually(lambda: len(stranger.shard.relays) == 0)
    assert stranger.shard._sessions.relay_dropped == 0


async def test_a_relayed_flood_leaves_no_bytes_waiting(start: Start) -> None:
    owner = await start()
    owner.assign("s-01")
    line = b"#Sensors-01:ADC1=280,ADC2=1300,ADC3=400,DIO=0!\r\n"
    lines = line * (sessions.WAITING_LIMIT // len(line) + 1)
    async with Tasks() as tasks:
        caller = relay_service._Caller(owner.shard._sessions, None, tasks)
        for _ in range(3):  # the first exceeds the limit; lines wait until the tick
            caller.hand_lines(RelayedConnection(since_ns=1, address="10.0.0.1", lines=lines))
        await eventually(lambda: owner.status("s-01").ledger.offered == 3 * lines.count(b"!"))
        await eventually(lambda: owner.shard.batcher.oldest_age_ns() == 0)
        assert (owner.shard.batcher.waiting, owner.shard.batcher.depth) == (0, 0)
        caller.close()


async def test_dropped_lines_are_counted_and_the_relay_resumes_with_the_owner(start: Start) -> None:
    owner, stranger = await start(), await start()
    port = free_port()
    peer = Peer(shard="owner", control=f"127.0.0.1:{port}")
    stranger.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer])
    owner.assign("s-01")
    _, writer = await connect(stranger)
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    writer.write(line * 3)
    await eventually(lambda: stranger.shard._sessions.relay_dropped == 3)
    again = GrpcServer(owner.shard.services(), control=True)
    again.listen(f"127.0.0.1:{port}")
    await again.start()
    writer.write(line)
    await eventually(lambda: owner.status("s-01").ledger.analysed == 1)
    await again.stop(0)
    writer.close()


async def test_a_change_of_owner_needs_no_new_connection(start: Start) -> None:
    first, second = await start(), await start()
    peer = Peer(shard="second", control=f"127.0.0.1:{second.control}", grpc="")
    first.assign("s-01")
    _, writer = await connect(first)
    line = b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"
    writer.write(line)
    await eventually(lambda: first.status("s-01").covered)
    second.assign("s-01", epoch=2)
    first.assign(epoch=2, elsewhere={"s-01": "second"}, peers=[peer])
    writer.write(line)
    await eventually(lambda: second.status("s-01").covered)
    writer.close()


async def test_both_shards_get_the_lines_of_a_device_during_its_hand_over(start: Start) -> None:
    old, new = await start(), await start()
    peer = Peer(shard="new", control=f"127.0.0.1:{new.control}", grpc="")
    new.assign("s-01")
    old.assign("s-01", elsewhere={"s-01": "new"}, peers=[peer])
    _, writer = await connect(old)
    writer.write(b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n")
    await eventually(lambda: new.status("s-01").covered)
    await eventually(lambda: old.status("s-01").covered)
    writer.close()


async def test_each_line_of_a_device_is_relayed_once_during_its_hand_over(start: Start) -> None:
    old, new = await start(), await start()
    peers = [
        Peer(shard=name, control=f"127.0.0.1:{running.control}", grpc="")
        for name, running in (("old", old), ("new", new))
    ]
    new.assign(elsewhere={"s-01": "old"}, peers=peers)  # its own assignment arrives last
    old.assign("s-01", elsewhere={"s-01": "new"}, peers=peers)
    _, writer = await connect(old)
    for number in range(30):
        writer.write(b"#Sensors-01:ADC1=%d,ADC2=2,ADC3=3,DIO=0!\r\n" % number)
        await asyncio.sleep(0.005)
        if number == 9:
            await eventually(lambda: new.shard._sessions.relay_dropped == 10)
            new.assign("s-01", epoch=2)
    await eventually(lambda: new.status("s-01").ledger.analysed == 20)
    ledger = old.status("s-01").ledger
    assert (ledger.offered, ledger.analysed, ledger.shared) == (30, 30, 0)
    assert new.status("s-01").ledger.shared == 20
    old.assign(epoch=3, elsewhere={"s-01": "new"}, peers=peers)
    writer.write(b"#Sensors-01:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n")
    await eventually(lambda: new.status("s-01").ledger.analysed == 21)
    ledger = new.status("s-01").ledger
    assert (ledger.offered, ledger.shared, ledger.takeovers) == (21, 20, 0)
    await eventually(lambda: len(new.shard._sessions) == 1)
    assert (new.shard._sessions.relayed, new.shard._sessions.relay_dropped) == (0, 10)
    writer.close()


@pytest.mark.needs(CAPTURE)
async def test_a_recorded_device_appears_with_its_temperatures(start: Start) -> None:
    running = await start()
    running.assign("1234")
    _, writer = await connect(running)
    capture = (RECORDINGS / "capture.bin").read_bytes()
    writer.write(capture)
    messages = LineReader().feed(capture)
    await eventually(lambda: running.status("1234").ledger.analysed == len(messages))
    frame = [words_of(message.words) for message in messages if isinstance(message, FrameWords)][-1]
    eeprom = next(message.words for message in messages if isinstance(message, Eeprom))
    expected = Calibration.from_eeprom(eeprom).temperatures(frame[None])[0]
    await eventually(lambda: len(running.status("1234").thermal.celsius) == 768)
    shown = np.array(running.status("1234").thermal.celsius).reshape(24, 32)
    assert np.abs(shown - expected).max() < 0.001
    assert not running.status("1234").thermal.relative
    writer.close()


Stream = Callable[..., object]


async def answer(call: grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]) -> IngestResponse:
    read = await call.read()
    assert isinstance(read, IngestResponse)
    return read


async def exchange(running: Running, *batches: DeviceBatch) -> list[IngestResponse]:
    async with channel(f"127.0.0.1:{running.grpc}") as link:
        call = IngestStub(link).Stream()
        responses = []
        for batch in batches:
            await call.write(IngestRequest(devices=[batch]))
            response = await call.read()
            assert isinstance(response, IngestResponse)
            responses.append(response)
        await call.done_writing()
        return responses


def readings(epoch: int, *sequences: int) -> DeviceBatch:
    return DeviceBatch(device="s-01", epoch=epoch, readings=[Reading(sequence=n, smoke_adc=10) for n in sequences])


async def test_grpc_readings_are_acknowledged_cumulatively_and_counted_once(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    responses = await exchange(running, readings(1, 1, 2, 3), readings(1, 2, 3, 4), readings(2, 1))
    marks = [(r.ack.watermarks[0].epoch, r.ack.watermarks[0].sequence) for r in responses]
    assert marks == [(1, 3), (1, 4), (2, 1)]
    ledger = running.status("s-01").ledger
    assert (ledger.offered, ledger.analysed, ledger.duplicate, ledger.waiting) == (7, 5, 2, 0)


async def test_grpc_columns_have_the_same_outcome_as_readings(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    columns = ReadingColumns(first_sequence=5, time_ns=[0, 0], smoke_adc=[409.5, float("nan")], gas_adc=[])
    (response,) = await exchange(running, DeviceBatch(device="s-01", epoch=1, columns=columns))
    assert response.ack.watermarks[0].sequence == 6
    latest = {term.name: term.value for term in running.status("s-01").latest}
    assert latest["smoke"] == pytest.approx(10)


async def test_batches_of_an_older_epoch_are_rejected_in_the_ledger(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    await exchange(running, readings(2, 1), readings(1, 7, 8))
    assert dict(running.status("s-01").ledger.rejected) == {"older epoch": 2}


async def test_grpc_senders_get_the_owners_address_or_a_rejection(start: Start) -> None:
    running = await start()
    peer = Peer(shard="other", grpc="10.0.0.9:50051")
    running.assign("s-02", elsewhere={"s-01": "other"}, peers=[peer])
    (moved,) = await exchange(running, readings(1, 1))
    assert (moved.drain.target, list(moved.drain.devices)) == ("10.0.0.9:50051", ["s-01"])
    (unknown,) = await exchange(running, DeviceBatch(device="nobody", epoch=1))
    assert list(unknown.rejected.devices) == ["nobody"]
    assert "spec.sensors" in unknown.rejected.reason


async def test_a_shard_without_an_assignment_shows_no_device_as_undeclared(start: Start) -> None:
    running = await start()
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await exchange(running, readings(1, 1))
    assert (refusal.value.code(), refusal.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "this shard has no assignment yet",
    )
    running.assign("s-01")
    (response,) = await exchange(running, readings(1, 1))
    assert response.ack.watermarks[0].sequence == 1


async def test_a_draining_shard_redirects_its_senders_and_still_acknowledges(start: Start) -> None:
    running = await start()
    running.assign("s-01")
    async with channel(f"127.0.0.1:{running.grpc}") as link:
        call = IngestStub(link).Stream()
        await call.write(IngestRequest(devices=[readings(1, 1)]))
        assert (await answer(call)).WhichOneof("body") == "ack"
        drain = asyncio.ensure_future(running.shard.drain())
        assert (await answer(call)).WhichOneof("body") == "drain"
        await call.write(IngestRequest(devices=[readings(1, 2)]))
        assert (await answer(call)).ack.watermarks[0].sequence == 2
        await drain
        await call.done_writing()


async def test_a_frame_can_be_requested_over_the_api(start: Start) -> None:
    running = await start()
    running.assign("s-01", "s-02")
    reader, writer = await connect(running)
    writer.write(b"#serialno:s-01!#Sensor:ADC1=283,ADC2=1305,ADC3=2,DIO=0!")
    assert await reader.readexactly(9) == b"PERIOD_ON"
    await eventually(lambda: running.status("s-01").covered)
    async with channel(f"127.0.0.1:{running.grpc}") as link:
        ask = SensorsStub(link).Ask
        assert (await ask(AskRequest(device="s-01", word=AskRequest.WORD_FRAME))).asked
        assert await asyncio.wait_for(reader.readexactly(8), 10) == b"REQUEST1"
        assert "no text connection" in (await ask(AskRequest(device="s-02", word=AskRequest.WORD_FRAME))).reason
        assert "spec.sensors" in (await ask(AskRequest(device="nobody", word=AskRequest.WORD_FRAME))).reason
        assert "there is no such command" in (await ask(AskRequest(device="s-01"))).reason
    writer.close()


async def test_a_command_reaches_a_relayed_device_through_its_owner(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    owner, other = await start(), await start()
    commands = Commands(start="GO", calibration="CAL?", request="SHOW!")
    peer = Peer(shard="owner", control=f"127.0.0.1:{owner.control}")
    owner.assign("s-01", commands=commands)
    other.assign("s-02", elsewhere={"s-01": "owner"}, peers=[peer], commands=commands)
    reader, writer = await connect(other)
    assert await reader.readexactly(2) == b"GO"
    writer.write(b"#serialno:s-01!#Sensor:ADC1=283,ADC2=1305,ADC3=2,DIO=0!")
    await eventually(lambda: owner.status("s-01").covered)

    def embereye_request(*arguments: str) -> int:
        parser = ArgumentParser()
        request.add_arguments(parser)
        return request.run(parser.parse_args([*arguments, "--target", f"127.0.0.1:{other.grpc}"]))

    assert await asyncio.to_thread(embereye_request, "frame", "s-01") == 0
    assert await asyncio.wait_for(reader.readexactly(5), 10) == b"SHOW!"
    assert capsys.readouterr().out == "s-01: frame requested\n"
    with pytest.raises(UserError, match="s-02 has no text connection"):
        await asyncio.to_thread(embereye_request, "frame", "s-02")
    with pytest.raises(UserError, match=r"nobody is not declared in this fleet: add it to spec\.sensors"):
        await asyncio.to_thread(embereye_request, "calibration", "nobody")
    writer.close()


async def test_a_calibration_that_fails_its_checks_is_requested_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye.sensor.routing.CALIBRATION_RETRY_NS", 0)
    running = await start()
    running.assign("s-01")
    reader, writer = await connect(running)
    frame = b"#frames-01:" + b"FFB8" * 834 + b"!"
    writer.write(frame)
    assert await asyncio.wait_for(reader.readexactly(16), 10) == b"PERIOD_ONEEPROM1"
    writer.write(b"#EEPROMs-01:" + b"0" * 3328 + b"!")
    assert await asyncio.wait_for(reader.readexactly(7), 10) == b"EEPROM1"
    assert dict(running.status("s-01").ledger.rejected) == {"bad calibration": 1}
    writer.write(encode(Eeprom("s-01", Chip(1).eeprom)) + frame)
    await eventually(lambda: "streaming, calibrated" in running.status("s-01").state)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    writer.close()


async def test_devices_reach_a_shard_over_ipv6(start: Start) -> None:
    running = await start(host="::1")
    running.assign("s-01")
    _, writer = await asyncio.open_connection("::1", running.tcp)
    writer.write(b"#Sensors-01:ADC1=283,ADC2=1305,ADC3=2,DIO=0!")
    await eventually(lambda: running.status("s-01").covered)
    writer.close()

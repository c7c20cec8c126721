"""The client against real shards: what it takes arrives once, whatever happens to the shards."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from embereye.bench.load import Server
from embereye.client import Client, SpoolFullError
from embereye.process.grpc_server import GrpcServer
from embereye.process.lifecycle import Tasks
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip, SensorSpec, run_sensors
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.shard_pb2 import Assignment, Peer, SensorSettings
from embereye.v1.types_pb2 import Device


@dataclass
class Running:
    shard: SensorShard
    server: GrpcServer
    target: str

    def own(self, *devices: str, epoch: int = 1, elsewhere: dict[str, str] | None = None, peers: tuple[Peer, ...] = ()):  # type: ignore[no-untyped-def]
        self.shard.apply(
            Assignment(
                fleet="default/sensors/test",
                epoch=epoch,
                devices=[Device(id=name, zone="hall") for name in devices],
                elsewhere=elsewhere or {},
                peers=peers,
                sensor=SensorSettings(deadline_ns=5_000_000_000),
            )
        )

    def ledger(self, device: str) -> Ledger:
        return next(one.ledger for one in self.shard.devices(time.time_ns()) if one.id == device)


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(port: int = 0) -> Running:
            shard = SensorShard()
            tasks = await stack.enter_async_context(Tasks())
            options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
            await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
            server = GrpcServer(shard.services())
            bound = server.listen(f"127.0.0.1:{port}")
            await server.start()
            stack.push_async_callback(shard.stop)
            stack.push_async_callback(server.stop, 0)
            return Running(shard, server, f"127.0.0.1:{bound}")

        yield begin


async def test_every_reading_and_frame_is_analysed_once(start: Start) -> None:
    running = await start()
    running.own("a", "b")
    chip = Chip(1)
    async with Client(running.target, batch=50) as client:
        client.calibrate("b", chip.eeprom)
        for number in range(230):
            client.send("a", smoke_adc=280 + number % 5, flame_detected=False)
            if number % 10 == 0:
                client.send_frame("b", chip.frame(0.0, number))
                client.send("b", gas_adc=400)
        assert await client.flush(20)
        assert client.acknowledged == 276
    assert (running.ledger("a").analysed, running.ledger("a").duplicate) == (230, 0)
    assert running.ledger("b").analysed == 46 + 1
    assert {term.name for term in running.shard.devices(0)[1].latest} >= {"gas", "temperature.max"}


async def test_what_no_shard_took_is_sent_after_a_restart_under_the_same_sequences(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "spool"
    async with Client("127.0.0.1:1", spool=path) as client:
        assert [client.send("a", smoke_adc=1) for _ in range(3)] == [1, 2, 3]
        assert not await client.flush(0.05)
    running = await start()
    running.own("a")
    async with Client(running.target, spool=path) as client:
        assert client.waiting == 3
        assert client.send("a", smoke_adc=1) == 4
        assert await client.flush(20)
    ledger = running.ledger("a")
    assert (ledger.analysed, ledger.duplicate, sum(ledger.rejected.values())) == (4, 0, 0)


async def test_a_full_spool_refuses_readings_instead_of_losing_them() -> None:
    async with Client("127.0.0.1:1", capacity=5) as client:
        for _ in range(5):
            client.send("a", smoke_adc=1)
        with pytest.raises(SpoolFullError, match="5 readings"):
            client.send("a", smoke_adc=1)


async def test_a_device_that_moves_to_another_shard_is_followed(start: Start) -> None:
    first, second = await start(), await start()
    first.own("a", "b")
    async with Client(first.target) as client:
        client.send("a", smoke_adc=1)
        client.send("b", smoke_adc=1)
        assert await client.flush(20)
        second.own("b", epoch=2)
        first.own("a", epoch=2, elsewhere={"b": "second"}, peers=(Peer(shard="second", grpc=second.target),))
        for _ in range(10):
            client.send("a", smoke_adc=1)
            client.send("b", smoke_adc=1)
            await asyncio.sleep(0.01)
        assert await client.flush(20)
    assert first.ledger("a").analysed == 11
    assert second.ledger("b").analysed == 10
    assert second.ledger("b").duplicate == 0


async def test_a_draining_shard_is_left_for_the_one_it_names_without_loss(start: Start) -> None:
    first, second = await start(), await start()
    first.own("a")
    second.own("a")
    async with Client(first.target, linger=0.005) as client:
        for number in range(200):
            client.send("a", smoke_adc=1)
            if number == 100:
                analysed = first.ledger("a").analysed
                peers = (Peer(shard="second", grpc=second.target),)
                first.own(epoch=2, elsewhere={"a": "second"}, peers=peers)
                draining = asyncio.ensure_future(first.shard.drain())
            await asyncio.sleep(0.001)
        assert await client.flush(20)
        await draining
    assert 0 < analysed < 200
    assert second.ledger("a").duplicate == 0
    assert second.ledger("a").analysed + client.acknowledged - second.ledger("a").analysed == 200


async def test_an_undeclared_device_keeps_its_readings_until_it_is_declared(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye.client.client.REJECTED_SECONDS", 0.1)
    running = await start()
    running.own("other")
    async with Client(running.target) as client:
        client.send("a", smoke_adc=1)
        assert not await client.flush(0.5)
        assert "spec.sensors" in client.rejected["a"]
        running.own("a", epoch=2)
        assert await client.flush(20)
    assert running.ledger("a").analysed == 1
    assert not client.rejected


async def test_simulated_devices_speak_by_grpc_too(start: Start) -> None:
    running = await start()
    running.own("a", "b")
    stop = asyncio.Event()
    simulation = asyncio.ensure_future(
        run_sensors([SensorSpec("a"), SensorSpec("b")], running.target, stop, rate=50, frame_rate=10, grpc=True)
    )
    async with asyncio.timeout(30):
        while running.ledger("a").analysed < 20 or running.ledger("b").analysed < 20:
            await asyncio.sleep(0.02)
    stop.set()
    stats = await simulation
    ledgers = [running.ledger(name) for name in ("a", "b")]
    assert sum(ledger.analysed for ledger in ledgers) == stats.readings + stats.frames + stats.calibrations
    assert all("calibrated" in status.state for status in running.shard.devices(time.time_ns()))


async def kill_once(seconds: float, spool: Path) -> None:
    """A shard dies `seconds` into a stream of readings; another one takes its place."""
    with contextlib.ExitStack() as stack:
        first = await asyncio.to_thread(lambda: stack.enter_context(Server("shard", 3)))
        port = first.ports["grpc"]
        async with Client(f"127.0.0.1:{port}", spool=spool, linger=0.002, batch=20) as client:
            lost_at: list[int] = []
            before = client.lost
            client.lost = lambda link: (lost_at.append(client.acknowledged), before(link))[1]  # type: ignore[method-assign]
            deadline = time.monotonic() + seconds
            sent = 0
            while time.monotonic() < deadline:
                client.send(f"device-{sent % 3}", smoke_adc=283, flame_adc=1305)
                sent += 1
                if sent % 10 == 0:
                    await asyncio.sleep(0.001)
            first.kill()
            for number in range(30):
                client.send(f"device-{number % 3}", smoke_adc=283)
            second = await asyncio.to_thread(lambda: stack.enter_context(Server("shard", 3, grpc_port=port)))
            assert await client.flush(60)
            numbers = await asyncio.to_thread(second.ask)
        assert client.acknowledged == sent + 30
        acknowledged_by_first = lost_at[0] if lost_at else 0
        assert numbers["analysed"] == sent + 30 - acknowledged_by_first
        assert numbers["duplicate"] == numbers["shed"] == numbers["rejected"] == numbers["waiting"] == 0


async def test_a_killed_shard_loses_no_acknowledged_reading_and_none_is_analysed_twice(tmp_path: Path) -> None:
    await kill_once(0.7, tmp_path / "spool")


@pytest.mark.slow
async def test_a_shard_killed_at_fifty_random_points_loses_and_doubles_nothing(tmp_path: Path) -> None:
    dice = random.Random(7)
    for number in range(50):
        await kill_once(dice.uniform(0.05, 1.0), tmp_path / f"spool-{number}")

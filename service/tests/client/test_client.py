"""The client against real shards: each reading is analysed once, through crashes and hand-overs."""

import asyncio
import contextlib
import random
import re
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.client import Client, SpoolFullError
from embereye.client.client import WINDOW, _Link
from embereye.client.outbox import Outbox
from embereye.process.addresses import free_port
from embereye.process.grpc_server import GrpcServer, channel
from embereye.process.tasks import Tasks
from embereye.sensor.grpc.ingest import _Stream
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip, SensorSpec, run_sensors
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.ingest_pb2 import (
    Ack,
    DeviceBatch,
    IngestRequest,
    IngestResponse,
    Reading,
    ThermalFrame,
    Watermark,
)
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.v1.shard_pb2 import Assignment, Peer
from embereye.v1.types_pb2 import Device

from .recording_shard import RecordingShard, analysed, assignment, serve


@dataclass
class Running:
    shard: SensorShard
    server: GrpcServer
    target: str
    control: str

    def peer(self, name: str) -> Peer:
        return Peer(shard=name, grpc=self.target, control=self.control)

    def assign(
        self, *devices: str, epoch: int = 1, elsewhere: dict[str, str] | None = None, peers: tuple[Peer, ...] = ()
    ):
        self.shard.apply(
            Assignment(
                fleet="default/sensors/test",
                epoch=epoch,
                devices=[Device(id=name, zone="hall") for name in devices],
                elsewhere=elsewhere or {},
                peers=peers,
                sensor=sensor_settings(),
            )
        )

    def ledger(self, device: str) -> Ledger:
        return next(status.ledger for status in self.shard.devices(time.time_ns()) if status.id == device)


Start = Callable[..., Awaitable[Running]]


async def answer(call: grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]) -> IngestResponse:
    read = await call.read()
    assert isinstance(read, IngestResponse)
    return read


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(port: int = 0) -> Running:
            shard = SensorShard()
            tasks = await stack.enter_async_context(Tasks())
            options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
            await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
            server, control = GrpcServer(shard.services()), GrpcServer(shard.services(), control=True)
            bound, other = server.listen(f"127.0.0.1:{port}"), control.listen("127.0.0.1:0")
            await server.start()
            await control.start()
            stack.push_async_callback(shard.stop)
            stack.push_async_callback(server.stop, 0)
            stack.push_async_callback(control.stop, 0)
            return Running(shard, server, f"127.0.0.1:{bound}", f"127.0.0.1:{other}")

        yield begin


async def test_every_reading_and_frame_is_analysed_once(start: Start) -> None:
    running = await start()
    running.assign("a", "b")
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


async def test_the_program_of_the_tutorial_sends_a_reading(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await start()
    running.assign("1234")
    tutorial = (Path(__file__).parents[3] / "docs/tutorials/first-alarm.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)
    [program] = [text for text in programs if "embereye.client" in text]
    scope: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec(program.replace("127.0.0.1:50051", running.target).replace("asyncio.run(main())", ""), scope)
    await scope["main"]()
    assert running.ledger("1234").analysed == 1
    assert (tmp_path / "readings.spool").exists()


async def test_unacknowledged_readings_are_sent_after_a_restart_with_their_sequences(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "spool"
    async with Client("127.0.0.1:1", spool=path) as client:
        assert [client.send("a", smoke_adc=1) for _ in range(3)] == [1, 2, 3]
        assert not await client.flush(0.05)
    running = await start()
    running.assign("a")
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


async def test_a_disk_that_cannot_be_written_for_a_while_loses_no_reading(start: Start, tmp_path: Path) -> None:
    path, port = tmp_path / "spool", free_port()
    async with Client(f"127.0.0.1:{port}", spool=path, batch=2) as client:
        client.send("a", smoke_adc=1)
        client.save()
        client._outbox._db.execute("PRAGMA query_only = ON")
        assert [client.send("a", smoke_adc=1) for _ in range(4)] == [2, 3, 4, 5]
        running = await start(port)
        running.assign("a")
        await eventually(lambda: client.acknowledged == 1)
        assert not await client.flush(0.2)
        client._outbox._db.execute("PRAGMA query_only = OFF")
        assert await client.flush(20)
    ledger = running.ledger("a")
    assert (ledger.analysed, ledger.duplicate, sum(ledger.rejected.values())) == (5, 0, 0)
    assert not Outbox(path, 10).load()


async def test_streams_continue_after_a_disk_could_not_be_read_for_a_moment(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await start()
    running.assign("a")
    async with Client(running.target, spool=tmp_path / "spool") as client:
        read, failed = client._outbox.body, list[int]()

        def fail_once(number: int) -> DeviceBatch | None:
            if failed:
                return read(number)
            failed.append(number)
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(client._outbox, "body", fail_once)
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
    assert failed == [1]
    assert running.ledger("a").analysed == 1


async def test_a_damaged_spool_does_not_block_other_readings(start: Start, tmp_path: Path) -> None:
    path, port = tmp_path / "spool", free_port()
    async with Client(f"127.0.0.1:{port}", spool=path, batch=10) as client:
        for number in range(100):
            client.send("a", smoke_adc=number)
            client.send("b", smoke_adc=number)
        client.save()
        garbled = "FROM batch WHERE device = 'a' AND number % 3 = 1"
        ((lost,),) = client._outbox._db.execute(f"SELECT SUM(items) {garbled}")
        client._outbox._db.execute(f"UPDATE batch SET body = x'ff' WHERE number IN (SELECT number {garbled})")
        running = await start(port)
        running.assign("a", "b")
        assert await client.flush(20)
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
        assert client.waiting == 0
    assert lost > 20
    assert (running.ledger("a").analysed, running.ledger("b").analysed) == (101 - lost, 100)
    assert (tmp_path / "spool.damaged").exists()


async def test_a_client_follows_a_device_to_another_shard(start: Start) -> None:
    first, second = await start(), await start()
    first.assign("a", "b")
    async with Client(first.target) as client:
        client.send("a", smoke_adc=1)
        client.send("b", smoke_adc=1)
        assert await client.flush(20)
        second.assign("b", epoch=2)
        first.assign("a", epoch=2, elsewhere={"b": "second"}, peers=(second.peer("second"),))
        for _ in range(10):
            client.send("a", smoke_adc=1)
            client.send("b", smoke_adc=1)
            await asyncio.sleep(0.01)
        assert await client.flush(20)
    assert first.ledger("a").analysed == 11
    assert second.ledger("b").analysed == 10
    assert second.ledger("b").duplicate == 0


def thermal(client: Client) -> Callable[[Running, str], Awaitable[None]]:
    """Send frames of "a" until its state at a shard has a word in it."""
    chip = Chip(1)
    client.calibrate("a", chip.eeprom)

    async def send_until(shard: Running, word: str) -> None:
        async with asyncio.timeout(20):
            while not any(status.id == "a" and word in status.state for status in shard.shard.devices(time.time_ns())):
                client.send_frame("a", chip.frame(0.0, 1))
                await asyncio.sleep(0.02)

    return send_until


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that request no calibration, as in earlier versions."""
    monkeypatch.setattr(_Stream, "is_calibration_due", lambda *_: False)


@pytest.mark.usefixtures("silent")
async def test_a_device_that_returns_to_a_shard_sends_its_calibration_again(start: Start) -> None:
    first, second = await start(), await start()
    peers = {"first": first.peer("first"), "second": second.peer("second")}
    first.assign("a")
    second.assign(elsewhere={"a": "first"}, peers=(peers["first"],))
    async with Client(first.target) as client:
        send_until = thermal(client)
        await send_until(first, ", calibrated")
        for epoch, (new, old, name) in enumerate([(second, first, "second"), (first, second, "first")], 2):
            new.assign("a", epoch=epoch)
            old.assign(epoch=epoch, elsewhere={"a": name}, peers=(peers[name],))
            await send_until(new, ", calibrated")


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("owner", ["second", ""])
async def test_a_calibration_refused_with_the_first_batch_is_sent_with_the_next(start: Start, owner: str) -> None:
    first, second = await start(), await start()
    elsewhere = {"a": owner} if owner else {}
    first.assign(elsewhere=elsewhere, peers=(second.peer("second"),))
    if owner:
        second.assign("a")
    async with Client(first.target) as client:
        client.rejected_seconds = 0.1
        send_until = thermal(client)
        if owner:
            await send_until(second, ", calibrated")
        else:
            client.send_frame("a", Chip(1).frame(0.0, 1))
            await eventually(lambda: client.rejected)
        first.assign("a", epoch=2)
        second.assign(epoch=2, elsewhere={"a": "first"}, peers=(first.peer("first"),))
        await send_until(first, ", calibrated")


async def test_a_shard_that_lost_a_calibration_requests_it(start: Start) -> None:
    running = await start()
    running.assign("a")
    async with Client(running.target) as client:
        send_until = thermal(client)
        await send_until(running, ", calibrated")
        assert await client.flush(20)
        running.assign(epoch=2)  # while nothing is sent
        running.assign("a", epoch=3)
        await send_until(running, "uncalibrated")
        await send_until(running, ", calibrated")


async def test_a_missing_calibration_is_requested_rarely_and_blocks_nothing(
    start: Start,
) -> None:
    running = await start()
    running.assign("a")
    async with channel(running.target) as link:
        call = IngestStub(link).Stream()
        responses = []
        for sequence in range(1, 6):
            frames = [ThermalFrame(sequence=sequence, words=Chip(1).frame(0.0, 1))]
            await call.write(IngestRequest(devices=[DeviceBatch(device="a", epoch=1, frames=frames)]))
            responses.append(await answer(call))
            if sequence == 1:
                responses.append(await answer(call))
        call.cancel()
    asked = [response for response in responses if response.HasField("calibrate")]
    assert [list(response.calibrate.devices) for response in asked] == [["a"]]
    assert [response.ack.watermarks[0].sequence for response in responses if response.HasField("ack")] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert running.ledger("a").analysed == 5


async def test_a_client_leaves_a_draining_shard_for_the_named_one_without_loss(start: Start) -> None:
    first, second = await start(), await start()
    first.assign("a")
    second.assign("a")
    async with Client(first.target, linger=0.005) as client:
        for number in range(200):
            client.send("a", smoke_adc=1)
            if number == 100:
                await eventually(lambda: first.ledger("a").analysed)
                analysed = first.ledger("a").analysed
                peers = (second.peer("second"),)
                first.assign(epoch=2, elsewhere={"a": "second"}, peers=peers)
                draining = asyncio.ensure_future(first.shard.drain())
            await asyncio.sleep(0.001)
        assert await client.flush(20)
        await draining
    assert 0 < analysed < 200
    assert second.ledger("a").duplicate == 0
    assert second.ledger("a").analysed + client.acknowledged - second.ledger("a").analysed == 200


async def test_a_client_moves_directly_to_the_successor_of_a_shard(start: Start) -> None:
    service, first, second = await start(), await start(), await start()
    first.assign("a")
    second.assign("a")
    service.assign(elsewhere={"a": "first"}, peers=(first.peer("first"),))
    async with Client(service.target, linger=0.005) as client:
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
        service.assign(epoch=2, elsewhere={"a": "nobody"})  # the service would redirect to an unknown shard
        draining = asyncio.ensure_future(first.shard.drain(second.target))
        for _ in range(100):
            client.send("a", smoke_adc=1)
            await asyncio.sleep(0.002)
        await draining
        assert await client.flush(20)
        assert second.ledger("a").analysed > 0
        assert client.acknowledged == 101


async def test_a_successor_at_the_same_address_is_dialled_but_not_in_a_loop(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, first = await start(), await start()
    first.assign("a")
    service.assign(elsewhere={"a": "first"}, peers=(first.peer("first"),))
    async with Client(service.target, linger=0.005) as client:
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
        dialled: list[str] = []
        dial = client.dial
        monkeypatch.setattr(client, "dial", lambda address: dialled.append(address) or dial(address))
        await first.shard.drain(first.target)  # it still answers, but accepts nothing
        client.send("a", smoke_adc=1)
        assert not await client.flush(0.5)
        assert dialled[0] == first.target
        assert len(dialled) < 20
        second = await start()
        second.assign("a")
        service.assign(epoch=2, elsewhere={"a": "second"}, peers=(second.peer("second"),))
        assert await client.flush(20)
    assert second.ledger("a").analysed == 1


async def test_readings_of_an_undeclared_device_wait_until_it_is_declared(start: Start) -> None:
    running = await start()
    running.assign("other")
    async with Client(running.target) as client:
        client.rejected_seconds = 0.1
        client.send("a", smoke_adc=1)
        assert not await client.flush(0.5)
        await eventually(lambda: "spec.sensors" in client.rejected.get("a", ""))
        running.assign("a", epoch=2)
        assert await client.flush(20)
    assert running.ledger("a").analysed == 1
    assert not client.rejected


def test_a_device_with_a_long_backlog_does_not_starve_others() -> None:
    client = Client("127.0.0.1:1", batch=1)
    link = _Link(client, "127.0.0.1:1", home=True, jitter=random.Random(1))
    for _ in range(3 * WINDOW):
        client.send("backlog", smoke_adc=1)
    names = [f"device-{number}" for number in range(WINDOW + 3)]
    for name in names:
        client.send(name, smoke_adc=1)
    client.save()
    served: list[str] = []
    while chosen := client.next_batches(link):
        served += [state.name for state, *_ in chosen]
        mark = [
            Watermark(device=state.name, epoch=spooled.epoch, sequence=spooled.last) for state, spooled, _ in chosen
        ]
        client.handle_response(IngestResponse(ack=Ack(watermarks=mark)), link)
    assert set(served[: 2 * len(names)]) == {"backlog", *names}
    assert not client.waiting


async def test_the_newer_of_two_programs_for_one_device_wins_and_the_other_is_paused(start: Start) -> None:
    running = await start()
    running.assign("a", "b")
    async with Client(running.target, batch=1) as older:
        older.send("a", smoke_adc=1)
        assert await older.flush(20)
        async with Client(running.target) as newer:
            newer.send("a", smoke_adc=1)
            assert await newer.flush(20)
        for _ in range(2 * WINDOW):  # more than the window of a stream
            older.send("a", smoke_adc=1)
        await eventually(lambda: older.rejected)
        assert "a newer program sends for this device" in older.rejected["a"]
        older.send("b", smoke_adc=1)
        await eventually(lambda: running.ledger("b").analysed == 1)  # it does not block other devices
        assert older.waiting >= 2 * WINDOW
    ledger = running.ledger("a")
    assert ledger.analysed == 2
    assert set(ledger.rejected) == {"older epoch"}


HOUR_NS = 3600 * 10**9


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the clock for new epochs back by so many nanoseconds."""
    right = time.time_ns

    def set_back(offset_ns: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: right() - offset_ns)

    return set_back


async def test_a_sender_with_a_late_clock_continues_after_its_previous_epoch(
    start: Start, behind: Callable[[int], None], tmp_path: Path
) -> None:
    running = await start()
    running.assign("a", "b")
    async with Client(running.target) as before:
        for name in ("a", "b"):
            before.send(name, smoke_adc=1)
        assert await before.flush(20)
    behind(HOUR_NS)
    spool = tmp_path / "spool"
    async with Client(running.target, spool=spool, batch=2, linger=0.005) as after:
        after.calibrate("a", Chip(1).eeprom)
        for _ in range(5):
            after.send("a", smoke_adc=1)
        after.send_frame("a", Chip(1).frame(0.0, 1))
        assert await after.flush(20)
        for _ in range(5):
            after.send("a", smoke_adc=1)
        assert await after.flush(20)
        assert not after.rejected
    ledger = running.ledger("a")
    assert ledger.analysed == 1 + 5 + 1 + 1 + 5  # and the calibration
    assert ledger.duplicate == 0
    assert ", calibrated" in next(status.state for status in running.shard.devices(time.time_ns()) if status.id == "a")
    async with Client(running.target, spool=spool) as later:  # continues with the stored epoch
        later.send("a", smoke_adc=1)
        assert await later.flush(20)
    assert running.ledger("a").analysed == ledger.analysed + 1


async def test_unacknowledged_readings_from_before_a_restart_move_epochs_too(
    start: Start, behind: Callable[[int], None], tmp_path: Path
) -> None:
    running = await start()
    running.assign("a")
    async with Client(running.target) as before:
        before.send("a", smoke_adc=1)
        assert await before.flush(20)
    behind(HOUR_NS)
    async with Client("127.0.0.1:1", spool=tmp_path / "spool", batch=1) as away:
        for _ in range(3):
            away.send("a", smoke_adc=1)
    async with Client(running.target, spool=tmp_path / "spool") as after:
        after.send("a", smoke_adc=1)
        assert await after.flush(20)
    assert running.ledger("a").analysed == 5


def test_two_senders_that_renew_their_epoch_together_do_not_share_it() -> None:
    epochs = set()
    for seed in (1, 2):
        client = Client("127.0.0.1:1", batch=1, jitter=random.Random(seed))
        link = _Link(client, "127.0.0.1:1", home=True, jitter=random.Random(1))
        client.send("a", smoke_adc=1)
        assert client.next_batches(link)
        acknowledged(client, link, "a", 2**61, 7)
        epochs |= {spooled.epoch for _, spooled, _ in client.next_batches(link)}
    assert len(epochs) == 2


async def test_two_programs_for_one_device_do_not_overtake_each_other_forever(
    start: Start, behind: Callable[[int], None]
) -> None:
    running = await start()
    running.assign("a")
    async with Client(running.target) as first:
        behind(HOUR_NS)
        async with Client(running.target) as second:
            clients = (first, second)
            async with asyncio.timeout(20):
                while not any(client.rejected for client in clients):
                    for client in clients:
                        client.send("a", smoke_adc=1)
                    await asyncio.sleep(0.01)
            [refused] = [client for client in clients if client.rejected]
            [other] = [client for client in clients if client is not refused]
            for _ in range(5):
                epoch = running.shard.fleet.owned("a").arrivals.epoch
                other.send("a", smoke_adc=1)
                assert await other.flush(20)
                assert running.shard.fleet.owned("a").arrivals.epoch == epoch
            assert "a newer program sends for this device" in refused.rejected["a"]
            assert not other.rejected


def acknowledged(client: Client, link: _Link, device: str, epoch: int, sequence: int) -> None:
    mark = Watermark(device=device, epoch=epoch, sequence=sequence)
    client.handle_response(IngestResponse(ack=Ack(watermarks=[mark])), link)


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**64 - 1])
def test_an_epoch_without_a_later_one_is_not_overtaken(epoch: int) -> None:
    client = Client("127.0.0.1:1", batch=1)
    link = _Link(client, "127.0.0.1:1", home=True, jitter=random.Random(1))
    client.send("a", smoke_adc=1)
    assert len(client.next_batches(link)) == 1
    acknowledged(client, link, "a", epoch, 7)
    assert "a newer program" in client.rejected["a"]


def test_a_sender_renews_its_epoch_only_once() -> None:
    client = Client("127.0.0.1:1", batch=1)
    client.rejected_seconds = 0
    link = _Link(client, "127.0.0.1:1", home=True, jitter=random.Random(1))
    client.send("a", smoke_adc=1)
    client.send("a", smoke_adc=1)
    for epoch in (2**61, 2**62):
        assert client.next_batches(link)
        acknowledged(client, link, "a", epoch, 7)
    assert "a newer program" in client.rejected["a"]
    [(state, spooled, restart)] = client.next_batches(link)
    batch = client.body(state, spooled, link)
    assert batch
    assert (batch.epoch, batch.readings[0].sequence, restart) == (spooled.epoch, 1, True)
    assert 2**61 < spooled.epoch < 2**62


def test_an_acknowledgement_of_a_later_own_epoch_covers_earlier_batches(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "spool", 100)
    for epoch, sequence in ((5, 8), (6, 1)):  # as after a spool was damaged
        batch = DeviceBatch(device="a", epoch=epoch, readings=[Reading(sequence=sequence)])
        outbox.put([(batch, sequence, 1)])
    outbox.close()
    client = Client("127.0.0.1:1", spool=tmp_path / "spool")
    link = _Link(client, "127.0.0.1:1", home=True, jitter=random.Random(1))
    for _ in range(2):
        assert client.next_batches(link)
    acknowledged(client, link, "a", 6, 1)
    assert not client.waiting
    assert not client.rejected


async def test_simulated_devices_can_send_by_grpc(start: Start) -> None:
    running = await start()
    running.assign("a", "b")
    stop = asyncio.Event()
    simulation = asyncio.ensure_future(
        run_sensors([SensorSpec("a"), SensorSpec("b")], running.target, stop, rate=50, frame_rate=10, grpc=True)
    )
    await eventually(lambda: running.ledger("a").analysed >= 20 and running.ledger("b").analysed >= 20, 30)
    stop.set()
    stats = await simulation
    ledgers = [running.ledger(name) for name in ("a", "b")]
    assert sum(ledger.analysed for ledger in ledgers) == stats.readings + stats.frames + stats.calibrations
    assert all("calibrated" in status.state for status in running.shard.devices(time.time_ns()))


async def test_analysed_but_unacknowledged_readings_count_once_on_the_next_shard(start: Start) -> None:
    first, second = await start(), await start()
    first.assign("a")
    batch = DeviceBatch(device="a", epoch=7, readings=[Reading(sequence=n, smoke_adc=10) for n in range(1, 6)])
    async with channel(first.target) as link:
        call = IngestStub(link).Stream()
        await call.write(IngestRequest(devices=[batch]))
        await eventually(lambda: first.ledger("a").analysed == 5)
        call.cancel()  # before the acknowledgement is read
    second.assign("a", epoch=2)
    first.assign(epoch=2, elsewhere={"a": "second"}, peers=(second.peer("second"),))
    await eventually(lambda: second.shard.fleet.owned("a").arrivals.sequence == 5)
    async with channel(second.target) as link:
        call = IngestStub(link).Stream()
        await call.write(IngestRequest(devices=[batch]))
        mark = (await answer(call)).ack.watermarks[0]
        call.cancel()
    assert (mark.epoch, mark.sequence) == (7, 5)
    assert (second.ledger("a").analysed, second.ledger("a").duplicate) == (0, 5)


@pytest.mark.parametrize("elsewhere", [{"a": "second"}, {}])
async def test_batches_in_flight_when_a_shard_refuses_the_device_leave_no_gap(
    start: Start, elsewhere: dict[str, str]
) -> None:
    running = await start()
    running.assign(elsewhere=elsewhere, peers=(Peer(shard="second", grpc="127.0.0.1:1"),))

    def batch(number: int, *, restart: bool = False) -> IngestRequest:
        reading = Reading(sequence=number, smoke_adc=10)
        return IngestRequest(devices=[DeviceBatch(device="a", epoch=7, readings=[reading], restart=restart)])

    async with channel(running.target) as link:
        call = IngestStub(link).Stream()
        await call.write(batch(1, restart=True))
        refusal = await answer(call)
        assert refusal.WhichOneof("body") in {"drain", "rejected"}
        running.assign("a", epoch=2)
        await call.write(batch(2))  # sent before its sender had read the refusal
        await call.write(batch(1, restart=True))
        await call.write(batch(2))
        mark = 0
        while mark < 2:  # both may be acknowledged together
            mark = (await answer(call)).ack.watermarks[0].sequence
        call.cancel()
    assert mark == 2
    assert (running.ledger("a").analysed, running.ledger("a").duplicate) == (2, 0)


async def test_a_shard_continues_until_the_next_owner_takes_over(start: Start) -> None:
    first, second = await start(), await start()
    first.assign("a")
    second.assign()
    peers = (second.peer("second"),)
    async with Client(first.target, linger=0.005) as client:
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
        first.assign("a", epoch=2, elsewhere={"a": "second"}, peers=peers)  # the second shard does not know it yet
        for _ in range(20):
            client.send("a", smoke_adc=1)
            await asyncio.sleep(0.005)
        assert await client.flush(20)
        assert first.ledger("a").analysed == 21
        second.assign("a", epoch=2)
        async with asyncio.timeout(20):
            while not second.ledger("a").analysed:
                client.send("a", smoke_adc=1)
                await asyncio.sleep(0.005)
        assert await client.flush(20)
    assert first.ledger("a").analysed + second.ledger("a").analysed == client.acknowledged
    assert first.ledger("a").duplicate == second.ledger("a").duplicate == 0


async def test_a_device_without_an_owner_does_not_send_its_client_in_circles(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await start(), await start()
    first.assign(elsewhere={"a": "second"}, peers=(second.peer("second"),))
    second.assign(elsewhere={"a": "first"}, peers=(first.peer("first"),))
    answers = 0
    async with Client(first.target, linger=0.005) as client:
        before = client.handle_response

        def count(*arguments: Any) -> None:
            nonlocal answers
            answers += 1
            before(*arguments)

        monkeypatch.setattr(client, "handle_response", count)
        client.send("a", smoke_adc=1)
        assert not await client.flush(1.0)
        assert answers < 30
        second.assign("a", epoch=2)
        assert await client.flush(20)


async def test_a_known_shard_is_dialled_if_the_service_is_gone(start: Start) -> None:
    first, second = await start(), await start()
    first.assign("a", peers=(second.peer("second"),))
    async with Client(first.target, linger=0.005) as client:
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
        await first.shard.drain()
        await first.server.stop(0)
        second.assign("a", epoch=2)
        client.send("a", smoke_adc=1)
        assert await client.flush(20)
    assert second.ledger("a").analysed == 1


DEVICES = ["device-0", "device-1", "device-2"]


async def end_once(seconds: float, folder: Path, how: signal.Signals) -> int:  # noqa: PLR0915 -- one story from start to end
    """A shard is ended `seconds` into a stream of readings; its client continues with another one.

    Returns how many readings both analysed: what was analysed and not acknowledged at that moment.
    """
    folder.mkdir()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(("127.0.0.1", 0))
        shared = probe.getsockname()[1]
        program = str(Path(__file__).with_name("recording_shard.py"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, program, str(folder / "first"), str(shared), *DEVICES, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        port = int(await process.stdout.readline())
    acknowledged: dict[str, int] = {}
    async with Tasks() as tasks:
        survivor = RecordingShard(folder / "second")
        owner = Peer(shard="first", grpc=f"127.0.0.1:{port}")
        survivor.apply(assignment(1, [], dict.fromkeys(DEVICES, "first"), owner))
        server, _ = await serve(survivor, tasks, shared)
        try:
            async with Client(f"127.0.0.1:{shared}", spool=folder / "spool", linger=0.002, batch=20) as client:
                before = client.handle_response

                def note(response: IngestResponse, link: Any) -> None:
                    acknowledged.update({mark.device: mark.sequence for mark in response.ack.watermarks})
                    before(response, link)

                client.handle_response = note  # type: ignore[method-assign] # undone with the client
                deadline = time.monotonic() + seconds
                sent = 0
                while time.monotonic() < deadline:
                    client.send(DEVICES[sent % 3], smoke_adc=283, flame_adc=1305)
                    sent += 1
                    if sent % 10 == 0:
                        await asyncio.sleep(0.001)
                process.send_signal(how)
                await process.wait()
                await asyncio.sleep(0.01)  # acknowledgements that were on their way
                by_first = dict(acknowledged)
                survivor.apply(assignment(2, DEVICES, {}))
                sent += len([client.send(DEVICES[number % 3], smoke_adc=283) for number in range(30)])
                assert await client.flush(60)
                assert client.acknowledged == sent
        finally:
            await server.stop(0)
            await survivor.stop()
    first, second = (analysed(folder / name) for name in ("first", "second"))
    doubled = 0
    for number, name in enumerate(DEVICES):
        mine, theirs = first.get(name, []), second.get(name, [])
        assert len(mine) == len(set(mine))
        assert len(theirs) == len(set(theirs))
        assert set(mine) | set(theirs) == set(range(1, len(range(number, sent, 3)) + 1))  # none lost
        assert not theirs or min(theirs) > by_first.get(name, 0)  # no acknowledged one twice
        doubled += len(set(mine) & set(theirs))
    assert doubled <= WINDOW * 20  # only what was in flight
    return doubled


async def test_a_killed_shard_loses_none_and_repeats_no_acknowledged_reading(tmp_path: Path) -> None:
    await end_once(0.7, tmp_path / "once", signal.SIGKILL)


async def test_a_stopped_shard_loses_and_repeats_no_reading(tmp_path: Path) -> None:
    assert await end_once(0.7, tmp_path / "once", signal.SIGTERM) == 0


@pytest.mark.slow
async def test_a_shard_killed_at_fifty_random_points_repeats_only_readings_in_flight(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)
    doubled = [await end_once(dice.uniform(0.05, 1), tmp_path / str(number), signal.SIGKILL) for number in range(50)]
    print("analysed by both:", doubled)


@pytest.mark.slow
async def test_a_shard_stopped_at_thirty_random_points_loses_and_repeats_nothing(tmp_path: Path) -> None:
    dice = random.Random(8)
    doubled = [await end_once(dice.uniform(0.05, 1), tmp_path / str(number), signal.SIGTERM) for number in range(30)]
    assert doubled == [0] * 30

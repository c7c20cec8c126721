"""Overload of a shard: no alarm is lost, the ledger is exact, memory stays flat, other devices are served."""

import asyncio
import random
import threading
import time

import pytest
from harness.eventually import eventually

from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, ReadingColumns
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye_bench.sensors.evidence_hub import EvidenceHub
from embereye_bench.sensors.load import Server, alarming_line, close, connect, flood, frame_lines, reading_line


async def overload(seconds: float) -> None:
    hub = EvidenceHub()
    grpc = GrpcServer([Service(add_EvidenceServicer_to_server, hub, "embereye.v1.Evidence")], control=True)
    port = grpc.listen("127.0.0.1:0")
    await grpc.start()
    dice = random.Random(1)
    frames = [frame_lines(number, 20) for number in range(6)]
    payloads = [text for _, text in frames]
    payloads += [b"".join(reading_line(f"device-{number}", dice) for _ in range(1000)) for number in range(6, 12)]
    server = await asyncio.to_thread(Server, "shard", 40, f"127.0.0.1:{port}")
    try:
        sockets = connect(server.ports["tcp"], 40)
        for connection, (calibration, _) in zip(sockets, frames, strict=False):
            connection.sendall(calibration)
        times: list[int] = []
        flooding = threading.Thread(target=lambda: times.extend(flood(sockets[:12], payloads, seconds)))
        flooding.start()
        memory: list[int] = []
        deadline = time.monotonic() + seconds
        quiet = 12
        while time.monotonic() < deadline:
            # Each fire is at another device, with a single line over the threshold.
            if quiet < 40:
                sockets[quiet].sendall(reading_line(f"device-{quiet}", dice) + alarming_line(f"device-{quiet}"))
                quiet += 1
            await asyncio.sleep(seconds / 40)
            memory.append((await asyncio.to_thread(server.ask))["memory_kb"])
        await asyncio.to_thread(flooding.join)
        numbers = await asyncio.to_thread(server.idle_counters, 0.2)
        await eventually(lambda: len(hub.seen) >= quiet - 12, 30)
        close(sockets)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
        await grpc.stop(0)
    assert set(hub.seen) == {f"device-{number}" for number in range(12, quiet)}
    assert numbers["offered"] == numbers["analysed"] + numbers["shed"]
    assert numbers["waiting"] == numbers["rejected"] == numbers["duplicate"] == 0
    lines = sum(count * payload.count(b"!") for count, payload in zip(times, payloads, strict=True))
    assert numbers["offered"] == lines + len(frames) + 2 * (quiet - 12)
    assert all(times)  # every device was served
    assert memory[-1] < memory[len(memory) // 3] * 1.25 + 8 * 1024


async def test_overload_loses_no_alarm_and_the_ledger_is_exact() -> None:
    await overload(3)


@pytest.mark.slow
async def test_half_a_minute_of_overload_loses_no_alarm_and_memory_stays_flat() -> None:
    await overload(30)


async def test_a_flood_over_grpc_starves_no_text_device_and_is_accounted_for() -> None:
    server = await asyncio.to_thread(Server, "shard", 2)
    try:
        [steady] = connect(server.ports["tcp"], 1, 1)
        dice = random.Random(2)
        columns = ReadingColumns(time_ns=[0] * 2000, smoke_adc=[283.0] * 2000, flame_adc=[1305.0] * 2000)
        sent = rounds = 0
        async with channel(f"127.0.0.1:{server.ports['grpc']}") as link:
            call = IngestStub(link).Stream()
            acknowledged = 0

            async def read() -> None:
                nonlocal acknowledged
                async for response in call:
                    acknowledged = response.ack.watermarks[0].sequence

            reading = asyncio.ensure_future(read())
            while sent < 2_000_000:
                columns.first_sequence = sent + 1
                await call.write(IngestRequest(devices=[DeviceBatch(device="device-0", epoch=1, columns=columns)]))
                sent += 2000
                if sent % 100_000 == 0:
                    steady.sendall(reading_line("device-1", dice))
                    rounds += 1
            await eventually(lambda: acknowledged >= sent)
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        numbers = await asyncio.to_thread(server.idle_counters, 0.2)
        steady.close()
        assert numbers["offered"] == numbers["analysed"] == sent + rounds
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)

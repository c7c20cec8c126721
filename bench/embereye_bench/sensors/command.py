"""Measure the sensor path: CPU per packet, frames and readings per second, latency, memory, hand-over.

Every number has a baseline that runs in the same command, in rounds that alternate with the measured ones. Values are
medians over the rounds. CPU is that of the measured process only.
"""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import time
from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from embereye.process.addons import addon_modules
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.tasks import beside
from embereye.process.telemetry.series import exposition
from embereye.process.tls.client import ClientTls, dial
from embereye.process.tls.trust import trusting
from embereye.sensor.shard import SensorShard
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading, ReadingColumns
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye_bench.certificate import certificate
from embereye_bench.report import Benchmark, Result, Scale, Suite, median
from embereye_bench.sensors.candidate import candidate
from embereye_bench.sensors.drain import drain
from embereye_bench.sensors.evidence_hub import EvidenceHub
from embereye_bench.sensors.load import (
    HOST,
    Server,
    alarming_line,
    close,
    connect,
    flood,
    frame_lines,
    paced,
    reading_line,
)
from embereye_bench.sensors.margins import margins
from embereye_bench.sensors.relay import relay_cost, relay_delay

TLS_MORE_KB = 12  # of a TLS connection, beyond the memory that ssl and the event loop need
IDENTITY = (lambda message: message, lambda message: message)


def _text_paced(name: str, connections: int, scale: Scale, *more: str) -> dict[str, tuple[float, float]]:
    """CPU µs per packet and % of a core, of the shard, of the baseline and of each of `more`."""
    dice = random.Random(name)
    lines = [[reading_line(f"device-{number}", dice) for _ in range(8)] for number in range(connections)]
    costs: dict[str, list[float]] = {kind: [] for kind in ("shard", "count", *more)}
    shares: dict[str, list[float]] = {kind: [] for kind in costs}
    with contextlib.ExitStack() as stack:
        servers = {kind: stack.enter_context(Server(kind, connections)) for kind in costs}
        sockets = {kind: connect(server.ports["tcp"], connections) for kind, server in servers.items()}
        stack.callback(lambda: close([connection for group in sockets.values() for connection in group]))
        for kind, server in servers.items():
            paced(sockets[kind], lines, 10, 0.5)
            server.ask()
        for _ in range(scale.rounds):
            for kind, server in servers.items():
                before, started = server.cpu(), time.perf_counter()
                sent = paced(sockets[kind], lines, 10, scale.seconds)
                time.sleep(0.1)
                spent = server.cpu() - before
                costs[kind].append(spent / sent * 1e6)
                shares[kind].append(spent / (time.perf_counter() - started) * 100)
    return {kind: (median(costs[kind]), median(shares[kind])) for kind in costs}


def text_1000(scale: Scale) -> Result:
    """Measure 1,000 connections at 10 Hz; also report the least that Python can do for a reading."""
    costs = {kind: cost for kind, (cost, _) in _text_paced("text-1000x10hz", 1000, scale, "floor").items()}
    value, baseline, floor = costs["shard"], costs["count"], costs["floor"]
    unit = f"µs CPU/packet; the least possible in Python takes {floor:.2f}, {floor / baseline:.2f} of the baseline"
    ratio = value / baseline
    return Result("text-1000x10hz", value, unit, baseline, ratio, "≤ 1.5 of the baseline", ratio <= 1.5)


def text_pinned(scale: Scale) -> Result:
    """Measure 1,000 connections on a single processor, as with `--cpus`. Baseline: a shard on any processor."""
    dice = random.Random("pinned")
    lines = [[reading_line(f"device-{number}", dice) for _ in range(8)] for number in range(1000)]
    costs: dict[bool, list[float]] = {True: [], False: []}
    with contextlib.ExitStack() as stack:
        servers = {pinned: stack.enter_context(Server("shard", 1000)) for pinned in costs}
        servers[True].pin(max(os.sched_getaffinity(0)))
        sockets = {pinned: connect(server.ports["tcp"], 1000) for pinned, server in servers.items()}
        stack.callback(lambda: close([connection for group in sockets.values() for connection in group]))
        for group in sockets.values():
            paced(group, lines, 10, 0.5)
        for _ in range(scale.rounds):
            for pinned, server in servers.items():
                before = server.cpu()
                sent = paced(sockets[pinned], lines, 10, scale.seconds)
                time.sleep(0.1)
                costs[pinned].append((server.cpu() - before) / sent * 1e6)
    value, baseline = median(costs[True]), median(costs[False])
    return Result("text-1000-pinned", value, "µs CPU/packet", baseline, value / baseline, "reported, not judged", True)


def text_100(scale: Scale) -> Result:
    """Measure 100 sensors at 10 Hz."""
    measured = _text_paced("text-100x10hz", 100, scale)
    value, baseline = measured["shard"][1], measured["count"][1]
    return Result("text-100x10hz", value, "% of a core", baseline, value / baseline, "≤ 4", value <= 4)


def _flood(kind: str, payloads: list[bytes], first: list[bytes], scale: Scale, count: str) -> Iterator[float]:
    """Yield the items per CPU second of each round; `count` is the counter of items done."""
    per_item = len(payloads[0]) / payloads[0].count(b"!")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(kind, len(payloads)))
        sockets = connect(server.ports["tcp"], len(payloads))
        stack.callback(lambda: close(sockets))
        for connection, line in zip(sockets, first, strict=True):
            connection.sendall(line)
        flood(sockets, payloads, 0.3)
        while True:
            before = server.idle_counters()
            flood(sockets, payloads, scale.seconds)
            after = server.idle_counters()
            done = after[count] - before[count]
            yield done / (1 if kind == "shard" else per_item) / (after["cpu"] - before["cpu"])


def _flooded(payloads: list[bytes], first: list[bytes], scale: Scale) -> tuple[float, float]:
    measured, baseline = (
        _flood("shard", payloads, first, scale, "analysed"),
        _flood("count", payloads, first, scale, "offered"),
    )
    values = [(next(measured), next(baseline)) for _ in range(scale.rounds)]
    measured.close()  # type: ignore[attr-defined]
    baseline.close()  # type: ignore[attr-defined]
    return median([value for value, _ in values]), median([reference for _, reference in values])


def text_flood(scale: Scale) -> Result:
    """Measure a flood of readings."""
    dice = random.Random(1)
    payloads = [b"".join(reading_line(f"device-{number}", dice) for _ in range(2000)) for number in range(8)]
    value, baseline = _flooded(payloads, [b""] * 8, scale)
    return Result("text-flood", value, "packets/CPU s", baseline, value / baseline, "≥ 1,000,000", value >= 1e6)


def thermal_flood(scale: Scale) -> Result:
    """Measure a flood of calibrated thermal frames."""
    lines = [frame_lines(number) for number in range(8)]
    value, baseline = _flooded([frames for _, frames in lines], [first for first, _ in lines], scale)
    return Result("thermal-flood", value, "frames/CPU s", baseline, value / baseline, "≥ 25,000", value >= 25_000)


def _requests(packed: bool, epoch: int, count: int, size: int = 500) -> list[bytes]:
    dice = random.Random(epoch)
    requests = []
    for number in range(count):
        first = number * size + 1
        now = time.time_ns()
        smoke = [dice.randint(270, 300) for _ in range(size)]
        gas = [dice.randint(380, 420) for _ in range(size)]
        batch = DeviceBatch(device="device-0", epoch=epoch)
        if packed:
            columns = ReadingColumns(
                first_sequence=first,
                time_ns=[now + index * 1_000_000 for index in range(size)],
                smoke_adc=smoke,
                flame_adc=[1305] * size,
                gas_adc=gas,
                flame_detected=[0] * size,
            )
            batch.columns.CopyFrom(columns)
        else:
            for index in range(size):
                batch.readings.append(
                    Reading(
                        sequence=first + index,
                        time_ns=now + index * 1_000_000,
                        smoke_adc=smoke[index],
                        flame_adc=1305,
                        gas_adc=gas[index],
                        flame_detected=False,
                    )
                )
        requests.append(IngestRequest(devices=[batch]).SerializeToString())
    return requests


async def _stream(port: int, requests: list[bytes], last: int, tls: ClientTls | None = None) -> None:
    """Send all requests, and wait until they are acknowledged."""
    async with dial(f"{HOST}:{port}", tls) as link:
        call = link.stream_stream(
            "/embereye.v1.Ingest/Stream",
            request_serializer=IDENTITY[0],
            response_deserializer=IngestResponse.FromString,
        )()

        async def send() -> None:
            for request in requests:
                await call.write(request)
            await call.done_writing()

        acknowledged = 0
        async with beside(send(), name="send") as sender:
            async for response in call:
                acknowledged = max(acknowledged, *(mark.sequence for mark in response.ack.watermarks))
            await sender
        if last and acknowledged != last:
            raise RuntimeError(f"acknowledged up to {acknowledged}, not {last}")


def _grpc(name: str, packed: bool, reach: float, scale: Scale) -> Result:
    size, count = 500, int(scale.seconds * (1500 if packed else 500))
    values: dict[str, list[float]] = {"shard": [], "ack": []}
    with Server("shard", 1) as shard, Server("ack") as ack:
        for epoch in range(1, scale.rounds + 2):
            requests = _requests(packed, epoch, count if epoch > 1 else 20, size)
            for kind, server in (("shard", shard), ("ack", ack)):
                before = server.cpu()
                asyncio.run(_stream(server.ports["grpc"], requests, size * len(requests) if kind == "shard" else 0))
                spent = server.cpu() - before
                if epoch > 1:  # the first round warms up
                    values[kind].append(size * len(requests) / spent)
    value, baseline = median(values["shard"]), median(values["ack"])
    return Result(name, value, "readings/CPU s", baseline, value / baseline, f"≥ {reach:,.0f}", value >= reach)


def grpc_packed(scale: Scale) -> Result:
    """Measure packed columns of 500 readings, acknowledged."""
    return _grpc("grpc-packed", True, 5e6, scale)


def grpc_packed_tls(scale: Scale) -> Result:
    """Measure packed columns of 500 readings over TLS, acknowledged. Baseline: without TLS."""
    size, count = 500, int(scale.seconds * 1500)
    values: dict[str, list[float]] = {"tls": [], "plain": []}
    with certificate() as folder, Server("shard", 1, tls=folder) as secured, Server("shard", 1) as plain:
        ways = (("tls", secured, ClientTls(folder / "ca.crt")), ("plain", plain, None))
        for epoch in range(1, scale.rounds + 2):
            requests = _requests(True, epoch, count if epoch > 1 else 20, size)
            for kind, server, tls in ways:
                before = server.cpu()
                asyncio.run(_stream(server.ports["grpc"], requests, size * len(requests), tls))
                spent = server.cpu() - before
                if epoch > 1:  # the first round warms up
                    values[kind].append(size * len(requests) / spent)
    value, baseline = median(values["tls"]), median(values["plain"])
    return Result("grpc-packed-tls", value, "readings/CPU s", baseline, value / baseline, "≥ 4,000,000", value >= 4e6)


def grpc_repeated(scale: Scale) -> Result:
    """Measure repeated readings in requests of 500, acknowledged."""
    return _grpc("grpc-repeated", False, 1.5e6, scale)


async def _crossings(samples: int) -> tuple[list[float], list[float]]:
    """Seconds from sending a crossing to its evidence at the hub, and from sending a line to its echo."""
    hub = EvidenceHub()
    server = GrpcServer([Service(add_EvidenceServicer_to_server, hub, "embereye.v1.Evidence")], control=True)
    port = server.listen(f"{HOST}:0")
    await server.start()
    dice = random.Random(3)
    names = [f"device-{number}" for number in range(100)]
    lines = [[reading_line(name, dice) for _ in range(8)] for name in names]
    with contextlib.ExitStack() as stack:
        shard = await asyncio.to_thread(lambda: stack.enter_context(Server("shard", samples + 100, f"{HOST}:{port}")))
        echo = await asyncio.to_thread(lambda: stack.enter_context(Server("echo")))
        sockets = {
            "shard": connect(shard.ports["tcp"], 100 + samples),
            "echo": connect(echo.ports["tcp"], 101),
        }
        stack.callback(lambda: close([connection for group in sockets.values() for connection in group]))
        for number in range(100, 100 + samples):
            sockets["shard"][number].sendall(reading_line(f"device-{number}", dice))
        await asyncio.sleep(0.5)
        latencies: list[float] = []
        echoes: list[float] = []
        started = time.perf_counter()
        sent = 0
        loop = asyncio.get_running_loop()
        probe = sockets["echo"][100]
        probe.setblocking(False)
        for sample in range(samples):
            # 1,000 packets/s to both servers; one crossing and one echo every 20 ms.
            for _ in range(4):
                due = int((time.perf_counter() - started) * 1000)
                while sent < due:
                    turn, number = divmod(sent, 100)
                    sockets["shard"][number].send(lines[number][turn % 8])
                    sockets["echo"][number].send(lines[number][turn % 8])
                    sent += 1
                await asyncio.sleep(0.005)
            device = f"device-{100 + sample}"
            at = time.perf_counter()
            sockets["shard"][100 + sample].send(alarming_line(device))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while device not in hub.seen:
                        hub.more.clear()
                        await hub.more.wait()
            latencies.append(hub.seen.get(device, at + 5) - at)
            at = time.perf_counter()
            probe.send(alarming_line("device-100"))
            await loop.sock_recv(probe, 64)
            echoes.append(time.perf_counter() - at)
    await server.stop(0)
    return latencies, echoes


def crossing(scale: Scale) -> Result:
    """Measure from a threshold crossing to its evidence at the hub, in a shard that receives 1,000 packets/s."""
    latencies, echoes = asyncio.run(_crossings(int(100 * scale.rounds * scale.seconds)))
    value, baseline = (sorted(values)[int(len(values) * 0.99)] * 1e3 for values in (latencies, echoes))
    return Result("crossing-p99", value, "ms", baseline, value / baseline, "≤ 5", value <= 5)


def idle_memory(scale: Scale, connections: int = 10_000) -> Result:
    """Measure the memory of 10,000 idle connections."""
    grown = []
    for kind in ("shard", "count"):
        with Server(kind, 100) as server, contextlib.ExitStack() as stack:
            # The memory that a process loads at its first connections does not count.
            for connection in connect(server.ports["tcp"], 50):
                connection.close()
            time.sleep(0.3)
            before = server.ask()["memory_kb"]
            sockets = [
                stack.enter_context(socket.create_connection((HOST, server.ports["tcp"]))) for _ in range(connections)
            ]
            time.sleep(1.0)
            grown.append((server.ask()["memory_kb"] - before) / 1024)
            del sockets
    value, baseline = grown
    return Result("idle-10k-memory", value, "MB", baseline, value / max(baseline, 1e-9), "≤ 60", value <= 60)


def idle_tls_memory(scale: Scale, connections: int = 10_000) -> Result:
    """Measure the memory of 10,000 idle TLS connections. Baseline: a server that only counts bytes."""
    grown = []
    for kind in ("shard", "count"):
        with (
            certificate() as folder,
            Server(kind, 100, tls=folder) as server,
            contextlib.ExitStack() as stack,
        ):
            context = trusting(folder / "ca.crt")
            port = server.ports["tls"]

            def connect_one(context: ssl.SSLContext = context, port: int = port) -> ssl.SSLSocket:
                connection = context.wrap_socket(socket.create_connection((HOST, port)), server_hostname=HOST)
                connection.sendall(b"#serialno:x!")  # silent connections are closed
                return connection

            for _ in range(50):
                connect_one().close()
            time.sleep(0.3)
            before = server.ask()["memory_kb"]
            sockets = [stack.enter_context(connect_one()) for _ in range(connections)]
            time.sleep(1.0)
            grown.append((server.ask()["memory_kb"] - before) / 1024)
            del sockets
    value, baseline = grown
    more = (value - baseline) * 1024 / connections
    unit = f"MB, {more:.1f} KB a connection more than the baseline"
    reach = f"≤ 600, ≤ {TLS_MORE_KB} KB a connection more"
    ok = value <= 600 and more <= TLS_MORE_KB
    return Result("idle-10k-tls-memory", value, unit, baseline, value / max(baseline, 1e-9), reach, ok)


class _Core(Collector):
    """The metrics of a shard, as its process registers them."""

    def __init__(self, shard: SensorShard) -> None:
        self._shard = shard

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        return self._shard.metrics()


def _scrape(devices: int, rounds: int) -> tuple[float, float]:
    """Median CPU ms of a scrape of `devices` active devices: by our writer, by the library's."""
    shard = SensorShard()
    declared = [Device(id=f"device-{number}", zone=f"zone-{number % 20}") for number in range(devices)]
    shard.apply(Assignment(fleet="bench/sensors/hall", epoch=1, devices=declared))
    registry = CollectorRegistry()
    registry.register(_Core(shard))
    for device in shard.fleet.owned_devices.values():
        shard.batcher.analyse_rows(device, np.array([[10.0, 10.0, 10.0, 0.0]]), time.time_ns())
    durations: dict[str, list[float]] = {"ours": [], "library": []}
    for _ in range(rounds):
        for kind, write in (("ours", exposition), ("library", generate_latest)):
            started = time.thread_time()
            write(registry)
            durations[kind].append((time.thread_time() - started) * 1e3)
    return median(durations["ours"]), median(durations["library"])


def scrape_1000(scale: Scale) -> Result:
    """Measure how long a scrape of 1,000 active devices blocks the event loop. Baseline: the library's writer."""
    value, baseline = _scrape(1000, scale.rounds * 10)
    return Result("scrape-1000", value, "ms CPU/scrape", baseline, value / baseline, "≤ 10", value <= 10)


def scrape_none(scale: Scale) -> Result:
    """Measure a scrape of a shard without devices: only metrics without a series per device."""
    value, baseline = _scrape(0, scale.rounds * 100)
    return Result("scrape-0", value, "ms CPU/scrape", baseline, value / baseline, "≤ 0.1", value <= 0.1)


BENCHMARKS: dict[str, Benchmark] = {
    "scrape-1000": scrape_1000,
    "scrape-0": scrape_none,
    "text-1000x10hz": text_1000,
    "text-1000-pinned": text_pinned,
    "text-100x10hz": text_100,
    "text-flood": text_flood,
    "thermal-flood": thermal_flood,
    "grpc-packed": grpc_packed,
    "grpc-packed-tls": grpc_packed_tls,
    "grpc-repeated": grpc_repeated,
    "crossing-p99": crossing,
    "relay-p99": relay_delay,
    "relay-cost": relay_cost,
    "idle-10k-memory": idle_memory,
    "idle-10k-tls-memory": idle_tls_memory,
    "drain-100": drain,
    "margins-1000x10hz": margins,
    "candidate-1000x10hz": candidate,
}
for addon in addon_modules("bench"):
    BENCHMARKS |= getattr(addon, "SENSOR_BENCHMARKS", {})
SUITE = Suite("sensor path", BENCHMARKS, full=Scale(5, 3.0), quick=Scale(3, 0.5))
add_arguments, run = SUITE.add_arguments, SUITE.run

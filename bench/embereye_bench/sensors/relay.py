"""Measure the cost of text devices that dial another shard than their owner: delay, and CPU of both shards.

Equal devices dial the owner itself, in rounds that alternate with the others'.
"""

import asyncio
import contextlib
import random
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.shard_pb2 import Peer
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.drain import Shard, start_shard
from embereye_bench.sensors.evidence_hub import EvidenceHub
from embereye_bench.sensors.load import HOST, alarming_line, close, connect, paced, reading_line
from embereye_bench.sensors.server import assignment

PACED = 200  # devices on each way, at RATE
RATE = 10.0  # readings/s of each device
WAYS = ("direct", "relayed")


@dataclass
class Pair:
    """A hub with two shards of one fleet; every device belongs to `owner`."""

    owner: Shard
    relay: Shard
    hub: EvidenceHub

    def tcp(self, way: str) -> int:
        """The port that devices on `way` dial."""
        return int((self.owner if way == "direct" else self.relay).tcp.rpartition(":")[2])

    def cpu(self) -> float:
        """CPU seconds used by both shards."""
        return sum(_cpu(shard.process.pid) for shard in (self.owner, self.relay))


def _cpu(pid: int) -> float:
    """CPU seconds of a process; those of /proc/PID/stat are rounded to 10 ms."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


@contextlib.asynccontextmanager
async def _pair(devices: int) -> AsyncIterator[Pair]:
    hub = EvidenceHub()
    server = GrpcServer([Service(add_EvidenceServicer_to_server, hub, "embereye.v1.Evidence")], control=True)
    address = f"{HOST}:{server.listen(f'{HOST}:0')}"
    await server.start()
    shards: list[Shard] = []
    with tempfile.TemporaryDirectory() as name:
        try:
            owned = assignment(devices, "bench-0")
            shards.append(owner := await start_shard(Path(name), owned, address))
            empty = assignment(0, "bench-1")
            empty.peers.append(Peer(shard="bench-0", grpc=owner.grpc, control=owner.control))
            empty.elsewhere.update({device.id: "bench-0" for device in owned.devices})
            shards.append(relay := await start_shard(Path(name), empty, address))
            yield Pair(owner, relay, hub)
        finally:
            for shard in shards:
                shard.process.terminate()
            for shard in shards:
                await asyncio.to_thread(shard.process.wait, 10)
            await server.stop(0)


async def _costs(scale: Scale) -> dict[str, float]:
    """CPU µs of both shards per packet, by way."""
    dice = random.Random(5)
    lines = {
        way: [[reading_line(f"device-{number + PACED * turn}", dice) for _ in range(8)] for number in range(PACED)]
        for turn, way in enumerate(WAYS)
    }
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    async with _pair(2 * PACED) as pair:
        sockets = {way: connect(pair.tcp(way), PACED, PACED * turn) for turn, way in enumerate(WAYS)}
        try:
            for measured in (False, *(True for _ in range(scale.rounds))):
                for way in WAYS:
                    before = pair.cpu()
                    sent = await asyncio.to_thread(paced, sockets[way], lines[way], RATE, scale.seconds)
                    await asyncio.sleep(0.2)  # for packets in transit
                    if measured:
                        costs[way].append((pair.cpu() - before) / sent * 1e6)
        finally:
            close([connection for group in sockets.values() for connection in group])
    return {way: median(values) for way, values in costs.items()}


def relay_cost(scale: Scale) -> Result:
    """Measure 200 devices at 10 Hz that dial another shard. Baseline: as many devices that dial their owner."""
    costs = asyncio.run(_costs(scale))
    value, baseline = costs["relayed"], costs["direct"]
    ratio = value / baseline
    return Result("relay-cost", value, "µs CPU/packet", baseline, ratio, "≤ 1.5 of the baseline", ratio <= 1.5)


async def _delays(samples: int) -> dict[str, list[float]]:
    """Seconds from sending a crossing to its evidence at the hub, by way, next to 1,000 readings/s on each way."""
    dice = random.Random(6)
    quiet, first = 100, 2 * PACED
    async with _pair(first + 2 * samples) as pair:
        sockets = {way: connect(pair.tcp(way), quiet, quiet * turn) for turn, way in enumerate(WAYS)}
        probes = {way: connect(pair.tcp(way), samples, first + samples * turn) for turn, way in enumerate(WAYS)}
        try:
            for turn, way in enumerate(WAYS):
                for number, probe in enumerate(probes[way]):
                    probe.sendall(reading_line(f"device-{first + samples * turn + number}", dice))
            await asyncio.sleep(1.0)
            delays: dict[str, list[float]] = {way: [] for way in WAYS}
            async with beside(_send_load(sockets, dice), name="load"):
                for number in range(samples):
                    for turn, way in enumerate(WAYS):
                        device = f"device-{first + samples * turn + number}"
                        delays[way].append(await _crossing(pair.hub, probes[way][number], device))
                        await asyncio.sleep(0.01)
        finally:
            close([connection for groups in (sockets, probes) for group in groups.values() for connection in group])
    return delays


async def _send_load(sockets: dict[str, list[socket.socket]], dice: random.Random) -> None:
    """Send 1,000 readings/s on each way, until cancelled."""
    lines = {
        way: [reading_line(f"device-{len(group) * turn + number}", dice) for number in range(len(group))]
        for turn, (way, group) in enumerate(sockets.items())
    }
    began, sent = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - began) * 1000)
        while sent < due:
            for way, group in sockets.items():
                group[sent % len(group)].send(lines[way][sent % len(group)])
            sent += 1
        await asyncio.sleep(0.005)


async def _crossing(hub: EvidenceHub, probe: socket.socket, device: str) -> float:
    """Seconds until the evidence of a line with much smoke is at the hub; five if it does not arrive."""
    at = time.perf_counter()
    probe.send(alarming_line(device))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while device not in hub.seen:
                hub.more.clear()
                await hub.more.wait()
    return hub.seen.get(device, at + 5) - at


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] * 1e3


def relay_delay(scale: Scale) -> Result:
    """Measure a threshold crossing of a device that dials another shard. Baseline: one that dials its owner."""
    delays = asyncio.run(_delays(int(60 * scale.rounds * scale.seconds)))
    value, baseline = (_p99(delays[way]) for way in ("relayed", "direct"))
    return Result("relay-p99", value, "ms", baseline, value / baseline, "≤ 5 more", value - baseline <= 5)

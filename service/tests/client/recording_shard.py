"""A shard that records the sequences that it analyses before it acknowledges them, so that a kill loses none."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embereye.process import lifecycle
from embereye.process.grpc_server import GrpcServer
from embereye.process.tasks import Tasks
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.v1.shard_pb2 import Assignment, Peer
from embereye.v1.types_pb2 import Device
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings


class RecordingShard(SensorShard):
    def __init__(self, record: Path) -> None:
        super().__init__()
        self._file = os.open(record, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        analysed = device.arrivals.ledger.analysed
        super().analyse_batches(device, batches, now_ns)
        if (fresh := device.arrivals.ledger.analysed - analysed) > 0:
            os.write(
                self._file,
                f"{device.spec.id} {device.arrivals.sequence - fresh + 1} {device.arrivals.sequence}\n".encode(),
            )


def analysed(record: Path) -> dict[str, list[int]]:
    """The sequences that a shard recorded, by device, in the order of their analysis."""
    sequences: dict[str, list[int]] = {}
    for line in record.read_text().splitlines():
        name, first, last = line.split()
        sequences.setdefault(name, []).extend(range(int(first), int(last) + 1))
    return sequences


def assignment(epoch: int, devices: list[str], elsewhere: dict[str, str], *peers: Peer) -> Assignment:
    return Assignment(
        fleet="default/sensors/test",
        epoch=epoch,
        devices=[Device(id=name, zone="hall") for name in devices],
        elsewhere=elsewhere,
        peers=peers,
        sensor=build_sensor_settings(SensorFleetSpec()),
    )


async def serve(shard: SensorShard, tasks: Tasks, shared_port: int) -> tuple[GrpcServer, int]:
    """Serve gRPC on a dedicated port, which is returned, and on a shared one."""
    options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
    await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
    server = GrpcServer(shard.services(), share_port=True)
    port = server.listen("127.0.0.1:0")
    server.listen(f"127.0.0.1:{shared_port}")
    await server.start()
    return server, port


async def main(stop: asyncio.Event) -> int:
    record, shared_port, devices = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    async with Tasks() as tasks:
        shard = RecordingShard(record)
        shard.apply(assignment(1, devices, {}))
        server, port = await serve(shard, tasks, shared_port)
        print(port, flush=True)
        await stop.wait()
        await shard.drain()
        await server.stop(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(lifecycle.run(main))

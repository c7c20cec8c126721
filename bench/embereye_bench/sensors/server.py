"""Run the measured side of a benchmark, a shard or a baseline, in a process that reports its numbers on a pipe.

The baselines do the least for the same traffic: they count bytes, match a line, echo an alarm or acknowledge a batch.
The kind is chosen by an argument, so that shard and baseline run alike.
"""

import argparse
import asyncio
import gc
import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import grpc

from embereye.process import lifecycle
from embereye.process.addresses import free_port
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.tasks import Tasks, first_of
from embereye.process.tls.folder import ServerTls
from embereye.sensor.shard import SensorShard
from embereye.shard.evidence.reporter import Reporter
from embereye.shard.evidence.spool import Spool
from embereye.shard.links import Links
from embereye.shard.service import ShardContext, ShardOptions
from embereye.v1.evidence_pb2 import Coverage, ShardHello
from embereye.v1.ingest_pb2 import Ack, IngestRequest, IngestResponse, TakeOverRequest, TakeOverResponse, Watermark
from embereye.v1.ingest_pb2_grpc import IngestServicer, add_IngestServicer_to_server
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

FLEET = "bench/sensors/bench"
DEADLINE_NS = 60_000_000_000
KINDS = ("shard", "count", "floor", "echo", "ack")


class _Counter(asyncio.Protocol):
    """The baseline of a listener: counts bytes."""

    total = 0

    def data_received(self, data: bytes) -> None:
        _Counter.total += len(data)


class _Floor(asyncio.Protocol):
    """The least that Python can do for a reading: check that it is one whole line within its bands, and note the time.

    One search by a compiled pattern, one clock reading, two numbers stored. No levels, no ledger, no statistics.
    """

    _quiet = re.compile(rb"#Sensor[^:]{1,40}:ADC1=2\d\d,ADC2=1[23]\d\d,ADC3=[34]\d\d,DIO=0!\r\n").fullmatch

    def __init__(self) -> None:
        self.readings = 0
        self.latest_ns = 0

    def data_received(self, data: bytes) -> None:
        if self._quiet(data) is not None:
            self.readings += 1
            self.latest_ns = time.monotonic_ns()


class _Echo(_Counter):
    """The baseline of a latency: answers each read that contains an alarm with one byte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        _Counter.total += len(data)
        if b"ADC1=4000" in data:
            self._transport.write(b".")


class _Acknowledger(IngestServicer):
    """The baseline of gRPC: parses each batch and acknowledges it."""

    async def Stream(self, requests: AsyncIterator[IngestRequest], context: object) -> AsyncIterator[IngestResponse]:
        async for request in requests:
            marks = [Watermark(device=batch.device, epoch=batch.epoch) for batch in request.devices]
            _Counter.total += sum(len(batch.readings) + len(batch.columns.time_ns) for batch in request.devices)
            yield IngestResponse(ack=Ack(watermarks=marks))

    async def TakeOver(self, request: TakeOverRequest, context: object) -> TakeOverResponse:
        return TakeOverResponse()


def memory_kb() -> int:
    """Resident memory of this process, kB."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def assignment(devices: int, shard: str = "bench-0", epoch: int = 1) -> Assignment:
    """The assignment of a shard that owns device-0 and so on, with the default thresholds."""
    settings = build_sensor_settings(SensorFleetSpec())
    settings.deadline_ns = DEADLINE_NS
    return Assignment(
        fleet=FLEET,
        shard=shard,
        epoch=epoch,
        devices=[Device(id=f"device-{number}", zone=f"zone-{number % 100}") for number in range(devices)],
        sensor=settings,
    )


def sums(shard: SensorShard) -> dict[str, int]:
    """The sums of all devices' ledgers."""
    ledgers = [status.ledger for status in shard.devices(time.time_ns())]
    return {
        "offered": sum(ledger.offered for ledger in ledgers),
        "analysed": sum(ledger.analysed for ledger in ledgers),
        "duplicate": sum(ledger.duplicate for ledger in ledgers),
        "shed": sum(sum(ledger.shed.values()) for ledger in ledgers),
        "rejected": sum(sum(ledger.rejected.values()) for ledger in ledgers),
        "waiting": sum(ledger.waiting for ledger in ledgers),
    }


async def _serve(kind: str, devices: int, hub: str, grpc_port: int, tls: Path | None) -> None:
    loop = asyncio.get_running_loop()
    _raise_limits()
    async with Tasks() as tasks:
        numbers: Callable[[], dict[str, Any]]
        if kind == "shard":
            shard = SensorShard()
            with tempfile.TemporaryDirectory() as folder:
                spool = Spool(Path(folder) / "spool")
                reporter = Reporter(
                    Links(hub),
                    spool,
                    hello=lambda: ShardHello(fleet=FLEET, shard="bench-0", epoch=1),
                    coverage=lambda: Coverage(fleet=FLEET, shard="bench-0", epoch=1),
                )
                if hub:
                    tasks.start(reporter.run(), name="report")
                tls_port = free_port() if tls else 0
                dialled = hub or "127.0.0.1:1"  # nobody: gRPC logs two errors for each call to an empty address
                options = ShardOptions(
                    "bench-0", Path("none"), dialled, None, "127.0.0.1", 0, 0, 0, 0, 0, tls=tls, tls_port=tls_port
                )
                shown = ServerTls(tls) if tls else None
                await shard.start(ShardContext(options, tasks, reporter.report, lambda: None, tls=shown))
                shard.apply(assignment(devices))
                server = GrpcServer(shard.services(), tls=shown)
                ports = {"tcp": shard.ports[0], "grpc": server.listen(f"127.0.0.1:{grpc_port}"), "tls": tls_port}
                await server.start()
                numbers = lambda: sums(shard)  # noqa: E731
                await answer(loop, ports, numbers)
                await server.stop(0)
        elif kind == "ack":
            server = GrpcServer([Service(add_IngestServicer_to_server, _Acknowledger(), "embereye.v1.Ingest")])
            ports = {"grpc": server.listen("127.0.0.1:0")}
            await server.start()
            await answer(loop, ports, lambda: {"offered": _Counter.total})
            await server.stop(0)
        else:
            protocol = {"count": _Counter, "floor": _Floor, "echo": _Echo}[kind]
            listener = await loop.create_server(protocol, "127.0.0.1", 0, backlog=4096)
            ports = {"tcp": listener.sockets[0].getsockname()[1]}
            if tls:
                secured = await loop.create_server(_Counter, "127.0.0.1", 0, backlog=4096, ssl=ServerTls(tls).context())
                ports["tls"] = secured.sockets[0].getsockname()[1]
            await answer(loop, ports, lambda: {"offered": _Counter.total})
            listener.close()


async def answer(loop: asyncio.AbstractEventLoop, ports: dict[str, int], numbers: Callable[[], dict[str, Any]]) -> None:
    """Print the ports, then answer every line on standard input with the numbers, until it is closed.

    The CPU seconds are without those of the answers: a thousand statuses and a garbage collection take 50 ms.
    """
    spent = 0.0  # CPU seconds of answers
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps(ports), flush=True)
    while line := await reader.readline():
        began = time.process_time()
        known: dict[str, Any] = {"cpu": began - spent}
        if line.strip() != b"cpu":
            known |= numbers() | {"memory_kb": memory_kb()}
        print(json.dumps(known), flush=True)
        spent += time.process_time() - began


def _raise_limits() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--hub", default="")
    parser.add_argument("--grpc-port", type=int, default=0)
    parser.add_argument("--tls", type=Path, default=None)
    arguments = parser.parse_args()
    lifecycle.configure_logging("ERROR")

    async def serve(stop: asyncio.Event) -> int:
        serving = _serve(arguments.kind, arguments.devices, arguments.hub, arguments.grpc_port, arguments.tls)
        await first_of(serving, stop.wait())
        return 0

    return lifecycle.run(serve)


if __name__ == "__main__":
    grpc.aio.init_grpc_aio()
    sys.exit(main())

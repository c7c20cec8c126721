"""Measure a hand-over: from a shard's SIGTERM until another shard has acknowledged each of its senders.

`drain_once` starts two shards and a hundred senders, each with a separate stream to the first. After SIGTERM the first
shard says DRAIN; the sender opens a stream to the second and sends its unacknowledged readings there. At the end, the
ledgers of the second shard are compared with them: if it has analysed fewer, readings were lost; if more, doubled.
"""

import asyncio
import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from embereye.process.tasks import start_task
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.v1.shard_pb2 import Assignment, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST, Server
from embereye_bench.sensors.server import assignment

STREAMS = 100
RATE = 2.0  # readings a second on each stream
DRAINS = 5  # in a run, at least
STEADY_SECONDS = 1.0  # of readings before a drain
HANDOVER_SECONDS = 20.0  # for all senders to be handed over, before the measurement fails
ACKNOWLEDGE_SECONDS = 5.0  # for sent readings to be acknowledged


@dataclass
class Shard:
    """A sensor shard in a separate process."""

    process: subprocess.Popen[bytes]
    grpc: str
    tcp: str
    control: str


async def start_shard(folder: Path, task: Assignment, hub: str = f"{HOST}:1") -> Shard:
    """Start a shard that works under `task`; return it once it is ready."""
    ports, name = free_ports(4), task.shard
    path = folder / f"{name}.json"
    path.write_text(json_format.MessageToJson(task))
    command = [
        sys.executable, "-m", "embereye_cli", "shard", "sensor",
        "--shard", name, "--assignment", str(path), "--hub", hub, "--host", HOST,
        "--grpc-port", str(ports[0]), "--tcp-port", str(ports[1]), "--metrics-port", str(ports[2]),
        "--control-port", str(ports[3]),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    shard = Shard(process, f"{HOST}:{ports[0]}", f"{HOST}:{ports[1]}", f"{HOST}:{ports[3]}")
    async with channel(shard.control) as link:
        while shard.process.poll() is None:
            with contextlib.suppress(grpc.aio.AioRpcError):
                if (await ShardStub(link).Status(StatusRequest())).ready:
                    return shard
            await asyncio.sleep(0.05)
    raise RuntimeError(f"shard {name} ended early. Another program may use one of its ports {ports}.")


@dataclass
class Sender:
    """A device with a separate stream: sends to the first shard until it says DRAIN, then to the second."""

    device: str
    sequence: int = 0
    acknowledged: list[int] = field(default_factory=lambda: [0, 0])  # by the first shard, by the second
    drained_at: float = 0.0
    taken_over_at: float = 0.0
    _first: Any = None  # stream to the first shard, closed after the hand-over
    _call: Any = None  # stream that it sends on; None between two shards

    async def run(self, stubs: Sequence[Any]) -> None:
        """Stream to the first of `stubs`, then to the second; RuntimeError if one stops answering."""
        self._first = self._call = stubs[0].Stream()
        calls = [self._first]
        try:
            await self._follow(self._first, 0)
            calls.append(second := stubs[1].Stream())
            unacknowledged = range(self.acknowledged[0] + 1, self.sequence + 1)
            await self._write(second, unacknowledged or [self._next()])
            self._call = second
            await self._follow(second, 1)
        finally:
            for call in calls:
                await _end(call)

    async def send(self) -> None:
        """Send a reading, unless the sender is between two shards."""
        if (call := self._call) is not None:
            # The reading side notices that a stream has ended.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._write(call, [self._next()])

    def is_acknowledged(self) -> bool:
        """True if the second shard has acknowledged everything."""
        return self.acknowledged[1] == self.sequence

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

    async def _write(self, call: Any, sequences: Sequence[int]) -> None:
        readings = [Reading(sequence=sequence, smoke_adc=283, flame_adc=1305) for sequence in sequences]
        await call.write(IngestRequest(devices=[DeviceBatch(device=self.device, epoch=1, readings=readings)]))

    async def _follow(self, call: Any, number: int) -> None:
        """Read the answers of shard `number`: of the first, until it drains and has acknowledged all, or ends."""
        cause: Exception | None = None
        try:
            async with asyncio.timeout(None) as limit:
                async for response in call:
                    self._receive_response(response, number)
                    if self.drained_at and not number:
                        if self.acknowledged[0] == self.sequence:
                            return
                        limit.reschedule(asyncio.get_running_loop().time() + ACKNOWLEDGE_SECONDS)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            cause = error
        self._call = None
        silent = isinstance(cause, TimeoutError)
        if number or silent:
            known = f"acknowledged up to {self.acknowledged[number]} of {self.sequence}"
            why = f"no answer in {ACKNOWLEDGE_SECONDS:g} s" if silent else "its stream ended"
            raise RuntimeError(f"{self.device}: shard {number} {known}, and {why}") from cause

    def _receive_response(self, response: IngestResponse, number: int) -> None:
        if response.HasField("drain"):
            self.drained_at = self.drained_at or time.perf_counter()
            if not number:
                self._call = None
        for mark in response.ack.watermarks:
            self.acknowledged[number] = mark.sequence
            if number and not self.taken_over_at:
                self.taken_over_at = time.perf_counter()
                self._first.cancel()


@dataclass(frozen=True)
class Handover:
    """One drain: milliseconds since SIGTERM, and readings."""

    drained: float  # until the last sender had received DRAIN
    taken_over: float  # until the last sender had its first acknowledgement from the second shard
    lost: int
    doubled: int


async def drain_once(streams: int) -> Handover:
    """Start two shards and `streams` senders, and terminate the first shard."""
    with tempfile.TemporaryDirectory() as name:
        assignments = [assignment(streams, f"bench-{number}") for number in range(2)]
        shards = await asyncio.gather(*(start_shard(Path(name), task) for task in assignments))
        links = [channel(shard.grpc) for shard in shards]
        senders = [Sender(f"device-{number}") for number in range(streams)]
        tasks: list[asyncio.Task[None]] = []
        stopping = asyncio.Event()
        try:
            await asyncio.gather(*(link.channel_ready() for link in links))
            stubs = [IngestStub(link) for link in links]
            tasks += [start_task(sender.run(stubs), name=sender.device) for sender in senders]
            with _no_garbage_collection():
                tasks.append(ticker := start_task(_tick(senders, stopping), name="tick"))
                await asyncio.sleep(STEADY_SECONDS)
                at = time.perf_counter()
                shards[0].process.send_signal(signal.SIGTERM)
                await until(lambda sender: bool(sender.taken_over_at), senders, tasks, HANDOVER_SECONDS)
            await asyncio.sleep(0.2)
            stopping.set()
            await ticker
            await until(Sender.is_acknowledged, senders, tasks, ACKNOWLEDGE_SECONDS)
            async with channel(shards[1].control) as control:
                lost, doubled = await _compare(senders, control)
            drained = max(sender.drained_at for sender in senders) - at
            taken_over = max(sender.taken_over_at for sender in senders) - at
            return Handover(drained * 1e3, taken_over * 1e3, lost, doubled)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for link in links:
                await link.close()
            for shard in shards:
                shard.process.terminate()
            for shard in shards:
                shard.process.wait(10)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # The collector would pause the senders, and they must disturb the measurement as little as possible.
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _tick(senders: Sequence[Sender], stopping: asyncio.Event) -> None:
    """Let the senders send readings in turn, `RATE` a second each."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for sender in itertools.cycle(senders):
        await sender.send()
        due += 1 / RATE / len(senders)
        await asyncio.sleep(due - loop.time())
        if stopping.is_set():
            return


async def until(
    condition: Callable[[Sender], bool],
    senders: Sequence[Sender],
    tasks: Sequence[asyncio.Future[None]],
    seconds: float,
) -> None:
    """Wait until `condition` is true for every sender; raise the error of a failed task."""
    try:
        async with asyncio.timeout(seconds):
            while not all(condition(sender) for sender in senders):
                for task in tasks:
                    if task.done() and not task.cancelled():
                        task.result()
                await asyncio.sleep(0.005)
    except TimeoutError:
        left = [sender.device for sender in senders if not condition(sender)]
        raise RuntimeError(
            f"{len(left)} senders, for example {left[0]}: no acknowledgement from the second shard after {seconds:g} s"
        ) from None


async def _compare(senders: Sequence[Sender], link: grpc.aio.Channel) -> tuple[int, int]:
    """Readings lost and doubled: the first shard has analysed what it acknowledged; the second must have the rest."""
    status = await ShardStub(link).Status(StatusRequest(devices=True))
    analysed = {device.id: device.ledger.analysed for device in status.devices}
    differences = [analysed[sender.device] - (sender.sequence - sender.acknowledged[0]) for sender in senders]
    return sum(max(0, -difference) for difference in differences), sum(max(0, difference) for difference in differences)


async def open_once(target: str, streams: int) -> float:
    """Open `streams` streams at once; return the milliseconds until each has its first acknowledgement."""
    async with channel(target) as link:
        await link.channel_ready()
        stub = IngestStub(link)

        async def open_one(number: int) -> Any:
            call = stub.Stream()
            batch = DeviceBatch(device=f"device-{number}", epoch=1, readings=[Reading(sequence=1, smoke_adc=283)])
            await call.write(IngestRequest(devices=[batch]))
            await call.read()
            return call

        with _no_garbage_collection():
            at = time.perf_counter()
            calls = await asyncio.gather(*(open_one(number) for number in range(streams)))
            spent = time.perf_counter() - at
        for call in calls:
            await _end(call)
    return spent * 1e3


async def _end(call: Any) -> None:
    # grpc notifies the event loop of the end, so wait for it.
    call.cancel()
    await call.code()


async def _alternate(rounds: int) -> tuple[list[Handover], list[float]]:
    drains, openings = [], []
    with Server("ack") as server:
        for _ in range(rounds):
            openings.append(await open_once(f"{HOST}:{server.ports['grpc']}", STREAMS))
            drains.append(await drain_once(STREAMS))
    return drains, openings


def drain(scale: Scale) -> Result:
    """Measure SIGTERM of a shard with 100 live streams. Baseline: opening 100 streams on a server that only answers."""
    drains, openings = asyncio.run(_alternate(max(DRAINS, scale.rounds)))
    value, baseline = median([handover.taken_over for handover in drains]), median(openings)
    lost, doubled = sum(handover.lost for handover in drains), sum(handover.doubled for handover in drains)
    ok = value <= 100 and not lost and not doubled
    return Result(f"drain-{STREAMS}", value, f"ms, {lost} lost, {doubled} doubled", baseline, value / baseline,
                  "≤ 100, 0 lost, 0 doubled", ok)  # fmt: skip

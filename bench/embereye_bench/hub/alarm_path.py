"""Measure the delay of an alarm, from the wire to its subscribers.

A hub and a sensor shard run as processes, and a hundred devices keep the shard busy. One further device after the other
sends a reading with much smoke. The delay is the time from that send until a subscriber has the event. After each, the
floor is measured: the echo of such a line from a bare server, and a write with an fsync.
"""

import asyncio
import contextlib
import importlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
from google.protobuf import json_format

from embereye.levels import ZoneState
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.sim.own_process import own_process
from embereye.v1.alarms_pb2 import AlarmEvent, SubscribeRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.shard_pb2 import StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_bench.report import Result, Scale
from embereye_bench.sensors.load import HOST, Server, alarming_line, close, connect, reading_line
from embereye_bench.sensors.server import assignment

ROOT = Path(__file__).parents[3]
TALKERS = 100  # devices that send ten readings a second each
MOST_ALARMS = 100  # at one hub: more rarely burn at the same time
GAP_SECONDS = 0.02  # between two crossings
PATIENCE_SECONDS = 5.0  # for one alarm; a later one counts as this late
READY_SECONDS = 30.0


class Site:
    """A hub and a sensor shard as separate processes; each device has its own zone."""

    def __init__(self, folder: Path, devices: int, database: str, *hub_arguments: str) -> None:
        self._ports = free_ports(7)
        hub_grpc, hub_control, hub_http, grpc_port, tcp, metrics, control = map(str, self._ports)
        self.hub, self.shard, self.tcp = f"{HOST}:{hub_grpc}", f"{HOST}:{control}", int(tcp)
        self._token = folder / "admin-token"
        wanted = assignment(devices)
        for device in wanted.devices:
            device.zone = device.id
        path = folder / "assignment.json"
        path.write_text(json_format.MessageToJson(wanted))
        self.hub_command = ["hub", "--host", HOST, "--grpc-port", hub_grpc, "--control-port", hub_control,
                            "--http-port", hub_http, "--data", str(folder), "--database", database,
                            *hub_arguments]  # fmt: skip
        self.shard_command = ["shard", "sensor", "--shard", wanted.shard, "--assignment", str(path), "--host", HOST,
                              "--hub", f"{HOST}:{hub_control}", "--grpc-port", grpc_port, "--tcp-port", tcp,
                              "--metrics-port", metrics, "--control-port", control, "--data", str(folder)]  # fmt: skip

    @property
    def token(self) -> str:
        """The admin's token, which the hub creates."""
        return self._token.read_text().strip()

    async def wait_ready(self) -> None:
        """Wait until the shard and the hub are ready."""
        async with asyncio.timeout(READY_SECONDS), channel(self.shard) as link:
            while not self._token.exists():
                await asyncio.sleep(0.05)
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    if (await ShardStub(link).Status(StatusRequest())).ready:
                        return
                await asyncio.sleep(0.05)


class Subscriber:
    """A subscriber that records when each zone's alarm arrived."""

    def __init__(self) -> None:
        self.arrivals: dict[str, float] = {}  # zone → perf_counter seconds
        self.more = asyncio.Event()

    async def run(self, hub: str, token: str) -> None:
        """Subscribe until cancelled."""
        async with channel(hub, token=token) as link:
            call = AlarmsStub(link).Subscribe(SubscribeRequest(), wait_for_ready=True)
            try:
                async for event in call:
                    at = time.perf_counter()
                    if event.type == AlarmEvent.TYPE_STATE and event.state == ZoneState.ALARM.wire:
                        self.arrivals.setdefault(event.zone, at)
                        self.more.set()
            finally:
                call.cancel()

    async def wait(self, zone: str, since: float) -> float:
        """Seconds from `since` until the alarm of `zone` arrived, at most PATIENCE_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while zone not in self.arrivals:
                    self.more.clear()
                    await self.more.wait()
        return self.arrivals.get(zone, since + PATIENCE_SECONDS) - since


async def _alarms(samples: int, folder: Path, *hub: str) -> tuple[list[float], list[float]]:
    """Seconds from sending a crossing to a subscriber's event, and of a line's echo with a write and an fsync."""
    site, subscriber = Site(folder, TALKERS + samples, *hub), Subscriber()
    dice = random.Random(3)
    lines = [[reading_line(f"device-{number}", dice) for _ in range(8)] for number in range(TALKERS)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(own_process(*site.hub_command))
        stack.enter_context(own_process(*site.shard_command))
        echo = await asyncio.to_thread(lambda: stack.enter_context(Server("echo")))
        await site.wait_ready()
        sockets = connect(site.tcp, TALKERS + samples)
        (probe,) = connect(echo.ports["tcp"], 1)
        probe.setblocking(False)
        stack.callback(lambda: close([*sockets, probe]))
        file = stack.enter_context((folder / "floor").open("ab", buffering=0))
        for number in range(TALKERS, TALKERS + samples):
            sockets[number].sendall(reading_line(f"device-{number}", dice))
        async with beside(subscriber.run(site.hub, site.token), name="subscriber"):
            await asyncio.sleep(2.0)  # until the shard has found the hub, and every device is known
            latencies, floors = list[float](), list[float]()
            started, sent = time.perf_counter(), 0
            for sample in range(samples):
                for _ in range(4):
                    due = int((time.perf_counter() - started) * 10 * TALKERS)
                    while sent < due:
                        turn, number = divmod(sent, TALKERS)
                        sockets[number].send(lines[number][turn % 8])
                        sent += 1
                    await asyncio.sleep(GAP_SECONDS / 4)
                device = f"device-{TALKERS + sample}"
                at = time.perf_counter()
                sockets[TALKERS + sample].send(alarming_line(device))
                latencies.append(await subscriber.wait(device, at))
                at = time.perf_counter()
                probe.send(alarming_line("device-0"))
                await asyncio.get_running_loop().sock_recv(probe, 64)
                file.write(bytes(4096))
                os.fsync(file.fileno())
                floors.append(time.perf_counter() - at)
    return latencies, floors


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] * 1e3


def measure(name: str, scale: Scale, reach: tuple[float, float], hub: Callable[[int, Path], Sequence[str]]) -> Result:
    """Measure the path; `hub` makes, for each round and its folder, an empty database.

    It returns that database's address, and more arguments of the hub if needed.
    """
    samples = min(MOST_ALARMS, int(100 * scale.seconds))
    latencies, floors = list[float](), list[float]()
    for number in range(scale.rounds):
        # On a disk, because memory alone needs no time to make data durable.
        with tempfile.TemporaryDirectory(dir=ROOT if os.access(ROOT, os.W_OK) else None, prefix=".bench-") as folder:
            sample = asyncio.run(_alarms(samples, Path(folder), *hub(number, Path(folder))))
        latencies += sample[0]
        floors += sample[1]
    value, late = percentile(latencies, 0.95), percentile(latencies, 0.99)
    floor = percentile(floors, 0.95)
    wanted = f"≤ {reach[0]:.0f}, p99 ≤ {reach[1]:.0f}"
    unit = f"ms p95, p99 {late:.1f}"
    return Result(name, value, unit, floor, value / floor, wanted, value <= reach[0] and late <= reach[1])


def alarm_path(scale: Scale) -> Result:
    """Measure from a crossing on the wire to a subscriber, with fsync. Baseline: an echo and an fsync."""
    return measure("alarm-path", scale, (25, 50), lambda _, __: [""])


def missing(*needs: str) -> str:
    """The reason why one of the harness' `needs` cannot be started here; '' if all can."""
    sys.path.insert(0, str(ROOT / "e2e"))
    try:
        known = importlib.import_module("harness.need")
    except ImportError:
        return "no source tree to start a server from"
    return next((str(need.reason) for name in needs if not (need := getattr(known, name)).present()), "")


def alarm_path_postgres(scale: Scale) -> Result:
    """Measure the alarm path with the history in a local PostgreSQL, which fsyncs each commit."""
    if why := missing("POSTGRES"):
        raise UserError(f"alarm-path-postgres: {why}")
    postgres = importlib.import_module("harness.servers.postgres")
    with postgres.run_postgres() as server:
        return measure(
            "alarm-path-postgres", scale, (50, 100), lambda number, _: [str(server.create_database(f"bench{number}"))]
        )

"""Measure a hub's life as a process: its most subscribers, its shutdown, kills, and an hour of work.

The hub is a real process with its data on a disk, which benchmarks end and start again. Meanwhile `Shard` and `Stills`
store reports and stills, and note those that the hub acknowledged. Afterwards all of them are read from the restarted
hub: a missing one was lost, and an alarm that was raised twice is doubled.
"""

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from embereye.hub.feeds.feed import SUBSCRIBERS
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from embereye.process.tasks import beside
from embereye.process.telemetry.usage import resident_mb
from embereye.v1.alarms_pb2 import ActionRequest, AlarmEvent, HistoryRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.clips_pb2 import Clip, FetchClipRequest, StoreRequest, StoreResponse
from embereye.v1.clips_pb2_grpc import ClipsStub
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device
from embereye_bench.hub.alarm_path import ROOT
from embereye_bench.hub.companions import line_of, module
from embereye_bench.hub.fanout import Worker
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST

READY_SECONDS = 20.0
FLEET = "default/sensors/bench"
REFUSED = 50  # clients beyond the limit
SHUTDOWN_MS = {"idle": 50.0, "5": 110.0, "425": 500.0, "storing": 500.0, "warm": 500.0}
WARM_EVENTS = 4_200  # after which the feed's memory is full
STILL_BYTES, STILLS_UNDER_WAY = 32 * 1024, 16
CYCLE_MS = 1_500.0
HOUR_SECONDS, QUICK_HOUR_SECONDS = 3_600.0, 60.0


class HubProcess:
    """`embereye hub` on loopback, with a folder on a disk; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        grpc_port, control, self.http = free_ports(3)
        self.grpc, self.control = f"{HOST}:{grpc_port}", f"{HOST}:{control}"
        self._command = [
            sys.executable, "-m", "embereye_cli", "hub", "--host", HOST, "--grpc-port", str(grpc_port),
            "--control-port", str(control), "--http-port", str(self.http), "--data", str(folder),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        """The admin's token, which the hub creates."""
        return (self._folder / "admin-token").read_text().strip()

    async def start(self) -> float:
        """Start it; return the seconds until it answers."""
        began = time.perf_counter()
        self._process = self._spawn()
        async with asyncio.timeout(READY_SECONDS):
            while True:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(HOST, self.http)
                    writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    if b" 200 " in await reader.readline():
                        writer.close()
                        return time.perf_counter() - began
                await asyncio.sleep(0.005)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    async def end(self, number: int = signal.SIGTERM) -> float:
        """Send it a signal; return the seconds until it has ended."""
        assert self._process is not None
        return await _end_process(self._process, number)

    def stop(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


async def _end_process(process: "subprocess.Popen[Any]", number: int) -> float:
    """Send a signal to `process`; return the seconds until it has ended."""
    began = time.perf_counter()
    process.send_signal(number)
    while process.poll() is None:
        await asyncio.sleep(0.001)
        if time.perf_counter() - began > READY_SECONDS:
            process.kill()
    return time.perf_counter() - began


@contextlib.contextmanager
def disk_hub() -> Iterator[HubProcess]:
    # On a disk, because memory alone needs no time to make data durable.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-", ignore_cleanup_errors=True) as folder:
        hub = HubProcess(Path(folder))
        try:
            yield hub
        finally:
            hub.stop()


# Saturation


async def _cause_event(hub: HubProcess) -> AlarmEvent:
    """Start or end a test of a zone, so that there is an event."""
    roster = FleetRoster(fleet=FLEET, epoch=1, deadline_ns=10**15, devices=[Device(id="s-1", zone="hall")])
    async with channel(hub.control) as link:
        await RosterStub(link).Set(roster, timeout=10)
    async with channel(hub.grpc, token=hub.token) as link:
        return await AlarmsStub(link).Test(ActionRequest(zone="hall"), timeout=10)


def saturation(_: Scale) -> Result:
    """Measure as many subscribers as a hub serves, and some more. Baseline: the permitted number."""
    with disk_hub() as hub:
        asyncio.run(hub.start())
        crowd = ("crowd", "--port", str(hub.http), "--token", hub.token)
        with Worker(*crowd, "--count", str(SUBSCRIBERS)) as accepted:
            with Worker(*crowd, "--count", str(REFUSED)) as late:
                refused = sum(number for status, number in late.first["opened"].items() if " 503 " in status)
            asyncio.run(_cause_event(hub))
            time.sleep(1.0)
            seen = accepted.ask(report=1)
            notified = sum(len(times) for times in seen["arrivals"].values())
            opened = sum(number for status, number in accepted.first["opened"].items() if " 101 " in status)
            harmed = sum(seen["ended"].values())
        asyncio.run(hub.end())
    value = min(opened, notified) / SUBSCRIBERS * 100
    unit = (
        f"% connected and notified of {SUBSCRIBERS:,}, {refused} of {REFUSED} refused with 503, {harmed} disconnected"
    )
    ok = value == 100 and refused == REFUSED and not harmed
    return Result("saturation", value, unit, 100, value / 100, "100 %", ok)


# Evidence


def _item(number: int) -> EvidenceItem:
    """Make a sign that raises the alarm of a new zone."""
    now = time.time_ns()
    return EvidenceItem(
        id=f"report-{number}", episode=f"episode-{number}", fleet=FLEET, device=f"s-{number}", zone=f"zone-{number}",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


class Shard:
    """Sends reports until they are acknowledged, even over restarts of the hub, as a shard does from its spool."""

    def __init__(self, hub: HubProcess, rate: float, first: int = 0) -> None:
        """Start with the report number `first`."""
        self._hub = hub
        self._rate = rate  # reports a second
        self.sent = first
        self.waiting: dict[int, EvidenceItem] = {}
        self.acknowledged: set[int] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
        async with channel(self._hub.control, options) as link:
            while True:
                call = EvidenceStub(link).Report()
                try:
                    await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="bench-0")))
                    for item in list(self.waiting.values()):
                        await call.write(ReportRequest(evidence=item, sent_ns=time.time_ns()))
                    async with beside(self._read(call), name="bench-acks") as reading:
                        while not reading.done():
                            await self._send_next(call)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    pass
                finally:
                    call.cancel()
                await asyncio.sleep(0.02)

    async def _send_next(self, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]") -> None:
        self.sent += 1
        item = self.waiting[self.sent] = _item(self.sent)
        await call.write(ReportRequest(evidence=item, sent_ns=time.time_ns()))
        await asyncio.sleep(1 / self._rate)

    async def _read(self, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]") -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in call:
                for name in response.acknowledged:
                    number = int(name.rpartition("-")[2])
                    self.acknowledged.add(number)
                    self.waiting.pop(number, None)


class Stills:
    """Stores stills at the hub while it answers, and remembers which were acknowledged."""

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub
        self.acknowledged: set[str] = set()  # SHA-256

    async def run(self) -> None:
        """Store until the hub ends the stream, or this is cancelled."""
        room = asyncio.Semaphore(STILLS_UNDER_WAY)
        async with channel(self._hub.grpc, token=self._hub.token) as link:
            call = ClipsStub(link).Store()
            try:
                async with beside(self._read(call, room), name="bench-stored"):
                    while True:
                        await room.acquire()
                        data = os.urandom(STILL_BYTES)
                        name = hashlib.sha256(data).hexdigest()
                        clip = Clip(sha256=name, media=Clip.MEDIA_STILL, bytes=STILL_BYTES, device="bench")
                        await call.write(StoreRequest(clip=clip, data=data))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            finally:
                call.cancel()

    async def _read(
        self, call: "grpc.aio.StreamStreamCall[StoreRequest, StoreResponse]", room: asyncio.Semaphore
    ) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in call:
                if response.whole:
                    self.acknowledged.add(response.sha256)
                room.release()

    async def count_lost(self) -> int:
        """Count the acknowledged stills that are missing."""
        missing = 0
        async with channel(self._hub.grpc, token=self._hub.token) as link:
            for name in self.acknowledged:
                data = bytearray()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for chunk in ClipsStub(link).Fetch(FetchClipRequest(sha256=name), timeout=10):
                        data += chunk.data
                missing += hashlib.sha256(data).hexdigest() != name
        return missing


# Shutdown


@dataclass
class _Ends:
    """The durations of shutdowns in milliseconds, by condition, and their losses."""

    durations: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SHUTDOWN_MS})
    cycles: list[float] = field(default_factory=list)  # of start and shutdown
    bare: list[float] = field(default_factory=list)  # of an idle process
    acknowledged: int = 0  # reports and stills, of hubs that were shut down meanwhile
    lost: int = 0  # of these


async def _end_storing(hub: HubProcess, ends: _Ends) -> float:
    """Shut the hub down while it stores reports and stills, restart it, check them; return the shutdown's seconds."""
    shard, stills = Shard(hub, 500, first=1_000_000 * len(ends.bare)), Stills(hub)
    async with beside(shard.run(), name="bench-shard"), beside(stills.run(), name="bench-stills"):
        await asyncio.sleep(0.5)
        ended = await hub.end()
    acknowledged = {f"zone-{number}" for number in shard.acknowledged}
    await hub.start()
    raised = await _raised(hub)
    ends.lost += sum(not raised[zone] for zone in acknowledged) + await stills.count_lost()
    ends.acknowledged += len(acknowledged) + len(stills.acknowledged)
    return ended


async def _end(hub: HubProcess, condition: str, ends: _Ends) -> float:
    """Shut the hub down in this condition; return the seconds."""
    with contextlib.ExitStack() as stack:
        if condition.isdigit():
            options = ("--port", str(hub.http), "--token", hub.token, "--count", condition)
            await asyncio.to_thread(lambda: stack.enter_context(Worker("crowd", *options)))
        elif condition == "storing":
            return await _end_storing(hub, ends)
        elif condition == "warm":
            await _cause_event(hub)
            async with channel(hub.grpc, token=hub.token) as link:
                for _ in range(WARM_EVENTS):
                    await AlarmsStub(link).Test(ActionRequest(zone="hall"), timeout=10)
        else:
            await asyncio.sleep(0.3)
        return await hub.end()


async def _end_bare() -> float:
    """Seconds to end a process that has only an event loop."""
    with module("embereye_bench.hub.peers", "bare") as process:
        await asyncio.to_thread(line_of, process)
        return await _end_process(process, signal.SIGTERM)


async def _shutdowns(rounds: int) -> _Ends:
    ends = _Ends()
    with disk_hub() as hub:
        for _ in range(rounds):
            for condition, durations in ends.durations.items():
                started = await hub.start()
                durations.append(await _end(hub, condition, ends) * 1e3)
                await hub.end()
                if condition == "idle":
                    ends.cycles.append(started * 1e3 + durations[-1])
            ends.bare.append(await _end_bare() * 1e3)
    return ends


def shutdown(scale: Scale) -> Result:
    """Measure SIGTERM to the end: idle, with 5 and 425 connections, while storing, and after 4,200 events.

    `hub-hour` measures it after an hour. Baseline: a process that has only an event loop.
    """
    ends = asyncio.run(_shutdowns(scale.rounds))
    medians, cycle = {name: median(values) for name, values in ends.durations.items()}, median(ends.cycles)
    ok = all(medians[name] <= most for name, most in SHUTDOWN_MS.items()) and cycle <= CYCLE_MS and not ends.lost
    shown = ", ".join(f"{name} {value:.0f}" for name, value in medians.items())
    wanted = "/".join(f"{most:.0f}" for most in SHUTDOWN_MS.values())
    worst, bare = max(medians.values()), median(ends.bare)
    unit = f"ms at worst: {shown}; start and stop {cycle:.0f}; {ends.lost} lost of {ends.acknowledged:,} acknowledged"
    return Result("shutdown", worst, unit, bare, worst / bare, f"≤ {wanted}, ≤ {CYCLE_MS:.0f}, 0 lost", ok)


# Kills


async def _raised(hub: HubProcess) -> Counter[str]:
    """The number of times each zone's alarm was raised, from the history."""
    counts, after = Counter[str](), 0
    async with channel(hub.grpc, token=hub.token) as link:
        while True:
            page = await AlarmsStub(link).History(HistoryRequest(after=after, limit=1_000), timeout=10)
            for event in page.events:
                raised = event.type == AlarmEvent.TYPE_STATE and event.state == ZoneState.ALARM.wire
                counts[event.zone] += raised and event.previous == ZoneState.NORMAL.wire
            if not page.next:
                return counts
            after = page.next


async def _kills(number: int) -> tuple[int, int, float, int]:
    """Acknowledged reports lost, alarms doubled, the slowest start in seconds, reports acknowledged."""
    dice = random.Random(11)
    with disk_hub() as hub:
        starts = [await hub.start()]
        shard = Shard(hub, 100)
        async with beside(shard.run(), name="bench-shard"):
            for _ in range(number):
                await asyncio.sleep(dice.uniform(0.05, 0.8))
                await hub.end(signal.SIGKILL)
                starts.append(await hub.start())
            async with channel(hub.grpc, token=hub.token) as link:
                await AlarmsStub(link).Zones(ZonesRequest(), timeout=10, wait_for_ready=True)
            await asyncio.sleep(0.5)
        raised = await _raised(hub)
        acknowledged = {f"zone-{number}" for number in shard.acknowledged}
        await hub.end()
    lost = sum(not raised[zone] for zone in acknowledged)
    return lost, sum(count > 1 for count in raised.values()), max(starts), len(acknowledged)


def kill_100(scale: Scale) -> Result:
    """Measure reports lost by 100 kills (-9) at random moments under load; ten in a quick run. Baseline: reports."""
    number = 100 if scale.rounds >= 5 else 10
    lost, doubled, slowest, reports = asyncio.run(_kills(number))
    unit = f"lost of {reports:,} in {number} kills, {doubled} doubled, start {slowest:.2f} s at worst"
    ok = not lost and not doubled and slowest <= 2.0 and reports > 0
    return Result("kill-100", lost, unit, reports, 0.0, "0, 0, ≤ 2 s", ok)


# An hour


async def _hour(seconds: float) -> tuple[float, float, int, float]:
    """Memory in MB after the warm-up and at the end, number of events, and the seconds of the shutdown."""
    with disk_hub() as hub:
        await hub.start()
        await _cause_event(hub)
        options = ("--port", str(hub.http), "--token", hub.token, "--count", "50")
        with await asyncio.to_thread(Worker, "crowd", *options) as crowd:
            async with channel(hub.grpc, token=hub.token) as link:
                stub, began, events, warm = AlarmsStub(link), time.perf_counter(), 0, 0.0
                while (elapsed := time.perf_counter() - began) < seconds:
                    await stub.Test(ActionRequest(zone="hall"), timeout=10)
                    events += 1
                    if not events % 500:
                        await asyncio.to_thread(lambda: crowd.ask(report=1))
                    # By then the feed's memory is full.
                    if not warm and elapsed > seconds / 3 and events > WARM_EVENTS:
                        warm = resident_mb(hub.pid)
                end = resident_mb(hub.pid)
            ended = await hub.end()
    return warm or end, end, events, ended


def hub_hour(scale: Scale) -> Result:
    """Measure the growth of memory in an hour of events, a minute in a quick run. Baseline: after a third of it."""
    seconds = HOUR_SECONDS if scale.rounds >= 5 else QUICK_HOUR_SECONDS
    warm, end, events, ended = asyncio.run(_hour(seconds))
    growth = (end / warm - 1) * 100
    unit = f"% more memory, {end:.0f} MB, {events:,} events in {seconds:,.0f} s; SIGTERM after it {ended * 1e3:.0f} ms"
    return Result("hub-hour", growth, unit, warm, end / warm, "< 2 %, ≤ 500 ms", growth < 2 and ended <= 0.5)

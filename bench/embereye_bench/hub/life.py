"""The hub's life as a process: people who come all at once, as many as it takes, its end, and its being killed."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import uvloop

from embereye.hub.feeds.feed import SUBSCRIBERS
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from embereye.process.tasks import beside
from embereye.process.telemetry.usage import resident_mb
from embereye.v1.alarms_pb2 import ActionRequest, AlarmEvent, HistoryRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device
from embereye_bench.hub.alarm_path import ROOT
from embereye_bench.hub.fanout import Told
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import HOST

CLIENTS = 425
READY_SECONDS = 20.0
FLEET = "default/sensors/bench"
STAGGER_SECONDS = 1.0  # over which clients come that do not come at once
REFUSED = 50  # clients beyond the limit
SHUTDOWN_MS = {"idle": 50.0, "5": 110.0, "425": 500.0, "storing": 500.0}
CYCLE_MS = 1_500.0
HOUR_SECONDS, QUICK_HOUR_SECONDS = 3_600.0, 60.0


class HubProcess:
    """`embereye hub` on loopback, with a folder on a disk; may be killed and started again."""

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
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        """The admin's token, which the hub makes."""
        return (self._folder / "admin-token").read_text().strip()

    async def start(self) -> float:
        """Start it; seconds until it answers."""
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
        """Send it a signal; seconds until it is gone."""
        assert self._process is not None
        began = time.perf_counter()
        self._process.send_signal(number)
        while self._process.poll() is None:
            await asyncio.sleep(0.001)
            if time.perf_counter() - began > READY_SECONDS:
                self._process.kill()
        return time.perf_counter() - began

    def stop(self) -> None:
        """Make sure that it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def _hub() -> Iterator[HubProcess]:
    # On a disk: what is in memory alone takes no time to be made durable.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-", ignore_cleanup_errors=True) as folder:
        hub = HubProcess(Path(folder))
        try:
            yield hub
        finally:
            hub.stop()


# Signing in


async def _sign_in(hub: HubProcess, delay: float) -> float:
    """Seconds from the dial to the session; RuntimeError where there is none."""
    await asyncio.sleep(delay)
    body = f'{{"token": "{hub.token}"}}'
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, hub.http)
    writer.write(
        f"POST /v1/session HTTP/1.1\r\nHost: localhost:{hub.http}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    took = time.perf_counter() - began
    writer.close()
    if b" 200 " not in head or b"Set-Cookie" not in head:
        raise RuntimeError(f"nobody was signed in: {head[:80]!r}")
    return took


async def _sign_all_in(hub: HubProcess, over: float) -> tuple[list[float], float]:
    began = time.perf_counter()
    delays = (over * number / CLIENTS for number in range(CLIENTS))
    took = await asyncio.gather(*(_sign_in(hub, delay) for delay in delays))
    return sorted(took), time.perf_counter() - began


async def _login(rounds: int) -> tuple[float, float, float]:
    """p99 in seconds at once and staggered, and sessions a second at once; the medians of all rounds."""
    with _hub() as hub:
        await hub.start()
        await _sign_all_in(hub, 0.2)
        at_once = [await _sign_all_in(hub, 0.0) for _ in range(rounds)]
        staggered = [await _sign_all_in(hub, STAGGER_SECONDS) for _ in range(rounds)]
        await hub.end()
    share = int(CLIENTS * 0.99)
    return (
        median([took[share] for took, _ in at_once]),
        median([took[share] for took, _ in staggered]),
        median([CLIENTS / seconds for _, seconds in at_once]),
    )


def login_425(scale: Scale) -> Result:
    """425 clients sign in, at once and staggered. Baseline: staggered."""
    at_once, staggered, rate = uvloop.run(_login(scale.rounds))
    unit = f"s p99 at once, {rate:,.0f} sessions/s"
    ok = at_once <= 1.0 and rate >= 1_000
    return Result("login-425", at_once, unit, staggered, at_once / staggered, "≤ 1 s, ≥ 1,000/s", ok)


# As many as it takes


async def _act(hub: HubProcess) -> AlarmEvent:
    """Something happens: a test of a zone begins or ends."""
    roster = FleetRoster(fleet=FLEET, epoch=1, deadline_ns=10**15, devices=[Device(id="s-1", zone="hall")])
    async with channel(hub.control) as link:
        await RosterStub(link).Set(roster, timeout=10)
    async with channel(hub.grpc, token=hub.token) as link:
        return await AlarmsStub(link).Test(ActionRequest(zone="hall"), timeout=10)


def saturation(_: Scale) -> Result:
    """As many subscribers as a hub serves, and some more. Baseline: those who were to be let in."""
    with _hub() as hub:
        asyncio.run(hub.start())
        crowd = ("crowd", "--port", str(hub.http), "--token", hub.token)
        with Told(*crowd, "--count", str(SUBSCRIBERS)) as held:
            with Told(*crowd, "--count", str(REFUSED)) as late:
                refused = sum(number for status, number in late.first["opened"].items() if " 503 " in status)
            asyncio.run(_act(hub))
            time.sleep(1.0)
            seen = held.ask(report=1)
            told = sum(len(times) for times in seen["arrivals"].values())
            opened = sum(number for status, number in held.first["opened"].items() if " 101 " in status)
            harmed = sum(seen["ended"].values())
        asyncio.run(hub.end())
    value = min(opened, told) / SUBSCRIBERS * 100
    unit = f"% held and told of {SUBSCRIBERS:,}, {refused} of {REFUSED} refused with 503, {harmed} harmed"
    ok = value == 100 and refused == REFUSED and not harmed
    return Result("saturation", value, unit, 100, value / 100, "100 %", ok)


# Evidence


def _item(number: int) -> EvidenceItem:
    """A sign that raises the alarm of a zone of its own."""
    now = time.time_ns()
    return EvidenceItem(
        id=f"report-{number}", episode=f"episode-{number}", fleet=FLEET, device=f"s-{number}", zone=f"zone-{number}",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


class Shard:
    """Sends reports until they are acknowledged, over restarts of the hub, as a shard does from its spool."""

    def __init__(self, hub: HubProcess, rate: float) -> None:
        self._hub = hub
        self._rate = rate  # reports a second
        self.sent = 0
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

    async def settle(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        async with asyncio.timeout(READY_SECONDS):
            while self.waiting:
                await asyncio.sleep(0.05)


# Its end


async def _shutdowns(rounds: int) -> tuple[dict[str, float], float]:
    """Milliseconds from SIGTERM to the end in each condition, and of a cycle of start and stop; medians."""
    took: dict[str, list[float]] = {name: [] for name in SHUTDOWN_MS}
    cycles = list[float]()
    with _hub() as hub:
        for _ in range(rounds):
            for name in SHUTDOWN_MS:
                started = await hub.start()
                with contextlib.ExitStack() as stack:
                    if name.isdigit():
                        options = ("--port", str(hub.http), "--token", hub.token, "--count", name)
                        await asyncio.to_thread(lambda: stack.enter_context(Told("crowd", *options)))  # noqa: B023
                    else:
                        await asyncio.sleep(0.3)
                    if name == "storing":
                        async with beside(Shard(hub, 500).run(), name="bench-shard"):
                            await asyncio.sleep(0.5)
                            ended = await hub.end()
                    else:
                        ended = await hub.end()
                took[name].append(ended * 1e3)
                if name == "idle":
                    cycles.append((started + ended) * 1e3)
    return {name: median(values) for name, values in took.items()}, median(cycles)


def shutdown(scale: Scale) -> Result:
    """SIGTERM to the end: idle, with 5 and 425 connections, while reports are stored. Baseline: idle."""
    took, cycle = asyncio.run(_shutdowns(scale.rounds))
    ok = all(took[name] <= most for name, most in SHUTDOWN_MS.items()) and cycle <= CYCLE_MS
    told = ", ".join(f"{name} {value:.0f}" for name, value in took.items())
    wanted = "/".join(f"{most:.0f}" for most in SHUTDOWN_MS.values())
    worst = max(took.values())
    return Result(
        "shutdown", worst, f"ms at worst: {told}; start and stop {cycle:.0f}", took["idle"], worst / took["idle"],
        f"≤ {wanted}, ≤ {CYCLE_MS:.0f}", ok,
    )  # fmt: skip


# Its being killed


async def _raised(hub: HubProcess) -> Counter[str]:
    """How often each zone's alarm was raised, by the history."""
    found, after = Counter[str](), 0
    async with channel(hub.grpc, token=hub.token) as link:
        while True:
            page = await AlarmsStub(link).History(HistoryRequest(after=after, limit=1_000), timeout=10)
            for event in page.events:
                raised = event.type == AlarmEvent.TYPE_STATE and event.state == ZoneState.ALARM.wire
                found[event.zone] += raised and event.previous == ZoneState.NORMAL.wire
            if not page.next:
                return found
            after = page.next


async def _kills(number: int) -> tuple[int, int, float, int]:
    """Acknowledged reports that were lost, alarms that were doubled, the slowest start in seconds, alarms."""
    dice = random.Random(11)
    with _hub() as hub:
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
        acknowledged = {f"zone-{one}" for one in shard.acknowledged}
        await hub.end()
    lost = sum(not raised[zone] for zone in acknowledged)
    return lost, sum(count > 1 for count in raised.values()), max(starts), len(acknowledged)


def kill_100(scale: Scale) -> Result:
    """Kill -9 at 100 random moments under load, ten where it is quick. Baseline: reports that were acknowledged."""
    number = 100 if scale.rounds >= 5 else 10
    lost, doubled, slowest, reports = asyncio.run(_kills(number))
    unit = f"lost of {reports:,} in {number} kills, {doubled} doubled, start {slowest:.2f} s at worst"
    ok = not lost and not doubled and slowest <= 2.0 and reports > 0
    return Result("kill-100", lost, unit, reports, 0.0, "0, 0, ≤ 2 s", ok)


# An hour


async def _hour(seconds: float) -> tuple[float, float, int]:
    """Memory in MB after the warm-up and at the end, and events meanwhile."""
    with _hub() as hub:
        await hub.start()
        await _act(hub)
        options = ("--port", str(hub.http), "--token", hub.token, "--count", "50")
        with await asyncio.to_thread(Told, "crowd", *options) as crowd:
            async with channel(hub.grpc, token=hub.token) as link:
                stub, began, events, warm = AlarmsStub(link), time.perf_counter(), 0, 0.0
                while (elapsed := time.perf_counter() - began) < seconds:
                    await stub.Test(ActionRequest(zone="hall"), timeout=10)
                    events += 1
                    if not events % 500:
                        await asyncio.to_thread(lambda: crowd.ask(report=1))
                    # What the feed keeps in memory is full by then.
                    if not warm and elapsed > seconds / 3 and events > 4_200:
                        warm = resident_mb(hub.pid)
                end = resident_mb(hub.pid)
        await hub.end()
    return warm or end, end, events


def hub_hour(scale: Scale) -> Result:
    """Memory after an hour of events, a minute where it is quick. Baseline: after a third of it, when it is warm."""
    seconds = HOUR_SECONDS if scale.rounds >= 5 else QUICK_HOUR_SECONDS
    warm, end, events = asyncio.run(_hour(seconds))
    growth = (end / warm - 1) * 100
    unit = f"% more memory, {end:.0f} MB, {events:,} events in {seconds:,.0f} s"
    return Result("hub-hour", growth, unit, warm, end / warm, "< 2 %", growth < 2)

"""Measure the cost of a hub and its console with many devices and fleets, reported by simulated shards.

The hub is a real process. Every simulated shard has a separate stream to it, and reports all its devices each second,
as a shard does. First the hub's CPU is measured without a browser; then the requests of a console's pages are timed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby

import aiohttp
import grpc

from embereye.process.grpc_server import channel
from embereye.process.tasks import beside
from embereye.process.telemetry.usage import cpu_seconds, resident_mb
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Ledger, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device, Term
from embereye_bench.hub.life import HubProcess, disk_hub
from embereye_bench.report import median
from embereye_bench.sensors.load import HOST
from embereye_operator.controller import rest_period

REPORT_SECONDS = 1.0  # between two reports of a shard
STREAMS = 100  # on one connection
REQUESTS = 5  # requests of each page
# A browser's requests every second or two, on each page: devices, devices far down in the list, and fleets.
PAGES = (
    "/v1/zones",
    "/v1/devices?order=urgent&limit=20",
    "/v1/devices?order=urgent&pictures=1&limit=12",
    "/v1/devices?order=urgent&offset=60&limit=60",
    "/v1/fleets?order=urgent&limit=40",
)


@dataclass(frozen=True)
class Shown:
    """The measured costs."""

    cores: float  # of the hub, without a browser
    memory: float  # MB of the hub
    page: float  # median seconds of the slowest of a console's requests
    slowest: str  # path of that request
    page_kb: float  # size of its answer, uncompressed


@dataclass(frozen=True)
class Watch:
    """The devices of one shard."""

    fleet: str  # "namespace/kind/name"
    shard: str
    devices: Sequence[Device]


def declare_watches(name: str, devices: int, shards: int) -> list[Watch]:
    """The shards of a fleet of `devices`, ten in a zone, shared evenly."""
    declared = [Device(id=f"s-{index:05}", zone=f"{name}-{index // 10}") for index in range(devices)]
    return [Watch(f"default/sensors/{name}", f"{name}-{shard}", declared[shard::shards]) for shard in range(shards)]


async def show(watched: Sequence[Watch], seconds: float) -> Shown:
    """Measure the cost of a hub that watches all of `watched`, over `seconds`."""
    devices = sum(len(watch.devices) for watch in watched)
    with disk_hub() as hub:
        await hub.start()
        async with _reporting(hub, watched):
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {hub.token}"}) as session:
                await _wait_covered(session, hub, devices)
                before = cpu_seconds(hub.pid)
                await asyncio.sleep(seconds)
                cores = (cpu_seconds(hub.pid) - before) / seconds
                pages = {path: await _page(session, hub, path) for path in PAGES}
            memory = resident_mb(hub.pid)
        await hub.end()
    slowest = max(pages, key=lambda path: pages[path][0])
    return Shown(cores, memory, pages[slowest][0], slowest, pages[slowest][1])


@asynccontextmanager
async def _reporting(hub: HubProcess, watched: Sequence[Watch]) -> AsyncIterator[None]:
    """Set the rosters at the hub and let every shard report, during the block."""
    async with AsyncExitStack() as stack:
        rosters = [
            FleetRoster(
                fleet=fleet,
                epoch=1,
                deadline_ns=5 * SECOND,
                devices=[device for watch in shards for device in watch.devices],
            )
            for fleet, shards in groupby(watched, lambda watch: watch.fleet)
        ]
        link = await stack.enter_async_context(channel(hub.control))
        for roster in rosters:
            await RosterStub(link).Set(roster, timeout=30)
        await stack.enter_async_context(beside(_set_rosters(link, rosters), name="operator"))
        for first in range(0, len(watched), STREAMS):
            # Channels with equal options would share a connection otherwise.
            link = await stack.enter_async_context(channel(hub.control, [("grpc.use_local_subchannel_pool", 1)]))
            for number, watch in enumerate(watched[first : first + STREAMS], first):
                late = number / len(watched) * REPORT_SECONDS
                await stack.enter_async_context(beside(_report(link, watch, late), name=watch.shard))
        yield


async def _set_rosters(link: grpc.aio.Channel, rosters: Sequence[FleetRoster]) -> None:
    """Set all rosters repeatedly, as the operator does with each pass over an idle fleet, until cancelled."""
    while True:
        for roster in rosters:
            await asyncio.sleep(rest_period(len(rosters)) / len(rosters))
            await RosterStub(link).Set(roster, timeout=30)


async def _report(link: grpc.aio.Channel, watch: Watch, late: float) -> None:
    """Report all devices as covered, until cancelled."""
    measured = [Term(name="temperature.max", value=24.5, unit="°C"), Term(name="gas", value=400, unit="ppm")]
    statuses = [
        DeviceStatus(id=device.id, zone=device.zone, covered=True, state="streaming", latest=measured)
        for device in watch.devices
    ]
    await asyncio.sleep(late)
    call = EvidenceStub(link).Report()
    try:
        await call.write(ReportRequest(hello=ShardHello(fleet=watch.fleet, shard=watch.shard, epoch=1)))
        offered, due = 0, time.monotonic()
        while True:
            now, offered = time.time_ns(), offered + 10
            for status in statuses:
                status.heard_ns = status.analysed_ns = now
                status.ledger.CopyFrom(Ledger(offered=offered, analysed=offered, since_ns=1))
            coverage = Coverage(fleet=watch.fleet, shard=watch.shard, epoch=1, time_ns=now, devices=statuses)
            await call.write(ReportRequest(coverage=coverage, sent_ns=now))
            due += REPORT_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    finally:
        call.cancel()


async def _wait_covered(session: aiohttp.ClientSession, hub: HubProcess, devices: int) -> None:
    """Wait until the hub has received reports about all devices."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(f"http://{HOST}:{hub.http}/v1/zones") as response:
                if (await response.json())["covered"] == devices:
                    return
            await asyncio.sleep(0.5)


async def _page(session: aiohttp.ClientSession, hub: HubProcess, path: str) -> tuple[float, float]:
    """Median seconds until the answer, and its size in kB."""
    durations, size = [], 0
    for _ in range(REQUESTS):
        began = time.perf_counter()
        async with session.get(f"http://{HOST}:{hub.http}{path}") as response:
            response.raise_for_status()
            size = len(await response.read())
        durations.append(time.perf_counter() - began)
        await asyncio.sleep(0.3)
    return median(durations), size / 1000

"""Peers that demand more than their share: only they suffer."""

import asyncio
import contextlib
import shutil
import socket
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually

from embereye.process.grpc_server import channel
from embereye.process.tasks import Tasks
from embereye.units import MIB
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Ledger, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.types_pb2 import Term

from .site import HOST, SMOKE, Site

CROWD = "default/sensors/crowd"


class Crowd:
    """A shard that reports on very many devices; those in `dark` are not covered."""

    def __init__(self, site: Site, count: int) -> None:
        self.site = site
        self.names = [f"d-{number}" for number in range(count)]
        self.dark: set[str] = set()
        self.reports = 0

    def coverage(self) -> Coverage:
        now = time.time_ns()
        terms = [Term(name=name, value=21.5, unit="°C") for name in ("temperature.max", "temperature.mean", "smoke")]
        ledger = Ledger(offered=10, analysed=10, since_ns=1)
        devices = [
            DeviceStatus(
                id=name, zone=f"zone-{number % 500}", covered=name not in self.dark, reason="silent", heard_ns=now,
                analysed_ns=now, state="streaming", latest=terms, ledger=ledger,
            )
            for number, name in enumerate(self.names)
        ]  # fmt: skip
        return Coverage(fleet=CROWD, shard="crowd-0", epoch=1, time_ns=now, clock_ns=now, devices=devices)

    async def run(self) -> None:
        async with channel(self.site.control) as link:

            async def requests() -> AsyncIterator[ReportRequest]:
                yield ReportRequest(hello=ShardHello(fleet=CROWD, shard="crowd-0", epoch=1))
                while True:
                    yield ReportRequest(coverage=self.coverage())
                    self.reports += 1
                    await asyncio.sleep(1)

            async for _ in EvidenceStub(link).Report(requests(), wait_for_ready=True):
                pass


async def test_a_console_that_lists_ten_thousand_devices_delays_no_fault(site: Site) -> None:
    honest = await site.honest()
    crowd, tabs = Crowd(site, 10_000), 0

    async def tab() -> None:
        nonlocal tabs
        while True:
            for path in ("/v1/devices", "/v1/zones"):
                await asyncio.to_thread(site.read, path)
            tabs += 1
            await asyncio.sleep(0.2)

    async with Tasks() as tasks:
        tasks.start(crowd.run(), name="crowd")

        async def listed() -> bool:
            return len((await site.get("/v1/devices"))["devices"]) == len(crowd.names) + 1

        await eventually(listed, goal="all are listed")
        for _ in range(3):
            tasks.start(tab(), name="tab")
        await asyncio.sleep(2)
        crowd.dark.add("d-7")

        async def is_reported() -> bool:
            return "d-7" in {event.fault.device for event in await site.history() if event.HasField("fault")}

        await eventually(is_reported, goal="the dark device is reported")
        honest.line = SMOKE
        await site.alarmed("honest")
        faults = {event.fault.device for event in await site.history() if event.type == AlarmEvent.TYPE_FAULT}
        assert faults == {"d-7"}
        assert tabs
        assert not tasks.failed.is_set()


async def test_a_list_in_pages_is_complete(site: Site) -> None:
    site.start("hub")
    crowd = Crowd(site, 25)
    async with Tasks() as tasks:
        tasks.start(crowd.run(), name="crowd")

        async def listed() -> bool:
            with contextlib.suppress(OSError):
                return len((await site.get("/v1/devices"))["devices"]) == 25
            return False

        await eventually(listed, goal="all are listed")
        for path, key, count in (("/v1/devices", "id", 25), ("/v1/zones", "name", 25)):
            names: list[str] = []
            after = ""
            while True:
                page = await site.get(f"{path}?limit=10&after={after}")
                names += [entry[key] for entry in page[path.rpartition("/")[2]]]
                if not (after := page.get("next", "")):
                    break
            assert len(names) == len(set(names)) == count


def _unknown(count: int, tag: bytes = b"\x0a") -> bytes:
    """A request that names `count` undeclared devices, in as few bytes as possible."""
    return b"".join(tag + b"\x07\x0a\x05" + b"%05x" % number for number in range(count))


@pytest.mark.parametrize("tag", [b"\x0a", b"\x8a\x00"], ids=["plain", "padded"])
async def test_a_request_that_names_a_million_devices_is_refused_unread(site: Site, tag: bytes) -> None:
    honest = await site.honest()
    before = await site.metric("shard-0", "process_resident_memory_bytes")
    request = _unknown(1_500_000, tag)
    honest.line = SMOKE
    async with channel(f"{HOST}:{site.ports['shard-0'][0]}") as link:
        method = link.stream_stream("/embereye.v1.Ingest/Stream")
        for _ in range(3):
            call = method()
            await call.write(request)
            assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "more than 10000 devices" in await call.details()
    await site.alarmed("honest")
    await site.covered(["honest"])
    grown = await site.metric("shard-0", "process_resident_memory_bytes") - before
    assert grown < 120 * MIB, f"{grown / MIB:.0f} MiB"


async def test_a_sender_of_ever_new_devices_is_rejected(site: Site) -> None:
    honest = await site.honest()
    honest.line = SMOKE
    async with channel(f"{HOST}:{site.ports['shard-0'][0]}") as link:
        call = link.stream_stream("/embereye.v1.Ingest/Stream")()
        sent = 0
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while sent < 100_000:
                await call.write(b"".join(b"\x0a\x0a\x0a\x08" + b"%08x" % (sent + n) for n in range(100)))
                sent += 100
                await asyncio.sleep(0.005)
        assert call.done()
        assert sent < 50_000
    await site.alarmed("honest")


def _idle(port: int, count: int, pause: float = 0.0) -> list[socket.socket]:
    """Open connections that never send anything."""
    connections = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)  # the backlog may be full
        with contextlib.suppress(BlockingIOError):
            connection.connect((HOST, port))
        connections.append(connection)
        time.sleep(pause)
    return connections


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit (util-linux) is not installed")
@pytest.mark.parametrize("port", ["text", "gRPC"])
async def test_a_thousand_silent_connections_lock_nobody_out(site: Site, port: str) -> None:
    site.prefix = ["prlimit", "--nofile=1024:1024"]
    honest = await site.honest("late")
    idle = await asyncio.to_thread(_idle, site.ports["shard-0"][1 if port == "text" else 0], 1_100)
    try:
        honest.line = SMOKE
        await site.alarmed("honest")
        late = site.speaker("shard-0", "late")
        late.line = SMOKE
        await site.covered(["honest", "late"], 60)
        await site.alarmed("late")
        site.end("hub")
        site.prefix = []
        site.start("hub")
        await site.covered(["honest", "late"], 60)
        async with channel(f"{HOST}:{site.ports['shard-0'][0]}") as link:
            health = health_pb2_grpc.HealthStub(link)
            answer = await health.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        for connection in idle:
            connection.close()


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit (util-linux) is not installed")
async def test_a_thousand_silent_connections_to_the_console_cost_no_alarm(site: Site) -> None:
    site.prefix = ["prlimit", "--nofile=1024:1024"]
    site.start("hub")
    site.prefix = []
    site.assign("shard-0", "honest")
    site.start("shard-0")
    honest = site.speaker("shard-0", "honest")
    await site.covered(["honest"])
    idle = await asyncio.to_thread(_idle, site.ports["hub"][1], 1_100, 0.002)
    try:
        honest.line = SMOKE
        await site.alarmed("honest")
        site.assign("shard-1", "late")
        site.start("shard-1")
        late = site.speaker("shard-1", "late")
        late.line = SMOKE
        await site.alarmed("late")
        elsewhere = ("127.0.0.2", 0)
        reader, writer = await asyncio.open_connection(HOST, site.ports["hub"][1], local_addr=elsewhere)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await asyncio.wait_for(reader.readline(), 30)
        writer.close()
    finally:
        for connection in idle:
            connection.close()

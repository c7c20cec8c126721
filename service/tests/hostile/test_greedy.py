"""Peers that ask for more than their share: it costs them, and nobody else."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from embereye.process.grpc_server import channel
from embereye.process.tasks import Tasks
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, Ledger, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.types_pb2 import Term

from .site import SMOKE, Site, until

CROWD = "default/sensors/crowd"


class Crowd:
    """A shard that reports on very many devices, of which those in `dark` are not covered."""

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


async def test_a_console_that_lists_ten_thousand_devices_keeps_none_of_them_from_being_found_dark(site: Site) -> None:
    site.start("hub")
    site.assign("shard-0", "honest")
    site.start("shard-0")
    honest = site.speaker("shard-0", "honest")
    await site.covered(["honest"])
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

        await until(listed, "all are listed", 30)
        for _ in range(3):
            tasks.start(tab(), name="tab")
        await asyncio.sleep(2)
        crowd.dark.add("d-7")

        async def told() -> bool:
            return "d-7" in {event.fault.device for event in await site.history() if event.HasField("fault")}

        await until(told, "the dark device is told", 20)
        honest.line = SMOKE
        await site.alarmed("honest")
        faults = {event.fault.device for event in await site.history() if event.type == AlarmEvent.TYPE_FAULT}
        assert faults == {"d-7"}
        assert tabs
        assert not tasks.failed.is_set()


async def test_a_list_is_given_in_pages_that_leave_nothing_out(site: Site) -> None:
    site.start("hub")
    crowd = Crowd(site, 25)
    async with Tasks() as tasks:
        tasks.start(crowd.run(), name="crowd")

        async def listed() -> bool:
            with contextlib.suppress(OSError):
                return len((await site.get("/v1/devices"))["devices"]) == 25
            return False

        await until(listed, "all are listed")
        for path, key, count in (("/v1/devices", "id", 25), ("/v1/zones", "name", 25)):
            found: list[str] = []
            after = ""
            while True:
                page = await site.get(f"{path}?limit=10&after={after}")
                found += [entry[key] for entry in page[path.rpartition("/")[2]]]
                if not (after := page.get("next", "")):
                    break
            assert len(found) == len(set(found)) == count

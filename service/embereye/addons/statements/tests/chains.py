"""A hub with statements whose clock a test advances."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from harness.clock import Clock
from harness.stored import Stored

from embereye.addons.statements.keeper import Site, Statements
from embereye.hub.hub import Hub
from embereye.levels import Kind, Level, Sense
from embereye.process.signing import open_sealed
from embereye.units import MINUTE, SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

PRIVATE = bytes(range(32))
TO_MIDNIGHT = 24 * 60 - (22 * 60 + 13) - 20 / 60  # minutes from the start of `Clock`
FLEET = "default/sensors/all"
HALL = "default", "hall"


@dataclass
class Running:
    """A hub with statements."""

    hub: Hub
    statements: Statements
    clock: Clock
    count: int = 0

    async def declare(self, *devices: str, zone: str = "hall") -> None:
        self.count += 1
        listed = [Device(id=device, zone=zone) for device in devices]
        await self.hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=self.count, devices=listed))

    async def pass_time(self, minutes: float) -> None:
        """Let time pass with a beat a minute, so that the hub is there all the time."""
        end = self.clock.ns + round(minutes * MINUTE)
        while self.clock.ns < end:
            self.clock.ns = min(end, self.clock.ns + MINUTE)
            await self.statements.beat()

    async def dark(self, device: str, minutes: float, reason: str = "sends nothing") -> None:
        """Let `device` be dark for some time."""
        zones = self.hub.zones
        await self.hub.committer.commit(lambda draft: zones.open_fault(draft, HALL, FLEET, device, reason))
        await self.pass_time(minutes)
        await self.hub.committer.commit(lambda draft: zones.clear_fault(draft, HALL, FLEET, device, "is back"))

    async def alarm(self, level: Level = Level.CRITICAL) -> None:
        """Raise an alarm in the hall."""
        self.count += 1
        self.clock.ns += SECOND
        now, durable = self.hub.timeline.now_ns(), asyncio.get_running_loop().create_future()
        item = EvidenceItem(
            id=f"{self.count}", episode=f"{self.count}", fleet=FLEET, device="a", zone="hall", kind=Kind.HEAT.wire,
            sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=now, until_ns=now,
        )  # fmt: skip
        self.hub.inbox.admit(item, lambda _: durable.set_result(None))
        await durable

    async def statement(self, day: str) -> dict[str, Any]:
        """The statement of `day`, whose signature is valid."""
        data = await self.statements.find(day)
        return open_sealed(data, [self.statements.key()])

    async def files(self) -> dict[str, bytes]:
        """All files, by day."""
        days = [each["day"] for each in await self.statements.newest_first("9999-99-99", 1000)]
        return {day: await self.statements.find(day) for day in days}


@contextlib.asynccontextmanager
async def running(stored: Stored, clock: Clock) -> AsyncIterator[Running]:
    """Start a hub on what is stored, and stop it at the end."""
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18, clock=clock.wall, steady=clock.steady, leases=clock.steady)
    await hub.open()
    statements = Statements(Site("mill", PRIVATE, ZoneInfo("UTC"), "UTC"), hub)
    hub.add_part(statements)
    task = asyncio.ensure_future(hub.committer.run())
    try:
        yield Running(hub, statements, clock)
    finally:
        await hub.committer.flush(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

"""A hub in the test's own process, with an add-on attached, and evidence and people's actions for it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc

from embereye.hub.actions import Action
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.process.tasks import Tasks
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from harness.stored import Stored

PERSON = Principal("anna", Role.OPERATOR, "anna")
FLEET = "default/sensors/hall"


@contextlib.asynccontextmanager
async def running_hub(folder: Path, make: Callable[[], Addon] | None = None) -> AsyncIterator[tuple[Hub, Parts]]:
    """Run a hub with its data in `folder` and the add-on of `make`; both end abruptly, as when killed."""
    folder.mkdir(exist_ok=True)
    store = Stored(folder).threads()
    hub = Hub(store, retention_ns=10**18)
    clips = ClipStore(folder / "clips", clock=hub.timeline.now_ns)
    await hub.open()
    await clips.open()
    parts = make().attach(hub, clips) if make else Parts()
    try:
        async with Tasks() as tasks:
            tasks.start(hub.run(), name="hub")
            for name, run in parts.tasks.items():
                tasks.start(run(), name=name)
            yield hub, parts
            assert not tasks.failed.is_set()
    finally:
        await clips.close()
        await store.close()


def sign(
    zone: str = "hall", device: str = "s-01", kind: Kind = Kind.SMOKE, level: Level = Level.ALARM, name: str = ""
) -> EvidenceItem:
    """A report of a device's sign."""
    now = time.time_ns()
    return EvidenceItem(
        id=name or f"{device}-{now}", episode=f"{zone}-{device}", fleet=FLEET, device=device, zone=zone,
        kind=kind.wire, sense=Sense.SENSOR.wire, level=level.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


def report(hub: Hub, item: EvidenceItem) -> None:
    """Have `item` reach the hub."""
    hub.inbox.admit(item, lambda _: None)


async def act(hub: Hub, action: Action, zone: str = "hall") -> None:
    """Perform a person's action."""
    await hub.actions.perform(action, PERSON, "default", zone)


async def send_report(control: str, item: EvidenceItem) -> None:
    """Report `item` to the hub process at `control`, and wait until it is acknowledged."""
    async with grpc.aio.insecure_channel(control) as channel:
        call = EvidenceStub(channel).Report()
        await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="hall-0", epoch=1)))
        await call.write(ReportRequest(evidence=item))
        async with asyncio.timeout(60):
            while isinstance(answer := await call.read(), ReportResponse):
                if item.id in answer.acknowledged:
                    return
    raise AssertionError("the hub ended the stream")

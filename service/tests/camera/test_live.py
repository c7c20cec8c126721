"""Live pictures of a camera shard, seen from the hub."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from harness.eventually import eventually

from embereye.camera.scheduling import live_pause
from embereye.camera.scheduling.mailbox import Tally
from embereye.camera.shard import OVERLOADED, CameraShard
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.live_call import SERVICE, add_live
from embereye.process.tasks import Tasks, beside
from embereye.shard.links import Links
from embereye.shard.service import ShardContext
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

from .conftest import assignment, device, noisy_jpeg


class _Shown:
    """The hub's side of the call, in front of which somebody looks at `devices`: notes what the shards send."""

    def __init__(self, *devices: str) -> None:
        self.fleets: list[str] = []
        self.latest = ""  # why the latest picture was refused; "a picture" if it was not
        self._devices = [Device(id=name) for name in devices]

    async def show(self, requests: AsyncIterator[Coverage], _: object) -> AsyncIterator[FleetRoster]:
        async for report in requests:
            if not report.devices:
                self.fleets.append(report.fleet)
            for status in report.devices:
                self.latest = status.reason or "a picture"
            yield FleetRoster(fleet=report.fleet, devices=self._devices)


@contextlib.asynccontextmanager
async def _shard_with(shown: _Shown) -> AsyncIterator[tuple[CameraShard, Links]]:
    """Run a shard with one decoder, whose hub is `shown`."""
    shard = CameraShard(decoders=1)
    control = GrpcServer([Service(add_live, shown, SERVICE)], control=True)
    port = control.listen("127.0.0.1:0")
    await control.start()
    async with Tasks() as tasks:
        options = SimpleNamespace(data=None, shard="yard-0")
        links = Links(f"127.0.0.1:{port}")
        context = ShardContext(
            options=options,  # type: ignore[arg-type] # a camera shard reads only these
            tasks=tasks, report=lambda _: None, coverage_changed=lambda: None, links=links,
        )  # fmt: skip
        await shard.start(context)
        yield shard, links
        await shard.stop()
    await control.stop(0.2)


async def test_a_shard_that_reaches_the_hub_before_its_assignment_shows_its_fleet() -> None:
    shown = _Shown()
    async with _shard_with(shown) as (shard, links):
        async with links.hub() as link:
            await link.channel_ready()
        await asyncio.sleep(0.1)
        assert shown.fleets == []
        shard.apply(assignment(1, device("c1")))
        await eventually(lambda: shown.fleets == ["default/cameras/yard"])


@pytest.mark.slow
async def test_an_overloaded_shard_shows_no_live_pictures_until_it_keeps_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pause, "SHORTEST_SECONDS", 0.5)
    shown, images = _Shown("c-0"), [noisy_jpeg(seed, size=(720, 1280)) for seed in range(2)]

    async def push(cameras: int) -> None:
        for image in itertools.cycle(images):  # fifteen frames a second of each
            for number in range(cameras):
                shard.admit_pushed_frame(f"c-{number}", image, 0, Tally())
            await asyncio.sleep(1 / 15)

    async with _shard_with(shown) as (shard, _):
        shard.apply(assignment(1, *(device(f"c-{number}", fps_target=15, fps_min=1) for number in range(40))))
        async with beside(push(1), name="calm"):
            await eventually(lambda: shown.latest == "a picture")
        async with beside(push(40), name="flood"):
            await eventually(lambda: shown.latest == OVERLOADED, 60)
        async with beside(push(1), name="calm"):
            await eventually(lambda: shown.latest == "a picture", 60)

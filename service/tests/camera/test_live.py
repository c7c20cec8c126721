"""Live pictures of a camera shard, seen from the hub."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

from harness.eventually import eventually

from embereye.camera.shard import CameraShard
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.live_call import SERVICE, add_live
from embereye.process.tasks import Tasks
from embereye.shard.links import Links
from embereye.shard.service import ShardContext
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster

from .conftest import assignment, device


class _Shown:
    """The hub's side of the call: notes the fleets of the shards that open it."""

    def __init__(self) -> None:
        self.fleets: list[str] = []

    async def show(self, requests: AsyncIterator[Coverage], _: object) -> AsyncIterator[FleetRoster]:
        async for report in requests:
            self.fleets.append(report.fleet)
            yield FleetRoster(fleet=report.fleet)


async def test_a_shard_that_reaches_the_hub_before_its_assignment_shows_its_fleet() -> None:
    shown, shard = _Shown(), CameraShard(decoders=1)
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
        async with links.hub() as link:
            await link.channel_ready()
        await asyncio.sleep(0.1)
        assert shown.fleets == []
        shard.apply(assignment(1, device("c1")))
        await eventually(lambda: shown.fleets == ["default/cameras/yard"])
        await shard.stop()
    await control.stop(0.2)

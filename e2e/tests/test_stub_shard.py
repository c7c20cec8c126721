"""The stub of a shard, as the operator and a real hub see it."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from harness.hubs import HubProcess, make_hub  # noqa: F401 -- a fixture
from harness.need import STUB_SHARD, program
from harness.servers.identity import HUB, OPERATOR, Issuer, shard
from harness.stored import Stored

from embereye.process.addresses import free_ports
from embereye.process.identity.credentials import Credentials
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.runtime.links import Address, Hub, Shards

pytestmark = pytest.mark.needs(STUB_SHARD)

FLEET, NAME = "site/sensors/f000", "f000-sensors-0"
DEVICES = [Device(id=f"f000-{number}", zone="hall") for number in range(4)]


def assignment(epoch: int, shard_name: str = NAME) -> Assignment:
    return Assignment(fleet=FLEET, shard=shard_name, epoch=epoch, devices=DEVICES)


class Site:
    """A real hub, a stub, and the operator's links to both."""

    def __init__(self, folder: Path, hub: HubProcess, issuer: Issuer) -> None:
        self.hub, self._issuer = hub, issuer
        self.port, control = free_ports(2)
        self.address = Address("site", NAME, f"127.0.0.1:{control}")
        self.shards = Shards(Credentials(issuer.folder(OPERATOR)))
        self.hub_link = Hub(hub.control, self.shards.credentials)
        environment = {
            "EMBEREYE_FLEET": FLEET, "EMBEREYE_SHARD": NAME, "EMBEREYE_HUB": hub.control, "EMBEREYE_HOST": "[::]",
            "EMBEREYE_GRPC_PORT": str(self.port), "EMBEREYE_CONTROL_PORT": str(control),
            "EMBEREYE_IDENTITY": str(issuer.folder(shard(FLEET, NAME))),
        }  # fmt: skip
        with (folder / "stub.log").open("wb") as log:
            self.stub = subprocess.Popen(
                [str(program("stub-shard")), "shard", "sensors"], stderr=log, env={**os.environ, **environment}
            )

    async def assign(self, epoch: int, shard_name: str = NAME) -> AssignResponse:
        """Send an assignment, as soon as the stub answers."""
        sent = assignment(epoch, shard_name)
        response: AssignResponse = await eventually(lambda: self.shards.assign(self.address, sent), pause=0.05)
        return response

    async def status(self) -> ShardStatus:
        status = await self.shards.status(self.address)
        assert status is not None
        return status


@pytest.fixture
def stub(tmp_path: Path, make_hub: Callable[..., HubProcess]) -> Iterator[Site]:  # noqa: F811 -- the fixture
    issuer = Issuer(tmp_path / "identities")
    hub = make_hub(Stored(tmp_path), "--identity", str(issuer.folder(HUB)))
    hub.start()
    site = Site(tmp_path, hub, issuer)
    yield site
    site.stub.kill()
    site.stub.wait()


@pytest.fixture
async def site(stub: Site) -> AsyncIterator[Site]:
    await stub.hub.ready()
    yield stub
    await stub.shards.close()
    await stub.hub_link.close()


async def test_a_stub_shard_is_ready_and_covers_its_devices_once_it_is_assigned(site: Site) -> None:
    await eventually(lambda: site.shards.status(site.address), pause=0.05)
    assert not (await site.status()).ready
    assert (await site.assign(3)).accepted
    status = await site.status()
    assert (status.fleet, status.shard, status.epoch, status.ready) == (FLEET, NAME, 3, True)
    assert [(device.id, device.covered) for device in status.devices] == [(device.id, True) for device in DEVICES]


async def test_a_stub_shard_refuses_what_a_shard_refuses(site: Site) -> None:
    assert (await site.assign(3)).accepted
    older = await site.assign(2)
    assert (older.accepted, older.epoch, older.reason) == (False, 3, "epoch 2 is older than epoch 3 in force")
    assert not (await site.assign(4, "another")).accepted
    stranger = Shards(Credentials(Issuer(Path(site.hub.data) / "strangers").folder(OPERATOR)))
    assert await stranger.status(site.address) is None
    await stranger.close()


async def test_the_hub_hears_a_stub_shard_and_its_devices_have_no_fault(site: Site) -> None:
    await site.hub_link.set(FleetRoster(fleet=FLEET, epoch=3, devices=DEVICES, deadline_ns=5_000_000_000))
    await site.assign(3)

    async def heard() -> bool:
        return (FLEET, NAME) in (await site.hub_link.heard()).silences

    await eventually(heard, goal="the hub hears the shard", pause=0.1)

    def covered() -> list[str]:
        answer = site.hub.get("/v1/devices")
        assert isinstance(answer, dict)
        return sorted(device["id"] for device in answer["devices"] if device["covered"])

    await eventually(lambda: covered() == [device.id for device in DEVICES], goal=covered, pause=0.1)


async def test_a_stub_shard_answers_the_kubelets_probe_and_ends_at_once(site: Site) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{site.port}") as link:
        answer = await health_pb2_grpc.HealthStub(link).Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    site.stub.send_signal(signal.SIGTERM)
    assert site.stub.wait(10) == 0

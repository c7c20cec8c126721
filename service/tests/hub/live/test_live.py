"""Live pictures from a shard through the hub to a window, only while somebody looks."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from harness.eventually import eventually
from prometheus_client import CollectorRegistry

from embereye.camera.live import LivePictures
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live import viewers as limits
from embereye.hub.live.parts import live_parts
from embereye.process.grpc_server import GrpcServer
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

FLEET, TOKEN = "default/cameras/yard", "an-admins-token-of-forty-characters-or-so"
JPEG = b"\xff\xd8 a picture \xff\xd9"


@dataclass
class Site:
    """A hub and the pictures of one shard."""

    base: str
    session: aiohttp.ClientSession
    pictures: LivePictures
    registry: CollectorRegistry

    def view(self, camera: str = "cam-1") -> "aiohttp.client._WSRequestContextManager":
        """Open the live view of a camera."""
        return self.session.ws_connect(f"{self.base}/v1/devices/{FLEET}/{camera}/live")

    def metric(self, name: str) -> float | None:
        """The value of a hub's metric."""
        return self.registry.get_sample_value(name)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A hub with two cameras, and a connected shard."""
    store = StoreThreads(tmp_path)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    running = asyncio.ensure_future(hub.run())
    devices = [Device(id=f"cam-{number}", zone="yard") for number in (1, 2)]
    await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=5 * SECOND, devices=devices))
    parts, registry = live_parts(hub), CollectorRegistry()
    for collector in parts.collectors:
        registry.register(collector)
    control = GrpcServer(list(parts.services), control=True)
    port = control.listen("127.0.0.1:0")
    await control.start()
    runner = await serve_http(Api(hub, addons=[parts]).app(registry), "127.0.0.1", 0)
    pictures = LivePictures()
    shard = pictures.run(Links(f"127.0.0.1:{port}"), lambda: Coverage(fleet=FLEET, shard="yard-0"))
    session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
    async with session, beside(shard, name="shard"):
        yield Site(f"http://127.0.0.1:{bound_port(runner)}", session, pictures, registry)
    await runner.cleanup()
    await control.stop(0.2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_picture_reaches_the_window_with_the_time_it_was_taken(site: Site) -> None:
    async with site.view() as window:
        await eventually(lambda: "cam-1" in site.pictures.wanted)
        taken_ns = now_ns() - 2 * SECOND
        site.pictures.offer("cam-1", JPEG, taken_ns)
        message = await window.receive_bytes(timeout=60)
    assert message[8:] == JPEG
    assert abs(struct.unpack(">q", message[:8])[0] - taken_ns) < 30 * SECOND


async def test_a_shard_sends_pictures_only_while_somebody_looks(site: Site) -> None:
    site.pictures.offer("cam-1", JPEG, 1)
    async with site.view(), site.view("cam-2"):
        await eventually(lambda: set(site.pictures.wanted) == {"cam-1", "cam-2"})
        assert site.metric("embereye_hub_live_viewers") == 2
        site.pictures.offer("cam-2", b"II* no JPEG", 1)
        site.pictures.offer("cam-3", JPEG, 1)
    await eventually(lambda: not site.pictures.wanted)
    site.pictures.offer("cam-1", JPEG, 1)
    assert site.pictures.sent_bytes == 0


async def test_a_slow_window_gets_the_newest_picture(site: Site) -> None:
    viewer = limits.Viewer()
    for number in range(3):
        viewer.offer(JPEG + bytes([number]), number)
    assert await viewer.next() == (JPEG + b"\x02", 2)


async def test_a_window_beyond_the_limit_is_told_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEWERS_PER_ADDRESS", 1)
    async with site.view(), site.view() as second:
        message = await second.receive(timeout=60)
        assert second.close_code == 1013
        assert message.extra == "1 live pictures are shown already from 127.0.0.1. Close one."
    assert site.metric("embereye_hub_live_refused_total") == 1


async def test_a_camera_that_is_not_declared_is_refused(site: Site) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
        await site.view("cam-9")

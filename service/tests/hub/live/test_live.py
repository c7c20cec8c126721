"""Live pictures from a shard through the hub to a window, only while somebody looks."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from harness.eventually import eventually
from prometheus_client import CollectorRegistry

from embereye.camera.clips.ring import VIDEO_RING_BYTES, Budget, ClipUnit, VideoRing
from embereye.camera.live import LivePictures
from embereye.camera.shard import OVERLOADED
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live import viewers as limits
from embereye.hub.live.parts import live_parts
from embereye.process.grpc_server import GrpcServer
from embereye.process.http.server import bound_port, serve_http
from embereye.process.live_queue import LivePicture
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.shard import live as shard_limits
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device
from embereye.wire.mp4 import is_start_of_video
from embereye.wire.thermal_picture import pack_thermal
from embereye.wire.video.access_unit import AccessUnit
from embereye.wire.video.nal import START_CODE

from ...wire.video.coded import coded

FLEET, TOKEN = "default/cameras/yard", "an-admins-token-of-forty-characters-or-so"
JPEG = b"\xff\xd8 a picture \xff\xd9"


@dataclass
class Site:
    """A hub and the pictures of one shard."""

    base: str
    session: aiohttp.ClientSession
    pictures: LivePictures
    registry: CollectorRegistry

    def view(self, camera: str = "cam-1", plays: str = "") -> "aiohttp.client._WSRequestContextManager":
        """Open the live view of a camera."""
        return self.session.ws_connect(f"{self.base}/v1/devices/{FLEET}/{camera}/live?plays={plays}")

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


async def test_a_thermal_picture_reaches_a_window_whatever_it_plays(site: Site) -> None:
    thermal = pack_thermal(np.full((24, 32), 21.5, np.float32), relative=False)
    viewer = limits.Viewer({"H264"})
    viewer.offer(LivePicture(thermal, 1))
    assert (await viewer.next()).data == thermal
    async with site.view(plays="H264,H265") as window:
        await eventually(lambda: "cam-1" in site.pictures.wanted)
        site.pictures._is_shown("cam-1")
        site.pictures._queue("cam-1", LivePicture(thermal, now_ns()))
        assert (await window.receive_bytes(timeout=60))[8:] == thermal


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
        viewer.offer(LivePicture(JPEG + bytes([number]), number))
    assert await viewer.next() == LivePicture(JPEG + b"\x02", 2)


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


class Film:
    """A video that a camera's shard offers unit by unit, with a key frame every eight."""

    def __init__(self, pictures: LivePictures, encoding: str = "H264") -> None:
        self._pictures = pictures
        self._ring = VideoRing(Budget(VIDEO_RING_BYTES))
        self._encoding = encoding
        self._number = 0

    def play(self, count: int) -> None:
        """Offer the next `count` units."""
        for _ in range(count):
            _, nals = coded(self._encoding, 24)[self._number % 24]
            data = b"".join(START_CODE + nal for nal in nals)
            unit = AccessUnit(data, 0, (96, 64), self._number % 8 == 0, encoding=self._encoding)
            clip_unit = ClipUnit(now_ns() + self._number, unit)
            self._ring.add(clip_unit, 5 * SECOND)
            self._pictures.offer_video("cam-1", clip_unit, self._ring)
            self._number += 1


async def test_a_window_that_plays_the_encoding_gets_the_video_from_its_key_frame(site: Site) -> None:
    film = Film(site.pictures)
    film.play(3)
    async with site.view(plays="H264,H265") as window:
        await eventually(lambda: "cam-1" in site.pictures.wanted)
        assert not site.pictures.is_picture_wanted("cam-1", "H264")
        film.play(1)
        pieces = [(await window.receive_bytes(timeout=60))[8:] for _ in range(4)]
        assert [is_start_of_video(piece) for piece in pieces] == [True, False, False, False]
        async with site.view(plays="H264") as second:
            joined = (await second.receive_bytes(timeout=60))[8:]
            assert joined == b"".join(pieces)
            film.play(1)
            assert (await second.receive_bytes(timeout=60))[8:] == (await window.receive_bytes(timeout=60))[8:]


async def test_a_window_that_does_not_play_the_encoding_gets_pictures_and_its_name(site: Site) -> None:
    film = Film(site.pictures, "H265")
    async with site.view(plays="H264") as window, site.view(plays="H265") as playing:
        await eventually(lambda: site.pictures.is_picture_wanted("cam-1", "H265"))
        await eventually(lambda: len(site.pictures.wanted["cam-1"]) == 2)
        film.play(1)
        site.pictures.offer("cam-1", JPEG, now_ns(), "H265")
        assert await window.receive_json(timeout=60) == {"encoding": "H265"}
        assert (await window.receive_bytes(timeout=60))[8:] == JPEG
        assert is_start_of_video((await playing.receive_bytes(timeout=60))[8:])


async def test_a_shard_shows_a_limited_number_of_cameras_and_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_limits, "MAX_DEVICES", 1)
    async with site.view() as first, site.view("cam-2") as second:
        await eventually(lambda: set(site.pictures.wanted) == {"cam-1", "cam-2"})
        site.pictures.offer("cam-1", JPEG, 1)
        site.pictures.offer("cam-2", JPEG, 1)
        assert (await first.receive_bytes(timeout=60))[8:] == JPEG
        message = await second.receive(timeout=60)
        assert message.extra == "its shard shows 1 devices already. Close one."
    await eventually(lambda: not site.pictures.shown)


async def test_an_unknown_encoding_is_refused(site: Site) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError, match="400"):
        await site.view(plays="VP9")


async def test_an_overloaded_shard_ends_live_views_and_refuses_new_ones_with_the_reason(site: Site) -> None:
    film = Film(site.pictures)
    async with site.view() as running:
        await eventually(lambda: "cam-1" in site.pictures.wanted)
        site.pictures.offer("cam-1", JPEG, 1)
        assert (await running.receive_bytes(timeout=60))[8:] == JPEG
        site.pictures.pause(OVERLOADED)
        assert not site.pictures.wanted, "no picture is made for viewers"
        site.pictures.offer("cam-1", JPEG, 1)
        assert (await running.receive(timeout=60)).extra == OVERLOADED
        assert running.close_code == 1013
    for plays in ("H264", ""):
        await eventually(lambda: not site.pictures._asked)
        async with site.view(plays=plays) as refused:
            await eventually(lambda: "cam-1" in site.pictures._asked)
            film.play(1)
            assert (await refused.receive(timeout=60)).extra == OVERLOADED
    assert site.metric("embereye_hub_live_refused_total") == 3
    site.pictures.pause("")
    async with site.view() as again:
        await eventually(lambda: "cam-1" in site.pictures.wanted)
        site.pictures.offer("cam-1", JPEG, 1)
        assert (await again.receive_bytes(timeout=60))[8:] == JPEG


def test_each_window_that_looks_at_a_refused_camera_gets_the_reason() -> None:
    pictures = LivePictures()
    pictures.pause(OVERLOADED)
    for _ in range(2):  # windows, of which the second comes before the first one is closed
        pictures._look_at(FleetRoster(devices=[Device(id="cam-1")]))
        for _ in range(3):
            pictures.offer("cam-1", JPEG, 1)
        assert [status.reason for status in pictures._batch()] == [OVERLOADED]
        pictures.offer("cam-1", JPEG, 1)
        assert pictures._batch() == []


async def test_a_long_reason_of_a_shard_is_cut_off_so_that_browsers_show_it(site: Site) -> None:
    site.pictures.pause("ö" * 100)
    async with site.view() as window:
        await eventually(lambda: "cam-1" in site.pictures._asked)
        site.pictures.offer("cam-1", JPEG, 1)
        assert (await window.receive(timeout=60)).extra == "ö" * 60

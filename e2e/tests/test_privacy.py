"""Privacy masks are black in everything that leaves a shard, for a camera of pictures and one of H.264."""

import asyncio
import base64
import contextlib
import io
import json
import sys
import zipfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import av
import cv2
import numpy as np
import pytest
from aiohttp import web
from harness.eventually import eventually
from harness.running_programs import start, start_up

from embereye.process.addresses import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HIDDEN = 0.2  # share of the height, from the top
FLEET = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {{name: yard, namespace: default}}
spec:
  cameras:
  - {{id: pictures, zone: yard, source: "rtsp://127.0.0.1:{rtsp}/pictures?codec=jpeg",
     privacyMasks: &hidden [{{points: [
      {{left: 0, top: 0}}, {{left: 1, top: 0}}, {{left: 1, top: 0.2}}, {{left: 0, top: 0.2}}]}}]}}
  - {{id: video, zone: yard, source: "rtsp://127.0.0.1:{rtsp}/video?codec=h264", privacyMasks: *hidden}}
  - {{id: open, zone: hall, source: "rtsp://127.0.0.1:{rtsp}/open?codec=jpeg"}}
  deadline: 5s
  listen: {{grpc: {grpc}}}
  fps: {{target: 15, min: 5}}
  detection: {{detectors: [motion, flame, smoke]}}
  evidence: {{before: 2s, after: 2s}}
  access: {{networks: [127.0.0.0/8]}}
"""
NOTIFY = """
routes:
- {{name: guard, url: "json://127.0.0.1:{port}/", allow: [127.0.0.0/8]}}
"""


@dataclass
class Site:
    """A running `embereye up`, and the messages that it sent."""

    base: str
    token: str
    session: aiohttp.ClientSession
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def get(self, path: str) -> bytes:
        """The content at `path`; empty: there is none."""
        async with self.session.get(f"{self.base}{path}") as response:
            return await response.read() if response.status == 200 else b""

    async def until(self, path: str) -> bytes:
        """The content at `path` once there is some."""
        return cast("bytes", await eventually(lambda: self.get(path), 120, f"content at {path}", pause=0.5))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Two cameras with a hidden part that see the same fire, and one without."""
    rtsp, grpc, console, hub = free_ports(4)
    messages: list[dict[str, Any]] = []

    async def receive(request: web.Request) -> web.Response:
        messages.append(await request.json())
        return web.Response()

    app = web.Application(client_max_size=10**8)
    app.router.add_post("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "fleet.yaml").write_text(FLEET.format(rtsp=rtsp, grpc=grpc))
    (tmp_path / "notify.yaml").write_text(NOTIFY.format(port=runner.addresses[0][1]))
    program = sys.executable, "-m", "embereye_cli"
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        cameras = "--cameras", "pictures=yard,video=yard,open=hall", "--fire", "at=40,for=120,zone=yard"
        await start(
            stack, *program, "simulate", "cameras", *cameras, "--size", "320x240", "--rtsp", f"127.0.0.1:{rtsp}",
        )  # fmt: skip
        ready, token = await start_up(
            stack, tmp_path / "data", console, hub, "--notify", tmp_path / "notify.yaml", tmp_path / "fleet.yaml"
        )
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            yield Site(ready["console"].rstrip("/"), token, session, messages)


def decoded(data: bytes) -> list[np.ndarray]:
    """All pictures in a file: a JPEG, Matroska or MP4."""
    if data[:2] == b"\xff\xd8":
        return [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)]  # type: ignore[list-item]
    with av.open(io.BytesIO(data)) as container:
        return [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]


def brightest(pictures: Iterable[np.ndarray]) -> float:
    """The brightness of the brightest pixel in the hidden part, 0 to 255; below a still is a caption."""
    return max(float(picture[: int(0.6 * HIDDEN * picture.shape[0])].max()) for picture in pictures)


async def live(site: Site, camera: str, count: int = 4) -> tuple[list[dict[str, str]], list[bytes]]:
    """The notes and pictures of the live view, for a browser that plays everything."""
    notes, pictures = [], []
    address = f"{site.base}/v1/devices/default/cameras/yard/{camera}/live?plays=H264,H265"
    async with site.session.ws_connect(address, max_msg_size=0) as window, asyncio.timeout(60):
        while len(pictures) < count:
            message = await window.receive()
            if message.type == aiohttp.WSMsgType.TEXT:
                notes.append(json.loads(message.data))
            else:
                pictures.append(message.data[8:])
    return notes, pictures


async def test_nothing_that_leaves_a_shard_shows_what_a_privacy_mask_hides(site: Site, tmp_path: Path) -> None:
    assert brightest(decoded(await site.until("/v1/devices/default/cameras/yard/open/snapshot.jpg"))) > 100
    ways: dict[str, list[bytes]] = {}
    for camera in ("pictures", "video"):
        ways[f"{camera}: still"] = [await site.until(f"/v1/devices/default/cameras/yard/{camera}/snapshot.jpg")]
        notes, ways[f"{camera}: live, wall"] = await live(site, camera)
        assert notes == [{"encoding": "PRIVATE"}]
    alarm, clips = "", []
    async with asyncio.timeout(150):
        while {clip["device"] for clip in clips if clip["media"] == "MEDIA_CLIP"} != {"pictures", "video"}:
            await asyncio.sleep(1)
            if alarms := json.loads(await site.get("/v1/alarms"))["alarms"]:
                alarm = alarms[0]["alarm"]
                clips = json.loads(await site.get(f"/v1/alarms/{alarm}/clips"))["clips"]
    ways["clips and stills"] = [await site.until(clip["url"]) for clip in clips]
    evidence = [
        await site.get(f"/v1/alarms/{alarm}/{camera}/{kind}.jpg")
        for camera in ("pictures", "video")
        for kind in range(5)
    ]
    ways["evidence"] = list(filter(None, evidence))
    async with asyncio.timeout(60):
        while not any(message.get("attachments") for message in site.messages):
            await asyncio.sleep(0.5)
    ways["notifications"] = [
        base64.b64decode(attached["base64"]) for message in site.messages for attached in message.get("attachments", ())
    ]
    file = tmp_path / "incident.zip"
    export = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "incident", "export", alarm, "--to", file, "--console", site.base,
        "--token", site.token,
    )  # fmt: skip
    assert await export.wait() == 0
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith((".jpg", ".mkv", ".mp4"))]
        ways["export"] = [archive.read(name) for name in names]
    stored = [path for pattern in ("*.jpg", "*.mkv", "*.mp4") for path in (tmp_path / "data").rglob(pattern)]
    ways["files, of which the archive uploads"] = [path.read_bytes() for path in stored]
    shown = {way: [picture for data in files for picture in decoded(data)] for way, files in ways.items()}
    print({way: (len(pictures), brightest(pictures)) for way, pictures in shown.items() if pictures})
    assert all(shown.values()), {way: len(pictures) for way, pictures in shown.items()}
    assert {way: light for way, pictures in shown.items() if (light := brightest(pictures)) > 40} == {}
    assert all(picture.max() > 100 for pictures in shown.values() for picture in pictures), "the rest is seen"

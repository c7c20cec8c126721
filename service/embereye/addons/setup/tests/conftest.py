"""A hub with two manifests to edit, and a camera to try."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import cv2
import numpy as np
import pytest
from aiohttp import web
from harness.stored import Stored
from prometheus_client import CollectorRegistry

from embereye.addons.setup.hub import SetupAddon
from embereye.hub.addon import Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live.parts import live_parts
from embereye.process.http.server import bound_port, serve_http
from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device, Mask

TOKEN = "an-admins-token-of-forty-characters-or-so"
CAMERAS = """\
# Cameras of the yard.
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {name: yard}
spec:
  cameras:
    - id: gate
      zone: yard   # not the street
      source: http://127.0.0.1:9/gate.mjpg
    - {id: ramp, zone: yard, source: "http://127.0.0.1:9/ramp.mjpg"}
"""
SENSORS = """\
apiVersion: embereye.dev/v1beta1
kind: SensorFleet
metadata: {name: hall}
spec:
  sensors:
    - {id: s-1, zone: hall}
"""
Start = Callable[..., AbstractAsyncContextManager["Site"]]


@dataclass
class Site:
    """A hub with the add-on."""

    base: str  # URL
    folder: Path  # of the manifests
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request."""
        async with self.session.request(method, f"{self.base}{path}", json=body) as response:
            return response.status, await response.json()

    async def change(
        self, action: str, device: str, fleet: str = "default/cameras/yard", **more: Any
    ) -> dict[str, Any]:
        """Apply or, with `apply=False`, preview a change; the answer with its status."""
        wanted = {"apply": True, **more, "fleet": fleet, "action": action, "device": device}
        status, body = await self.ask("POST", "/v1/setup/changes", wanted)
        return {"status": status, **body}


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that runs a hub with these files to edit."""
    (tmp_path / "cameras.yaml").write_text(CAMERAS)
    (tmp_path / "sensors.yaml").write_text(SENSORS)

    @contextlib.asynccontextmanager
    async def run(*names: str) -> AsyncIterator[Site]:
        store, clips = Stored(tmp_path / "hub").threads(), ClipStore(tmp_path / "clips")
        hub = Hub(store, retention_ns=10**18)
        await hub.open()
        await clips.open()
        hub.access.set_admin_token(TOKEN)
        running = asyncio.ensure_future(hub.run())
        street = Mask(x=[0.1, 0.2, 0.2], y=[0.1, 0.1, 0.3])
        listed = [Device(id="gate", zone="yard", masks=[street]), Device(id="ramp", zone="yard")]
        await hub.coverage.set_roster(
            FleetRoster(fleet="default/cameras/yard", epoch=1, deadline_ns=SECOND, devices=listed)
        )
        addons: list[Parts] = [live_parts(hub)]
        addons.append(SetupAddon([tmp_path / name for name in names], tmp_path / "undo").attach(hub, clips))
        runner = await serve_http(Api(hub, clips, addons=addons).app(CollectorRegistry()), "127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
                yield Site(f"http://127.0.0.1:{bound_port(runner)}", tmp_path, session)
        finally:
            await runner.cleanup()
            await hub.committer.flush(10)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await clips.close()
            await store.close()

    return run


@pytest.fixture
async def camera() -> AsyncIterator[str]:
    """The address of an MJPEG camera."""
    picture = bytes(cv2.imencode(".jpg", np.full((120, 160, 3), 90, np.uint8))[1])

    async def play(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "multipart/x-mixed-replace; boundary=next"})
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(b"--next\r\nContent-Type: image/jpeg\r\n\r\n" + picture + b"\r\n")
                await asyncio.sleep(0.1)
        return answer

    app = web.Application()
    app.router.add_get("/live.mjpg", play)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{bound_port(runner)}/live.mjpg"
    await runner.cleanup()


@pytest.fixture
async def boiler() -> AsyncIterator[str]:
    """The address of a device that answers with its readings."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"alarm": {"smoke": "OFF"}, "celsius": 41.5})

    app = web.Application()
    app.router.add_get("/status.json", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{bound_port(runner)}/status.json"
    await runner.cleanup()

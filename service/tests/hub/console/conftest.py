"""A console in a real browser."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER
from prometheus_client import CollectorRegistry

from embereye.hub.candidates.keeper import Candidates
from embereye.hub.candidates.parts import candidate_parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live.parts import live_parts
from embereye.hub.margins.parts import margin_parts
from embereye.hub.margins.store import MarginStore
from embereye.process.grpc_server import GrpcServer
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside
from embereye.units import DAY

from .house import TOKEN, House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A hub in this process, with a building to watch."""
    BROWSER.require()
    store = StoreThreads(tmp_path)
    hub = Hub(store, retention_ns=10**15)
    clips = ClipStore(tmp_path / "clips")
    await hub.open()
    await clips.open()
    hub.access.set_admin_token(TOKEN)
    running = asyncio.ensure_future(hub.run())
    margins, live = MarginStore(tmp_path, retention_ns=DAY), live_parts(hub)
    candidates = Candidates(hub)
    api = Api(hub, clips, addons=[live, margin_parts(hub, margins), candidate_parts(hub, candidates, clips)])
    runner = await serve_http(api.app(CollectorRegistry()), "127.0.0.1", 0)
    control = GrpcServer(list(live.services), control=True)
    port = control.listen("127.0.0.1:0")
    await control.start()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        house = House(
            hub, clips, f"http://127.0.0.1:{bound_port(runner)}", session, margins, f"127.0.0.1:{port}", candidates
        )
        async with beside(house.keep_reporting(), name="report"):
            yield house
    await runner.cleanup()
    await control.stop(0.2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await clips.close()
    await margins.close()
    await store.close()


@pytest.fixture
async def browser(house: House) -> AsyncIterator[Browser]:
    """A window in which an admin has signed in."""
    async with run_browser() as window:
        await window.sign_in(house.base, TOKEN)
        yield window

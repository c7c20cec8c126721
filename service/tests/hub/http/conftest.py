"""A hub served over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from harness.eventually import eventually
from prometheus_client import CollectorRegistry

from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.metrics import hub_metrics
from embereye.hub.services.evidence import EvidenceService
from embereye.process.http.server import bound_port, serve_http
from embereye.process.telemetry.metric import Scraped

from .served import TOKEN, Served


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store, registry = StoreThreads(tmp_path), CollectorRegistry()
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    evidence = EvidenceService(hub)
    registry.register(Scraped(lambda: hub_metrics(hub, evidence)))
    running = asyncio.ensure_future(hub.run())
    await eventually(hub.quality.releases.all, goal="the version that runs is stored")
    await hub.committer.flush(60)
    hosts = AllowedHosts(["hub.example", "*.sites.example"])
    runner = await serve_http(Api(hub, hosts=hosts).app(registry), "127.0.0.1", 0)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield Served(hub, f"http://127.0.0.1:{bound_port(runner)}", session)
    await runner.cleanup()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()

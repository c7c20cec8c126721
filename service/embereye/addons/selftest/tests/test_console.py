"""Self-tests on a device's page, in a real Chromium."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from harness.browser import run_browser
from harness.need import BROWSER
from harness.stored import Stored
from prometheus_client import CollectorRegistry

from embereye.addons.selftest.hub import SelfTestAddon
from embereye.addons.selftest.options import read_selftest
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live.parts import live_parts
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside
from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

pytestmark = pytest.mark.needs(BROWSER)
TOKEN = "an-admins-token-of-forty-characters-or-so"
YARD = "default/cameras/yard"
TESTS = """
tests:
- name: gate-lamp
  fleet: default/cameras/yard
  device: gate
  region: {x: 0.4, y: 0.1, width: 0.1, height: 0.1}
  brightness: 10
  within: 5s
  every: 24h
  actuator: {name: relays, output: lamp}
"""


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[int]:
    """Run a hub with a test of one of two cameras, which no shard watches; yield its port."""
    (folder / "selftest.yaml").write_text(TESTS)
    store = Stored(folder).threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    parts = SelfTestAddon(read_selftest(folder / "selftest.yaml")).attach(hub, cast("ClipStore", None))
    devices = [Device(id=name, zone="yard") for name in ("gate", "roof")]
    runner = await serve_http(Api(hub, addons=[live_parts(hub), parts]).app(CollectorRegistry()), "127.0.0.1", 0)
    async with beside(hub.run(), name="hub"), beside(parts.tasks["selftest"](), name="selftest"):
        await hub.coverage.set_roster(FleetRoster(fleet=YARD, epoch=1, deadline_ns=5 * SECOND, devices=devices))
        yield bound_port(runner)
    await runner.cleanup()
    await store.close()


async def test_the_page_of_a_device_has_its_self_tests_and_runs_them(tmp_path: Path) -> None:
    shown = "document.querySelector('#selftests').innerText"
    async with serving(tmp_path) as port, run_browser() as browser:
        await browser.sign_in(f"http://127.0.0.1:{port}", TOKEN)
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={YARD}&id=gate'")
        # The first run begins automatically, and no shard answers.
        await browser.until(f"{shown}.startsWith('gate-lamp: not run: its shard does not measure the region')")
        assert await browser.ask("axe") == []
        await browser.ask("click", selector="#selftests button")
        await browser.until(f"{shown}.startsWith('gate-lamp: running …')")
        await browser.ask("evaluate", script=f"location.hash = 'device?fleet={YARD}&id=roof'")
        await browser.until(f"!({shown})")
        assert await browser.ask("problems") == []

"""The banner of a drill in the console, in a real Chromium."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from harness.browser import run_browser
from harness.need import BROWSER
from harness.stored import Stored
from prometheus_client import CollectorRegistry

from embereye.addons.drills.hub import DrillsAddon
from embereye.addons.drills.keeper import Drills
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside

pytestmark = pytest.mark.needs(BROWSER)
TOKEN = "an-admins-token-of-forty-characters-or-so"
ADA = Principal("ada", Role.OPERATOR, "ada")


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[int, Drills]]:
    """Run a hub; yield its port and the drills."""
    store = Stored(folder).threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    parts = DrillsAddon("mill", folder / "key").attach(hub, cast("ClipStore", None))
    (drills,) = (part for part in hub._added.parts if isinstance(part, Drills))
    runner = await serve_http(Api(hub, addons=[parts]).app(CollectorRegistry()), "127.0.0.1", 0)
    async with beside(hub.run(), name="hub"):
        yield bound_port(runner), drills
    await runner.cleanup()
    await store.close()


async def test_the_console_says_that_a_drill_runs_until_it_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, drills), run_browser() as browser:
        drill = await drills.start(ADA, "Ada", "hall/sensors/仓库", ["shard-deleted"])
        await browser.sign_in(f"http://127.0.0.1:{port}", TOKEN)
        await browser.until("document.querySelector('#drill')?.checkVisibility()")
        assert "faults are made on purpose in hall/sensors/仓库 (shard-deleted)" in await browser.text("#drill")
        assert await browser.ask("axe") == []
        await drills.end(ADA, drill.id, "Ada", [])
        await browser.until("!document.querySelector('#drill').checkVisibility()")

"""The switch of a zone's profile in the console, in a real Chromium."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from harness.browser import run_browser
from harness.need import BROWSER
from harness.stored import Stored
from prometheus_client import CollectorRegistry

from embereye.addons.profiles.hub import ProfilesAddon
from embereye.addons.profiles.keeper import Profiles
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside
from embereye.units import MINUTE
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

from .test_profiles import options

pytestmark = pytest.mark.needs(BROWSER)
TOKEN = "an-admins-token-of-forty-characters-or-so"
FILE = """profiles:
  - {name: welding, zones: hall, expected: flame, longest: 4h, confirmEvery: 1h, watchman: true}
  - {name: night, zones: hall, alarmAlone: smoke, confirmEvery: 8h}
"""
BUTTON = "#zones [data-action=profile]"


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[int, Profiles]]:
    """Run a hub with one declared zone; yield its port and the profiles."""
    store = Stored(folder).threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    parts = ProfilesAddon(options(FILE)).attach(hub, cast("ClipStore", None))
    (profiles,) = (part for part in hub._added.parts if isinstance(part, Profiles))
    runner = await serve_http(Api(hub, addons=[parts]).app(CollectorRegistry()), "127.0.0.1", 0)
    async with beside(hub.run(), name="hub"):
        devices = [Device(id="s-01", zone="hall")]
        await hub.coverage.set_roster(FleetRoster(fleet="default/sensors/all", epoch=1, deadline_ns=1, devices=devices))
        yield bound_port(runner), profiles
    await runner.cleanup()
    await store.close()


async def test_a_profile_is_begun_confirmed_and_ended_beside_its_zone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, profiles), run_browser() as browser:
        await browser.sign_in(f"http://127.0.0.1:{port}", TOKEN)
        await browser.until(f"document.querySelector('{BUTTON}')?.checkVisibility()")
        await browser.ask("click", selector=BUTTON)
        await browser.ask("evaluate", script="""
            document.querySelector('#profile-hours').value = '2';
            document.querySelector('#profile-reason').value = 'permit 17';
            document.querySelector('#profile-who').value = 'Ada';
        """)  # fmt: skip
        assert await browser.ask("axe") == []
        await browser.ask("click", selector="#profile-begin")
        await browser.ask("evaluate", script="document.querySelector('#profile-watchman').value = 'Bea'")
        await browser.ask("click", selector="#profile-begin")
        await browser.until("document.querySelector('#zones .tag.profile')?.textContent === 'welding'")
        await browser.until("document.querySelector('#events .head span')?.textContent === 'profile'")
        (permit,) = profiles.permits.values()
        assert (permit.profile, permit.who) == ("welding", "Ada (admin)")
        assert (permit.reason, permit.watchman, permit.until_ns - permit.since_ns) == ("permit 17", "Bea", 120 * MINUTE)
        await browser.ask("click", selector=BUTTON)
        assert "welding until" in await browser.text("#profile-about")
        await browser.ask("click", selector="#profile-confirm")
        await browser.until("!document.querySelector('#profile').open")
        assert permit.confirmed_ns > permit.since_ns
        await browser.ask("click", selector=BUTTON)
        await browser.ask("click", selector="#profile-end")
        await browser.until("document.querySelector('#zones .tag.profile').hidden")
        assert not profiles.permits

"""All main flows of the console in a real Firefox, in front of `embereye up` whose house burns."""

import os
from pathlib import Path

import pytest
from harness.burning_house import BURNING, BurningHouse, burning_house
from harness.firefox import ENTER, Firefox, run_firefox
from harness.need import FIREFOX

pytestmark = [pytest.mark.slow, pytest.mark.needs(FIREFOX), pytest.mark.timeout(900)]
STEADY = "document.querySelector('#focus:not([hidden], .moving)')"
ACKNOWLEDGE = "#focus-actions [data-action=acknowledge]"
BOX = f"document.querySelector('{ACKNOWLEDGE}').getBoundingClientRect().toJSON()"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CELLS = "[...document.querySelectorAll('#wall .cell')]"


class Guard:
    """A person in front of Firefox, who keeps a picture of each page."""

    def __init__(self, window: Firefox, house: BurningHouse, folder: Path) -> None:
        self.window = window
        self.house = house
        self._folder = Path(os.environ.get("EMBEREYE_SCREENSHOTS", folder))
        self._folder.mkdir(parents=True, exist_ok=True)

    async def keep(self, name: str) -> None:
        """Keep a picture of the page, which must not be wider than the window."""
        await self.window.screenshot(self._folder / f"firefox-{name}.png")
        assert await self.window.evaluate(WIDER) <= 0, name
        print(f"firefox: {name}", flush=True)

    async def go(self, page: str) -> None:
        """Turn to a page by the header."""
        await self.window.click(f"nav a[href='#{page}']")
        await self.window.until(f"!document.querySelector('#page-{page}').hidden")

    async def press(self, selector: str) -> None:
        """Press a button when it can be pressed."""
        await self.window.until(f"document.querySelector({selector!r})?.disabled === false")
        await self.window.click(selector)

    async def sign_in(self) -> None:
        await self.window.resize(1440, 900)
        await self.window.open(f"{self.house.base}/login")
        await self.window.until("document.activeElement.id === 'token'")
        await self.window.type(self.house.token + ENTER)
        await self.window.until("document.querySelector('#me')?.textContent")

    async def acknowledge(self) -> None:
        """Acknowledge the alarm in focus, once its picture is there."""
        window = self.window
        await window.until(f"{STEADY} && document.querySelector('#focus-screen')?.naturalWidth")
        sentence = await window.evaluate("document.querySelector('#focus-sentence').textContent")
        assert BURNING in sentence
        box = await window.evaluate(BOX)
        assert 0 < box["top"] < box["bottom"] < 600
        assert await window.evaluate("scrollY") == 0
        await self.keep("alarm")
        await window.until(STEADY)  # a press just after something moved is not taken
        await window.click(ACKNOWLEDGE)
        await window.until("document.querySelector('#focus[data-state=acknowledged]')")
        await self.keep("acknowledged")

    async def open_device(self) -> None:
        """Open the burning camera's page by its tile, until its picture is live."""
        window = self.window
        tile = "[...document.querySelectorAll('.view a.whole')].find((link) => link.textContent === 'cam-1')"
        await window.until(tile)
        await window.evaluate(f"{tile}.id = 'tile'")
        await window.click("#tile")
        await window.until("document.querySelector('#device-title').textContent === 'cam-1'")
        await window.until("document.querySelector('#device-state').textContent.startsWith('Watched')")
        await window.until("document.querySelector('#device-age').textContent === 'live'")
        await window.until("document.querySelector('#device-events').textContent.includes('lame')")
        await window.until("document.querySelector('#device-hour path')?.getAttribute('d')")
        await self.keep("device")

    async def watch_the_wall(self) -> None:
        """Look at the wall until all cameras are live on it."""
        await self.go("wall")
        live = f"{CELLS}.filter((cell) => !cell.querySelector('canvas').matches('.blank')).length === 6"
        await self.window.until(live)
        await self.keep("wall")

    async def find_the_clip(self) -> None:
        """Find the alarm and a picture of its clip in the timeline, and zoom in."""
        window = self.window
        await self.go("day")
        await window.until("document.querySelector('.part[data-state=clip]')")
        await self.press("#day-alarm-before")
        await window.until(f"document.querySelector('#day-states').textContent.includes('{BURNING}')")
        # A sensor may have seen the fire first: the clip begins later then.
        await self.press("#day-thumbnails button")
        await window.until("document.querySelector('#day-pictures img, #day-pictures video')")
        await window.until("document.querySelector('#day-pictures img')?.naturalWidth !== 0")
        width = "(document.querySelector('#day-at').max - document.querySelector('#day-at').min)"
        before = await window.evaluate(width)
        await window.evaluate("document.querySelector('#day-chart').focus()")
        await window.type("+")
        await window.until(f"{width} < {before}")
        await self.keep("timeline")

    async def add_a_camera(self) -> None:
        """Try a camera, add it to the manifest, and undo that."""
        window, manifest = self.window, self.house.manifest
        before = manifest.read_text()
        await self.go("devices")
        await self.press("#setup-adders button")
        await window.until("document.querySelector('#setup').open")
        await window.fill("#setup-address", f"{self.house.cameras}/cam-0.mjpg")
        button = "[...document.querySelectorAll('#setup button')].find((each) => each.textContent === 'Try it')"
        await window.evaluate(f"{button}.id = 'try-it'")
        await window.click("#try-it")
        await window.until("document.querySelector('#setup-still').naturalWidth")
        await window.fill("#setup-id", "dock")
        await window.fill("#setup-zone", "dock")
        await self.keep("set-up")
        await window.click("#setup-ok")
        await window.until("document.querySelector('#setup-diff').textContent.includes('id: dock, zone: dock')")
        assert manifest.read_text() == before
        await self.keep("set-up-difference")
        await window.click("#setup-ok")
        await window.until("!document.querySelector('#setup').open")
        assert "id: dock" in manifest.read_text()
        await self.press("#setup-undo:not([hidden])")
        await window.until("document.querySelector('#toast').textContent.startsWith('Undone: add dock')")
        assert manifest.read_text() == before


async def test_the_main_flows_work_in_firefox(tmp_path: Path) -> None:
    async with burning_house(tmp_path) as house, run_firefox() as window:
        guard = Guard(window, house, tmp_path)
        await guard.sign_in()
        await guard.acknowledge()
        await guard.open_device()
        await guard.watch_the_wall()
        await guard.find_the_clip()
        await guard.add_a_camera()
        assert window.problems == []

"""A simulated fire among 6 cameras and 20 sensors, through `embereye up` into Chromium, on screens of five sizes."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest
from harness.browser import Browser, run_browser
from harness.burning_house import BURNING, burning_house
from harness.need import BROWSER

pytestmark = [pytest.mark.slow, pytest.mark.needs(BROWSER), pytest.mark.timeout(900)]
# Screens, and the lowest place of *Acknowledge* on them.
SIZES = {(320, 640): 640, (390, 844): 700, (768, 1024): 700, (1024, 900): 600, (1440, 900): 600, (2560, 1440): 900}
SCHEMES = ("dark", "light")
PAGES = ("now", "day", "history", "plan", "fleets", "figures", "devices", "wall")
STEADY = "document.querySelector('#focus:not([hidden], .moving)')"
PICTURE = "document.querySelector('#focus-screen')?.naturalWidth"
ACKNOWLEDGE = "document.querySelector('#focus-actions [data-action=acknowledge]').getBoundingClientRect().toJSON()"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What moves from the moment at which the card is drawn, with its place before and after.
SHIFTS = """{
  const boxes = "header, .verdict, #alarms, #alarm-list, #focus, #focus > *, #focus-actions *, .stage .screen";
  window.shifted = [];
  new PerformanceObserver((list) => {
    for (const { startTime, sources } of list.getEntries()) {
      for (const { node, previousRect, currentRect } of sources) {
        if (!previousRect.width) continue; // it appears, and moves nothing
        window.shifted.push([startTime, node?.matches?.(boxes), node?.id || "", previousRect, currentRect]);
      }
    }
  }).observe({ type: "layout-shift", buffered: true });
  const look = () => {
    if (document.querySelector("#focus:not([hidden])")) window.drawn = performance.now();
    else requestAnimationFrame(look);
  };
  addEventListener("DOMContentLoaded", look);
}"""
AFTER = "window.shifted.filter(([at, isBox]) => at > window.drawn + 50 && isBox)"


async def test_a_fire_is_in_sight_on_every_screen_and_every_page_is_accessible(tmp_path: Path) -> None:
    folder = Path(os.environ.get("EMBEREYE_SCREENSHOTS", tmp_path))
    async with burning_house(tmp_path) as house, run_browser() as browser:
        base = house.base
        await browser.sign_in(base, house.token, before=SHIFTS)
        await browser.ask("until", script=STEADY, seconds=80)
        assert BURNING in await browser.text("#focus-sentence")
        for ((width, height), lowest), scheme in itertools.product(SIZES.items(), SCHEMES):
            await browser.ask("look", width=width, height=height, scheme=scheme)
            await browser.ask("goto", url=f"{base}/?{width}{scheme}")  # the card and its pictures come again
            await browser.until(f"{STEADY} && {PICTURE}")
            await asyncio.sleep(1)
            await browser.ask("screenshot", path=str(folder / f"fire-{width}-{scheme}.png"))
            box, shifts = [await browser.ask("evaluate", script=script) for script in (ACKNOWLEDGE, AFTER)]
            print(f"{width}x{height} {scheme}: Acknowledge from {box['top']:.0f} to {box['bottom']:.0f}")
            assert 0 < box["top"] < box["bottom"] <= lowest, (width, scheme)
            assert shifts == [], (width, scheme)
            assert await browser.ask("evaluate", script=WIDER) <= 0, (width, scheme)
        for scheme in SCHEMES:
            await browser.ask("look", width=1024, height=900, scheme=scheme)
            await _check_pages(browser, folder, scheme)
        assert await browser.ask("problems") == []


async def _check_pages(browser: Browser, folder: Path, scheme: str) -> None:
    """Look at every page, and at what the detectors see in the burning camera's picture."""
    for page in (*PAGES, "device?fleet=default/cameras/yard&id=cam-1"):
        name = page.partition("?")[0]
        await browser.ask("evaluate", script=f"(location.hash = '{page}')")
        await browser.until(f"!document.querySelector('#page-{name}').hidden")
        if name == "device":
            await browser.until("!document.querySelector('#device-judged').hidden")
            await browser.ask("evaluate", script="document.querySelector('#device-judged').click()")
            await browser.until("document.querySelector('#judged')?.childElementCount")
            await browser.until("document.querySelector('#device-regions text')")
        await asyncio.sleep(1)
        await browser.ask("screenshot", path=str(folder / f"page-{name}-{scheme}.png"))
        assert await browser.ask("axe") == [], (page, scheme)
        assert await browser.ask("evaluate", script=WIDER) <= 0, (page, scheme)
        if name == "device":
            await browser.ask("evaluate", script="document.querySelector('#device-judged').click()")

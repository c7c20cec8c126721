"""The console in a real Chromium: what people see and do, and whether everybody can (axe)."""

import asyncio
import os
from pathlib import Path

import pytest
from harness.need import BROWSER

from embereye.hub.access.roles import Role

from .browser import Browser
from .house import ADA, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
PAGES = ("now", "day", "history", "devices")
KEPT = os.environ.get("EMBEREYE_SCREENSHOTS", "")  # a folder: people look at them


async def keep(browser: Browser, name: str) -> None:
    if KEPT:
        await browser.ask("screenshot", path=str(Path(KEPT) / f"{name}.png"))


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_every_page_is_without_what_axe_finds_wrong_and_without_an_error(
    house: House, browser: Browser, scheme: str
) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await house.burn("hall", device="s-00001")
    await browser.sign_in(house.base, TOKEN, scheme=scheme)
    found: dict[str, list[str]] = {}
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await browser.until(f"!document.querySelector('#page-{name}').hidden")
        await asyncio.sleep(2.5)
        await keep(browser, f"{name}-{scheme}")
        found[name] = await browser.ask("axe")
    found["problems"] = await browser.ask("problems")
    print(*[f"{name}: {one}" for name, ones in found.items() for one in ones], sep="\n")
    assert found == {name: [] for name in [*PAGES, "problems"]}


async def test_an_alarm_is_marked_as_false_and_taken_back(house: House, browser: Browser) -> None:
    await house.furnish()
    alarm = await house.burn()
    await browser.until("document.querySelector('.alarm [data-action=false]')")
    await browser.ask("click", selector=".alarm [data-action=false]")
    await browser.ask("fill", selector="#ask-note", text="steam from the kettle")
    await keep(browser, "ask")
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.querySelector('.alarm .marked')?.textContent.includes('steam from the kettle')")
    mark = house.hub.false_alarms.find(alarm)
    assert mark is not None
    assert mark.reason == "steam from the kettle"
    await browser.ask("click", selector=".alarm [data-action=explain]")
    await browser.until("document.querySelector('#alarm').open")
    await keep(browser, "alarm")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#alarm-mark")
    await browser.until("document.querySelector('#alarm-marked').hidden")
    assert house.hub.false_alarms.find(alarm) is None


async def test_a_day_is_scrubbed_frame_by_frame(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelectorAll('.lane').length >= 1")
    await browser.ask("click", selector="#day-previous")
    await browser.until("document.querySelector('#day-pictures img')?.naturalWidth === 320")
    first = await browser.ask("evaluate", script="document.querySelector('#day-pictures img').src")
    await browser.ask("evaluate", script="document.querySelector('#day-at').focus()")
    await browser.ask("press", key="ArrowRight")
    await browser.until(f"document.querySelector('#day-pictures img')?.src !== '{first}'")
    await keep(browser, "scrub")
    assert await browser.ask("problems") == []


async def test_ten_thousand_devices_are_a_table_of_a_few_rows(house: House, browser: Browser) -> None:
    await house.furnish(sensors=10_000, dark=3)
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices-count').textContent === '10003'")
    await browser.until("document.querySelector('#devices tr.unwatched')")
    assert "s-09997" in await browser.text("#devices tr:first-child"), "the dark ones first"
    rows = "document.querySelectorAll('#devices tr').length"
    assert await browser.ask("evaluate", script=rows) < 80
    await browser.ask("evaluate", script="document.querySelector('#devices-scroll').scrollTop = 34 * 9000")
    await browser.until("document.querySelector('#devices tr th').textContent.startsWith('s-0')")
    assert await browser.ask("evaluate", script=rows) < 80
    await keep(browser, "devices-10000")
    await browser.ask("fill", selector="#filter", text="s-04711")
    await browser.until("document.querySelector('#devices-count').textContent === '1'")
    assert "s-04711" in await browser.text("#devices")


async def test_it_is_usable_on_a_phone(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn()
    await browser.sign_in(house.base, TOKEN, width=390, height=844)
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await asyncio.sleep(1.5)
        await keep(browser, f"{name}-phone")
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await browser.ask("evaluate", script=wider) <= 0, f"{name} is wider than the screen"


async def test_a_zone_is_silenced_with_a_reason_shown_everywhere_and_ended_by_a_click(
    house: House, browser: Browser
) -> None:
    await house.furnish()
    await house.burn()
    await browser.until("document.querySelector('.alarm[data-state=alarm] [data-action=silence]')")
    assert not await browser.ask("evaluate", script="document.body.hasAttribute('data-silenced')")
    await browser.ask("click", selector=".alarm [data-action=silence]")
    await browser.ask("select", selector="#ask-hours", value="4")
    await browser.ask("click", selector="#ask-ok")
    assert await browser.ask("evaluate", script="document.querySelector('#ask').open"), "a reason is asked for"
    await browser.ask("fill", selector="#ask-note", text="the brigade is here")
    await keep(browser, "silence-ask")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#ask-ok")
    await browser.until("document.body.hasAttribute('data-silenced')")
    for name in PAGES:
        await browser.ask("evaluate", script=f"location.hash = '{name}'")
        await browser.until("document.querySelector('#silences li')?.innerText.includes('the brigade is here')")
    await browser.ask("evaluate", script="location.hash = 'now'")
    assert "4 h left" in await browser.text("#silences")
    assert (await browser.text("#verdict-word")).startswith("ALARM"), "silenced, but an alarm all the same"
    await keep(browser, "silenced")
    assert await browser.ask("axe") == []
    (silence,) = house.hub.silences.all()
    assert (silence.who, silence.reason, silence.zone) == ("admin", "the brigade is here", "kitchen")
    await browser.ask("click", selector="#silences button")
    await browser.until("document.querySelector('#silenced').hidden")
    assert house.hub.silences.all() == []
    await browser.until("document.querySelector('#events')?.innerText.includes('SILENCE OVER')")
    assert await browser.ask("problems") == []


async def test_a_device_is_silenced_by_the_keyboard_and_viewers_may_not(house: House, browser: Browser) -> None:
    await house.furnish()
    await browser.ask("evaluate", script="location.hash = 'devices'")
    await browser.until("document.querySelector('#devices tr [aria-label=\"Silence … s-00006 in kitchen\"]')")
    await browser.ask(
        "evaluate", script="document.querySelector('[aria-label=\"Silence … s-00006 in kitchen\"]').focus()"
    )
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#ask').open && document.activeElement.id === 'ask-note'")
    await browser.ask("fill", selector="#ask-note", text="being cleaned")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#silences li')?.innerText.includes('s-00006 · kitchen')")
    await keep(browser, "devices-silenced")
    viewer = await house.hub.access.create_token(ADA, "guest", Role.VIEWER)
    await browser.sign_in(house.base, viewer)
    await browser.until("document.querySelector('#silences button')?.disabled")
    assert await browser.ask("evaluate", script="document.querySelector('.zone [data-action=silence]').disabled")

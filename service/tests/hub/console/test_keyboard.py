"""The console in a real Chromium without a mouse: what can be done, and that the focus is never lost."""

import pytest
from harness.need import BROWSER

from embereye.hub.actions import Action

from .browser import Browser
from .house import ADA, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
FOCUS = "document.activeElement"
NAMES = "[...document.querySelectorAll('#alarm-list h3')].map((name) => name.innerText).join()"


async def focus(browser: Browser, selector: str) -> None:
    await browser.until(f"document.querySelector('{selector}') && !document.querySelector('{selector}').disabled")
    await browser.ask("evaluate", script=f"document.querySelector('{selector}').focus()")


async def burn_with_focus(house: House, browser: Browser, word: str) -> None:
    """Have it burn in the kitchen, and the focus on that button of its alarm."""
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await focus(browser, f'[aria-label="{word} the alarm in kitchen"]')


async def test_who_signs_in_by_keyboard_comes_to_the_console(house: House, browser: Browser) -> None:
    await browser.ask("open", url=f"{house.base}/login")
    await browser.until(f"{FOCUS}.id === 'token'")
    await browser.ask("type", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#me')?.textContent")
    await browser.ask("press", key="Tab")
    await browser.ask("press", key="Enter")
    await browser.until(f"{FOCUS}.id === 'main'")


async def test_an_alarm_is_acknowledged_and_reset_by_keyboard_and_the_focus_stays_where_it_was(
    house: House, browser: Browser
) -> None:
    await burn_with_focus(house, browser, "Acknowledge")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('.alarm[data-state=acknowledged]')")
    await browser.until(f"{FOCUS}.matches('.alarm')")
    await browser.ask("press", key="Tab")
    assert await browser.ask("evaluate", script=f"{FOCUS}.innerText") == "Reset"
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#ask').open")
    await browser.ask("press", key="Enter")
    await browser.until("!document.querySelector('.alarm')")
    await browser.until(f"{FOCUS}.id === 'alarms'")
    assert await browser.ask("axe") == []


async def test_the_focus_stays_on_an_alarm_when_another_one_ends_or_begins(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("hall", device="s-00001")
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{NAMES} === 'kitchen,hall'")
    await focus(browser, '[aria-label="Explain the alarm in hall"]')
    await browser.ask("evaluate", script=f"window.lost = 0; {FOCUS}.addEventListener('blur', () => window.lost += 1)")
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
    await browser.until(f"{NAMES} === 'hall,kitchen'")
    await house.burn("stairs", device="s-00002")
    await browser.until(f"{NAMES} === 'stairs,hall,kitchen'")
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "stairs")
    await house.hub.actions.perform(Action.RESET, ADA, "default", "stairs")
    await browser.until(f"{NAMES} === 'hall,kitchen'")
    assert await browser.ask("evaluate", script=f"{FOCUS}.ariaLabel") == "Explain the alarm in hall"


async def test_what_cannot_be_pressed_while_the_hub_is_gone_leaves_the_focus_with_its_alarm(
    house: House, browser: Browser
) -> None:
    await burn_with_focus(house, browser, "Acknowledge")
    await browser.ask("evaluate", script="window.fetch = () => Promise.reject(new TypeError('gone')); 0")
    await browser.until("document.body.classList.contains('stale')")
    await browser.until(f"{FOCUS}.matches('.alarm')")


async def test_a_dialog_gives_the_focus_back_also_where_what_opened_it_is_gone(house: House, browser: Browser) -> None:
    await burn_with_focus(house, browser, "Explain")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#alarm').open")
    await browser.ask("press", key="Escape")
    await browser.until(f"{FOCUS}.ariaLabel === 'Explain the alarm in kitchen'")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#alarm').open")
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
    await house.hub.actions.perform(Action.RESET, ADA, "default", "kitchen")
    await browser.until("!document.querySelector('.alarm')")
    await browser.ask("press", key="Escape")
    await browser.until(f"{FOCUS}.id === 'alarms'")


async def test_a_time_of_day_is_reached_by_keyboard_and_in_sight_whatever_the_number_of_zones(
    house: House, browser: Browser
) -> None:
    await house.furnish_zones(100)
    await browser.ask("evaluate", script="location.hash = 'day'")
    await browser.until("document.querySelectorAll('.lane').length === 100")
    bottom = "document.querySelector('#day-at').getBoundingClientRect().bottom"
    assert await browser.ask("evaluate", script=f"{bottom} <= innerHeight")
    await focus(browser, "#day-at")
    before = int(await browser.ask("evaluate", script=f"{FOCUS}.value"))
    await browser.ask("press", key="ArrowLeft")
    assert int(await browser.ask("evaluate", script=f"{FOCUS}.value")) == before - 1
    assert await browser.ask("axe") == []


async def test_of_many_alarms_the_newest_that_nobody_has_seen_to_is_on_top(house: House, browser: Browser) -> None:
    await house.furnish()
    for zone, device in (("hall", "s-00001"), ("stairs", "s-00002"), ("kitchen", "s-00000")):
        await house.burn(zone, device=device)
    await browser.until(f"{NAMES} === 'kitchen,stairs,hall'")
    assert await browser.text("#verdict-word") == "ALARM · kitchen, stairs, hall"
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
    await browser.until(f"{NAMES} === 'stairs,hall,kitchen'")
    assert await browser.text("#verdict-word") == "ALARM · stairs, hall"

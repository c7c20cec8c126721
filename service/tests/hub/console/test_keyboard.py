"""The console in a real Chromium without a mouse: every action, and the focus, which is never lost."""

import pytest
from harness.browser import Browser
from harness.need import BROWSER

from embereye.hub.actions import Action

from .house import ADA, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
FOCUS = "document.activeElement"
NAMES = "[...document.querySelectorAll('#alarm-list h3')].map((name) => name.innerText).join()"


async def focus(browser: Browser, selector: str) -> None:
    await browser.until(f"document.querySelector('{selector}') && !document.querySelector('{selector}').disabled")
    await browser.ask("evaluate", script=f"document.querySelector('{selector}').focus()")


async def burn_with_focus(house: House, browser: Browser, word: str) -> None:
    """Start a fire in the kitchen, and focus that button of its alarm."""
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until("document.querySelector('#focus:not([hidden], .moving)')")
    await focus(browser, f'[aria-label="{word} the alarm in kitchen"]')


async def test_signing_in_by_keyboard_opens_the_console(house: House, browser: Browser) -> None:
    await browser.ask("open", url=f"{house.base}/login")
    await browser.until(f"{FOCUS}.id === 'token'")
    await browser.ask("type", text=TOKEN)
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#me')?.textContent")
    await browser.ask("press", key="Tab")
    await browser.ask("press", key="Enter")
    await browser.until(f"{FOCUS}.id === 'main'")


async def test_acknowledging_and_resetting_by_keyboard_leaves_the_focus_in_place(
    house: House, browser: Browser
) -> None:
    await burn_with_focus(house, browser, "Acknowledge")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('.alarm[data-state=acknowledged]')")
    await browser.until(f"{FOCUS}.matches('.alarm')")
    words = []
    while len(words) < 4 and "Reset …" not in words:  # the link to a camera comes with the zone's devices
        await browser.ask("press", key="Tab")
        words.append(await browser.ask("evaluate", script=f"{FOCUS}.innerText"))
    assert words[-3:] == ["False alarm …", "Escalate …", "Reset …"]
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#ask').open")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#focus').hidden")
    await browser.until(f"{FOCUS}.id === 'alarms'")
    assert await browser.ask("axe") == []


async def test_the_focus_stays_on_an_alarm_when_another_one_starts_or_ends(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("hall", device="s-00001")
    await house.burn("kitchen", device="s-00000")
    await browser.until(f"{NAMES} === 'kitchen,hall'")
    await browser.ask("evaluate", script="document.querySelector('#alarm-list li:nth-child(2) button').click()")
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


async def test_a_button_disabled_by_an_outage_leaves_the_focus_on_its_alarm(house: House, browser: Browser) -> None:
    await burn_with_focus(house, browser, "Acknowledge")
    await browser.ask("evaluate", script="window.fetch = () => Promise.reject(new TypeError('gone')); 0")
    await browser.until("document.body.classList.contains('stale')")
    await browser.until(f"{FOCUS}.matches('.alarm')")


async def test_a_dialog_returns_the_focus_even_if_its_opener_is_gone(house: House, browser: Browser) -> None:
    await burn_with_focus(house, browser, "Explain")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#alarm').open")
    await browser.ask("press", key="Escape")
    await browser.until(f"{FOCUS}.ariaLabel === 'Explain the alarm in kitchen'")
    await browser.ask("press", key="Enter")
    await browser.until("document.querySelector('#alarm').open")
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
    await house.hub.actions.perform(Action.RESET, ADA, "default", "kitchen")
    await browser.until("document.querySelector('#focus').hidden")
    await browser.ask("press", key="Escape")
    await browser.until(f"{FOCUS}.id === 'alarms'")


async def test_a_time_of_day_is_reached_by_keyboard_and_visible_with_many_zones(house: House, browser: Browser) -> None:
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


async def test_the_newest_unacknowledged_alarm_is_at_the_top(house: House, browser: Browser) -> None:
    await house.furnish()
    for zone, device in (("hall", "s-00001"), ("stairs", "s-00002"), ("kitchen", "s-00000")):
        await house.burn(zone, device=device)
    await browser.until(f"{NAMES} === 'kitchen,stairs,hall'")
    assert await browser.text("#verdict-word") == "ALARM · kitchen, stairs, hall"
    await house.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
    await browser.until(f"{NAMES} === 'stairs,hall,kitchen'")
    assert await browser.text("#verdict-word") == "ALARM · stairs, hall"

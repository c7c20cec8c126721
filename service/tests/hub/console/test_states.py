"""The states in which a guard may meet the console: each fits the screen, passes axe, and says what to do."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from .house import TOKEN, House
from .link import Link, linked

pytestmark = [pytest.mark.slow, pytest.mark.needs(BROWSER), pytest.mark.timeout(300)]
SIZES = {"desk": (1440, 900), "phone": (360, 640)}
VERDICT = "document.querySelector('#verdict-word')?.textContent"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ACKNOWLEDGE = "document.querySelector('#focus-actions [data-action=acknowledge]').getBoundingClientRect()"


async def _nothing(house: House) -> None:
    pass


async def _furnish(house: House) -> None:
    await house.furnish()


async def _furnish_many(house: House) -> None:
    await house.furnish(sensors=10_000, dark=3)


async def _start(house: House) -> None:
    await house.furnish_zones(12)


async def _burn(house: House) -> None:
    await house.furnish()
    await house.burn_before("cam-0", "kitchen")


async def _burn_everywhere(house: House) -> None:
    await house.furnish_zones(200)
    for number in range(200):
        await house.burn(f"room-{number:03}", device=f"s-{number:05}")


STATES: dict[str, tuple[Callable[[House], Awaitable[None]], str, dict[str, str]]] = {
    "no-devices": (_nothing, "document.querySelector('main').innerText.includes('embereye')", {}),
    "first-minute": (_start, f"{VERDICT} !== 'NORMAL'", {}),
    "calm": (_furnish, "document.querySelectorAll('.view img').length", {}),
    "hub-away": (_furnish, "document.querySelectorAll('.view img').length", {}),
    "many-devices": (_furnish_many, "document.body.innerText.includes('10,000')", {}),
    "alarm": (_burn, f"{VERDICT}.startsWith('ALARM')", {}),
    "alarm-in-the-sun": (_burn, f"{VERDICT}.startsWith('ALARM')", {"scheme": "light"}),
    "200-alarms": (_burn_everywhere, f"{VERDICT}.startsWith('ALARM (200)')", {}),
}


@pytest.fixture
async def link(house: House) -> AsyncIterator[Link]:
    """The network between the window and the hub."""
    async with linked(house.base) as link:
        yield link


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
async def test_each_state_fits_the_screen_and_is_accessible(
    house: House, link: Link, state: str, size: str, tmp_path: Path
) -> None:
    arrange, complete, options = STATES[state]
    await arrange(house)
    width, height = SIZES[size]
    async with run_browser() as browser:
        await browser.sign_in(link.base, TOKEN, width=width, height=height, **options)
        await browser.until(complete)
        if state == "hub-away":
            link.cut()
            await browser.until(f"{VERDICT} === 'UNKNOWN'")
        await _check(browser, state, size, Path(os.environ.get("EMBEREYE_SCREENSHOTS", tmp_path)))


async def _check(browser: Browser, state: str, size: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    await browser.ask("screenshot", path=str(folder / f"{state}-{size}.png"))
    assert await browser.ask("evaluate", script=WIDER) <= 0
    assert await browser.ask("axe") == []
    if "alarm" in state:
        box = await browser.ask("evaluate", script=f"(({{ top, bottom }}) => [top, bottom])({ACKNOWLEDGE})")
        assert 0 < box[0] < box[1] <= SIZES[size][1], "Acknowledge is in sight without scrolling"

"""The states in which a guard may meet the console: each fits the screen, passes axe, and says what to do."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from .house import CAMERAS, SENSORS, TOKEN, House
from .link import Link, linked

pytestmark = [pytest.mark.slow, pytest.mark.needs(BROWSER), pytest.mark.timeout(600)]
# The phones are small ones, of which the second has five inches.
SIZES = ((320, 640), (360, 640), (768, 1024), (1024, 768), (1440, 900), (2560, 1440))
SCHEMES = ("dark", "light")
VERDICT = "document.querySelector('#verdict-word')?.textContent"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# The parts of the header that stick out of the window, or of the header.
CUT_OFF = """[...document.querySelectorAll("header > *, nav > a")].filter((element) => {
  const { left, right, width, bottom } = element.getBoundingClientRect(), header = document.querySelector("header");
  const within = header.getBoundingClientRect();
  return width && !element.matches(".skip") && (left < 0 || right > innerWidth + 1 || bottom > within.bottom + 1);
}).map((element) => element.id || element.textContent)"""
# The distance between the menu's button and the icon, if there is a menu: both are in the header's first row.
SECOND_ROW = """(() => {
  const [icon, menu] = ["header img", "#menu"].map((each) => document.querySelector(each).getBoundingClientRect());
  return menu.width ? menu.top - icon.bottom : -1;
})()"""
# The buttons of the alarm whose words are wider than they are.
NARROW = """[...document.querySelectorAll("#focus-actions button")].filter((button) => {
  const words = document.createRange(), { left, right } = button.getBoundingClientRect();
  words.selectNodeContents(button);
  return words.getBoundingClientRect().left < left || words.getBoundingClientRect().right > right;
}).map((button) => button.textContent)"""
ACKNOWLEDGE = "document.querySelector('#focus-actions [data-action=acknowledge]').getBoundingClientRect()"


async def _nothing(house: House) -> None:
    pass


async def _furnish(house: House) -> None:
    await house.furnish(dark=0)


async def _furnish_some_dark(house: House) -> None:
    await house.furnish(dark=2)


async def _furnish_many(house: House) -> None:
    await house.furnish(sensors=10_000, dark=3)


async def _start(house: House) -> None:
    await house.furnish_zones(12)


async def _burn(house: House) -> None:
    await house.furnish(dark=0)
    await house.burn_before("cam-0", "kitchen")


async def _burn_and_heat(house: House) -> None:
    await _burn(house)
    house.celsius["s-00001"] = 61.3
    await house.burn("hall", device="s-00001")


async def _burn_everywhere(house: House) -> None:
    await house.furnish_zones(200, reporting=True)
    house.celsius.update({f"s-{number:05}": 61.3 for number in range(200)})
    for number in range(200):
        await house.burn(f"room-{number:03}", device=f"s-{number:05}")


async def _furnish_cameras(house: House) -> None:
    await house.furnish(cameras=6, dark=0)


CALM = f"{VERDICT} === 'NORMAL' && document.querySelectorAll('.view img').length"
# State → its arrangement, the condition that its page is complete, and the page's address.
STATES: dict[str, tuple[Callable[[House], Awaitable[None]], str, str]] = {
    "no-devices": (_nothing, "document.querySelector('main').innerText.includes('embereye')", ""),
    "first-minute": (
        _start,
        f"{VERDICT} === 'STARTING' && document.querySelectorAll('.zone.faulty').length === 12",
        "",
    ),
    "calm": (_furnish, CALM, ""),
    "hub-away": (_furnish_some_dark, f"{VERDICT} === 'FAULT' && document.querySelectorAll('.view img').length", ""),
    "many-devices": (_furnish_many, "document.body.innerText.includes('10,000')", ""),
    "alarm": (_burn, f"{VERDICT}.startsWith('ALARM') && document.querySelector('#focus-boxes rect')", ""),
    "200-alarms": (_burn_everywhere, f"{VERDICT}.startsWith('ALARM (200)')", ""),
    "wall": (_furnish_cameras, "document.querySelectorAll('#wall img:not([hidden])').length === 6", "wall"),
    "camera": (_burn, "document.querySelector('#device-picture').naturalWidth", f"device?fleet={CAMERAS}&id=cam-0"),
    "sensor": (_burn_and_heat, "document.querySelector('#device-hour li')", f"device?fleet={SENSORS}&id=s-00001"),
    "timeline": (_burn_and_heat, "document.querySelector('#day-thumbnails img')?.naturalWidth", "day"),
}


@pytest.fixture
async def link(house: House) -> AsyncIterator[Link]:
    """The network between the window and the hub."""
    async with linked(house.base) as link:
        yield link


@pytest.mark.parametrize("state", STATES)
async def test_each_state_fits_every_screen_and_is_accessible(
    house: House, link: Link, state: str, tmp_path: Path
) -> None:
    arrange, complete, page = STATES[state]
    await arrange(house)
    async with run_browser() as browser:
        await browser.sign_in(link.base, TOKEN)
        await browser.ask("evaluate", script=f"location.hash = '{page}'")
        await browser.until(complete)
        if state == "calm":
            assert await browser.text("#no-events") == "No event yet."
        if state == "hub-away":
            link.cut()
            await browser.until(f"{VERDICT} === 'UNKNOWN'")
            assert await browser.text("#verdict-detail") == "The hub does not answer. Last known: fault."
        for (width, height), scheme in itertools.product(SIZES, SCHEMES):
            await browser.ask("look", width=width, height=height, scheme=scheme)
            await _keep(browser, f"{state}-{width}-{scheme}", tmp_path)
            assert await browser.ask("evaluate", script=WIDER) <= 0, (width, scheme)
            assert await browser.ask("evaluate", script=CUT_OFF) == [], (width, scheme)
            assert await browser.ask("evaluate", script=SECOND_ROW) < 0, (width, scheme)
            assert await browser.ask("axe") == [], (width, scheme)
            if "alarm" in state:
                box = await browser.ask("evaluate", script=f"(({{ top, bottom }}) => [top, bottom])({ACKNOWLEDGE})")
                assert 0 < box[0] < box[1] <= height, f"Acknowledge is in sight without scrolling: {width} {scheme}"


@pytest.mark.parametrize("locale", ["de-AT", "en-US"])
async def test_words_of_each_language_fit_the_header_and_the_buttons(house: House, locale: str, tmp_path: Path) -> None:
    await _burn(house)
    async with run_browser() as browser:
        await browser.sign_in(house.base, TOKEN, locale=locale)
        await browser.until(f"{VERDICT}.startsWith('ALARM')")
        for width, height in SIZES:
            await browser.ask("look", width=width, height=height, scheme="light")
            await _keep(browser, f"{locale}-{width}", tmp_path)
            assert await browser.ask("evaluate", script=NARROW) == [], width
            assert await browser.ask("evaluate", script=CUT_OFF) == [], width
            assert await browser.ask("evaluate", script=WIDER) <= 0, width


async def test_an_alarm_is_read_on_a_phone_in_the_sun_and_without_colours(house: House, tmp_path: Path) -> None:
    await _burn(house)
    async with run_browser() as browser:
        await browser.sign_in(house.base, TOKEN)
        await browser.until(f"{VERDICT}.startsWith('ALARM')")
        await browser.ask("look", width=360, height=640, scheme="light")
        faint = await browser.ask("axe", rules=["color-contrast-enhanced"])
        assert [each for each in faint if any(part in each for part in ("#focus", "#verdict", "#alarms"))] == []
        for vision in ("deuteranopia", "protanopia", "tritanopia", "achromatopsia"):
            for scheme in SCHEMES:
                await browser.ask("look", width=1440, height=900, scheme=scheme, vision=vision)
                await _keep(browser, f"{vision}-{scheme}", tmp_path)


async def _keep(browser: Browser, name: str, folder: Path) -> None:
    await browser.until("!document.querySelector('#focus.moving')")  # buttons are pale meanwhile
    folder = Path(os.environ.get("EMBEREYE_SCREENSHOTS", folder))
    folder.mkdir(parents=True, exist_ok=True)
    await browser.ask("screenshot", path=str(folder / f"{name}.png"))

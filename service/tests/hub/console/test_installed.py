"""The console as an installed app, and its keyboard shortcuts, in a real Chromium."""

import pytest
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from .house import TOKEN, House
from .link import linked

pytestmark = pytest.mark.needs(BROWSER)
FOCUS = "document.activeElement"


async def test_without_the_hub_an_installed_console_says_that_it_is_not_connected(house: House) -> None:
    async with linked(house.base) as link, run_browser() as browser:
        await browser.sign_in(link.base, TOKEN)
        ready = "navigator.serviceWorker.ready.then(() => { window.ready = true; }); 0"
        await browser.ask("evaluate", script=ready)
        await browser.until("window.ready && navigator.serviceWorker.controller")
        await browser.ask("evaluate", script="location.hash = 'wall'")
        link.refuse()
        await browser.ask("evaluate", script="location.reload()")
        await browser.until("document.querySelector('.verdict .word')?.innerText === 'NOT CONNECTED'")
        assert "shows nothing and raises no alarm" in await browser.text("main")
        assert await browser.ask("axe") == []
        link.mend()  # nobody has to press "Try again"
        await browser.until("document.querySelector('#me')?.textContent")
        assert await browser.ask("evaluate", script="location.hash") == "#wall"


async def test_a_sheet_lists_the_keyboard_shortcuts_and_turns_them_off(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn("kitchen", device="s-00000")
    await browser.until("document.querySelector('#focus:not([hidden], .moving)')")
    await browser.ask("press", key="v")
    await browser.until("!document.querySelector('#page-devices').hidden")
    await browser.ask("press", key="a")
    await browser.until(f"{FOCUS}.dataset.action === 'acknowledge'")
    await browser.ask("press", key="?")
    await browser.until("document.querySelector('#keys').open")
    assert "Page Wall" in await browser.text("#keys-list")
    assert await browser.ask("axe") == []
    await browser.ask("click", selector="#keys-off")
    await browser.ask("click", selector="#keys-close")
    await browser.ask("press", key="h")
    assert not await browser.ask("evaluate", script="document.querySelector('#page-now').hidden")

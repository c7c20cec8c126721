"""Windows of tests share a Chromium, and nothing else."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from harness.browser import run_browser
from harness.need import BROWSER

from embereye.process.http.server import bound_port, serve_http

pytestmark = pytest.mark.needs(BROWSER)
STORE = "document.cookie = 'word=a'; localStorage.setItem('word', 'b'); await caches.open('c')"
STORED = "return [document.cookie, localStorage.getItem('word'), ...await caches.keys()].join(' ')"


@pytest.fixture
async def page() -> AsyncIterator[str]:
    """The address of an empty page."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<title>empty</title>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", answer)
    runner = await serve_http(application, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{bound_port(runner)}/"
    await runner.cleanup()


async def evaluate(address: str, *scripts: str) -> str:
    """Run scripts on a page in a new window. Returns the result of the last one."""
    async with run_browser() as window:
        await window.ask("open", url=address)
        for script in scripts:
            result = await window.ask("evaluate", script=f"(async () => {{ {script} }})()")
    return str(result)


async def test_a_window_has_nothing_that_another_one_stored(page: str) -> None:
    async with run_browser() as window:
        await window.ask("open", url=page)
        await window.ask("evaluate", script=f"(async () => {{ {STORE} }})()")
        assert await evaluate(page, STORED) == " "
    assert await evaluate(page, STORE, STORED) == "word=a b c"
    assert await evaluate(page, STORED) == " "


async def test_after_a_crash_of_the_browser_the_next_window_opens(page: str) -> None:
    async with run_browser() as window:
        await window.ask("open", url=page)
        with pytest.raises(AssertionError, match=r"Chromium has ended|goto"):
            await window.ask("goto", url="chrome://inducebrowsercrashforrealz")
    assert await evaluate(page, STORED) == " "

"""The console in a real Chromium below a path, behind a proxy that removes the path from requests or not."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from harness.browser import Browser, run_browser
from harness.need import BROWSER
from prometheus_client import CollectorRegistry

from embereye.hub.http.api import Api
from embereye.hub.live.parts import live_parts
from embereye.process.http.server import bound_port, serve_http

from .house import TOKEN, House, picture

pytestmark = pytest.mark.needs(BROWSER)
BASE = "/site/fire"
DROPPED = {"content-length", "transfer-encoding", "connection"}


class Proxy:
    """A reverse proxy that serves a hub below BASE, and other programs elsewhere on the same host name."""

    def __init__(self, hub: str, *, removes: bool, sockets: bool) -> None:
        self.strays: list[str] = []  # requests for paths of other programs
        self._hub = hub
        self._removes = removes
        self._sockets = sockets  # it passes WebSockets

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/favicon.ico" and not request.path.startswith(BASE):
            self.strays.append(request.path)
            raise web.HTTPNotFound
        path = request.path_qs.removeprefix(BASE) or "/" if self._removes else request.path_qs
        if request.headers.get("Upgrade", "").lower() == "websocket":
            if not self._sockets:
                raise web.HTTPBadRequest
            return await self._relay(request, path)
        async with (
            aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                request.method, self._hub + path, headers=request.headers, data=await request.read() or None,
                allow_redirects=False,
            ) as answer,
        ):  # fmt: skip
            passed = [(name, value) for name, value in answer.headers.items() if name.lower() not in DROPPED]
            response = web.Response(status=answer.status, body=await answer.read())
            response.headers.clear()
            response.headers.extend(passed)
            return response

    async def _relay(self, request: web.Request, path: str) -> web.WebSocketResponse:
        passed = {name: request.headers[name] for name in ("Host", "Origin", "Cookie") if name in request.headers}
        socket = web.WebSocketResponse()
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.ws_connect(self._hub + path, headers=passed) as hub,
        ):
            await socket.prepare(request)
            async for message in hub:
                with contextlib.suppress(ConnectionError):
                    await socket.send_str(message.data)
        return socket


@contextlib.asynccontextmanager
async def behind_proxy(house: House, *, removes: bool, sockets: bool = True) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the console of `house`, and the address of the console there."""
    api = Api(house.hub, house.clips, base_path=BASE, addons=[live_parts(house.hub)])
    served = await serve_http(api.app(CollectorRegistry()), "127.0.0.1", 0)
    proxy = Proxy(f"http://127.0.0.1:{bound_port(served)}", removes=removes, sockets=sockets)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield proxy, f"http://127.0.0.1:{runner.addresses[0][1]}{BASE}"
    finally:
        await served.cleanup()
        await runner.cleanup()


@pytest.mark.parametrize("removes", [False, True], ids=["kept", "removed"])
async def test_a_person_signs_in_and_uses_the_console_below_a_path(house: House, removes: bool, tmp_path: Path) -> None:
    async with behind_proxy(house, removes=removes) as (proxy, base), run_browser() as window:
        await use(window, house, base, tmp_path)
    assert proxy.strays == []


async def test_events_appear_behind_a_proxy_that_passes_no_websockets(house: House) -> None:
    async with behind_proxy(house, removes=False, sockets=False) as (_, base), run_browser() as window:
        await house.furnish()
        await sign_in(window, base)
        for camera, zone in (("cam-0", "kitchen"), ("cam-1", "hall")):
            shown = await window.ask("evaluate", script="document.querySelector('#events').children.length")
            await house.burn_before(camera, zone)
            await window.until(f"document.querySelector('#events').children.length > {shown}")


async def sign_in(window: Browser, base: str) -> None:
    await window.ask("open", url=base)  # without a slash at its end
    await window.until(f"location.pathname === '{BASE}/login'")
    await window.ask("fill", selector="#token", text=TOKEN)
    await window.ask("click", selector="#send")
    await window.until("document.querySelector('#me')?.textContent")


async def use(window: Browser, house: House, base: str, folder: Path) -> None:
    await house.furnish()
    await sign_in(window, base)
    assert await window.ask("evaluate", script="location.pathname") == f"{BASE}/"
    await window.until("[...document.querySelectorAll('.view img')].some((image) => image.naturalWidth === 320)")
    await house.burn_before("cam-0", "kitchen")
    clip = await house.film("cam-0", "kitchen")
    await window.until("document.querySelector('#events .head')")  # by the WebSocket
    await window.until("document.querySelector('.alarm .pictures img')?.naturalWidth")
    play = f"document.querySelector('.alarm .clips a[href=\"{BASE}{clip}\"]')"
    await window.until(play)
    await window.ask("evaluate", script=f"{play}.previousSibling.click()")
    await window.until("document.querySelector('#viewer-video').currentTime > 0")
    await window.ask("click", selector="#viewer-close")
    await window.ask("evaluate", script="location.hash = 'day'")
    await window.until("!document.querySelector('#page-day').hidden")
    await window.ask("evaluate", script="location.hash = 'plan'")
    await window.ask("click", selector="#plan-edit")
    await window.ask("fill", selector="#plan-name", text="Ground floor")
    (folder / "floor.jpg").write_bytes(picture(1))
    await window.ask("upload", selector="#plan-file", path=str(folder / "floor.jpg"))
    await window.ask("click", selector="#plan-form button")
    await window.until("document.querySelector('#plan-image').naturalWidth === 320")
    assert await window.ask("problems") == []
    await window.ask("click", selector="#sign-out")
    await window.until(f"location.pathname === '{BASE}/login'")
    assert not await window.ask("evaluate", script="location.search"), "the page says nothing of an ended session"

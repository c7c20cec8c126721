"""A hub below a path of a shared host name, behind a proxy that removes the path from requests or not."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from embereye.hub.addon import Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.http.base_path import OWN, read_base_path
from embereye.hub.http.openapi.parts import file_of
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.process.http.server import bound_port, serve_http
from embereye.process.lifecycle import UserError

from .served import TOKEN

BASE = "/site/fire"


@dataclass
class Below:
    hub: Hub
    address: str
    removed: bool  # the proxy removes the base path from requests

    def url(self, path: str) -> str:
        """The address where the proxy requests BASE + `path`."""
        return self.address + ("" if self.removed else BASE) + path


@pytest.fixture(params=["kept", "removed"])
async def below(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Below]:
    store = StoreThreads(tmp_path)
    hub, clips = Hub(store, retention_ns=10**15), ClipStore(tmp_path / "clips")
    await hub.open()
    await clips.open()
    hub.access.set_admin_token(TOKEN)
    running = asyncio.ensure_future(hub.run())
    runner = await serve_http(Api(hub, clips, base_path=BASE).app(CollectorRegistry()), "127.0.0.1", 0)
    yield Below(hub, f"http://127.0.0.1:{bound_port(runner)}", request.param == "removed")
    await runner.cleanup()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await clips.close()
    await store.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


async def page(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str, str]:
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        return response.status, await response.text(), response.headers.get("Location", "")


async def signed_in(session: aiohttp.ClientSession, below: Below, **headers: str) -> SimpleCookie:
    async with session.post(below.url("/v1/session"), json={"token": TOKEN}, headers=headers) as response:
        assert response.status == 200
        return response.cookies


async def test_strangers_are_redirected_to_the_login_page_below_the_path(
    session: aiohttp.ClientSession, below: Below
) -> None:
    assert await page(session, below.url("/")) == (303, "", f"{BASE}/login")
    status, _, location = await page(session, below.url("/?a=b"))
    assert (status, location) == (303, f"{BASE}/login?next=/site/fire/?a%3Db")


async def test_the_path_without_a_slash_leads_to_the_console(session: aiohttp.ClientSession, below: Below) -> None:
    assert await page(session, below.address + BASE + "?a=b") == (303, "", f"{BASE}/?a=b")


@pytest.mark.parametrize("path", ["/", "/login", "/runbooks", "/runbooks/EmberEyeHubDown", "/login/oidc/callback"])
async def test_links_of_pages_lead_below_the_path(session: aiohttp.ClientSession, below: Below, path: str) -> None:
    _, text, _ = await page(session, below.url(path), Authorization=f"Bearer {TOKEN}")
    links = re.findall(r'(?:href|src)="(/[^"]*)"', text)
    assert all(link.startswith(f"{BASE}/") for link in links)
    for link in {link.removeprefix(BASE) for link in links}:
        assert (await page(session, below.url(link), Authorization=f"Bearer {TOKEN}"))[0] == 200, link
    assert (f'data-base="{BASE}"' in text) == (path != "/login/oidc/callback")


async def test_a_sessions_cookie_belongs_to_the_path_and_signs_in(session: aiohttp.ClientSession, below: Below) -> None:
    (cookie,) = (await signed_in(session, below)).values()
    port = below.address.rpartition(":")[2]
    assert (cookie.key, cookie["path"]) == (f"embereye_{port}_site_fire", BASE)
    sent = {"Cookie": f"{cookie.key}={cookie.value}", "Origin": below.address}
    assert (await page(session, below.url("/v1/access/me"), **sent))[0] == 200
    async with session.post(below.url("/v1/access/logout"), json={}, headers=sent) as response:
        assert (await response.json())["next"] == f"{BASE}/login"
        (ended,) = response.cookies.values()
        assert (ended["path"], ended["max-age"]) == (BASE, "0")
    assert (await page(session, below.url("/v1/access/me"), **sent))[0] == 401


async def test_behind_tls_the_cookie_has_the_prefix_for_paths(session: aiohttp.ClientSession, below: Below) -> None:
    (cookie,) = (await signed_in(session, below, **{"X-Forwarded-Proto": "https"})).values()
    assert (cookie.key.startswith("__Secure-embereye"), cookie["secure"]) == (True, True)


async def test_a_neighbours_cookie_at_the_root_ends_no_session(session: aiohttp.ClientSession, below: Below) -> None:
    (cookie,) = (await signed_in(session, below)).values()
    port = below.address.rpartition(":")[2]
    sent = {"Cookie": f"{cookie.key}={cookie.value}; embereye_{port}=of-a-hub-at-the-root"}
    assert (await page(session, below.url("/v1/access/me"), **sent))[0] == 200


async def test_the_feed_and_health_answer_below_the_path(session: aiohttp.ClientSession, below: Below) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with session.ws_connect(below.url("/v1/alarms/ws?alive_ms=1000"), headers=headers) as socket:
        assert (await socket.receive_json(timeout=30))["type"] == "TYPE_ALIVE"
    assert (await page(session, below.url("/healthz"), Host="any.balancer.example"))[0] == 200


async def test_the_description_names_the_path_as_its_server(session: aiohttp.ClientSession, below: Below) -> None:
    async with session.get(below.url("/v1/openapi.json"), headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert (await response.json())["servers"] == [{"url": BASE}]


async def test_roles_are_checked_below_the_path_too(session: aiohttp.ClientSession, below: Below) -> None:
    viewer = await below.hub.access.create_token(below.hub.access.identify(TOKEN, ""), "eye", Role.VIEWER)
    sent = {"Authorization": f"Bearer {viewer}"}
    assert (await page(session, below.url("/v1/zones"), **sent))[0] == 200
    assert (await page(session, below.url("/v1/audit"), **sent))[0] == 403
    assert (await page(session, below.url("/v1/zones")))[0] == 401


@pytest.mark.parametrize(
    ("text", "path"), [("", ""), ("/", ""), ("/fire", "/fire"), ("/fire/", "/fire"), ("/a/b~c.d_e-f", "/a/b~c.d_e-f")]
)
def test_a_base_path_is_read_without_a_slash_at_its_end(text: str, path: str) -> None:
    assert read_base_path(text) == path


@pytest.mark.parametrize(
    "text", ["fire", "//fire", "/a//b", "/a/../b", "/.", "/ü", "/a b", '/"', "https://a/b", "/a?b", "/" + "a" * 300]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path such as /fire"):
        read_base_path(text)


@pytest.mark.parametrize("own", ["/v1", "/login/here", "/static/"])
def test_a_path_of_the_hubs_own_pages_is_refused(own: str) -> None:
    with pytest.raises(ValueError, match="which is a page of the hub itself"):
        read_base_path(own)


async def test_the_refused_paths_are_those_of_the_routes(below: Below) -> None:
    firsts = {route.path.split("/")[1] for route in Api(below.hub).routes()}
    assert firsts - {""} <= OWN


async def test_a_path_of_an_addons_pages_is_refused(below: Below) -> None:
    class Pages:
        @Route("GET", "/radio/{channel}", None, "Play a channel", {200: file_of("the sound", "audio/ogg")})
        async def _play(self, _: web.Request) -> web.Response:
            return web.Response()

    parts = [Parts(routes=[Pages()])]
    assert Api(below.hub, addons=parts, base_path="/radios").base_path == "/radios"
    with pytest.raises(UserError, match="begins with /radio, which is a page of an add-on"):
        Api(below.hub, addons=parts, base_path="/radio/fire")

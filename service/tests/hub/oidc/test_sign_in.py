"""Signing in with a real identity provider: npm's oidc-provider, run by node, and a hub as a real process."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp
import pytest
from harness.hubs import HubProcess
from harness.need import OIDC_PROVIDER, OIDC_PROVIDER_FOLDER
from harness.stored import Stored

from embereye.process.addresses import free_ports

SECRET = "the clients secret: with+signs&of=forms"
SCRIPT = Path(__file__).with_name("provider.mjs")
GROUPS = {"ada": ["staff", "wardens"], "eve": ["staff"], "admin": ["chiefs", "wardens"]}

pytestmark = pytest.mark.needs(OIDC_PROVIDER)


@dataclass
class Site:
    hub: HubProcess
    provider: asyncio.subprocess.Process
    issuer: str
    secret: Path

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.hub.http_port}"

    async def ready(self) -> None:
        assert self.provider.stdout is not None
        async with asyncio.timeout(30):
            while await self.provider.stdout.readline() != b"ready\n":
                pass

    async def rotate(self) -> None:
        assert self.provider.stdin is not None
        self.provider.stdin.write(b"\n")
        await self.ready()


class Browser:
    """Follows redirections and fills in the provider's forms, as a person would."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.visited: list[str] = []

    async def __aenter__(self) -> "Browser":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def go(self, address: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Follow redirections up to a page; return its status and text."""
        for _ in range(20):
            self.visited.append(address)
            method = "POST" if form else "GET"
            async with self.session.request(method, address, data=form, allow_redirects=False) as response:
                if response.status not in {302, 303}:
                    return response.status, await response.text()
                address, form = urljoin(address, response.headers["Location"]), None
        raise AssertionError("redirected in circles")

    async def sign_in(self, name: str, after: str = "/", until: str = "/login/oidc/callback") -> tuple[int, str]:
        """Sign in at the provider; return the page that the hub then shows."""
        status, text = await self.go(f"{self.site.base}/login/oidc?next={after}")
        while action := re.search(r'<form[^>]*action="([^"]+)"', text):
            prompt = re.search(r'name="prompt" value="(\w+)"', text)
            if prompt is None or urlsplit(self.visited[-1]).path == until:
                break
            form = {"prompt": prompt[1], "login": name, "password": "any"}
            status, text = await self.go(urljoin(self.visited[-1], action[1]), form)
        return status, text

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"Origin": self.site.base, "Content-Type": "application/json"}
        data = json.dumps(body) if body is not None else None
        async with self.session.request(method, self.site.base + path, data=data, headers=headers) as response:
            return response.status, await response.json()

    @property
    def callback(self) -> str:
        """The latest address to which the provider sent this browser back."""
        return next(address for address in reversed(self.visited) if "/login/oidc/callback" in address)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """SQLite only: sessions are stored the same way for all people."""
    return Stored(tmp_path)


@pytest.fixture(params=["claims in the ID token", "claims from the user information"])
async def site(request: pytest.FixtureRequest, hub_process: HubProcess, tmp_path: Path) -> AsyncIterator[Site]:
    (port,) = free_ports(1)
    issuer, base = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{hub_process.http_port}"
    client = {
        "client_id": "embereye", "client_secret": SECRET, "redirect_uris": [f"{base}/login/oidc/callback"],
        "post_logout_redirect_uris": [f"{base}/login"],
    }  # fmt: skip
    settings = {
        "issuer": issuer, "port": port, "client": client, "groups": GROUPS,
        "modules": str(OIDC_PROVIDER_FOLDER / "node_modules"), "claimsFromUserInfo": "user" in request.param,
    }  # fmt: skip
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    with (tmp_path / "provider.log").open("wb") as log:
        provider = await asyncio.create_subprocess_exec(
            "node", str(SCRIPT), str(tmp_path / "settings.json"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    running = Site(hub_process, provider, issuer, secret)
    await running.ready()
    hub_process.start(
        "--oidc-issuer", issuer, "--oidc-client-id", "embereye", "--oidc-client-secret-file", str(secret),
        "--oidc-role", "operator=wardens", "--oidc-role", "admin=chiefs",
    )  # fmt: skip
    await hub_process.ready()
    yield running
    if provider.returncode is None:
        provider.kill()
    await provider.wait()


async def first_entry(hub: HubProcess) -> dict[str, str]:
    """Wait for the oldest entry of the audit trail, which is durable soon after the answer."""
    async with asyncio.timeout(10):
        while True:
            audit: Any = hub.get("/v1/audit")
            if audit["entries"]:
                entry: dict[str, str] = audit["entries"][-1]
                return entry
            await asyncio.sleep(0.05)


once = pytest.mark.parametrize("site", ["claims in the ID token"], indirect=True)


async def test_a_signed_in_person_has_the_role_of_their_highest_group(site: Site) -> None:
    async with Browser(site) as browser:
        assert await browser.ask("GET", "/v1/session") == (200, {"provider": urlsplit(site.issuer).netloc})
        status, page = await browser.sign_in("ada", after="/%3Fzone=hall")
        assert (status, "Signed in as ada." in page) == (200, True)
        assert '<meta http-equiv="refresh" content="0;url=/?zone=hall">' in page
        assert await browser.ask("GET", "/v1/access/me") == (200, {"name": "ada", "role": "operator"})
        assert (await browser.ask("GET", "/v1/access/tokens"))[0] == 403
    entry = await first_entry(site.hub)
    assert [entry[name] for name in ("who", "role", "action", "subject")] == [
        "ada", "operator", "sign in", urlsplit(site.issuer).netloc,
    ]  # fmt: skip


@once
async def test_a_person_with_the_name_of_a_token_gets_another_name(site: Site) -> None:
    async with Browser(site) as browser:
        await browser.sign_in("admin")
        _, me = await browser.ask("GET", "/v1/access/me")
        assert me == {"name": f"admin ({urlsplit(site.issuer).netloc})", "role": "admin"}


@once
async def test_a_person_without_a_role_is_refused_with_a_reason(site: Site) -> None:
    async with Browser(site) as browser:
        status, page = await browser.sign_in("eve")
        assert (status, "eve has no role here: no value of groups" in page) == (403, True)
        assert (await browser.ask("GET", "/v1/access/me"))[0] == 401


@once
async def test_new_keys_of_the_provider_are_fetched_when_they_are_used(site: Site) -> None:
    async with Browser(site) as browser:
        await browser.sign_in("ada")
    await site.rotate()
    await asyncio.sleep(5.5)  # keys are not fetched more often
    async with Browser(site) as browser:
        assert (await browser.sign_in("ada"))[0] == 200


@once
async def test_an_answer_is_accepted_once_and_in_the_requesting_browser_only(site: Site) -> None:
    async with Browser(site) as ada, Browser(site) as eve:
        await ada.sign_in("ada")
        status, page = await ada.go(ada.callback)
        assert (status, "has not started to sign in here" in page) == (403, True)
        await eve.go(f"{site.base}/login/oidc")
        status, page = await eve.go(ada.callback)
        assert (status, "another attempt" in page) == (403, True)
        assert (await eve.ask("GET", "/v1/access/me"))[0] == 401


@once
async def test_a_code_from_another_attempt_is_refused_by_the_provider(site: Site) -> None:
    async with Browser(site) as ada, Browser(site) as eve:
        await ada.sign_in("ada", until="/nowhere")
        code = parse_qs(urlsplit(ada.callback).query)["code"][0]
        await eve.go(f"{site.base}/login/oidc")
        state = parse_qs(urlsplit(eve.visited[1]).query)["state"][0]
        status, page = await eve.go(f"{site.base}/login/oidc/callback?code={code}&state={state}&iss={site.issuer}")
        assert (status, "answers 400" in page) == (403, True)
        status, page = await eve.go(
            f"{site.base}/login/oidc/callback?code={code}&state={state}&iss=https://evil.example"
        )
        assert status == 403


@once
async def test_guessing_at_the_callback_is_slowed(site: Site) -> None:
    async with Browser(site) as browser:

        async def guess() -> int:
            browser.visited.clear()
            await browser.go(f"{site.base}/login/oidc")
            state = parse_qs(urlsplit(browser.visited[1]).query)["state"][0]
            callback = f"{site.base}/login/oidc/callback?code=x&state={state}&iss={site.issuer}"
            return (await browser.go(callback))[0]

        answers = [await guess() for _ in range(15)]
        assert answers[:10] == [403] * 10
        assert 429 in answers  # after the burst, one attempt in three seconds is allowed


@once
async def test_callbacks_without_an_attempt_lock_out_nobody_at_the_same_address(site: Site) -> None:
    async with Browser(site) as stranger, Browser(site) as ada:
        for _ in range(30):
            status, page = await stranger.go(f"{site.base}/login/oidc/callback?code=x&state=y")
            assert (status, "has not started to sign in here" in page) == (403, True)
        assert (await ada.sign_in("ada"))[0] == 200
    assert "is refused" not in site.hub.log(), "the log must not fill"


@once
async def test_a_changed_client_secret_is_read_again(site: Site) -> None:
    site.secret.write_text("another")
    async with Browser(site) as browser:
        status, page = await browser.sign_in("ada")
        assert (status, "answers 401" in page) == (403, True)
    site.secret.write_text(SECRET)
    async with Browser(site) as browser:
        assert (await browser.sign_in("ada"))[0] == 200


@once
async def test_signing_out_ends_the_session_and_leads_to_the_provider(site: Site) -> None:
    async with Browser(site) as browser:
        await browser.sign_in("ada")
        status, answer = await browser.ask("POST", "/v1/access/logout", {})
        assert status == 200
        assert (await browser.ask("GET", "/v1/access/me"))[0] == 401
        assert answer["next"].startswith(site.issuer)
        status, page = await browser.go(answer["next"])
        assert (status, "sign-out" in page) == (200, True)


@once
async def test_without_its_provider_the_hub_says_so_and_accepts_tokens(site: Site) -> None:
    site.provider.kill()
    await site.provider.wait()
    async with Browser(site) as browser:
        status, page = await browser.go(f"{site.base}/login/oidc")
        assert (status, "cannot be reached" in page) == (502, True)
        assert (await browser.ask("POST", "/v1/session", {"token": site.hub.token}))[0] == 200

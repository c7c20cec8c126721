"""Web Push to an endpoint that decrypts, as a browser does, and the console's part."""

import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import http_ece
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness.eventually import eventually
from harness.stored import Stored
from py_vapid import Vapid02

from .hub_of import TOKEN, options, route, running


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class Browser:
    """A browser's subscription and its push service."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    secret: bytes = field(default_factory=lambda: os.urandom(16))
    messages: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 201
    port: int = 0
    path: str = "/push/1"

    async def push(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.headers.append(dict(request.headers))
        if self.status == 201:
            plain = http_ece.decrypt(body, private_key=self.key, auth_secret=self.secret, version="aes128gcm")
            self.messages.append(json.loads(plain))
        return web.Response(status=self.status)

    def subscription(self) -> dict[str, Any]:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": text_of(point), "auth": text_of(self.secret)}
        return {"endpoint": f"http://127.0.0.1:{self.port}{self.path}", "keys": keys, "expirationTime": None}

    def text(self) -> str:
        """All messages."""
        return json.dumps([[message["title"], message["body"]] for message in self.messages])


@contextlib.asynccontextmanager
async def push_service(*browsers: Browser) -> AsyncIterator[None]:
    """Run the push services of `browsers`."""
    app = web.Application()
    for number, browser in enumerate(browsers, 1):
        browser.path = f"/push/{number}"
        app.router.add_post(browser.path, browser.push)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for browser in browsers:
        browser.port = int(runner.addresses[0][1])
    yield
    await runner.cleanup()


async def test_a_subscribed_browser_gets_alarms_encrypted_and_signed(stored: Stored) -> None:
    browser = Browser()
    async with push_service(browser):
        await subscribe_and_burn(stored, browser)


async def subscribe_and_burn(stored: Stored, browser: Browser) -> None:
    wanted = options(route("browsers", "webpush://"), public_url="https://hub.invalid")
    async with running(stored, wanted, http=True) as site:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{site.port}", headers=headers) as session:
            offer = await (await session.get("/v1/notify/push")).json()
            assert offer["routes"] == ["browsers"]
            assert (await session.post("/v1/notify/push", json={"endpoint": "x"})).status == 400
            assert (await session.post("/v1/notify/push", json=browser.subscription())).status == 200
            console = await (await session.get("/")).text()
            assert '<script src="/notify/notify.js" type="module">' in console
            for file in ("notify.js", "siren.js", "worker.js"):
                answer = await session.get(f"/notify/{file}")
                assert (answer.status, answer.content_type) == (200, "text/javascript")
            assert (await session.get("/notify/other.js")).status == 404
        site.ignite()
        await eventually(lambda: browser.messages)
        (message,) = browser.messages
        assert (message["title"], message["kind"]) == ("ALARM: default/hall", "failure")
        assert message["link"].startswith("https://hub.invalid/n/")
        proof = browser.headers[0]["Authorization"]
        assert Vapid02.verify(proof)
        assert offer["key"] in proof
    browser.status = 410
    async with running(stored, wanted) as site:
        await site.notifier.test("browsers", "ada")
        refusal = await site.notifier.test("browsers", "ada")
        assert refusal is not None
        assert "no device has subscribed" in refusal.why

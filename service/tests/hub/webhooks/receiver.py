"""A server that webhooks call, and a hub with webhooks."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from aiohttp import web
from harness.stored import Stored

from embereye.hub.hub import Hub
from embereye.hub.webhooks.keeper import Webhooks
from embereye.hub.webhooks.options import WebhookOptions
from embereye.process.timing.backoff import Backoff

LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass
class Receiver:
    """A server that answers with the next of `answers`, or with 204 after them."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    accepted: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        status = self.answers.pop(0) if self.answers else 204
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        if status < 300:
            self.accepted.append(json.loads(self.bodies[-1]))
        headers = {"Location": f"http://127.0.0.1:{self.port}/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, headers=headers)

    @property
    def cursors(self) -> list[int]:
        return [int(body["event"]["cursor"]) for body in self.accepted]

    def options(self, name: str = "pager", **changed: Any) -> WebhookOptions:
        return WebhookOptions(name, f"http://127.0.0.1:{self.port}/hook?key=1", **{"allow": LOOPBACK, **changed})


@contextlib.asynccontextmanager
async def run(
    stored: Stored, *declared: WebhookOptions, clock: Callable[[], int] = time.time_ns, retention_ns: int = 10**18
) -> AsyncIterator[Hub]:
    store = stored.threads()
    hub = Hub(store, retention_ns=retention_ns, clock=clock)
    hub.webhooks = Webhooks(hub.committer, hub.feed, store, hub.timeline, backoff=lambda: Backoff(floor=0.01, cap=0.02))
    await hub.open()
    hub.webhooks.declare(declared)
    running = asyncio.ensure_future(hub.run())
    try:
        yield hub
    finally:
        await hub.committer.flush(10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()

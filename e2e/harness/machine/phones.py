"""Two phones with their providers, to which a site's hub sends alarms, and the books of what reached a person.

Both providers are servers in ntfy's form. The first one can be down, slow or refusing, and its name can vanish from
name resolution. The second one always works; the escalation uses it only if the first fails, or nobody acknowledges.
"""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from harness.eventually import eventually

HOST = "127.0.0.1"
NAME = "provider.test"  # resolves by the hosts file that a site's processes see
EARLIER = " (since an earlier message)"
FOLD_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0  # of the hub for one attempt
PATIENCE_SECONDS = 3_600.0  # until the second phone, if the first works


class Phones:
    """Owns both providers. `async with` runs them."""

    def __init__(self, folder: Path, *, is_named: bool) -> None:
        """`folder` gets notify.yaml; if `is_named`, it names the first provider, else it has its address."""
        self.hosts = folder / "hosts"  # to be mounted over /etc/hosts
        self.resolver = folder / "resolv.conf"  # to be mounted over /etc/resolv.conf
        self.config = folder / "notify.yaml"
        self.reached: dict[str, float] = {}  # zone → monotonic seconds of its first message
        self.is_slow = self.is_refusing = False
        self._is_named = is_named
        self._mended = asyncio.Event()
        self._runners: list[web.AppRunner] = []
        self._ports = [0, 0]

    async def __aenter__(self) -> "Phones":
        for number in range(len(self._ports)):
            await self.open(number)
        self.resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        self.know_name()
        self._write_config()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._mended.set()
        for runner in self._runners:
            await runner.cleanup()

    def _write_config(self) -> None:
        hosts = [NAME if self._is_named else HOST, HOST]
        routes = [
            {"name": f"phone-{number}", "url": f"ntfy://{host}:{port}/alarms", "allow": "127.0.0.0/8",
             "timeout": f"{TIMEOUT_SECONDS:g}s"}
            for number, (host, port) in enumerate(zip(hosts, self._ports, strict=True))
        ]  # fmt: skip
        steps = [{"routes": "phone-0"}, {"after": f"{PATIENCE_SECONDS:g}s", "routes": "phone-1"}]
        escalation = {"name": "fire", "for": "alarm", "zones": "fire-*", "steps": steps}
        document = {"fold": f"{FOLD_SECONDS:g}s", "routes": routes, "escalations": [escalation]}
        self.config.write_text(json.dumps(document))

    async def open(self, number: int = 0) -> None:
        """Start a provider, at the same port as before."""
        app = web.Application(client_max_size=10**7)
        app.router.add_route("*", "/{tail:.*}", self._answer if number == 0 else self._accept)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, HOST, self._ports[number], reuse_address=True)
        await site.start()
        self._ports[number] = int(runner.addresses[0][1])
        self._runners.insert(number, runner)

    async def close(self) -> None:
        """Stop the first provider: connections are refused."""
        await self._runners.pop(0).cleanup()

    def know_name(self, *, known: bool = True) -> None:
        """Let the first provider's name resolve, or not."""
        name = f"{HOST} {NAME}\n" if known else ""
        self.hosts.write_text(f"{HOST} localhost\n::1 localhost\n{name}")

    def mend(self) -> None:
        """Let the first provider work again, and release requests that wait."""
        self.is_slow = self.is_refusing = False
        self._mended.set()
        self._mended = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.Response:
        if self.is_refusing:
            return web.json_response({"error": "overloaded"}, status=503)
        if self.is_slow:
            await self._mended.wait()
            return web.json_response({"error": "too late"}, status=503)
        return await self._accept(request)

    async def _accept(self, request: web.Request) -> web.Response:
        content: Any = await request.read()
        document = json.loads(content) if request.content_type == "application/json" else request.query
        for line in f"{document.get('title', '')}\n{document.get('message', '')}".splitlines():
            if EARLIER not in line:
                for zone in re.findall(r"default/([\w-]+)", line):
                    self.reached.setdefault(zone, time.monotonic())
        return web.json_response({"id": "1"})

    async def wait(self, zone: str, limit: float) -> None:
        """Wait until a phone has the alarm of `zone`. AssertionError after `limit` seconds."""
        await eventually(lambda: zone in self.reached, limit, f"an alarm in {zone} on a phone")

"""A real Prometheus, asked over its HTTP API: what it scrapes, and which alerts fire that did not before."""

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from harness.matrix.rules import Standing, labels, states

ANSWER_SECONDS = 20.0
SILENT = (OSError, ValueError, TimeoutError)  # what asking one that is away, or about to be there, ends with


class PrometheusApi:
    """At `address`, host:port."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.standing = Standing()

    async def get(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        host, _, port = self._address.partition(":")
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                target = f"/api/v1/{path}?{urllib.parse.urlencode(query)}"
                writer.write(f"GET {target} HTTP/1.0\r\nHost: prometheus\r\n\r\n".encode())
                _, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        answer = json.loads(body)
        assert answer["status"] == "success", (path, query, answer)
        return answer["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression comes to now."""
        found: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return found

    async def alerts(self) -> Mapping[str, str]:
        """The state, "pending" or "firing", of every alert that is not inactive; none where it does not answer.

        Those that stood before anything began are left out.
        """
        return self.standing.without(states(await self._alerts()))

    async def labelled(self) -> Mapping[str, Sequence[str]]:
        """Of every alert that is not inactive, by name, the labels of each, as PromQL writes them."""
        return labels(await self._alerts())

    async def _alerts(self) -> Sequence[Mapping[str, Any]]:
        with contextlib.suppress(*SILENT):
            found: list[dict[str, Any]] = (await self.get("alerts"))["alerts"]
            return found
        return ()

    async def settled(self, targets: int) -> bool:
        """Whether it scrapes `targets` and more, none in vain, and its alerts stay as they are: those stand then.

        To be asked once a second.
        """
        try:
            known = (await self.get("rules"))["groups"]
            scraped = (await self.get("targets"))["activeTargets"]
        except SILENT:
            return False
        up = len(scraped) >= targets and all(target["health"] == "up" for target in scraped)
        return bool(known) and up and self.standing.settled(states(await self._alerts()))

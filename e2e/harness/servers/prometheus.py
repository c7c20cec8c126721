"""A client of a real Prometheus: its targets, and the alerts that started to fire since the baseline."""

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from harness.matrix.rules import BaselineAlerts, labels, states

ANSWER_SECONDS = 20.0
SILENT = (OSError, ValueError, TimeoutError)  # errors of a Prometheus that is down or starting


class PrometheusApi:
    """The HTTP API of a Prometheus at `address`, host:port."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.baseline = BaselineAlerts()

    async def get(self, path: str, **query: str) -> Any:
        """Query the API and return the answer's data."""
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
        """Evaluate a PromQL expression now."""
        rows: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return rows

    async def alerts(self) -> Mapping[str, str]:
        """The state, "pending" or "firing", of every active alert; empty if Prometheus does not answer.

        Alerts of the baseline are left out.
        """
        return self.baseline.without(states(await self._alerts()))

    async def labelled(self) -> Mapping[str, Sequence[str]]:
        """Name → the labels of each active alert, in PromQL's form."""
        return labels(await self._alerts())

    async def _alerts(self) -> Sequence[Mapping[str, Any]]:
        with contextlib.suppress(*SILENT):
            alerts: list[dict[str, Any]] = (await self.get("alerts"))["alerts"]
            return alerts
        return ()

    async def is_stable(self, targets: int) -> bool:
        """True if it scrapes at least `targets` targets without errors and its alerts have been stable for a while.

        Poll it once a second. The firing alerts become the baseline.
        """
        try:
            known = (await self.get("rules"))["groups"]
            scraped = (await self.get("targets"))["activeTargets"]
        except SILENT:
            return False
        up = len(scraped) >= targets and all(target["health"] == "up" for target in scraped)
        return bool(known) and up and self.baseline.update(states(await self._alerts()))

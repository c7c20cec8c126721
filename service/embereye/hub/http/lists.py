"""Long lists as JSON: made in pieces between which the hub goes on, once for all who ask, and compressed once."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from embereye.process.tasks import start_task

SLICE_SECONDS = 0.005  # of work on a list, after which everything else has its turn
REST = 4.0  # times as long as a list took to make is it given out before it is made anew
SHORT = 2_048  # bytes that are not worth compressing
LEVEL = 1  # of gzip: the next one saves a twentieth and costs half as much again

Json = dict[str, object]
Entry = tuple[str, str]  # the key that a page ends with, JSON


class SharedList:
    """Serves {NAME: [entries…], other fields}. `entries` gives keys with what makes them; `fields` what stands beside.

    `?limit=N&after=KEY` asks for a page: at most N entries behind that key, and `next`, the key to go on with, where
    there are more.
    """

    def __init__(
        self,
        name: str,
        entries: Callable[[], Iterable[tuple[str, Callable[[], Json]]]],
        fields: Callable[[], Json],
        *,
        period: float = 0.0,
    ) -> None:
        """It is made anew for whoever asks more than `period` seconds after it was made."""
        self._name = name
        self._entries = entries
        self._fields = fields
        self._period = period
        self._made = -1e9  # monotonic seconds
        self._took = 0.0  # seconds
        self._making: asyncio.Task[None] | None = None
        self._list: Sequence[Entry] = ()
        self._beside: Json = {}
        self._whole = b""
        self._packed = b""

    async def answer(self, request: web.Request, limit: int, after: str) -> web.Response:
        """The list, or the page behind the key `after` where `limit` is not 0."""
        if time.monotonic() - self._made > max(self._period, REST * self._took):
            if self._making is None:
                self._making = start_task(self._make(), name=f"list-{self._name}")
            # Whoever goes away meanwhile takes nothing from the others.
            await asyncio.shield(self._making)
        if limit or after:
            return self._page(limit or len(self._list), after)
        response = web.Response(content_type="application/json", charset="utf-8")
        if self._packed and "gzip" in request.headers.get("Accept-Encoding", ""):
            response.headers["Content-Encoding"] = "gzip"
            response.body = self._packed
        else:
            response.body = self._whole
        response.headers["Vary"] = "Accept-Encoding"
        return response

    async def _make(self) -> None:
        try:
            worked, until = 0.0, time.monotonic() + SLICE_SECONDS
            made: list[Entry] = []
            for key, make in list(self._entries()):
                made.append((key, json.dumps(make())))
                if (now := time.monotonic()) > until:
                    worked += SLICE_SECONDS + now - until
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE_SECONDS
            self._beside = self._fields()
            self._list = made
            self._whole = _document(self._name, made, self._beside)
            self._packed = b""
            if len(self._whole) > SHORT:
                self._packed = await asyncio.to_thread(gzip.compress, self._whole, LEVEL)
            self._made, self._took = time.monotonic(), worked
        finally:
            self._making = None

    def _page(self, limit: int, after: str) -> web.Response:
        start = next((number + 1 for number, (key, _) in enumerate(self._list) if key == after), 0) if after else 0
        page = self._list[start : start + limit]
        more = {"next": page[-1][0]} if page and start + limit < len(self._list) else {}
        return web.Response(body=_document(self._name, page, {**self._beside, **more}), content_type="application/json")


def _document(name: str, entries: Iterable[Entry], fields: Mapping[str, Any]) -> bytes:
    rest = json.dumps(fields)[1:]
    comma = ", " if fields else ""
    return f'{{"{name}": [{", ".join(text for _, text in entries)}]{comma}{rest}'.encode()

"""Long lists as JSON: made in pieces between which the hub goes on, once for all who ask, and compressed once."""

import asyncio
import gzip
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from aiohttp import web

from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.process.tasks import start_task

SLICE_SECONDS = 0.005  # of work on a list, after which everything else has its turn
REST = 4.0  # times as long as a list took to make is it given out before it is made anew
SHORT = 2_048  # bytes that are not worth compressing
LEVEL = 1  # of gzip: the next one saves a twentieth and costs half as much again

Json = dict[str, object]


@dataclass(frozen=True)
class Facts:
    """By what an entry is found among the others."""

    urgency: int = 0  # greater for what is to be seen first
    text: str = ""  # in lower case, which a search looks through
    picture: bool = False  # whether there is anything to look at


@dataclass(frozen=True)
class Source:
    """An entry before it is made: the key that a page ends with, and what makes its JSON."""

    key: str
    make: Callable[[], Json]
    facts: Facts = Facts()


@dataclass(frozen=True)
class Entry:
    """One entry of the list, made."""

    key: str
    json: str
    facts: Facts


class SharedList:
    """Serves {NAME: [entries…], other fields}. `entries` gives sources of entries; `fields` what stands beside.

    `?limit=N&after=KEY` asks for a page: at most N entries in order of their keys, behind one that may be gone by now,
    and `next`, the key to go on with, where there are more. `?order=urgent`, `?text=` and `?pictures=1` ask for entries
    by their facts: `total` of them there are, and `?offset=` says how many of these are left out.
    """

    def __init__(
        self,
        name: str,
        entries: Callable[[], Iterable[Source]],
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
        self._ordered: Sequence[Entry] = ()  # the most urgent first
        self._keyed: Sequence[Entry] = ()  # by their keys: what happens between two pages moves none
        self._beside: Json = {}
        self._whole = b""
        self._packed = b""

    async def answer(self, request: web.Request) -> web.Response:
        """The list, or what the query of `request` asks for of it; Refused where that is nothing."""
        limit, after = number_of(request, "limit", 0), request.query.get("after", "")
        wanted = _wanted(request)
        if time.monotonic() - self._made > max(self._period, REST * self._took):
            if self._making is None:
                self._making = start_task(self._make(), name=f"list-{self._name}")
            # Whoever goes away meanwhile takes nothing from the others.
            await asyncio.shield(self._making)
        if wanted:
            return self._selected(wanted, limit)
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
            sources, beside = list(self._entries()), self._fields()  # of one moment: what comes next is behind both
            for source in sources:
                made.append(Entry(source.key, json.dumps(source.make()), source.facts))
                if (now := time.monotonic()) > until:
                    worked += SLICE_SECONDS + now - until
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE_SECONDS
            self._beside = beside
            self._list = made
            self._ordered = sorted(made, key=lambda entry: -entry.facts.urgency)
            self._keyed = sorted(made, key=attrgetter("key"))
            self._whole = self._body(made, self._beside)
            self._packed = b""
            if len(self._whole) > SHORT:
                self._packed = await asyncio.to_thread(gzip.compress, self._whole, LEVEL)
            self._made, self._took = time.monotonic(), worked
        finally:
            self._making = None

    def _page(self, limit: int, after: str) -> web.Response:
        start = bisect_right(self._keyed, after, key=attrgetter("key"))
        page = self._keyed[start : start + limit]
        more = {"next": page[-1].key} if page and start + limit < len(self._keyed) else {}
        return web.Response(body=self._body(page, {**self._beside, **more}), content_type="application/json")

    def _selected(self, wanted: "_Wanted", limit: int) -> web.Response:
        entries = self._ordered if wanted.urgent else self._list
        if wanted.words or wanted.pictures:
            entries = [entry for entry in entries if wanted.matches(entry.facts)]
        page = entries[wanted.offset : wanted.offset + limit if limit else None]
        beside = {**self._beside, "total": len(entries)}
        return web.Response(body=self._body(page, beside), content_type="application/json")

    def _body(self, entries: Iterable[Entry], fields: Json) -> bytes:
        return _document(self._name, (entry.json for entry in entries), fields)


async def written(name: str, entries: Iterable[Json], fields: Json) -> web.Response:
    """{NAME: [entries…], other fields}, where each entry takes long, as an event that lists hundreds of signs.

    They are made in a thread, and each written out by itself: all at once would hold everything else up.
    """
    texts = (json.dumps(entry) for entry in entries)
    return web.Response(body=await asyncio.to_thread(_document, name, texts, fields), content_type="application/json")


def _document(name: str, texts: Iterable[str], fields: Mapping[str, Any]) -> bytes:
    rest = json.dumps(fields)[1:]
    comma = ", " if fields else ""
    return f'{{"{name}": [{", ".join(texts)}]{comma}{rest}'.encode()


@dataclass(frozen=True)
class _Wanted:
    """Which entries a query asks for by their facts."""

    urgent: bool
    offset: int
    words: tuple[str, ...]  # each of which has to be found
    pictures: bool

    def matches(self, facts: Facts) -> bool:
        return (facts.picture or not self.pictures) and all(word in facts.text for word in self.words)


def _wanted(request: web.Request) -> _Wanted | None:
    query = request.query
    if not {"order", "offset", "text", "pictures"} & query.keys():
        return None
    if (order := query.get("order", "")) not in {"", "urgent"}:
        raise Refused(400, f'order: "{order[:50]}" is not "urgent"')
    return _Wanted(
        urgent=bool(order),
        offset=number_of(request, "offset", 0),
        words=tuple(query.get("text", "").lower().split()),
        pictures=bool(number_of(request, "pictures", 0, 1)),
    )

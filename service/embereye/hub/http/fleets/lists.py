"""Long lists as JSON: made in slices between other work, once for all requests, and compressed once.

The first request after a list has expired starts a task that makes it; other requests wait for the same task. It
collects all sources at one moment, and makes their entries in slices of SLICE_SECONDS, so that other work is never
delayed for long.

The finished list answers all requests for at least REST times the time that it took to make. Pages and searches only
select finished entries. `written` is for lists that differ by request: a thread makes them.
"""

import asyncio
import gzip
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from aiohttp import web

from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import WORD, Json, query, whole
from embereye.hub.http.parameters import number_of
from embereye.hub.http.refused import Refused
from embereye.hub.roles import Scope
from embereye.process.tasks import start_task

SLICE_SECONDS = 0.005  # of work on a list before other work has its turn
REST = 4.0  # a list is reused for this many times its making time
SHORT = 2_048  # bytes from which on a list is compressed
LEVEL = 1  # of gzip: level 2 saves 5 % and costs half as much again
# The query of a shared list, as it is described.
TAKES = [
    query("limit", whole(), "maximum number of entries; 0: all"),
    query("after", WORD, "the last key of the previous page, its `next`; pages are in the order of keys"),
    query(
        "order",
        {"type": "string", "enum": ["", "urgent", "alarm"]},
        "urgent: the most urgent entries first, such as dark devices and zones in alarm; alarm: those of zones in "
        "alarm first, then by urgency",
    ),
    query("zone", WORD, "only entries of the zone NAMESPACE/ZONE"),
    query("text", WORD, "only entries that contain each of these words; the answer has their number in `total`"),
    query("pictures", whole(1), "1: only entries that have pictures, or should have"),
    query("offset", whole(), "number of selected entries to skip; instead of `after`"),
]


@dataclass(frozen=True)
class Facts:
    """An entry's facts for searching and sorting."""

    urgency: int = 0  # greater: listed earlier
    text: str = ""  # searched text, in lower case
    picture: bool = False  # True if it has a picture
    severity: int = 0  # of its zone's state; greater: listed earlier in the order "alarm"
    zone: str = ""  # "namespace/zone"
    fleet: str = ""  # of a device: "namespace/kind/name"

    def is_in(self, scope: Scope) -> bool:
        """True if the entry's zone or device is in `scope`."""
        namespace, _, zone = self.zone.partition("/")
        return scope.has_device(self.fleet, zone) if self.fleet else scope.has_zone(namespace, zone)


@dataclass(frozen=True)
class Source:
    """An entry before it is made: its key for paging, and the function that makes its JSON."""

    key: str
    make: Callable[[], Json]
    facts: Facts = Facts()


@dataclass(frozen=True)
class Entry:
    """One finished entry of the list."""

    key: str
    json: str
    facts: Facts


@dataclass(eq=False)
class SharedList:
    """Serves {NAME: [entries…], other fields}. `entries` yields the entries' sources; `fields` makes the other fields.

    `?limit=N&after=KEY` requests a page: at most N entries in the order of their keys, after KEY, which need not exist
    any more. `next` is the key of the following page, if there is one. `?order=`, `?text=`, `?zone=` and `?pictures=1`
    select entries by their facts; `total` is their number, and `?offset=` skips that many of them.
    """

    name: str
    entries: Callable[[], Iterable[Source]]
    fields: Callable[[], Json]
    period: float = 0.0  # seconds after it was made, after which the list is made again for a request
    scoped_fields: Callable[[Scope], Json] = lambda _: {}  # that differ for callers who are limited to zones
    _made: float = field(default=-1e9, init=False)  # monotonic seconds
    _making_seconds: float = field(default=0.0, init=False)  # seconds
    _making: asyncio.Task[None] | None = field(default=None, init=False)
    _ordered: dict[str, Sequence[Entry]] = field(default_factory=dict, init=False)  # by the query's order
    _keyed: Sequence[Entry] = field(default=(), init=False)  # by their keys, which do not move between two pages
    _other_fields: Json = field(default_factory=dict, init=False)
    _whole: bytes = field(default=b"", init=False)
    _packed: bytes = field(default=b"", init=False)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with the list or with the part that the query requests; Refused if the query is wrong."""
        limit, after = number_of(request, "limit", 0), request.query.get("after", "")
        wanted = _wanted(request)
        if time.monotonic() - self._made > max(self.period, REST * self._making_seconds):
            if self._making is None:
                self._making = start_task(self._make(), name=f"list-{self.name}")
            # A client that leaves in the meantime does not cancel the work for the others.
            await asyncio.shield(self._making)
        scope = request[PRINCIPAL].scope
        if scope.is_limited or wanted or limit or after:
            return self._part(scope, wanted, limit, after)
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
            sources, other_fields = list(self.entries()), self.fields()  # of one moment: later events are behind both
            for source in sources:
                made.append(Entry(source.key, json.dumps(source.make()), source.facts))
                if (now := time.monotonic()) > until:
                    worked += SLICE_SECONDS + now - until
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE_SECONDS
            self._other_fields = other_fields
            urgent = sorted(made, key=lambda entry: -entry.facts.urgency)
            self._ordered = {
                "": made, "urgent": urgent, "alarm": sorted(urgent, key=lambda entry: -entry.facts.severity),
            }  # fmt: skip
            self._keyed = sorted(made, key=attrgetter("key"))
            self._whole = self._body(made, self._other_fields)
            self._packed = b""
            if len(self._whole) > SHORT:
                self._packed = await asyncio.to_thread(gzip.compress, self._whole, LEVEL)
            self._made, self._making_seconds = time.monotonic(), worked
        finally:
            self._making = None

    def _part(self, scope: Scope, wanted: "_Wanted | None", limit: int, after: str) -> web.Response:
        """Answer with entries of the zones in `scope`: all, a page of them, or the wanted ones."""
        fields = {**self._other_fields, **(self.scoped_fields(scope) if scope.is_limited else {})}
        chosen = wanted or _Wanted()
        is_page = wanted is None and bool(limit or after)
        entries = self._keyed if is_page else self._ordered[chosen.order]
        if scope.is_limited:
            entries = [entry for entry in entries if entry.facts.is_in(scope)]
        if chosen.words or chosen.pictures or chosen.zone:
            entries = [entry for entry in entries if chosen.is_match(entry.facts)]
        start = bisect_right(entries, after, key=attrgetter("key")) if is_page else chosen.offset
        part = entries[start : start + limit if limit else None]
        if wanted:
            fields["total"] = len(entries)
        elif is_page and part and start + len(part) < len(entries):
            fields["next"] = part[-1].key
        return web.Response(body=self._body(part, fields), content_type="application/json")

    def _body(self, entries: Iterable[Entry], fields: Json) -> bytes:
        return _document(self.name, (entry.json for entry in entries), fields)


async def written(name: str, entries: Iterable[Json], fields: Json) -> web.Response:
    """Answer {NAME: [entries…], other fields} with entries that take long, such as events with hundreds of signs.

    A thread makes and writes them one after the other, because all at once would block the event loop.
    """
    texts = (json.dumps(entry) for entry in entries)
    return web.Response(body=await asyncio.to_thread(_document, name, texts, fields), content_type="application/json")


def _document(name: str, texts: Iterable[str], fields: Mapping[str, Any]) -> bytes:
    rest = json.dumps(fields)[1:]
    comma = ", " if fields else ""
    return f'{{"{name}": [{", ".join(texts)}]{comma}{rest}'.encode()


@dataclass(frozen=True)
class _Wanted:
    """The entries that a query requests by their facts."""

    order: str = ""
    offset: int = 0
    zone: str = ""  # "namespace/zone"; empty: all
    words: tuple[str, ...] = ()  # an entry must have all of them
    pictures: bool = False

    def is_match(self, facts: Facts) -> bool:
        if self.zone and facts.zone != self.zone:
            return False
        return (facts.picture or not self.pictures) and all(word in facts.text for word in self.words)


def _wanted(request: web.Request) -> _Wanted | None:
    query = request.query
    if not {"order", "offset", "text", "pictures", "zone"} & query.keys():
        return None
    if (order := query.get("order", "")) not in {"", "urgent", "alarm"}:
        raise Refused(400, f'order: "{order[:50]}" is not "urgent" or "alarm"')
    return _Wanted(
        order=order,
        zone=query.get("zone", ""),
        offset=number_of(request, "offset", 0),
        words=tuple(query.get("text", "").lower().split()),
        pictures=bool(number_of(request, "pictures", 0, 1)),
    )

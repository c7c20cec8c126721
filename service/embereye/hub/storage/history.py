"""What was stored of the past: events, the pictures and signs of an alarm; and how the oldest of it goes."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from embereye.hub.access.records import AuditEntry
from embereye.hub.databases.interface import StoreError
from embereye.hub.feeds.feed import Feed
from embereye.hub.feeds.selection import EVERYTHING, Selection
from embereye.hub.storage.alarms import AlarmQuery
from embereye.hub.storage.committer import Committer
from embereye.hub.storage.store import ENDLESS, EventBounds, Store, StoreThreads
from embereye.process.timing.clock import Timeline
from embereye.units import DAY
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.timeline import PastAlarm

logger = logging.getLogger(__name__)
DEFAULT_EVENTS = 100  # in one answer, where a request names no number
MAX_EVENTS = 1_000  # in one answer
PART = 500  # events read at once
FEW_ZONES = 20  # that the database looks for by itself
MAX_EVENTS_READ = 5_000  # events, for one answer
PRUNE_SECONDS = 60.0  # between two rounds
# For which it is known which reports were taken: what burns is reported every second, 30 MB in a day. One that comes
# again later is of a sign that its zone knows.
REPORTS_NS = DAY
PAUSE_SECONDS = 0.05  # within one, so that pruning never delays an alarm


@dataclass(frozen=True)
class EventQuery:
    """Which events of the past somebody asks for."""

    selection: Selection = EVERYTHING
    after: int = 0  # cursor, exclusive
    before: int = 0  # cursor, exclusive; 0: up to the newest
    since_ns: int = 0  # nanoseconds since the Unix epoch; 0: from the oldest
    until_ns: int = 0  # nanoseconds since the Unix epoch, exclusive; 0: to the newest
    newest: bool = False  # the newest of them, not the oldest
    limit: int = DEFAULT_EVENTS


@dataclass(frozen=True)
class EventPage:
    """What was found."""

    events: list[AlarmEvent]  # ascending
    next: int  # `after` of the next page, with `newest` its `before`; 0: there is none


class History:
    """Reads and prunes the store. Only events that `feed` has published are told."""

    def __init__(self, store: StoreThreads, feed: Feed, timeline: Timeline) -> None:
        self._store = store
        self._feed = feed
        self._timeline = timeline

    async def events(self, after: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` durable events past cursor `after`, ascending."""
        return (await self.search(EventQuery(after=after, limit=limit))).events

    async def search(self, query: EventQuery) -> EventPage:
        """A page of durable events. One that few events are wanted of may have none and go on all the same."""
        latest, found, looked_at = self._feed.latest, list[AlarmEvent](), 0
        before = min(query.before or latest + 1, latest + 1)
        zones = query.selection.zones if len(query.selection.zones) <= FEW_ZONES else ()
        since_ns, until_ns = self._recorded(query.since_ns), self._recorded(query.until_ns) or ENDLESS
        bounds = EventBounds(min(query.after, latest), before, since_ns, until_ns, tuple(zones))
        while looked_at < MAX_EVENTS_READ and len(found) < query.limit:
            events = await self._store.read(partial(Store.search, bounds=bounds, limit=PART, newest=query.newest))
            if not events:
                return EventPage(found[::-1] if query.newest else found, 0)
            looked_at += len(events)
            for event in events:
                at = event.cursor
                bounds = replace(bounds, before=at) if query.newest else replace(bounds, after=at)
                if query.selection.wants(event):
                    found.append(event)
                    if len(found) == query.limit:
                        break
        following = bounds.before if query.newest else bounds.after
        if (query.newest and following <= query.after + 1) or (not query.newest and following + 1 >= bounds.before):
            following = 0
        return EventPage(found[::-1] if query.newest else found, following)

    async def events_between(self, from_ns: int, until_ns: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` durable events that were recorded from `from_ns` to before `until_ns`, ascending."""
        bounds = EventBounds(since_ns=self._recorded(from_ns), until_ns=self._recorded(until_ns))
        latest = self._feed.latest
        events = await self._store.read(partial(Store.search, bounds=bounds, limit=limit))
        return [event for event in events if event.cursor <= latest]

    def _recorded(self, told_ns: int) -> int:
        """By what events are recorded, where people say `told_ns`: the wall clock may have been set. 0 stays 0."""
        return min(max(told_ns - self._timeline.stepped_ns(), 1), ENDLESS) if told_ns else 0

    async def alarms(self, wanted: AlarmQuery) -> list[PastAlarm]:
        """The alarms that `wanted` names, newest first."""
        return await self._store.read(lambda store: store.alarms(wanted))

    async def alarm_events(self, alarm: str) -> list[AlarmEvent]:
        """Every durable event of `alarm`, ascending."""
        latest = self._feed.latest
        events = await self._store.read(lambda store: store.alarm_events(alarm))
        return [event for event in events if event.cursor <= latest]

    async def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """What `device` saw when its sign joined `alarm`: a JPEG."""
        return await self._store.read(lambda store: store.picture(alarm, device, kind))

    async def episodes(self, alarm: str) -> list[str]:
        """The signs that contributed to `alarm`."""
        return await self._store.read(lambda store: store.episodes(alarm))

    async def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries of the audit trail, newest first; only those before number `before` if it is not 0."""
        return await self._store.read(lambda store: store.audit(before, min(limit or DEFAULT_EVENTS, MAX_EVENTS)))

    async def prune(self, committer: Committer, retention_ns: int, clock: Callable[[], int]) -> None:
        """Forget what is older than `retention_ns`, until cancelled; not while the store fails."""
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            try:
                while not committer.failing and await self._prune_some(clock(), retention_ns):
                    await asyncio.sleep(PAUSE_SECONDS)
            except StoreError as error:
                logger.warning("old history could not be removed: %s", error)

    async def _prune_some(self, now_ns: int, retention_ns: int) -> int:
        return await self._store.write(lambda store: store.prune(now_ns - retention_ns, now_ns - REPORTS_NS))


def history_limit(limit: int) -> int:
    """How many events a request for `limit` gets."""
    return min(limit or DEFAULT_EVENTS, MAX_EVENTS)

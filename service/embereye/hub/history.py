"""The hub's history: searches stored events, alarms and pictures, and prunes the oldest of them.

Searches run on the store's reading thread, so they never delay an alarm. They return only events up to the feed's
newest cursor: an event that is stored but not published yet stays hidden.

The database selects by cursor, time and zone, in parts of PART rows; the rest of a selection is applied here. A search
ends after MAX_EVENTS_READ rows, and its page says where the next one continues. Once a minute, `prune` removes old rows
in small steps on the writing thread.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial

from embereye.hub.committer import Committer
from embereye.hub.database import StoreError
from embereye.hub.databases.store import StoreThreads
from embereye.hub.feeds.feed import Feed
from embereye.hub.tables.access import AuditEntry, audit_entries
from embereye.hub.tables.alarms import AlarmQuery, search_alarms
from embereye.hub.tables.episodes import episodes_of_alarm
from embereye.hub.tables.events import ENDLESS, EventBounds, events_of_alarm, search_events
from embereye.hub.tables.pictures import picture, pictures_of_alarm
from embereye.hub.tables.selection import EVERYTHING, Selection
from embereye.process.timing.clock import Timeline
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.timeline import PastAlarm

logger = logging.getLogger(__name__)
DEFAULT_EVENTS = 100  # in one answer, if the request sets no limit
MAX_EVENTS = 1_000  # in one answer
PART = 500  # events read from the database at once
FEW_ZONES = 20  # most zones that the database selects; more are selected here
MAX_EVENTS_READ = 5_000  # from the database for one answer
PRUNE_SECONDS = 60.0  # between two rounds of pruning
PAUSE_SECONDS = 0.05  # between two steps of pruning, so that it never delays an alarm


@dataclass(frozen=True)
class EventQuery:
    """A search for past events."""

    selection: Selection = EVERYTHING
    after: int = 0  # cursor, exclusive
    before: int = 0  # cursor, exclusive; 0: up to the newest
    since_ns: int = 0  # nanoseconds since the Unix epoch; 0: from the oldest
    until_ns: int = 0  # nanoseconds since the Unix epoch, exclusive; 0: to the newest
    newest: bool = False  # return the newest matches instead of the oldest
    limit: int = DEFAULT_EVENTS


@dataclass(frozen=True)
class EventPage:
    """One page of matches."""

    events: list[AlarmEvent]  # ascending
    next: int  # `after` of the next page, or its `before` with `newest`; 0: this is the last page


class History:
    """Reads and prunes the store. It returns only events that `feed` has published."""

    def __init__(self, store: StoreThreads, feed: Feed, timeline: Timeline, retention_ns: int) -> None:
        self._store = store
        self._feed = feed
        self._timeline = timeline
        self._retention_ns = retention_ns

    async def events(self, after: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` durable events past cursor `after`, ascending."""
        return (await self.search(EventQuery(after=after, limit=limit))).events

    async def search(self, query: EventQuery) -> EventPage:
        """A page of durable events. A page of a narrow selection may be empty although there are further pages."""
        latest, matches, read = self._feed.latest, list[AlarmEvent](), 0
        before = min(query.before or latest + 1, latest + 1)
        zones = query.selection.zones if len(query.selection.zones) <= FEW_ZONES else ()
        since_ns, until_ns = self._recorded_ns(query.since_ns), self._recorded_ns(query.until_ns) or ENDLESS
        bounds = EventBounds(min(query.after, latest), before, since_ns, until_ns, tuple(zones))
        while read < MAX_EVENTS_READ and len(matches) < query.limit:
            events = await self._store.read(partial(search_events, bounds=bounds, limit=PART, newest=query.newest))
            if not events:
                return EventPage(matches[::-1] if query.newest else matches, 0)
            read += len(events)
            for event in events:
                cursor = event.cursor
                bounds = replace(bounds, before=cursor) if query.newest else replace(bounds, after=cursor)
                if query.selection.is_match(event):
                    matches.append(event)
                    if len(matches) == query.limit:
                        break
        following = bounds.before if query.newest else bounds.after
        if (query.newest and following <= query.after + 1) or (not query.newest and following + 1 >= bounds.before):
            following = 0
        return EventPage(matches[::-1] if query.newest else matches, following)

    async def events_between(self, from_ns: int, until_ns: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` durable events recorded from `from_ns` to before `until_ns`, ascending."""
        bounds = EventBounds(since_ns=self._recorded_ns(from_ns), until_ns=self._recorded_ns(until_ns))
        latest = self._feed.latest
        events = await self._store.read(partial(search_events, bounds=bounds, limit=limit))
        return [event for event in events if event.cursor <= latest]

    def _recorded_ns(self, wall_ns: int) -> int:
        """Convert a wall-clock time to the hub's timeline, on which events are recorded. 0 stays 0."""
        return min(max(wall_ns - self._timeline.stepped_ns(), 1), ENDLESS) if wall_ns else 0

    async def alarms(self, query: AlarmQuery) -> list[PastAlarm]:
        """The alarms that match `query`, newest first."""
        return await self._store.read(partial(search_alarms, query=query))

    async def alarm_events(self, alarm: str) -> list[AlarmEvent]:
        """Every durable event of `alarm`, ascending."""
        latest = self._feed.latest
        events = await self._store.read(partial(events_of_alarm, alarm=alarm))
        return [event for event in events if event.cursor <= latest]

    async def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """The JPEG that `device` sent when its sign joined `alarm`; None if there is none."""
        return await self._store.read(lambda store: picture(store, alarm, device, kind))

    async def pictures(self, alarm: str, limit: int) -> list[tuple[str, int, int]]:
        """The device, kind and time in ns of each picture of `alarm`, at most `limit`, the latest stored last."""
        return await self._store.read(partial(pictures_of_alarm, alarm=alarm, limit=limit))

    async def episodes(self, alarm: str) -> list[str]:
        """The ids of the episodes that contributed to `alarm`."""
        return await self._store.read(partial(episodes_of_alarm, alarm=alarm))

    async def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries of the audit trail, newest first; `before` is the number to start below, 0: none."""
        return await self._store.read(partial(audit_entries, before=before, limit=history_limit(limit)))

    async def prune(self, committer: Committer) -> None:
        """Remove rows past their retention until cancelled, except while the store fails."""
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            try:
                while not committer.failing and await self._prune_some():
                    await asyncio.sleep(PAUSE_SECONDS)
            except StoreError as error:
                logger.warning("old history: cannot be removed now (%s)", error)

    async def _prune_some(self) -> int:
        now_ns = self._timeline.now_ns()
        return await self._store.write(lambda store: store.prune(now_ns, self._retention_ns))


def history_limit(limit: int) -> int:
    """The number of events for a request with `limit`, 0: not set."""
    return min(limit or DEFAULT_EVENTS, MAX_EVENTS)

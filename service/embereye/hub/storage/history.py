"""What was stored of the past: events, the pictures and signs of an alarm; and how the oldest of it goes."""

import asyncio
import logging
from collections.abc import Callable

from embereye.hub.access.records import AuditEntry
from embereye.hub.databases.interface import StoreError
from embereye.hub.feed import Feed
from embereye.hub.storage.alarms import AlarmQuery
from embereye.hub.storage.committer import Committer
from embereye.hub.storage.store import StoreThreads
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.timeline import PastAlarm

logger = logging.getLogger(__name__)
DEFAULT_EVENTS = 100  # in one answer, where a request names no number
MAX_EVENTS = 1_000  # in one answer
PRUNE_SECONDS = 60.0  # between two rounds
PAUSE_SECONDS = 0.05  # within one, so that pruning never delays an alarm


class History:
    """Reads and prunes the store. Only events that `feed` has published are told."""

    def __init__(self, store: StoreThreads, feed: Feed) -> None:
        self._store = store
        self._feed = feed

    async def events(self, after: int, limit: int, zone: str = "") -> list[AlarmEvent]:
        """Up to `limit` durable events past cursor `after`, ascending; `zone` as in `Store.events`."""
        latest = self._feed.latest
        events = await self._store.read(lambda store: store.events(after, limit, zone))
        return [event for event in events if event.cursor <= latest]

    async def latest_events(self, limit: int) -> list[AlarmEvent]:
        """The newest `limit` durable events, ascending."""
        latest = self._feed.latest
        return await self._store.read(lambda store: store.latest_events(latest, limit))

    async def events_between(self, from_ns: int, until_ns: int, limit: int) -> list[AlarmEvent]:
        """As `Store.events_between`, of durable events."""
        latest = self._feed.latest
        events = await self._store.read(lambda store: store.events_between(from_ns, until_ns, limit))
        return [event for event in events if event.cursor <= latest]

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
                while not committer.failing and await self._prune_some(clock() - retention_ns):
                    await asyncio.sleep(PAUSE_SECONDS)
            except StoreError as error:
                logger.warning("old history could not be removed: %s", error)

    async def _prune_some(self, before_ns: int) -> int:
        return await self._store.write(lambda store: store.prune(before_ns))


def history_limit(limit: int) -> int:
    """How many events a request for `limit` gets."""
    return min(limit or DEFAULT_EVENTS, MAX_EVENTS)

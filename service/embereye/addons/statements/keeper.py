"""Makes the statements: keeps the journal while the hub runs, and after midnight signs what it says of the day before.

A few minutes after midnight, `run` makes the statement of each day that has none, up to yesterday. Days in which the
hub was away get one too, which says so. A statement is made of the journal and of the stored events, and is durable
together with the removal of the journal's rows.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from embereye.addons.statements.days import Alarm, Canaries, Day, Facts, statement, summary
from embereye.addons.statements.journal import BEAT_SECONDS, DeviceKey, Journal, Seen, count
from embereye.addons.statements.tables import STATEMENTS, Signed, find_statement, list_statements
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.history import MAX_EVENTS, EventQuery
from embereye.hub.hub import Hub, RouteProof
from embereye.hub.refusals import UnknownNameError
from embereye.hub.tables.alarms import AlarmQuery
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.zones import VERSION
from embereye.levels import ZoneState
from embereye.process.condition import Condition
from embereye.process.signing import digest, public_key, seal
from embereye.process.timing.zone import zone_name
from embereye.units import HOUR, MINUTE
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.timeline import DarkSpan, PastAlarm, Timeline, ZoneKey

logger = logging.getLogger(__name__)
MAKE_AFTER_NS = 5 * MINUTE  # after midnight: shards report what they had not reported yet
OVERDUE_NS = HOUR  # after midnight; later, a missing statement is a fault
MAX_DAYS = 1_100  # made at once; more mean that the clock is wrong
MAX_READ = 500_000  # events; a statement says if later ones are missing
MAX_ALARMS = 2_000  # of a day
UNDER_TEST = "(zone under test by "  # in the reason of an alarm during a test


class ClockError(Exception):
    """The clock says that more days have passed than is plausible."""


@dataclass(frozen=True)
class Site:
    """The name of the site in statements, its time zone, and its private key."""

    name: str
    private: bytes
    zone: tzinfo | None = None  # None: the machine's
    time_zone: str = field(default_factory=zone_name)  # its name


class Statements:
    """All statements. Call `restore` once, then let `run` run."""

    def __init__(self, site: Site, hub: Hub) -> None:
        self.site = site
        self.journal = Journal(site.zone)
        self.newest: tuple[str, Signed] | None = None  # with its day
        self._hub = hub
        self._failing = Condition(logger)
        self._expected = 0  # canaries since the start, in millionths
        self._counted_ns = hub.timeline.now_ns()

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore the journal and the newest statement."""
        self.newest = next(iter(stored[STATEMENTS].items()), None)
        self.journal.restore(stored)

    def add_state(self, state: Transaction) -> None:
        """Add the journal and the newest statement to `state`."""
        self.journal.add_state(state)
        if self.newest:
            state[STATEMENTS][self.newest[0]] = self.newest[1]

    # Time

    async def run(self) -> None:
        """Keep the journal and make the statements that are due, until cancelled."""
        while True:
            try:
                await self.beat()
                await self.make_due()
            except (StoreError, StoreFailingError, ClockError) as error:
                self._failing.fail(str(error), "statements: %s", error)
            except Exception as error:  # a day that cannot be described must not end the watch
                self._failing.fail(repr(error), "statements: cannot be made: %r", error, error=error)
            else:
                self._failing.clear("statements: can be made again")
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Note in the journal that the hub is here. Raises StoreFailingError."""
        baseline: Mapping[DeviceKey, Sequence[int]] | None = None
        if self.journal.is_new_day(self._hub.timeline.wall_ns()):
            baseline = await asyncio.to_thread(count, list(self._ledgers()))

        def step(draft: Draft) -> None:
            wall_ns = draft.now_ns + draft.stepped_ns
            if self.journal.is_new_day(wall_ns):
                if baseline is None:
                    return  # midnight has just passed: the next beat begins the day
                self.journal.begin_day(draft.transaction, wall_ns, baseline)
            self.journal.note(draft.transaction, self._seen(wall_ns, draft.stepped_ns))

        await self._hub.committer.commit(step)

    def _ledgers(self) -> Iterator[tuple[DeviceKey, bytes]]:
        for fleet, watched in self._hub.coverage.book.devices():
            for owner in self._hub.coverage.ledgers.owner_ledgers(fleet.name, watched.device.id):
                yield (fleet.name, watched.device.id), owner.data

    def _seen(self, wall_ns: int, stepped_ns: int) -> Seen:
        devices = {
            (fleet.name, watched.device.id): (fleet.namespace, watched.device.zone)
            for fleet, watched in self._hub.coverage.book.devices()
        }
        routes = {
            name: RouteProof(
                seen.sent_ns + stepped_ns if seen.sent_ns else 0,
                seen.confirmed_ns + stepped_ns if seen.confirmed_ns else 0,
                seen.state,
            )
            for name, seen in self._hub.routes().items()
        }
        return Seen(wall_ns, devices, self._count_canaries(), routes)

    def _count_canaries(self) -> Canaries:
        canaries, now_ns = self._hub.canaries, self._hub.timeline.now_ns()
        passed_ns, self._counted_ns = now_ns - self._counted_ns, now_ns
        self._expected += sum(
            1_000_000 * passed_ns // beat.interval_ns for beat in canaries.heartbeats() if beat.interval_ns
        )
        return Canaries(self._expected, canaries.fires, canaries.in_time, canaries.late)

    # Statements

    def due(self) -> list[Day]:
        """The past days without a statement, ascending."""
        today = Day.of(self._hub.timeline.wall_ns() - MAKE_AFTER_NS, self.site.zone)
        known = self.newest[0] if self.newest else self.journal.first_day
        day = Day.named(known, self.site.zone) if known else None
        day = day.next if day and self.newest else day
        days = list[Day]()
        while day is not None and day.date < today.date and len(days) <= MAX_DAYS:
            days.append(day)
            day = day.next
        return days

    @property
    def overdue(self) -> int:
        """The number of days whose statement should be there by now."""
        now_ns = self._hub.timeline.wall_ns()
        return sum(now_ns - day.span[1] > OVERDUE_NS for day in self.due())

    async def make_due(self) -> int:
        """Make the statements of all past days; returns their number.

        Raises StoreError, StoreFailingError, ClockError.
        """
        days = self.due()
        if len(days) > MAX_DAYS:
            raise ClockError(f"over {MAX_DAYS} days are missing: check the clock")
        if not days:
            return 0
        timelines, unknown = await self._read(days)
        for day, timeline in zip(days, timelines, strict=True):
            await self._make(day, timeline, unknown)
        return len(days)

    async def _make(self, day: Day, timeline: Timeline, unknown: Sequence[str]) -> None:
        begin, end = day.span
        past = await self._hub.history.alarms(AlarmQuery(limit=MAX_ALARMS, from_ns=begin, until_ns=end))
        alarms = [await self._alarm(each) for each in past if each.worst is ZoneState.ALARM]
        pre_alarms: dict[ZoneKey, int] = {}
        for each in past:
            if each.worst is not ZoneState.ALARM and each.began_ns >= begin:
                key = each.namespace, each.zone
                pre_alarms[key] = pre_alarms.get(key, 0) + 1
        messages, counted_ns = self.journal.messages(day)
        if len(past) == MAX_ALARMS:
            unknown = [*unknown, f"there were more than {MAX_ALARMS} alarms: the earliest are missing"]
        facts = Facts(
            day=day, site=self.site.name, time_zone=self.site.time_zone, version=VERSION,
            made_ns=self._hub.timeline.wall_ns(), declared=self.journal.declared(day), dark=self._dark(timeline),
            away=self.journal.away(day), alarms=alarms, pre_alarms=pre_alarms, canaries=self.journal.canaries(day),
            routes=self.journal.routes(day), ledgers=messages, counted_until_ns=counted_ns, unknown=unknown,
        )  # fmt: skip
        signed = await asyncio.to_thread(self._sign, facts, self.newest[1].sha256 if self.newest else "")

        def step(draft: Draft) -> None:
            draft.transaction[STATEMENTS][day.name] = signed
            self.newest = day.name, signed
            self.journal.forget(draft.transaction, day)

        await self._hub.committer.commit(step)
        logger.info("statement of %s: made, SHA-256 %s", day.name, signed.sha256)

    def _sign(self, facts: Facts, previous: str) -> Signed:
        made = statement(facts)
        data = seal({**made, "previous": previous}, self.site.private)
        return Signed(digest(data), json.dumps(summary(made)), zlib.compress(data))

    async def _read(self, days: Sequence[Day]) -> tuple[list[Timeline], list[str]]:
        """Read the events from the first of `days` to now; the timeline of each day, and what is missing."""
        timelines = [Timeline(*day.span) for day in days]
        after, read = 0, 0
        while read < MAX_READ:
            wanted = EventQuery(after=after, since_ns=days[0].span[0], limit=MAX_EVENTS)
            page = await self._hub.history.search(wanted)
            for event in page.events:
                for day, timeline in zip(days, timelines, strict=True):
                    if event.time_ns >= day.span[0]:
                        timeline.add(event)
            read += len(page.events)
            if not page.next:
                return timelines, []
            after = page.next
        return timelines, [f"there were more than {MAX_READ} events: the gaps of later ones are missing"]

    def _dark(self, timeline: Timeline) -> dict[ZoneKey, list[DarkSpan]]:
        faults = {(zone.namespace, zone.name): list(zone.faults) for zone in self._hub.zones.messages()}
        return {key: lane.dark for key, lane in timeline.lanes([], faults).items()}

    async def _alarm(self, past: PastAlarm) -> Alarm:
        events = await self._hub.history.alarm_events(past.alarm)
        raised = [event for event in events if event.type == AlarmEvent.TYPE_STATE]
        acknowledged = next(
            (event.time_ns for event in raised if ZoneState(event.state) is ZoneState.ACKNOWLEDGED and event.who), 0
        )
        return Alarm(
            past.alarm, (past.namespace, past.zone), past.began_ns, past.ended_ns, past.why, acknowledged,
            is_false=self._hub.false_alarms.find(past.alarm) is not None,
            is_test=any(UNDER_TEST in event.why for event in raised[:1]),
        )  # fmt: skip

    # Reading

    def key(self) -> str:
        """The public key, in hexadecimal."""
        return public_key(self.site.private)

    async def find(self, day: str) -> bytes:
        """The signed file of `day`. Raises UnknownNameError if there is none, and StoreError."""
        signed = await self._hub.read(lambda store: find_statement(store, day))
        if signed is None:
            raise UnknownNameError(f"there is no statement of {day}")
        return zlib.decompress(signed.packed)

    async def newest_first(self, before: str, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` days before `before`, the newest first: day, hash and figures. Raises StoreError."""
        rows = await self._hub.read(lambda store: list_statements(store, before, limit))
        return [{"day": day, "sha256": sha256, **json.loads(figures)} for day, sha256, figures in rows]

"""Rates of false alarms over a span of time: see `embereye.zone.quality`.

They are computed from stored events when they are asked for, and once an hour for the metrics: one computation at a
time, in parts, so that it delays nothing. Nothing else is stored for them.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from embereye.hub.coverage_keeper import CoverageKeeper
from embereye.hub.database import StoreError
from embereye.hub.false_alarms import FalseAlarms
from embereye.hub.history import MAX_EVENTS, EventQuery, History
from embereye.hub.releases import Releases
from embereye.hub.tables.alarms import AlarmQuery
from embereye.hub.zones import Zones
from embereye.units import DAY
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.quality import DeviceKey, DeviceWatch, RaisedAlarm, Row, rows
from embereye.zone.timeline import PastAlarm, Timeline

SPAN_NS = 30 * DAY  # that the metrics cover, and requests that name no other
MAX_READ = 200_000  # events of one computation; the figures say if later ones are missing
MAX_ALARMS = 10_000  # of one computation
FIRST_SECONDS, REFRESH_SECONDS = 15.0, 3600.0  # between computations for the metrics: at the start, and later


@dataclass(frozen=True)
class Figures:
    """The rates of one span of time."""

    rows: list[Row]
    truncated: bool  # there were too many events or alarms: the last part is missing


@dataclass
class _Reading:
    """The spans and devices found in the events so far."""

    timeline: Timeline
    devices: dict[str, set[DeviceKey]] = field(default_factory=dict)  # by alarm

    def add(self, events: Sequence[AlarmEvent]) -> None:
        for event in events:
            self.timeline.add(event)
            if event.alarm:
                keys = ((item.fleet, item.device) for item in event.contributions)
                self.devices.setdefault(event.alarm, set()).update(keys)


class Quality:
    """Computes the rates of false alarms."""

    def __init__(
        self, history: History, zones: Zones, coverage: CoverageKeeper, false_alarms: FalseAlarms, releases: Releases
    ) -> None:
        self._history = history
        self._zones = zones
        self._coverage = coverage
        self._false_alarms = false_alarms
        self.releases = releases
        self._one_at_a_time = asyncio.Lock()
        self.newest: Sequence[Row] = ()  # of the last 30 days, for the metrics

    async def run(self) -> None:
        """Refresh the newest figures until cancelled: often at the start, and later once an hour."""
        pause = FIRST_SECONDS
        while True:
            try:
                now_ns = time.time_ns()
                self.newest = (await self.figures(now_ns - SPAN_NS, now_ns)).rows
            except StoreError:
                pass  # the committer reports that the database fails; the metrics keep their last figures
            await asyncio.sleep(pause)
            pause = min(2 * pause, REFRESH_SECONDS)

    async def figures(self, from_ns: int, until_ns: int) -> Figures:
        """The rates from `from_ns` to `until_ns`, nanoseconds since the Unix epoch. Raises StoreError."""
        async with self._one_at_a_time:
            reading, truncated = await self._read(from_ns, until_ns)
            alarms, more = await self._alarms(from_ns, until_ns)
            faults = {(zone.namespace, zone.name): list(zone.faults) for zone in self._zones.messages()}
            lanes = reading.timeline.lanes(alarms, faults)
            dark = {zone: lane.dark for zone, lane in lanes.items()}
            raised = [self._raised(alarm, reading) for alarm in alarms]
            listed = await asyncio.to_thread(
                rows, (from_ns, until_ns), self._devices(), dark, raised, self.releases.all()
            )
            return Figures(listed, truncated or more)

    async def _read(self, from_ns: int, until_ns: int) -> tuple[_Reading, bool]:
        reading, after, read = _Reading(Timeline(from_ns, until_ns)), 0, 0
        while read < MAX_READ:
            wanted = EventQuery(after=after, since_ns=from_ns, until_ns=until_ns, limit=MAX_EVENTS)
            page = await self._history.search(wanted)
            reading.add(page.events)
            read += len(page.events)
            if not page.next:
                return reading, False
            after = page.next
        return reading, True

    async def _alarms(self, from_ns: int, until_ns: int) -> tuple[list[PastAlarm], bool]:
        """The alarms that began in this time, without pre-alarms; True if there are more."""
        limit = MAX_ALARMS
        wanted = AlarmQuery(limit=limit, from_ns=from_ns, until_ns=until_ns, category="alarm")
        alarms = await self._history.alarms(wanted)
        return [alarm for alarm in alarms if alarm.began_ns >= from_ns], len(alarms) == limit

    def _raised(self, alarm: PastAlarm, reading: _Reading) -> RaisedAlarm:
        devices = frozenset(reading.devices.get(alarm.alarm, ()))
        is_false = self._false_alarms.find(alarm.alarm) is not None
        return RaisedAlarm((alarm.namespace, alarm.zone), alarm.began_ns, devices, is_false)

    def _devices(self) -> list[DeviceWatch]:
        coverage = self._coverage
        return [
            DeviceWatch(
                fleet.name, watched.device.id, (fleet.namespace, watched.device.zone), ledgers[0].key.since_ns
            )
            for fleet, watched in coverage.book.devices()
            if (ledgers := coverage.ledgers.owner_ledgers(fleet.name, watched.device.id))
        ]  # fmt: skip

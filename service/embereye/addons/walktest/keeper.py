"""The walk tests: starts, follows, ends and reports them, and knows when zones are due.

A walk test puts its zone under test and lists the zone's devices. Each event of the zone that brings a new sign of a
device marks the device as triggered. At the end, the hub signs a report with its key. A test ends by a person, when
somebody ends the zone's test, or after MAX_NS. It survives a restart of the hub.

All changes are durable, with event and audit entry, before a caller's call returns. Times of devices are by the wall
clock, because people compare them with their notes.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from embereye.addons.walktest.plan import (
    DeviceKey,
    Interval,
    Trigger,
    WalkTest,
    ZoneKey,
    due_ns,
    interval_of,
    report,
    summary,
)
from embereye.addons.walktest.tables import REPORTS, WALKTESTS, Report, find_report, list_reports
from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import check_action
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.feeds.follow import follow
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.roles import HUB, Principal
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.zones import VERSION
from embereye.levels import Kind, Level
from embereye.process.signing import public_key, seal
from embereye.process.tasks import run_together
from embereye.units import HOUR
from embereye.v1.alarms_pb2 import AlarmEvent

logger = logging.getLogger(__name__)
TICK_SECONDS = 5.0
MAX_NS = 8 * HOUR  # of one walk test
RUNNING, TESTED = "running", "tested"
FORGOTTEN = "ended by the hub after 8 h"
ENDED_IN_ZONE = "ended with the zone's test"


@dataclass(frozen=True)
class WalkTestOptions:
    """The site's name, its private key, and how often zones are tested."""

    site: str
    private: bytes
    intervals: Sequence[Interval] = ()


@dataclass(frozen=True)
class ZoneDue:
    """When the walk test of a zone is due, by the wall clock."""

    zone: ZoneKey
    due_ns: int
    untested: Sequence[DeviceKey]  # devices whose own test is over the interval ago, or never happened


class WalkTests:
    """All walk tests. Call `restore` once, then let `run` run."""

    def __init__(self, options: WalkTestOptions, hub: Hub) -> None:
        self.options = options
        self.running: dict[ZoneKey, WalkTest] = {}
        self._seen: dict[ZoneKey, dict[str, list[int]]] = {}  # "fleet/id" → first seen, latest test (0: never)
        self._hub = hub

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore running tests, and the devices' latest ones."""
        for (kind, name), document in stored[WALKTESTS].items():
            namespace, _, zone = name.partition("/")
            if kind == RUNNING:
                self.running[namespace, zone] = WalkTest.load(json.loads(document))
            else:
                self._seen[namespace, zone] = json.loads(document)

    def add_state(self, state: Transaction) -> None:
        """Add all of it to `state`."""
        for zone, test in self.running.items():
            state[WALKTESTS][RUNNING, "/".join(zone)] = json.dumps(test.dump())
        for zone, seen in self._seen.items():
            state[WALKTESTS][TESTED, "/".join(zone)] = json.dumps(seen)

    # People

    async def start(self, by: Principal, zone: ZoneKey, who: str, note: str) -> WalkTest:
        """Start a walk test of `zone`. Raises InvalidError, UnknownNameError, ConflictError, StoreFailingError."""
        check_action(who, note)
        devices = self._by_zone().get(zone, [])
        if not self._hub.zones.has_zone(*zone):
            raise UnknownNameError(f"there is no zone {'/'.join(zone)}")
        if not devices:
            raise ConflictError(f"zone {'/'.join(zone)} has no devices to test")
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            if zone in self.running:
                runner = self.running[zone].who
                raise ConflictError(f"a walk test of zone {'/'.join(zone)} runs already, by {runner}")
            machine = self._hub.zones.touch(draft, zone)
            active = [item.episode for item in machine.message(draft.now_ns).contributions]
            if not machine.is_under_test:
                self._hub.zones.add_events(draft, machine.toggle_test(name, "walk test", draft.now_ns))
            wall_ns = draft.now_ns + draft.stepped_ns
            test = WalkTest(
                secrets.token_hex(8), name, note, wall_ns, self._hub.feed.latest, [list(each) for each in devices],
                before=active,
            )  # fmt: skip
            self.running[zone] = test
            self._store(draft, [zone])
            add_entry(draft, by, "start walk test", "/".join(zone), f"{name}: {note}" if note else name)

        await self._hub.committer.commit(step)
        return self.running[zone]

    async def end(self, by: Principal, zone: ZoneKey, who: str) -> bytes:
        """End the walk test of `zone`; returns its signed report.

        Raises InvalidError, ConflictError if none runs, StoreFailingError.
        """
        check_action(who)
        return await self._end(by, zone, by.acting_as(who))

    async def _end(self, by: Principal, zone: ZoneKey, ended_by: str) -> bytes:
        test = self.running.get(zone)
        if test is None:
            raise ConflictError(f"no walk test of zone {'/'.join(zone)} runs")
        ended_ns = self._hub.timeline.wall_ns()
        made = report(test, zone, self.options.site, ended_ns=ended_ns, ended_by=ended_by, version=VERSION)
        data = await asyncio.to_thread(seal, made, self.options.private)

        def step(draft: Draft) -> None:
            if self.running.get(zone) is not test:
                raise ConflictError(f"the walk test of zone {'/'.join(zone)} has ended meanwhile")
            machine = self._hub.zones.touch(draft, zone)
            if machine.is_under_test:
                self._hub.zones.add_events(draft, machine.toggle_test(ended_by, "walk test", draft.now_ns))
            del self.running[zone]
            draft.transaction[WALKTESTS][RUNNING, "/".join(zone)] = None
            draft.transaction[REPORTS][test.id] = Report(ended_ns, json.dumps(summary(made)), data)
            add_entry(draft, by, "end walk test", "/".join(zone), f"{ended_by}: {len(test.untested)} untested")

        await self._hub.committer.commit(step)
        return data

    # Time

    async def run(self) -> None:
        """Follow events and let time pass until cancelled, or until the feed closes."""
        await run_together("walk tests", ("walktest-follow", self.follow()), ("walktest-tick", self._tick()))

    async def follow(self) -> None:
        """Note the devices that events bring, until the feed closes."""
        cursor = min((test.cursor for test in self.running.values()), default=self._hub.feed.latest)
        async for batch in follow(self._hub.feed, cursor):
            if changed := {zone for event in batch.events if (zone := self.apply(event))}:
                await self._hub.committer.commit(partial(self._store, zones=changed))

    def apply(self, event: AlarmEvent) -> ZoneKey | None:
        """Note the devices whose signs an event brings; returns the zone if there is news."""
        zone = event.namespace, event.zone
        test = self.running.get(zone)
        if test is None or 0 < event.cursor <= test.cursor:
            return None
        known = {tuple(device) for device in test.devices}
        news = False
        for item in event.contributions:
            name = f"{item.fleet}/{item.device}"
            is_sign = item.level > Level.CLEAR and item.episode not in test.before
            if is_sign and name not in test.triggers and (item.fleet, item.device) in known:
                test.triggers[name] = Trigger(event.time_ns, Kind(item.kind).word, Level(item.level).word)
                self._seen.setdefault(zone, {}).setdefault(name, [event.time_ns, 0])[1] = event.time_ns
                news = True
        return zone if news else None

    async def _tick(self) -> None:
        while True:
            try:
                await self.pass_time()
            except (StoreFailingError, ConflictError) as error:
                logger.warning("walk tests: %s", error)
            await asyncio.sleep(TICK_SECONDS)

    async def pass_time(self) -> None:
        """Extend the tests of zones, end walk tests whose time is over, and note new devices."""
        now_ns = self._hub.timeline.wall_ns()
        testing = {(zone.namespace, zone.name) for zone in self._hub.zones.messages() if zone.testing}
        for zone, test in list(self.running.items()):
            if zone not in testing:
                await self._end(HUB, zone, ENDED_IN_ZONE)
            elif now_ns - test.started_ns > MAX_NS:
                await self._end(HUB, zone, FORGOTTEN)
        declared = self._by_zone() if self.options.intervals else {}
        unseen = {zone: names for zone, devices in declared.items() if (names := self._unseen(zone, devices))}

        def step(draft: Draft) -> None:
            for zone in self.running:
                self._hub.zones.touch(draft, zone).extend_test(draft.now_ns)
            for zone, names in unseen.items():
                self._seen.setdefault(zone, {}).update({name: [now_ns, 0] for name in names})
                self._store(draft, [zone])

        if self.running or unseen:
            await self._hub.committer.commit(step)

    # Due dates

    def due(self) -> list[ZoneDue]:
        """When each zone with an interval is due, by zone."""
        listed = list[ZoneDue]()
        if not self.options.intervals:
            return listed
        for zone, devices in sorted(self._by_zone().items()):
            interval_ns, seen = interval_of(self.options.intervals, zone), self._seen.get(zone, {})
            times = {device: max(seen[name]) for device in devices if (name := f"{device[0]}/{device[1]}") in seen}
            if due := due_ns(interval_ns, times, devices):
                now_ns = self._hub.timeline.wall_ns()
                late = [device for device in devices if now_ns > times.get(device, now_ns) + interval_ns]
                listed.append(ZoneDue(zone, due, late))
        return listed

    def overdue(self) -> list[ZoneKey]:
        """The zones whose walk test is overdue."""
        return [each.zone for each in self.due() if each.untested]

    # Reading

    def key(self) -> str:
        """The public key of reports, in hexadecimal."""
        return public_key(self.options.private)

    async def find(self, name: str) -> bytes:
        """The signed report `name`. Raises UnknownNameError if there is none, and StoreError."""
        data = await self._hub.read(lambda store: find_report(store, name))
        if data is None:
            raise UnknownNameError(f"there is no report of a walk test {name[:50]}")
        return data

    async def reports(self, limit: int) -> list[dict[str, Any]]:
        """The figures of up to `limit` reports, the newest first. Raises StoreError."""
        return [json.loads(text) for text in await self._hub.read(lambda store: list_reports(store, limit))]

    def _by_zone(self) -> dict[ZoneKey, list[DeviceKey]]:
        """The declared devices of each zone."""
        zones: dict[ZoneKey, list[DeviceKey]] = {}
        for fleet, watched in self._hub.coverage.book.devices():
            zones.setdefault((fleet.namespace, watched.device.zone), []).append((fleet.name, watched.device.id))
        return zones

    def _unseen(self, zone: ZoneKey, devices: Sequence[DeviceKey]) -> list[str]:
        seen = self._seen.get(zone, {})
        return [name for fleet, device in devices if (name := f"{fleet}/{device}") not in seen]

    def _store(self, draft: Draft, zones: Iterable[ZoneKey]) -> None:
        for zone in zones:
            name = "/".join(zone)
            if zone in self.running:
                draft.transaction[WALKTESTS][RUNNING, name] = json.dumps(self.running[zone].dump())
            if zone in self._seen:
                draft.transaction[WALKTESTS][TESTED, name] = json.dumps(self._seen[zone])

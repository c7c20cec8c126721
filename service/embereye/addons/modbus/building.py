"""All outputs of a hub: decides their values at each event and each second, and has panels and PLCs get them.

`Building` owns the decisions; each `Panel` and the served table read its latest values. It runs on the hub's event
loop, so a hub that is stuck also stops every heartbeat. What is switched on is stored with the hub's state, because a
zone in test must not switch an output on, or off, when the hub restarts.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from embereye.addons.modbus.decide import Decision
from embereye.addons.modbus.options import WATCHED, ModbusOptions, Place, Table
from embereye.addons.modbus.panel import Panel
from embereye.addons.modbus.server import TableServer
from embereye.addons.modbus.tables import TRIPS, Trip
from embereye.hub.committer import Draft, Step
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.process.condition import Condition
from embereye.process.tasks import first_of, run_together

logger = logging.getLogger(__name__)
PERIOD_SECONDS = 1.0  # between two decisions without an event
MIN_SECONDS = 0.02  # between two decisions: events of one moment become one


def unwatched_reason(hub: Hub) -> str:
    """The reason why the watch is not proved now; '' if every shard's canary raised its alarm in time."""
    overdue = [heartbeat.key for heartbeat in hub.canaries.heartbeats() if heartbeat.overdue]
    if not overdue:
        return ""
    more = f" and {len(overdue) - 1} more" if len(overdue) > 1 else ""
    return f"canaries are overdue: shard {overdue[0].shard} of {overdue[0].fleet}{more}"


class Building:
    """Drives all panels, and the table for PLCs."""

    def __init__(self, hub: Hub, options: ModbusOptions) -> None:
        self._hub = hub
        self._trips = Rows(TRIPS)  # what is on
        hub.add_part(self._trips)
        tables = [panel.table for panel in options.panels]
        if options.serve:
            tables.append(options.serve.table)
        self._tables: Sequence[Table] = tables
        self._decisions = {table.name: Decision(table, self._trips) for table in tables}
        self._values: dict[str, Mapping[Place, int]] = {}
        self.unwatched = Condition(logger)  # heartbeats stop
        self._stopping = False
        self.panels = [
            Panel(panel, lambda name=panel.name: (self._values[name], self._beats))  # type: ignore[misc]
            for panel in options.panels
        ]
        serve = options.serve
        self.server = TableServer(serve, lambda: (self._values["serve"], self._beats)) if serve else None
        self.decide()

    @property
    def _beats(self) -> bool:
        return not self.unwatched and not self._stopping

    @property
    def on(self) -> Mapping[str, int]:
        """The number of places that are on, by table."""
        return {
            table.name: sum(self._values[table.name].get(rule.place) == rule.on for rule in table.rules)
            for table in self._tables
        }

    def decide(self) -> bool:
        """Decide all values now; True if one has changed."""
        zones = self._hub.zones.messages()
        why = "the hub stops" if self._stopping else unwatched_reason(self._hub)
        if why:
            self.unwatched.fail(why, "Modbus: %s: heartbeats stop, outputs of `when: %s` are off", why, WATCHED)
        else:
            self.unwatched.clear("Modbus: the watch is proved again: heartbeats beat")
        before = self._values
        self._values = {name: decision.values(zones, why) for name, decision in self._decisions.items()}
        self._store_trips()
        return self._values != before

    def _store_trips(self) -> None:
        before = frozenset(self._trips)
        tripped = frozenset[Trip]().union(*(decision.tripped for decision in self._decisions.values()))
        if tripped == before:
            return
        changes = dict[Trip, bool | None](dict.fromkeys(tripped - before, True)) | dict.fromkeys(before - tripped)

        def step(draft: Draft) -> None:
            draft.transaction[TRIPS].update(changes)

        self._trips.clear()
        self._trips.update(dict.fromkeys(tripped, True))

        self._hub.committer.enqueue(Step(step))

    async def run(self) -> None:
        """Drive all outputs until cancelled."""
        panels = [(f"modbus-{panel.options.name}", panel.run()) for panel in self.panels]
        servers = [("modbus-serve", self.server.run())] if self.server else []
        await run_together("Modbus", *panels, ("modbus-decide", self._decide()), *servers)

    async def _decide(self) -> None:
        while True:
            await first_of(self._hub.feed.wait_for_events(), timeout=PERIOD_SECONDS)
            self._apply()
            await asyncio.sleep(MIN_SECONDS)

    def _apply(self) -> None:
        if self.decide():
            for panel in self.panels:
                panel.notify()
        if self.server:
            self.server.update()

    async def close(self) -> None:
        """Switch the outputs of `when: watched` off, and stop: alarms stay as they are."""
        self._stopping = True
        self.decide()
        if self.server:
            self.server.update()
        for panel in self.panels:
            await panel.stop()

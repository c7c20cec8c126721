"""The values of coils and registers for the present state of all zones (pure).

`Decision.values` is called with every zone at each change and each second. A zone in test cannot switch a rule on, but
does not switch it off either: an alarm that began before the test stays on until its reset. `tripped` is therefore the
only state; its owner stores it. Everything else follows from the zones, so a restart changes no output.
"""

from collections.abc import Iterable, Sequence

from embereye.addons.modbus.options import ACKNOWLEDGED, FAULT, PRE_ALARM, STATE, WATCHED, Place, Rule, Table
from embereye.addons.modbus.tables import Trip
from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import Zone

OPEN = {ZoneState.ALARM, ZoneState.ACKNOWLEDGED, ZoneState.RESTORED}
# The numbers of states in registers, and their order of urgency.
NUMBERS = {
    ZoneState.NORMAL: 0,
    ZoneState.PRE_ALARM: 1,
    ZoneState.ALARM: 2,
    ZoneState.ACKNOWLEDGED: 3,
    ZoneState.RESTORED: 4,
}


class Decision:
    """Decides the values of one table."""

    def __init__(self, table: Table, tripped: Iterable[Trip] = ()) -> None:
        self._table = table
        self.tripped = {trip for trip in tripped if trip[0] == table.name}  # what is on, by rule and zone

    def values(self, zones: Sequence[Zone], unwatched: str) -> dict[Place, int]:
        """Decide every place's value; `unwatched` says why the hub's watch is not proved, '' if it is."""
        return {rule.place: self._value(rule, zones, unwatched) for rule in self._table.rules}

    def _value(self, rule: Rule, zones: Sequence[Zone], unwatched: str) -> int:
        followed = [zone for zone in zones if rule.has_zone(zone.namespace, zone.name)]
        if rule.when == STATE:
            states = [ZoneState(zone.state) for zone in followed if not zone.testing]
            return NUMBERS.get(max(states, key=lambda state: state.severity, default=ZoneState.NORMAL), 0)
        if rule.when == WATCHED:
            return rule.on if not unwatched and not any(zone.faults for zone in followed) else rule.off
        on = False
        for zone in followed:
            trip = (self._table.name, str(rule.place), zone.namespace, zone.name)
            if _is_reached(rule, zone) and (not zone.testing or trip in self.tripped):
                self.tripped.add(trip)
                on = True
            else:
                self.tripped.discard(trip)
        gone = {
            trip for trip in self.tripped
            if trip[1] == str(rule.place) and not any((zone.namespace, zone.name) == trip[2:] for zone in followed)
        }  # fmt: skip
        self.tripped -= gone
        return rule.on if on else rule.off


def _is_reached(rule: Rule, zone: Zone) -> bool:
    state = ZoneState(zone.state)
    if rule.when == FAULT:
        return bool(zone.faults)
    if rule.until == ACKNOWLEDGED and state in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED}:
        return False
    return state in OPEN or (rule.when == PRE_ALARM and state == ZoneState.PRE_ALARM)

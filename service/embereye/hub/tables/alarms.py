"""The database table of whole alarms.

It has one row for each alarm: begin, end, worst state, reason, first and last event. It is updated from
the events of each transaction, so that listing alarms does not read all events.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embereye.hub.database import Database
from embereye.hub.tables.table import RowReader, Table
from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.timeline import PastAlarm

# Events about an alarm that may come long after it ended, even after its row was removed.
LATE_TYPES = {AlarmEvent.TYPE_FALSE_ALARM, AlarmEvent.TYPE_SILENCE}
RAISED = {ZoneState.PRE_ALARM, ZoneState.ALARM}
# The values of `AlarmQuery.category`, each with its SQL condition.
CATEGORIES: Mapping[str, str] = {
    "": "",
    "alarm": f"worst >= {ZoneState.ALARM.wire}",
    "pre-alarm": f"worst < {ZoneState.ALARM.wire}",
    "open": "ended_ns = 0",
    "false": "alarm IN (SELECT alarm FROM false_alarms)",
    "true": "alarm NOT IN (SELECT alarm FROM false_alarms)",
}


@dataclass(frozen=True)
class AlarmQuery:
    """A search for alarms that meet all of these conditions."""

    limit: int
    before: int = 0  # cursor: alarms whose first event is before it; 0: all
    from_ns: int = 0  # alarms that ended later, or are open
    until_ns: int = 0  # alarms that began earlier; 0: all
    zone: str = ""  # "name" or "namespace/name"
    category: str = ""  # a key of CATEGORIES
    alarm: str = ""  # its id; empty: any


def update_alarms(db: Database, events: Sequence[AlarmEvent]) -> None:
    """Update the rows of the alarms that `events` belong to, in the open transaction."""
    changed: dict[str, tuple[PastAlarm, int]] = {}  # with the cursor of its last event
    first: dict[str, int] = {}
    late: dict[str, int] = {}
    for event in events:
        if not event.alarm:
            continue
        if event.type in LATE_TYPES:
            late[event.alarm] = event.cursor
            continue
        first.setdefault(event.alarm, event.cursor)
        known = changed.get(event.alarm)
        alarm = known[0] if known else _new_alarm(event)
        changed[event.alarm] = (_updated_alarm(alarm, event), event.cursor)
    db.execute_many(
        """INSERT INTO alarms VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (alarm) DO UPDATE SET
            last_cursor = excluded.last_cursor,
            ended_ns = CASE WHEN alarms.ended_ns > 0 THEN alarms.ended_ns ELSE excluded.ended_ns END,
            worst = CASE WHEN excluded.worst > alarms.worst THEN excluded.worst ELSE alarms.worst END,
            why = CASE WHEN excluded.why = '' THEN alarms.why ELSE excluded.why END""",
        [
            (
                name, alarm.namespace, alarm.zone, first[name], cursor, alarm.began_ns, alarm.ended_ns,
                alarm.worst.wire, alarm.why,
            )
            for name, (alarm, cursor) in changed.items()
        ],
    )  # fmt: skip
    db.execute_many(
        "UPDATE alarms SET last_cursor = ? WHERE alarm = ? AND last_cursor < ?",
        [(cursor, name, cursor) for name, cursor in late.items()],
    )


def _new_alarm(event: AlarmEvent) -> PastAlarm:
    return PastAlarm(
        event.alarm, event.namespace, event.zone, event.time_ns, 0, ZoneState.PRE_ALARM, "", first=event.cursor
    )


def _updated_alarm(alarm: PastAlarm, event: AlarmEvent) -> PastAlarm:
    state = ZoneState(event.state)
    worst = ZoneState.PRE_ALARM if state in {ZoneState.NORMAL, ZoneState.PRE_ALARM} else ZoneState.ALARM
    alarm = replace(alarm, worst=max(alarm.worst, worst, key=lambda state: state.wire))
    if event.type == AlarmEvent.TYPE_STATE:
        if state in RAISED:
            alarm = replace(alarm, why=event.why)
        elif state is ZoneState.NORMAL:
            alarm = replace(alarm, ended_ns=event.time_ns)
    return alarm


class _Alarms(Table[list[AlarmEvent], None]):
    """One row for each alarm; `update_alarms` writes it."""

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        """Remove ended alarms whose events are all removed; returns their number. Marks as false alarm stay."""
        del now_ns, retention_ns
        return db.execute("DELETE FROM alarms WHERE ended_ns > 0 AND last_cursor < (SELECT MIN(cursor) FROM events)")


ALARMS = _Alarms(
    """
CREATE TABLE IF NOT EXISTS alarms (alarm TEXT PRIMARY KEY, namespace TEXT NOT NULL, zone TEXT NOT NULL,
    first_cursor INTEGER NOT NULL, last_cursor INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
    worst INTEGER NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alarms_began ON alarms (began_ns);
"""
)


def forget_phantoms(db: Database, still_open: Container[str]) -> int:
    """Remove alarms that are listed as open but are not in `still_open`; returns their number.

    Such rows come from late events (see LATE_TYPES) of alarms that had been removed before.
    """
    listed = [row[0] for row in db.rows("SELECT alarm FROM alarms WHERE ended_ns = 0 AND why = ''")]
    phantoms = [(alarm,) for alarm in listed if alarm not in still_open]
    if phantoms:
        with db.transaction():
            db.execute_many("DELETE FROM alarms WHERE alarm = ?", phantoms)
    return len(phantoms)


def zone_condition(zones: Sequence[str]) -> tuple[str, list[str]]:
    """The SQL condition that selects rows of `zones` ("zone" or "namespace/zone"), and its arguments."""
    arguments = list[str]()
    for zone in zones:
        namespace, _, name = zone.partition("/")  # a zone's own name may contain a slash, a namespace's may not
        arguments += [zone, name, namespace]
    return f"({' OR '.join(['zone = ? OR (zone = ? AND namespace = ?)'] * len(zones))})", arguments


def search_alarms(reader: RowReader, query: AlarmQuery) -> list[PastAlarm]:
    """The alarms that match `query`, newest first."""
    where, arguments = ["began_ns IS NOT NULL"], list[object]()
    if query.before:
        where.append("first_cursor < ?")
        arguments.append(query.before)
    if query.from_ns:
        where.append("(ended_ns = 0 OR ended_ns > ?)")
        arguments.append(query.from_ns)
    if query.until_ns:
        where.append("began_ns < ?")
        arguments.append(query.until_ns)
    if query.zone:
        condition, names = zone_condition([query.zone])
        where.append(condition)
        arguments += names
    if query.alarm:
        where.append("alarm = ?")
        arguments.append(query.alarm)
    if condition := CATEGORIES[query.category]:
        where.append(condition)
    statement = f"""SELECT alarm, namespace, zone, began_ns, ended_ns, worst, why, first_cursor FROM alarms
        WHERE {" AND ".join(where)} ORDER BY first_cursor DESC LIMIT ?"""
    return list(reader.rows(statement, _read, (*arguments, query.limit)))


def _read(row: Any) -> PastAlarm:
    alarm, namespace, zone, began, ended, worst, why, first = row
    return PastAlarm(alarm, namespace, zone, int(began), int(ended), ZoneState(int(worst)), why, first=int(first))

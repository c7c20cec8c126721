"""What the hub's database holds of alarms as a whole: when each was, how bad, why, and which were marked as false."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embereye.hub.databases.interface import Database
from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Silence
from embereye.zone.timeline import PastAlarm

ABOUT = {AlarmEvent.TYPE_FALSE_ALARM, AlarmEvent.TYPE_SILENCE}  # which may come long after the alarm was forgotten
RAISED = {ZoneState.PRE_ALARM, ZoneState.ALARM}
# What `AlarmQuery.category` may say, as conditions.
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
    """Which alarms are meant: all conditions hold together."""

    limit: int
    before: int = 0  # only those that began before the event of this cursor; 0: all
    from_ns: int = 0  # that ended later, or not yet
    until_ns: int = 0  # that began earlier; 0: all
    zone: str = ""  # "name" or "namespace/name"
    category: str = ""  # a key of CATEGORIES
    alarm: str = ""  # its id; empty: any


def write_events(db: Database, events: Sequence[AlarmEvent]) -> None:
    """Keep what `events` say of their alarms, in the transaction that is open."""
    found: dict[str, tuple[PastAlarm, int]] = {}
    first: dict[str, int] = {}
    about: dict[str, int] = {}
    for event in events:
        if not event.alarm:
            continue
        if event.type in ABOUT:
            about[event.alarm] = event.cursor
            continue
        first.setdefault(event.alarm, event.cursor)
        known = found.get(event.alarm)
        entry = known[0] if known else _begun(event)
        found[event.alarm] = (_gone_on(entry, event), event.cursor)
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
            for name, (alarm, cursor) in found.items()
        ],
    )  # fmt: skip
    db.execute_many(
        "UPDATE alarms SET last_cursor = ? WHERE alarm = ? AND last_cursor < ?",
        [(cursor, alarm, cursor) for alarm, cursor in about.items()],
    )


def _begun(event: AlarmEvent) -> PastAlarm:
    return PastAlarm(
        event.alarm, event.namespace, event.zone, event.time_ns, 0, ZoneState.PRE_ALARM, "", first=event.cursor
    )


def _gone_on(alarm: PastAlarm, event: AlarmEvent) -> PastAlarm:
    state = ZoneState(event.state)
    worst = ZoneState.PRE_ALARM if state in {ZoneState.NORMAL, ZoneState.PRE_ALARM} else ZoneState.ALARM
    alarm = replace(alarm, worst=max(alarm.worst, worst, key=lambda one: one.wire))
    if event.type == AlarmEvent.TYPE_STATE:
        if state in RAISED:
            alarm = replace(alarm, why=event.why)
        elif state is ZoneState.NORMAL:
            alarm = replace(alarm, ended_ns=event.time_ns)
    return alarm


def write_marks(db: Database, marks: Mapping[str, FalseAlarm | None]) -> None:
    """Keep `marks`, or remove them (None), in the transaction that is open."""
    for alarm, mark in marks.items():
        if mark is None:
            db.execute("DELETE FROM false_alarms WHERE alarm = ?", (alarm,))
        else:
            upsert = "INSERT INTO false_alarms VALUES (?, ?) ON CONFLICT (alarm) DO UPDATE SET mark = excluded.mark"
            db.execute(upsert, (alarm, mark.SerializeToString()))


def write_silences(db: Database, silences: Mapping[str, Silence | None]) -> None:
    """Keep `silences`, or remove them (None), in the transaction that is open."""
    for name, silence in silences.items():
        if silence is None:
            db.execute("DELETE FROM silences WHERE id = ?", (name,))
        else:
            upsert = "INSERT INTO silences VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET silence = excluded.silence"
            db.execute(upsert, (name, silence.SerializeToString()))


def prune(db: Database) -> int:
    """Forget alarms of which no event is kept, in the transaction that is open; returns how many. Marks stay."""
    statement = "DELETE FROM alarms WHERE ended_ns > 0 AND last_cursor < (SELECT MIN(cursor) FROM events)"
    return db.execute(statement)


def forget_phantoms(db: Database, still_open: Container[str]) -> int:
    """Forget what a version before took for open alarms: what was said of alarms that were forgotten. How many."""
    found = [row[0] for row in db.rows("SELECT alarm FROM alarms WHERE ended_ns = 0 AND why = ''")]
    gone = [(alarm,) for alarm in found if alarm not in still_open]
    if gone:
        with db.transaction():
            db.execute_many("DELETE FROM alarms WHERE alarm = ?", gone)
    return len(gone)


def zone_condition(zones: Sequence[str]) -> tuple[str, list[str]]:
    """The condition that a row is of one of `zones` ("zone" or "namespace/zone"), and its arguments."""
    arguments = list[str]()
    for zone in zones:
        namespace, _, name = zone.partition("/")  # a zone's own name may contain a slash, a namespace's may not
        arguments += [zone, name, namespace]
    return f"({' OR '.join(['zone = ? OR (zone = ? AND namespace = ?)'] * len(zones))})", arguments


def query(wanted: AlarmQuery) -> tuple[str, Callable[[Any], PastAlarm], Sequence[object]]:
    """The statement that finds the alarms that are `wanted`, what reads a row of it, and its arguments."""
    where, arguments = ["began_ns IS NOT NULL"], list[object]()
    if wanted.before:
        where.append("first_cursor < ?")
        arguments.append(wanted.before)
    if wanted.from_ns:
        where.append("(ended_ns = 0 OR ended_ns > ?)")
        arguments.append(wanted.from_ns)
    if wanted.until_ns:
        where.append("began_ns < ?")
        arguments.append(wanted.until_ns)
    if wanted.zone:
        condition, names = zone_condition([wanted.zone])
        where.append(condition)
        arguments += names
    if wanted.alarm:
        where.append("alarm = ?")
        arguments.append(wanted.alarm)
    if sort := CATEGORIES[wanted.category]:
        where.append(sort)
    statement = f"""SELECT alarm, namespace, zone, began_ns, ended_ns, worst, why, first_cursor FROM alarms
        WHERE {" AND ".join(where)} ORDER BY first_cursor DESC LIMIT ?"""
    return statement, _read, (*arguments, wanted.limit)


def _read(row: Any) -> PastAlarm:
    alarm, namespace, zone, began, ended, worst, why, first = row
    return PastAlarm(alarm, namespace, zone, int(began), int(ended), ZoneState(int(worst)), why, first=int(first))

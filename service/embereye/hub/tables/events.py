"""The database table of events, numbered by their cursors.

`Zones` numbers events before they are written, so the order of rows is the order of the feed. The rows of whole alarms
are updated in the same transaction. A row's time is that of recording, on the hub's timeline; an event's time is a
label for people.

The feed and the history read here. If rows are damaged, `events_after` finds the next readable one by bisection, and
continues there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from embereye.hub.database import DamagedError, Database
from embereye.hub.tables.alarms import update_alarms, zone_condition
from embereye.hub.tables.table import Log, RowReader
from embereye.v1.alarms_pb2 import AlarmEvent

ENDLESS = 2**63 - 1  # nanoseconds, or a cursor: the largest number that a database can store
PRUNE_ROWS = 5_000  # searched at once, so that pruning never delays an alarm
AFTER = "SELECT event FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?"


class _Events(Log[AlarmEvent]):
    """Events in ascending order; the newest are in memory. Rows of whole alarms are updated with them."""

    is_rewritten = True

    def write(self, db: Database, changes: Sequence[AlarmEvent], now_ns: int = 0) -> None:
        rows = [(e.cursor, now_ns or e.time_ns, e.namespace, e.zone, e.SerializeToString()) for e in changes]
        db.execute_many("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
        update_alarms(db, changes)

    def rewrite(self, db: Database, state: Sequence[AlarmEvent]) -> None:
        db.execute_many("DELETE FROM events WHERE cursor = ?", [(event.cursor,) for event in state])
        self.write(db, state)

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        # The oldest events come first; searching all of them once a minute would be too slow.
        statement = """DELETE FROM events WHERE time_ns < ?
            AND cursor IN (SELECT cursor FROM events ORDER BY cursor LIMIT ?)"""
        return db.execute(statement, (max(0, now_ns - retention_ns), PRUNE_ROWS))


EVENTS = _Events(
    """
CREATE TABLE IF NOT EXISTS events (cursor INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL,
    namespace TEXT NOT NULL, zone TEXT NOT NULL, event BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_zone ON events (zone, cursor);
CREATE INDEX IF NOT EXISTS events_time ON events (time_ns);
""",
    newest_time="SELECT time_ns FROM events ORDER BY cursor DESC LIMIT 1",
)


@dataclass(frozen=True)
class EventBounds:
    """The range in which events are searched."""

    after: int = 0  # cursor, exclusive
    before: int = ENDLESS  # cursor, exclusive
    since_ns: int = 0  # time of recording, inclusive
    until_ns: int = ENDLESS  # time of recording, exclusive
    zones: tuple[str, ...] = ()  # "name" or "namespace/name"; none: all


def events_after(reader: RowReader, after: int, limit: int) -> list[AlarmEvent]:
    """Up to `limit` events past cursor `after`, ascending; empty only if no later event can be read."""
    while True:
        unreadable = reader.unreadable
        events = list(reader.rows(AFTER, _read, (after, limit)))
        if events or reader.unreadable == unreadable or (past := _past_damage(reader.db, after)) <= after:
            return events
        after = past


def _past_damage(db: Database, after: int) -> int:
    """The cursor just before the first readable event past `after`, found by bisection; `after` if none."""

    def is_readable(cursor: int) -> bool:
        try:
            return any(_read(row) for row in db.rows(AFTER, (cursor, 1)))
        except (DamagedError, DecodeError, ValueError, TypeError):
            return False

    last, low, step = db.newest_cursor() - 1, after, 1
    while not is_readable(high := min(low + step, last)):
        if high == last:
            return after
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_readable(middle) else (middle, high)
    return high


def search_events(reader: RowReader, bounds: EventBounds, limit: int, *, newest: bool = False) -> list[AlarmEvent]:
    """Up to `limit` events within `bounds`, ascending; with `newest` the last ones, descending."""
    # Leave out open bounds: the database uses the index on time only if there is no condition on cursors.
    conditions = (
        ("cursor > ?", bounds.after, bounds.after > 0),
        ("cursor < ?", bounds.before, bounds.before < ENDLESS),
        ("time_ns >= ?", bounds.since_ns, bounds.since_ns > 0),
        ("time_ns < ?", bounds.until_ns, bounds.until_ns < ENDLESS),
    )
    where = [condition for condition, _, bounded in conditions if bounded]
    arguments: list[int | str] = [value for _, value, bounded in conditions if bounded]
    if bounds.zones:
        condition, names = zone_condition(bounds.zones)
        where.append(condition)
        arguments += names
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    query = f"SELECT event FROM events {condition} ORDER BY cursor {'DESC' * newest} LIMIT ?"
    return list(reader.rows(query, _read, (*arguments, limit)))


def recorded_ns(reader: RowReader, cursor: int) -> int:
    """The time at which the event of `cursor` was recorded; 0 if it has been removed."""
    rows = reader.db.rows("SELECT time_ns FROM events WHERE cursor = ?", (cursor,))
    return next((int(row[0]) for row in rows), 0)


def events_of_alarm(reader: RowReader, alarm: str) -> list[AlarmEvent]:
    """Every event of `alarm`, ascending; an alarm begun by an older version lacks the events it wrote."""
    query = """SELECT event FROM events, alarms WHERE alarms.alarm = ? AND events.zone = alarms.zone
        AND events.cursor >= first_cursor AND events.cursor <= last_cursor ORDER BY cursor"""
    return [event for event in reader.rows(query, _read, (alarm,)) if event.alarm == alarm]


def _read(row: tuple[bytes]) -> AlarmEvent:
    return AlarmEvent.FromString(row[0])

"""Webhooks in the hub's database: their cursors and dead letters."""

from dataclasses import dataclass, field

from embereye.hub.database import Database
from embereye.v1.alarms_pb2 import AlarmEvent

TABLES = """
CREATE TABLE IF NOT EXISTS webhooks (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (webhook TEXT NOT NULL, cursor INTEGER NOT NULL, died_ns INTEGER NOT NULL,
    attempts INTEGER NOT NULL, why TEXT NOT NULL, event BLOB NOT NULL, PRIMARY KEY (webhook, cursor)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class DeadLetter:
    """An event that a webhook could not deliver."""

    webhook: str
    cursor: int
    died_ns: int  # on the hub's timeline
    attempts: int
    why: str
    event: AlarmEvent


@dataclass
class WebhookChanges:
    """The webhook part of a transaction."""

    cursors: dict[str, int] = field(default_factory=dict)
    dead: dict[tuple[str, int], DeadLetter | None] = field(default_factory=dict)  # None: delivered later

    def __bool__(self) -> bool:
        return bool(self.cursors or self.dead)


QUERY = """SELECT name, cursor, (SELECT COUNT(*) FROM dead_letters WHERE webhook = name) FROM webhooks"""
DEAD = """SELECT webhook, cursor, died_ns, attempts, why, event FROM dead_letters
    WHERE webhook = ? AND cursor > ? ORDER BY cursor LIMIT ?"""


def read(row: tuple[str, int, int]) -> tuple[str, tuple[int, int]]:
    """Read a row of QUERY: a webhook's name, its cursor, and its number of dead letters."""
    name, cursor, dead = row
    return name, (int(cursor), int(dead))


def read_letter(row: tuple[str, int, int, int, str, bytes]) -> DeadLetter:
    """Read a row of DEAD; DecodeError if it is damaged."""
    webhook, cursor, died_ns, attempts, why, event = row
    return DeadLetter(webhook, cursor, died_ns, attempts, why, AlarmEvent.FromString(event))


def write(db: Database, changes: WebhookChanges) -> None:
    """Write `changes` in the open transaction."""
    for name, cursor in changes.cursors.items():
        db.execute(
            "INSERT INTO webhooks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor",
            (name, cursor),
        )
    for key, letter in changes.dead.items():
        if letter is None:
            db.execute("DELETE FROM dead_letters WHERE webhook = ? AND cursor = ?", key)
        else:
            row = (*key, letter.died_ns, letter.attempts, letter.why, letter.event.SerializeToString())
            db.execute(
                """INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (webhook, cursor) DO UPDATE
                    SET died_ns = excluded.died_ns, attempts = excluded.attempts, why = excluded.why""",
                row,
            )


def prune(db: Database, before_ns: int) -> int:
    """Delete dead letters that died before `before_ns` in the open transaction; return their number."""
    return db.execute("DELETE FROM dead_letters WHERE died_ns < ?", (before_ns,))

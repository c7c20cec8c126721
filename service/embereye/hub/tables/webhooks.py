"""Webhooks in the hub's database: their cursors and dead letters.

`Webhooks` owns the cursors and the numbers of dead letters in memory, and loads both at the start. A webhook that gives
an event up stores the dead letter and its new cursor in one transaction. Dead letters are read in pages by cursor, and
removed once they are delivered or expired.
"""

from dataclasses import dataclass
from typing import Any

from embereye.hub.tables.events import ENDLESS
from embereye.hub.tables.table import KeyedTable, RowReader, StateTable
from embereye.v1.alarms_pb2 import AlarmEvent


@dataclass(frozen=True)
class DeadLetter:
    """An event that a webhook could not deliver."""

    webhook: str
    cursor: int
    died_ns: int  # on the hub's timeline
    attempts: int
    why: str
    event: AlarmEvent


class _DeadLetters(KeyedTable[tuple[str, int], DeadLetter, dict[str, int]]):
    """Dead letters by webhook and cursor; None: delivered later. Their numbers are loaded, by webhook."""

    def nothing(self) -> dict[str, int]:
        return {}

    def load(self, reader: RowReader) -> dict[str, int]:
        query = "SELECT webhook, COUNT(*) FROM dead_letters GROUP BY webhook"
        return dict(reader.rows(query, lambda row: (str(row[0]), int(row[1]))))


WEBHOOKS = StateTable[str, int](  # the cursor up to which each webhook has delivered, by its name
    """
CREATE TABLE IF NOT EXISTS webhooks (name TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
""",
    dump=lambda cursor: (cursor,),
    read=lambda row: (str(row[0]), int(row[1])),
)
DEAD_LETTERS = _DeadLetters(
    """
CREATE TABLE IF NOT EXISTS dead_letters (webhook TEXT NOT NULL, cursor INTEGER NOT NULL, died_ns INTEGER NOT NULL,
    attempts INTEGER NOT NULL, why TEXT NOT NULL, event BLOB NOT NULL, PRIMARY KEY (webhook, cursor)) WITHOUT ROWID;
""",
    dump=lambda letter: (letter.died_ns, letter.attempts, letter.why, letter.event.SerializeToString()),
    expires="died_ns",
)


def dead_letters(reader: RowReader, webhook: str, after: int, limit: int) -> list[DeadLetter]:
    """Up to `limit` events past cursor `after` that `webhook` gave up, ascending."""
    query = """SELECT webhook, cursor, died_ns, attempts, why, event FROM dead_letters
        WHERE webhook = ? AND cursor > ? ORDER BY cursor LIMIT ?"""
    return list(reader.rows(query, _read_letter, (webhook, min(after, ENDLESS), limit)))


def _read_letter(row: Any) -> DeadLetter:
    webhook, cursor, died_ns, attempts, why, event = row
    return DeadLetter(webhook, cursor, died_ns, attempts, why, AlarmEvent.FromString(event))

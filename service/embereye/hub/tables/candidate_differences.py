"""The database table of differences between candidates and the detection in force."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from embereye.hub.tables.table import KeyedTable, RowReader

COLUMNS = "id, fleet, comparison, candidate, device, zone, kind, level, side, at_ns, episode, terms"


@dataclass(frozen=True)
class StoredDifference:
    """A pre-alarm or an alarm that only one side raised."""

    id: str
    fleet: str  # "namespace/kind/name"
    comparison: str  # id of the comparison
    candidate: str  # name
    device: str
    zone: str
    kind: str
    level: str
    side: str  # the one that raised it: inForce or candidate
    at_ns: int  # nanoseconds since the Unix epoch
    episode: str  # of its clips
    terms: Any = ()  # as in `embereye.margins.Measured`


CANDIDATE_DIFFERENCES = KeyedTable[str, StoredDifference, None](  # by id
    """
CREATE TABLE IF NOT EXISTS candidate_differences (id TEXT PRIMARY KEY, fleet TEXT NOT NULL, comparison TEXT NOT NULL,
    candidate TEXT NOT NULL, device TEXT NOT NULL, zone TEXT NOT NULL, kind TEXT NOT NULL, level TEXT NOT NULL,
    side TEXT NOT NULL, at_ns INTEGER NOT NULL, episode TEXT NOT NULL, terms TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS candidate_differences_by_fleet ON candidate_differences (fleet, comparison);
CREATE INDEX IF NOT EXISTS candidate_differences_by_time ON candidate_differences (at_ns);
""",
    dump=lambda row: (
        row.fleet, row.comparison, row.candidate, row.device, row.zone, row.kind, row.level, row.side, row.at_ns,
        row.episode, json.dumps(row.terms),
    ),
    expires="at_ns",
    updates=False,
)  # fmt: skip


def _read(row: Any) -> StoredDifference:
    return StoredDifference(*(*row[:-1], json.loads(row[-1])))


def list_differences(reader: RowReader, since_ns: int, until_ns: int, limit: int) -> list[StoredDifference]:
    """The newest differences of a span, the newest first."""
    query = f"SELECT {COLUMNS} FROM candidate_differences WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns DESC LIMIT ?"
    return list(reader.rows(query, _read, (since_ns, until_ns, limit)))


def count_differences(reader: RowReader, fleet: str, comparison: str) -> Counter[str]:
    """The number of a comparison's differences, by level."""
    query = "SELECT level, COUNT(*) FROM candidate_differences WHERE fleet = ? AND comparison = ? GROUP BY level"
    return Counter(dict(reader.rows(query, lambda row: (str(row[0]), int(row[1])), (fleet, comparison))))

"""The database table of the keys of committed reports, by which copies of a report are recognised.

A report's key is written in the transaction that commits the report. Before the committer applies a batch, it asks
`committed_keys` which of its reports are copies. The newest keys are also in memory, for the time in which the database
cannot be read. Old keys are pruned.
"""

from collections.abc import Iterable

from embereye.hub.database import Database
from embereye.hub.tables.table import KeyedTable, RowReader
from embereye.units import DAY

RECENT = 20_000  # newest reports' keys that the hub remembers in memory; a copy of a report usually comes soon
# How long keys of reports are retained. A fire is reported every second, which takes 30 MB a day. A copy that arrives
# later belongs to a sign that its zone knows already.
REPORTS_NS = DAY
IDS_PER_QUERY = 512  # a power of two
PRUNE_ROWS = 5_000  # removed at once, so that pruning never delays an alarm


class _Evidence(KeyedTable[str, int, list[str]]):
    """Reports by their key, with the time of receipt; the newest keys are in memory."""

    is_rewritten = True

    def nothing(self) -> list[str]:
        return []

    def load(self, reader: RowReader) -> list[str]:
        """The keys of the newest reports, oldest first."""
        query = "SELECT id FROM evidence ORDER BY received_ns DESC LIMIT ?"
        return list(reader.rows(query, lambda row: str(row[0]), (RECENT,)))[::-1]

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        return db.execute(
            "DELETE FROM evidence WHERE id IN (SELECT id FROM evidence WHERE received_ns < ? LIMIT ?)",
            (max(0, now_ns - min(retention_ns, REPORTS_NS)), PRUNE_ROWS),
        )


EVIDENCE = _Evidence(
    """
CREATE TABLE IF NOT EXISTS evidence (id TEXT PRIMARY KEY, received_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS evidence_received ON evidence (received_ns);
""",
    dump=lambda received_ns: (received_ns,),
    newest_time="SELECT MAX(received_ns) FROM evidence",
    updates=False,
)


def committed_keys(reader: RowReader, keys: Iterable[str]) -> set[str]:
    """The keys of reports (`report_key`) among `keys` that are committed already."""
    wanted = list(keys)
    committed: set[str] = set()
    for start in range(0, len(wanted), IDS_PER_QUERY):
        chunk = wanted[start : start + IDS_PER_QUERY]
        # Pad to a power of two: the database caches each prepared statement, so that few sizes save memory.
        size = 1 << (len(chunk) - 1).bit_length()
        chunk += chunk[-1:] * (size - len(chunk))
        marks = ",".join("?" * size)
        committed.update(row[0] for row in reader.db.rows(f"SELECT id FROM evidence WHERE id IN ({marks})", chunk))
    return committed

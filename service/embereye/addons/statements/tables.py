"""The database tables of statements: the statements themselves, and the journal of the days that have none yet."""

from dataclasses import dataclass
from typing import Any

from embereye.hub.tables.table import KeyedTable, RowReader, documents

JournalKey = tuple[str, str]  # kind of row, and a day, a time or nothing


@dataclass(frozen=True)
class Signed:
    """A statement as it is stored."""

    sha256: str  # of the file
    summary: str  # JSON: the figures of `days.summary`
    packed: bytes  # the file, compressed by zlib


class _Statements(KeyedTable[str, Signed, dict[str, Signed]]):
    """Statements by day, such as 2026-11-28. They stay for ever; only the newest is in memory."""

    is_rewritten = True

    def nothing(self) -> dict[str, Signed]:
        """An empty mapping."""
        return {}

    def load(self, reader: RowReader) -> dict[str, Signed]:
        """Read the newest one."""
        query = "SELECT day, sha256, summary, packed FROM statements ORDER BY day DESC LIMIT 1"
        return dict(reader.rows(query, _read))


def _read(row: Any) -> tuple[str, Signed]:
    day, sha256, summary, packed = row
    return str(day), Signed(str(sha256), str(summary), bytes(packed))


STATEMENTS = _Statements(
    """
CREATE TABLE IF NOT EXISTS statements (day TEXT PRIMARY KEY, sha256 TEXT NOT NULL, summary TEXT NOT NULL,
    packed BLOB NOT NULL);
""",
    dump=lambda signed: (signed.sha256, signed.summary, signed.packed),
)
JOURNAL = documents("statement_journal")
TABLES = (STATEMENTS, JOURNAL)


def find_statement(reader: RowReader, day: str) -> Signed | None:
    """The statement of `day`; None if there is none."""
    query = "SELECT day, sha256, summary, packed FROM statements WHERE day = ?"
    return next((signed for _, signed in reader.rows(query, _read, (day,))), None)


def list_statements(reader: RowReader, before: str, limit: int) -> list[tuple[str, str, str]]:
    """Up to `limit` days before the day `before`, the newest first: day, hash and summary."""
    query = "SELECT day, sha256, summary FROM statements WHERE day < ? ORDER BY day DESC LIMIT ?"
    return list(reader.rows(query, lambda row: (str(row[0]), str(row[1]), str(row[2])), (before, limit)))

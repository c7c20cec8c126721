"""The database tables of walk tests: running ones and the devices' latest tests, and the signed reports."""

from dataclasses import dataclass

from embereye.hub.tables.table import KeyedTable, RowReader, documents

RowKey = tuple[str, str]  # "running" or "tested", and NAMESPACE/ZONE


@dataclass(frozen=True)
class Report:
    """A signed report as it is stored."""

    ended_ns: int  # by the wall clock
    summary: str  # JSON, for lists
    file: bytes


WALKTESTS = documents("walktests")


REPORTS = KeyedTable[str, Report, None](  # by id; they stay for ever
    """
CREATE TABLE IF NOT EXISTS walktest_reports (id TEXT PRIMARY KEY, ended_ns INTEGER NOT NULL, summary TEXT NOT NULL,
    file BLOB NOT NULL);
""",
    dump=lambda report: (report.ended_ns, report.summary, report.file),
)
TABLES = (WALKTESTS, REPORTS)


def find_report(reader: RowReader, name: str) -> bytes | None:
    """The file of the report `name`; None if there is none."""
    query = "SELECT file FROM walktest_reports WHERE id = ?"
    return next(reader.rows(query, lambda row: bytes(row[0]), (name,)), None)


def list_reports(reader: RowReader, limit: int) -> list[str]:
    """The summaries of up to `limit` reports, the newest first."""
    query = "SELECT summary FROM walktest_reports ORDER BY ended_ns DESC LIMIT ?"
    return list(reader.rows(query, lambda row: str(row[0]), (limit,)))

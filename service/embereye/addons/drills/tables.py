"""The database tables of drills: the one that runs, and the signed reports."""

from dataclasses import dataclass

from embereye.hub.tables.table import KeyedTable, RowReader, documents


@dataclass(frozen=True)
class Report:
    """A signed report as it is stored."""

    ended_ns: int  # by the wall clock
    file: bytes


DRILLS = documents("drills")
REPORTS = KeyedTable[str, Report, None](  # by id; they stay for ever
    """
CREATE TABLE IF NOT EXISTS drill_reports (id TEXT PRIMARY KEY, ended_ns INTEGER NOT NULL, file BLOB NOT NULL);
""",
    dump=lambda report: (report.ended_ns, report.file),
)
TABLES = (DRILLS, REPORTS)


def find_report(reader: RowReader, name: str) -> bytes | None:
    """The file of the report `name`; None if there is none."""
    query = "SELECT file FROM drill_reports WHERE id = ?"
    return next(reader.rows(query, lambda row: bytes(row[0]), (name,)), None)


def list_reports(reader: RowReader, limit: int) -> list[bytes]:
    """The files of up to `limit` reports, the newest first."""
    query = "SELECT file FROM drill_reports ORDER BY ended_ns DESC LIMIT ?"
    return list(reader.rows(query, lambda row: bytes(row[0]), (limit,)))

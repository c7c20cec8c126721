"""The database table of the versions of the software that ran here."""

from embereye.hub.tables.table import StateTable

RELEASES = StateTable[int, str](  # by the time from which the version ran, nanoseconds since the Unix epoch
    """
CREATE TABLE IF NOT EXISTS releases (since_ns INTEGER PRIMARY KEY, version TEXT NOT NULL);
""",
    dump=lambda version: (version,),
    read=lambda row: (int(row[0]), str(row[1])),
)

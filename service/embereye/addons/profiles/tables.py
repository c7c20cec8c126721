"""The database table of profiles: permits of zones, confirmed schedules, and permits that nobody confirmed."""

from embereye.hub.tables.table import StateTable

RowKey = tuple[str, str]  # "permit" or "lapsed" and NAMESPACE/ZONE, or "schedule" and a profile's name

PROFILES = StateTable[RowKey, str](
    """
CREATE TABLE IF NOT EXISTS profiles (kind TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID;
""",
    dump=lambda document: (document,),
    read=lambda row: ((str(row[0]), str(row[1])), str(row[2])),
)
TABLES = (PROFILES,)

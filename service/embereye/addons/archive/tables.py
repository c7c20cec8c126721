"""The database table of the archive's progress."""

from embereye.hub.tables.table import StateTable

ARCHIVED = StateTable[str, int](  # the positions up to which everything is in the bucket, by name
    """
CREATE TABLE IF NOT EXISTS archived (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
""",
    dump=lambda value: (value,),
    read=lambda row: (str(row[0]), int(row[1])),
)
TABLES = (ARCHIVED,)

"""The database table of notifications: incidents, deliveries, links that were used, proofs of routes, keys.

Each kind of row has a JSON document by its key. All rows are in memory; the rows of past incidents are removed.
"""

from embereye.hub.tables.table import StateTable

RowKey = tuple[str, str]  # kind and key

NOTIFICATIONS = StateTable[RowKey, str](
    """
CREATE TABLE IF NOT EXISTS notifications (kind TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID;
""",
    dump=lambda document: (document,),
    read=lambda row: ((str(row[0]), str(row[1])), str(row[2])),
)
TABLES = (NOTIFICATIONS,)

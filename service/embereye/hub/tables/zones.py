"""The database table of the zones' state machines."""

from embereye.hub.tables.table import StateTable

ZoneKey = tuple[str, str]  # namespace, name

ZONES = StateTable[ZoneKey, bytes](
    """
CREATE TABLE IF NOT EXISTS zones (namespace TEXT NOT NULL, name TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (namespace, name)) WITHOUT ROWID;
""",
    dump=lambda state: (state,),
    read=lambda row: ((str(row[0]), str(row[1])), bytes(row[2])),
)

"""The database tables of the fleets' rosters, and of the fleets whose shards the hub ignores."""

from embereye.hub.tables.table import StateTable
from embereye.v1.roster_pb2 import FleetRoster

ROSTERS = StateTable[str, tuple[bool, FleetRoster]](  # by fleet; True: derived from its shards' reports
    """
CREATE TABLE IF NOT EXISTS rosters (fleet TEXT PRIMARY KEY, derived INTEGER NOT NULL, roster BLOB NOT NULL)
    WITHOUT ROWID;
""",
    dump=lambda entry: (int(entry[0]), entry[1].SerializeToString()),
    read=lambda row: (str(row[0]), (bool(row[1]), FleetRoster.FromString(bytes(row[2])))),
)
FORGOTTEN = StateTable[str, bool](  # by removed fleet, always True
    """
CREATE TABLE IF NOT EXISTS forgotten (fleet TEXT PRIMARY KEY) WITHOUT ROWID;
""",
    dump=lambda _: (),
    read=lambda row: (str(row[0]), True),
)

"""The database table of the outputs that are switched on."""

from embereye.hub.tables.table import StateTable

Trip = tuple[str, str, str, str]  # panel, place, namespace, zone
TRIPS = StateTable[Trip, bool](  # by panel, place, namespace and zone, always True
    """
CREATE TABLE IF NOT EXISTS modbus_trips (panel TEXT NOT NULL, place TEXT NOT NULL, namespace TEXT NOT NULL,
    zone TEXT NOT NULL, PRIMARY KEY (panel, place, namespace, zone)) WITHOUT ROWID;
""",
    dump=lambda _: (),
    read=lambda row: ((str(row[0]), str(row[1]), str(row[2]), str(row[3])), True),
)
TABLES = (TRIPS,)

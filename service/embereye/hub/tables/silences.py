"""The database table of silences."""

from embereye.hub.tables.table import StateTable
from embereye.v1.alarms_pb2 import Silence

SILENCES = StateTable[str, Silence](  # by id
    """
CREATE TABLE IF NOT EXISTS silences (id TEXT PRIMARY KEY, silence BLOB NOT NULL) WITHOUT ROWID;
""",
    dump=lambda silence: (silence.SerializeToString(),),
    read=lambda row: (str(row[0]), Silence.FromString(bytes(row[1]))),
)

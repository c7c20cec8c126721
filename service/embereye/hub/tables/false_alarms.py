"""The database table of marks as false alarm."""

from embereye.hub.tables.table import StateTable
from embereye.v1.alarms_pb2 import FalseAlarm

FALSE_ALARMS = StateTable[str, FalseAlarm](  # by alarm
    """
CREATE TABLE IF NOT EXISTS false_alarms (alarm TEXT PRIMARY KEY, mark BLOB NOT NULL) WITHOUT ROWID;
""",
    dump=lambda mark: (mark.SerializeToString(),),
    read=lambda row: (str(row[0]), FalseAlarm.FromString(bytes(row[1]))),
)

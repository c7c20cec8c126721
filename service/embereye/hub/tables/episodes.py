"""The database table of the episodes that contributed to alarms."""

from embereye.hub.tables.table import KeyedTable, RowReader

EpisodeKey = tuple[str, str]  # alarm, episode


EPISODES = KeyedTable[EpisodeKey, int, None](  # with the time of their last report
    """
CREATE TABLE IF NOT EXISTS episodes (alarm TEXT NOT NULL, episode TEXT NOT NULL, time_ns INTEGER NOT NULL,
    PRIMARY KEY (alarm, episode)) WITHOUT ROWID;
""",
    dump=lambda time_ns: (time_ns,),
    expires="time_ns",
)


def episodes_of_alarm(reader: RowReader, alarm: str) -> list[str]:
    """The ids of the episodes that contributed to `alarm`."""
    return [row[0] for row in reader.db.rows("SELECT episode FROM episodes WHERE alarm = ?", (alarm,))]

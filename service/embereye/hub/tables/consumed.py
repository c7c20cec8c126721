"""The database table of the hub's position in its stream of evidence."""

from dataclasses import dataclass

from embereye.hub.tables.table import StateTable


@dataclass(frozen=True)
class Position:
    """The last message whose report the database contains, or contained before it was pruned."""

    stream: str
    sequence: int
    message: str  # its id: a server that lost the end of its stream assigns a sequence again


# After lost commits the position stays behind: what the stream has past it is read again, and duplicates count once.
CONSUMED = StateTable[str, Position](  # by stream
    """
CREATE TABLE IF NOT EXISTS consumed (stream TEXT PRIMARY KEY, sequence INTEGER NOT NULL, message TEXT NOT NULL)
    WITHOUT ROWID;
""",
    dump=lambda position: (position.sequence, position.message),
    read=lambda row: (str(row[0]), Position(str(row[0]), int(row[1]), str(row[2]))),
    is_rewritten=False,
)

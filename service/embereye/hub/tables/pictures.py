"""The database table of the pictures that devices sent when their signs joined alarms.

The inbox adds a picture to the transaction in which its sign joins an alarm or becomes more serious. Pictures are never
in memory: `History` reads one when it is shown. Pruning removes those past their retention, and all but the newest
MAX_PICTURES.
"""

from collections.abc import Mapping

from embereye.hub.database import Database
from embereye.hub.tables.table import RowReader, Table

MAX_PICTURES = 2_000  # retained pictures of past alarms; about 100 MB

PictureKey = tuple[str, str, int]  # alarm, device, kind
Pictures = dict[PictureKey, tuple[int, bytes]]  # with the time and the JPEG


class _Pictures(Table[Pictures, None]):
    """The newest pictures. A picture that is written again gets a new number, so that it is retained longer."""

    def new_changes(self) -> Pictures:
        return {}

    def write(self, db: Database, changes: Mapping[PictureKey, tuple[int, bytes]], now_ns: int = 0) -> None:
        del now_ns
        db.execute_many("DELETE FROM pictures WHERE alarm = ? AND device = ? AND kind = ?", list(changes))
        db.execute_many(
            "INSERT INTO pictures (alarm, device, kind, time_ns, jpeg) VALUES (?, ?, ?, ?, ?)",
            [(*key, *picture) for key, picture in changes.items()],
        )

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        return db.execute(
            "DELETE FROM pictures WHERE time_ns < ? OR number <= (SELECT MAX(number) FROM pictures) - ?",
            (max(0, now_ns - retention_ns), MAX_PICTURES),
        )


PICTURES = _Pictures(
    """
CREATE TABLE IF NOT EXISTS pictures (number INTEGER PRIMARY KEY AUTOINCREMENT, alarm TEXT NOT NULL,
    device TEXT NOT NULL, kind INTEGER NOT NULL, time_ns INTEGER NOT NULL, jpeg BLOB NOT NULL,
    UNIQUE (alarm, device, kind));
"""
)


def pictures_of_alarm(reader: RowReader, alarm: str, limit: int) -> list[tuple[str, int, int]]:
    """The device, kind and time in ns of up to `limit` pictures stored for `alarm`, the latest stored last."""
    query = "SELECT device, kind, time_ns FROM pictures WHERE alarm = ? ORDER BY number DESC LIMIT ?"
    return [(str(device), int(kind), int(time_ns)) for device, kind, time_ns in reader.db.rows(query, (alarm, limit))][
        ::-1
    ]


def picture(reader: RowReader, alarm: str, device: str, kind: int) -> bytes | None:
    """The JPEG of `device` that is stored for `alarm`; None if there is none."""
    query = "SELECT jpeg FROM pictures WHERE alarm = ? AND device = ? AND kind = ?"
    return next((row[0] for row in reader.db.rows(query, (alarm, device, kind))), None)

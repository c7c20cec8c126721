"""The database tables of floor plans: their data, images and the devices' places.

A plan is a row without its image, which is large and read only when shown. A device has one place on each plan.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from embereye.hub.database import Database
from embereye.hub.tables.table import KeyedTable, RowReader, StateTable

DeviceKey = tuple[str, str]  # fleet ("namespace/kind/name"), device id


@dataclass(frozen=True)
class Place:
    """A device's place on a plan, as fractions of its width and height from the top left."""

    x: float
    y: float


@dataclass
class Plan:
    """A plan of one floor, without its image."""

    name: str
    media: str  # of its image
    width: int  # pixels
    height: int  # pixels
    digest: str  # SHA-256 of its image
    order: int = 0  # position among plans; plans with the same order are sorted by name
    made_ns: int = 0  # when its image was stored, on the wall clock, nanoseconds since the Unix epoch
    made_by: str = ""
    devices: dict[DeviceKey, Place] = field(default_factory=dict)


ABOUT = ("media", "width", "height", "digest", "order", "made_ns", "made_by")


class _PlanImages(KeyedTable[str, bytes, None]):
    """Images by plan; those that were stored recently are in memory, because a failover loses the newest commits."""

    is_rewritten = True

    def rewrite(self, db: Database, state: Mapping[str, bytes | None]) -> None:
        self.write(db, state)
        db.execute("DELETE FROM plan_images WHERE name NOT IN (SELECT name FROM plans)")


PLANS = StateTable[str, Plan](  # by name; loaded without devices
    """
CREATE TABLE IF NOT EXISTS plans (name TEXT PRIMARY KEY, about BLOB NOT NULL) WITHOUT ROWID;
""",
    dump=lambda plan: (json.dumps({field: getattr(plan, field) for field in ABOUT}).encode(),),
    read=lambda row: (str(row[0]), Plan(str(row[0]), **json.loads(bytes(row[1])))),
)
PLAN_IMAGES = _PlanImages(
    """
CREATE TABLE IF NOT EXISTS plan_images (name TEXT PRIMARY KEY, image BLOB NOT NULL) WITHOUT ROWID;
""",
    dump=lambda image: (image,),
)
PLAN_DEVICES = StateTable[tuple[str, str, str], Place](  # by plan and device
    """
CREATE TABLE IF NOT EXISTS plan_devices (plan TEXT NOT NULL, fleet TEXT NOT NULL, device TEXT NOT NULL,
    place BLOB NOT NULL, PRIMARY KEY (plan, fleet, device)) WITHOUT ROWID;
""",
    dump=lambda place: (json.dumps([place.x, place.y]).encode(),),
    read=lambda row: ((str(row[0]), str(row[1]), str(row[2])), Place(*json.loads(bytes(row[3])))),
)


def plan_image(reader: RowReader, name: str) -> bytes:
    """The image of the plan `name`; empty if there is none."""
    return next((bytes(row[0]) for row in reader.db.rows("SELECT image FROM plan_images WHERE name = ?", (name,))), b"")

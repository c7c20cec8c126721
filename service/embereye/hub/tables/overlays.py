"""The database table of overlays."""

import json
from dataclasses import asdict, dataclass

from embereye.hub.tables.table import StateTable

CameraKey = tuple[str, str]  # fleet ("namespace/kind/name"), device id


@dataclass(frozen=True)
class Overlay:
    """A thermal picture on top of a camera's picture. Lengths are fractions of the camera's picture."""

    fleet: str  # of the sensor, "namespace/kind/name"
    sensor: str  # its id
    x: float  # of the thermal picture's centre, from the left
    y: float  # of the thermal picture's centre, from the top
    scale: float  # the thermal picture's width; its height is three quarters of it
    opacity: float  # 0: invisible; 1: the hottest parts are opaque


OVERLAYS = StateTable[CameraKey, Overlay](
    """
CREATE TABLE IF NOT EXISTS overlays (fleet TEXT NOT NULL, camera TEXT NOT NULL, overlay BLOB NOT NULL,
    PRIMARY KEY (fleet, camera)) WITHOUT ROWID;
""",
    dump=lambda overlay: (json.dumps(asdict(overlay)).encode(),),
    read=lambda row: ((str(row[0]), str(row[1])), Overlay(**json.loads(bytes(row[2])))),
)

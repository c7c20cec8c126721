"""What the hub's database holds of overlays: which sensor's thermal picture lies where over which camera's."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from embereye.hub.databases.interface import Database

TABLES = """
CREATE TABLE IF NOT EXISTS overlays (fleet TEXT NOT NULL, camera TEXT NOT NULL, overlay BLOB NOT NULL,
    PRIMARY KEY (fleet, camera)) WITHOUT ROWID;
"""
QUERY = "SELECT fleet, camera, overlay FROM overlays"

CameraKey = tuple[str, str]  # fleet ("namespace/kind/name"), device id


@dataclass(frozen=True)
class Overlay:
    """A thermal picture over a camera's. Lengths are shares of the camera's picture."""

    fleet: str  # of the sensor, "namespace/kind/name"
    sensor: str  # its id
    x: float  # of the thermal picture's centre, from the left
    y: float  # of the thermal picture's centre, from the top
    scale: float  # its width; it is three quarters as high as wide
    opacity: float  # 0: it cannot be seen; 1: nothing can be seen through what is hottest


def read(row: tuple[str, str, bytes]) -> tuple[CameraKey, Overlay]:
    """What a row of QUERY says; ValueError or TypeError where that cannot be read."""
    fleet, camera, overlay = row
    return (fleet, camera), Overlay(**json.loads(bytes(overlay)))


def write(db: Database, changes: Mapping[CameraKey, Overlay | None]) -> None:
    """Write `changes`, None for what is removed, in the transaction that is open."""
    for key, overlay in changes.items():
        if overlay is None:
            db.execute("DELETE FROM overlays WHERE fleet = ? AND camera = ?", key)
        else:
            db.execute(
                """INSERT INTO overlays VALUES (?, ?, ?) ON CONFLICT (fleet, camera)
                    DO UPDATE SET overlay = excluded.overlay""",
                (*key, json.dumps(asdict(overlay)).encode()),
            )

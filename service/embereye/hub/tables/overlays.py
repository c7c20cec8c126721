"""The database table of overlays."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from embereye.hub.database import Database

TABLES = """
CREATE TABLE IF NOT EXISTS overlays (fleet TEXT NOT NULL, camera TEXT NOT NULL, overlay BLOB NOT NULL,
    PRIMARY KEY (fleet, camera)) WITHOUT ROWID;
"""
QUERY = "SELECT fleet, camera, overlay FROM overlays"

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


def read(row: tuple[str, str, bytes]) -> tuple[CameraKey, Overlay]:
    """Read an overlay and its camera from a row of QUERY; ValueError or TypeError if it is invalid."""
    fleet, camera, overlay = row
    return (fleet, camera), Overlay(**json.loads(bytes(overlay)))


def write(db: Database, changes: Mapping[CameraKey, Overlay | None]) -> None:
    """Write `changes` in the open transaction; None removes an overlay."""
    for key, overlay in changes.items():
        if overlay is None:
            db.execute("DELETE FROM overlays WHERE fleet = ? AND camera = ?", key)
        else:
            db.execute(
                """INSERT INTO overlays VALUES (?, ?, ?) ON CONFLICT (fleet, camera)
                    DO UPDATE SET overlay = excluded.overlay""",
                (*key, json.dumps(asdict(overlay)).encode()),
            )

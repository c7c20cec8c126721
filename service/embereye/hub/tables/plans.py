"""The database tables of floor plans: their data, images and the devices' places.

A plan is a row without its image, which is large and read only when shown. A device has one place on each plan.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from embereye.hub.database import Database

TABLES = """
CREATE TABLE IF NOT EXISTS plans (name TEXT PRIMARY KEY, about BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan_images (name TEXT PRIMARY KEY, image BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan_devices (plan TEXT NOT NULL, fleet TEXT NOT NULL, device TEXT NOT NULL,
    place BLOB NOT NULL, PRIMARY KEY (plan, fleet, device)) WITHOUT ROWID;
"""

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


@dataclass
class PlanChanges:
    """A transaction's changes of plans."""

    plans: dict[str, tuple[Plan, bytes] | None] = field(default_factory=dict)  # with its image; None: removed
    devices: dict[tuple[str, DeviceKey], Place | None] = field(default_factory=dict)  # None: removed

    def __bool__(self) -> bool:
        return bool(self.plans or self.devices)


ABOUT = ("media", "width", "height", "digest", "order", "made_ns", "made_by")


PLANS = "SELECT name, about FROM plans"
PLACES = "SELECT plan, fleet, device, place FROM plan_devices"


def read_plan(row: tuple[str, bytes]) -> Plan:
    """Read a plan, without its devices, from a row of PLANS; ValueError or TypeError if it is invalid."""
    name, about = row
    return Plan(name, **json.loads(bytes(about)))


def read_place(row: tuple[str, str, str, bytes]) -> tuple[str, DeviceKey, Place]:
    """Read the plan, device and place from a row of PLACES; ValueError or TypeError if it is invalid."""
    plan, fleet, device, place = row
    return plan, (fleet, device), Place(*json.loads(bytes(place)))


def assemble_plans(plans: Iterable[Plan], places: Iterable[tuple[str, DeviceKey, Place]]) -> list[Plan]:
    """Add the devices in `places` to their plans."""
    by_name = {plan.name: plan for plan in plans}
    for name, key, place in places:
        if name in by_name:
            by_name[name].devices[key] = place
    return list(by_name.values())


def write(db: Database, changes: PlanChanges) -> None:
    """Write `changes` in the open transaction."""
    for name, change in changes.plans.items():
        if change is None:
            for statement in (
                "DELETE FROM plans WHERE name = ?",
                "DELETE FROM plan_images WHERE name = ?",
                "DELETE FROM plan_devices WHERE plan = ?",
            ):
                db.execute(statement, (name,))
            continue
        plan, image = change
        about = json.dumps({field: getattr(plan, field) for field in ABOUT}).encode()
        db.execute(
            "INSERT INTO plans VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET about = excluded.about", (name, about)
        )
        db.execute(
            "INSERT INTO plan_images VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET image = excluded.image",
            (name, image),
        )
    for (name, (fleet, device)), place in changes.devices.items():
        if place is None:
            db.execute("DELETE FROM plan_devices WHERE plan = ? AND fleet = ? AND device = ?", (name, fleet, device))
        else:
            db.execute(
                """INSERT INTO plan_devices VALUES (?, ?, ?, ?) ON CONFLICT (plan, fleet, device)
                    DO UPDATE SET place = excluded.place""",
                (name, fleet, device, json.dumps([place.x, place.y]).encode()),
            )


def read_image(db: Database, name: str) -> bytes:
    """The image of the plan `name`; empty if there is none."""
    return next((bytes(row[0]) for row in db.rows("SELECT image FROM plan_images WHERE name = ?", (name,))), b"")

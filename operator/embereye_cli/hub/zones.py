"""Zones and alarms as people name them at the command line."""

from typing import TYPE_CHECKING

from embereye.process.lifecycle import UserError
from embereye.v1.alarms_pb2 import Zone, ZonesRequest

if TYPE_CHECKING:
    from embereye.v1.alarms_pb2_grpc import AlarmsAsyncStub

TIMEOUT = 5.0  # seconds for one answer


async def find_zone(alarms: "AlarmsAsyncStub", name: str) -> Zone:
    """The zone `name`, ZONE or NAMESPACE/ZONE; UserError where there is none, or more than one."""
    zone = await _zone(alarms, name)
    if zone is None:
        raise UserError(f"there is no zone {name}: `embereye alarms list` shows them")
    return zone


async def find_alarm(alarms: "AlarmsAsyncStub", name: str) -> str:
    """The id of the open alarm of the zone `name`; where there is no such zone, `name` is an alarm's id. UserError."""
    zone = await _zone(alarms, name)
    if zone is None:
        return name
    if not zone.alarm:
        raise UserError(f"zone {name} has no open alarm: name an alarm by its id, `embereye alarms --json history`")
    return zone.alarm


async def _zone(alarms: "AlarmsAsyncStub", name: str) -> Zone | None:
    zones = (await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)).zones
    found = [zone for zone in zones if name in {zone.name, f"{zone.namespace}/{zone.name}"}]
    if len(found) > 1:
        titles = ", ".join(f"{zone.namespace}/{zone.name}" for zone in found)
        raise UserError(f"zone {name} is not the only one of that name: say which of {titles}")
    return found[0] if found else None

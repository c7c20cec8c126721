"""Zones and alarms, as people name them on the command line.

A name is ZONE or NAMESPACE/ZONE, and an alarm is named by its zone or its id. Functions ask the hub for its zones each
time, so that commands act on the present state. A name without a match raises an error with the closest known name; an
ambiguous one raises an error with all matches.
"""

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from embereye.process.lifecycle import NotFoundError, RefusedError, UserError
from embereye.v1.alarms_pb2 import HistoryRequest, Zone, ZonesRequest
from embereye_cli.parser import did_you_mean

if TYPE_CHECKING:
    from embereye.v1.alarms_pb2_grpc import AlarmsAsyncStub

TIMEOUT = 5.0  # seconds for one answer
PAGE = 1_000  # events in one answer
ALARM_ID = re.compile("[0-9a-f]{16}")


def match_zone(name: str, titles: Collection[str]) -> str:
    """The one of `titles`, each NAMESPACE/ZONE, that `name` names.

    NotFoundError if there is none, UserError if several namespaces have a zone of that name.
    """
    matches = [title for title in titles if name in _names(title)]
    if not matches:
        raise NotFoundError(f"there is no zone {name}.{_suggestion(name, titles)}")
    if len(matches) > 1:
        listed = ", ".join(matches)
        raise UserError(f"zone {name}: several namespaces have a zone of that name. Name one of {listed}.")
    return matches[0]


async def find_zone(alarms: "AlarmsAsyncStub", name: str) -> Zone:
    """The zone `name`, ZONE or NAMESPACE/ZONE; NotFoundError if there is none, UserError if there are several."""
    zones = await list_zones(alarms)
    return zones[match_zone(name, zones)]


async def find_alarm(alarms: "AlarmsAsyncStub", name: str) -> str:
    """The id of the open alarm of the zone `name`, or `name` if it is the id of an alarm.

    NotFoundError if it is neither, RefusedError if the zone has no open alarm.
    """
    try:
        zone = await find_zone(alarms, name)
    except NotFoundError:
        if ALARM_ID.fullmatch(name):
            return name
        raise NotFoundError(
            f"there is no zone {name}, and no alarm has this id.{_suggestion(name, await list_zones(alarms))}"
        ) from None
    if not zone.alarm:
        raise RefusedError(f"zone {name} has no open alarm. `embereye alarms --json history` has the ids of past ones.")
    return zone.alarm


async def has_alarm(alarms: "AlarmsAsyncStub", alarm: str) -> bool:
    """True if the retained history has an event of the alarm with this id."""
    request = HistoryRequest(limit=PAGE, newest=True)
    while True:
        page = await alarms.History(request, timeout=TIMEOUT)
        if any(event.alarm == alarm for event in page.events):
            return True
        if not page.next:
            return False
        request.before = page.next


async def list_zones(alarms: "AlarmsAsyncStub") -> dict[str, Zone]:
    """All zones that the hub knows, by NAMESPACE/ZONE."""
    zones = (await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)).zones
    return {f"{zone.namespace}/{zone.name}": zone for zone in zones}


async def check_zones(alarms: "AlarmsAsyncStub", names: Iterable[str]) -> None:
    """Raise NotFoundError if one of `names` is no zone."""
    titles = await list_zones(alarms)
    for name in names:
        if not any(name in _names(title) for title in titles):
            raise NotFoundError(f"there is no zone {name}.{_suggestion(name, titles)}")


def _names(title: str) -> set[str]:
    return {title, title.partition("/")[2]}


def _suggestion(name: str, titles: Iterable[str]) -> str:
    known = {known for title in titles for known in _names(title)}
    return did_you_mean(name, known) or " `embereye alarms list` shows what there is."

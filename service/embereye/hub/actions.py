"""What people do to a zone: acknowledge, reset, test."""

from enum import StrEnum

from embereye.hub.access.keeper import add_entry
from embereye.hub.access.roles import Principal
from embereye.hub.storage.committer import Committer, Draft
from embereye.hub.zones import Zones
from embereye.v1.alarms_pb2 import AlarmEvent

MAX_WHO = 200  # characters
MAX_NOTE = 2_000  # characters


class Action(StrEnum):
    """What a person may do."""

    ACKNOWLEDGE = "acknowledge"  # say that somebody knows of the alarm
    RESET = "reset"  # end an alarm that is acknowledged
    TEST = "test"  # begin a test, or end the one that is on


class UnknownZoneError(Exception):
    """A person named a zone that there is not."""


class Actions:
    """Makes people's actions steps of their zone."""

    def __init__(self, committer: Committer, zones: Zones) -> None:
        self._committer = committer
        self._zones = zones

    async def perform(
        self, action: Action, by: Principal, namespace: str, zone: str, who: str = "", note: str = ""
    ) -> AlarmEvent:
        """Do `action` and return the event that it made, once that and its audit entry are durable.

        `by` has proved who they are; `who` is the name of the person that they give besides, if any. Raises
        UnknownZoneError, NotAllowedError where the zone's state does not allow it, and StoreFailingError.
        """
        if not self._zones.has_zone(namespace, zone):
            raise UnknownZoneError(f"there is no zone {namespace}/{zone}")
        events: list[AlarmEvent] = []
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            machine = self._zones.touch(draft, (namespace, zone))
            match action:
                case Action.ACKNOWLEDGE:
                    events.extend(machine.acknowledge(name, note, draft.now_ns))
                case Action.RESET:
                    events.extend(machine.reset(name, note, draft.now_ns))
                case Action.TEST:
                    events.extend(machine.toggle_test(name, note, draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, action, f"{namespace}/{zone}", f"{name}: {note}" if note else name)

        await self._committer.commit(step)
        return events[0]


def check_action(who: str, note: str, called: str = "note") -> str:
    """Why a person's action cannot be taken as it is, whose note is `called` so; '' where it can."""
    if len(who) > MAX_WHO:
        return f"who has {len(who)} characters: at most {MAX_WHO} are kept"
    if len(note) > MAX_NOTE:
        return f"{called} has {len(note)} characters: at most {MAX_NOTE} are kept"
    return ""

"""People's actions on a zone: acknowledge, escalate, reset, test.

HTTP routes and the Alarms service call `perform`. The action becomes a step of the next transaction, in which the
zone's state machine accepts or refuses it. Its event and its audit entry are durable together, and only then does the
caller get the event.
"""

from enum import StrEnum

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Committer, Draft
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.zones import Zones
from embereye.v1.alarms_pb2 import AlarmEvent

MAX_WHO = 200  # characters
MAX_NOTE = 2_000  # characters


class Action(StrEnum):
    """The actions on a zone that a person can perform."""

    ACKNOWLEDGE = "acknowledge"  # record that somebody knows of the alarm
    ESCALATE = "escalate"  # notify people of the open alarm once more
    RESET = "reset"  # end an acknowledged alarm
    TEST = "test"  # begin a test, or end the current one


class Actions:
    """Applies people's actions to the zones' state machines."""

    def __init__(self, committer: Committer, zones: Zones) -> None:
        self._committer = committer
        self._zones = zones

    async def perform(
        self, action: Action, by: Principal, namespace: str, zone: str, who: str = "", note: str = ""
    ) -> AlarmEvent:
        """Perform `action` and return its event, once the event and the audit entry are durable.

        `by` is the authenticated caller; `who` is the person's name that the caller gives, if any. Raises
        InvalidError, UnknownNameError, NotAllowedError if the zone's state does not allow the action, and
        StoreFailingError.
        """
        check_action(who, note)
        if not self._zones.has_zone(namespace, zone):
            raise UnknownNameError(f"there is no zone {namespace}/{zone}")
        events: list[AlarmEvent] = []
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            machine = self._zones.touch(draft, (namespace, zone))
            match action:
                case Action.ACKNOWLEDGE:
                    events.extend(machine.acknowledge(name, note, draft.now_ns))
                case Action.ESCALATE:
                    events.append(machine.escalate(name, note, draft.now_ns))
                case Action.RESET:
                    events.extend(machine.reset(name, note, draft.now_ns))
                case Action.TEST:
                    events.extend(machine.toggle_test(name, note, draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, action, f"{namespace}/{zone}", f"{name}: {note}" if note else name)

        await self._committer.commit(step)
        return events[0]


def check_action(who: str, note: str = "", field: str = "note") -> None:
    """Raise InvalidError if a text of a person's action is too long. `field` is the note's name in the request."""
    if len(who) > MAX_WHO:
        raise InvalidError(f"who: {len(who)} characters, at most {MAX_WHO} are allowed")
    if len(note) > MAX_NOTE:
        raise InvalidError(f"{field}: {len(note)} characters, at most {MAX_NOTE} are allowed")

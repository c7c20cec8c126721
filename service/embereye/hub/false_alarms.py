"""Marks of false alarms: stores them and passes them on to the zones' state machines and to the cameras' shards.

A mark copies the strongest signs of its alarm, from the stored events and from the zone if the alarm is still open. The
zone's state machine compares later signs with them.

A mark is added or removed in a step of the committer, together with its event and its audit entry. The marks are in
memory here by alarm, and in `Zones.marks` by zone. After each change, listeners are called: the Evidence service then
sends cameras' shards the marked regions.
"""

from collections.abc import Callable

from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import check_action
from embereye.hub.committer import Committer, Draft
from embereye.hub.history import History
from embereye.hub.refusals import ConflictError, InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.false_alarms import FALSE_ALARMS
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.zones import Zones
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm
from embereye.v1.evidence_pb2 import MarkedPlace, MarkedPlaces
from embereye.zone.false_alarms import strongest

MAX_MARKS = 1_000  # with more, the detectors need attention, not further marks


class FalseAlarms:
    """All marks of false alarms. Listeners are called after each change."""

    def __init__(self, committer: Committer, zones: Zones, history: History) -> None:
        self._committer = committer
        self._zones = zones
        self._history = history
        self._marks: dict[str, FalseAlarm] = {}
        self._listeners: set[Callable[[], None]] = set()

    def restore(self, stored: StoredState) -> None:
        """Restore the stored marks."""
        for mark in stored[FALSE_ALARMS].values():
            self._note(mark)

    def add_state(self, state: Transaction) -> None:
        """Add all marks to `state`."""
        state[FALSE_ALARMS].update(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def all(self) -> list[FalseAlarm]:
        """All marks, newest first."""
        return sorted(self._marks.values(), key=lambda mark: (-mark.time_ns, mark.alarm))

    def find(self, alarm: str) -> FalseAlarm | None:
        """The mark of `alarm`; None if it is not marked."""
        return self._marks.get(alarm)

    def places(self, fleet: str) -> MarkedPlaces:
        """The regions in pictures of `fleet` ("namespace/kind/name") where marked signs were seen."""
        return MarkedPlaces(
            places=[
                MarkedPlace(alarm=mark.alarm, device=sign.device, kind=sign.kind, region=sign.region)
                for mark in self._marks.values()
                for sign in mark.signs
                if sign.fleet == fleet and sign.HasField("region")
            ]
        )

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after every change; returns a function that ends the subscription."""
        self._listeners.add(changed)
        return lambda: self._listeners.discard(changed)

    async def mark(self, by: Principal, alarm: str, reason: str, who: str = "") -> AlarmEvent:
        """Mark `alarm` as false; returns the event, once it is durable.

        Raises InvalidError without a reason, UnknownNameError if there is no such alarm, or none of its signs are
        stored any more, ConflictError if it is marked already, or there are too many marks, and StoreFailingError.
        """
        reason = reason.strip()
        check_action(who, reason, "reason")
        if not reason:
            raise InvalidError("reason is empty. Say what looked like a fire.")
        alarm_events = await self._history.alarm_events(alarm)
        if not alarm_events:
            raise UnknownNameError(f"there is no alarm {alarm[:40]}")
        key, name = (alarm_events[0].namespace, alarm_events[0].zone), by.acting_as(who)
        events: list[AlarmEvent] = []

        def step(draft: Draft) -> None:
            if known := self._marks.get(alarm):
                raise ConflictError(f"{known.who} has marked the alarm as false already: {known.reason}")
            if len(self._marks) >= MAX_MARKS:
                raise ConflictError(f"{MAX_MARKS} alarms are marked as false, no more are possible. Remove some marks.")
            machine = self._zones.touch(draft, key)
            items = [item for event in alarm_events for item in event.contributions]
            if machine.alarm == alarm:
                items += [contribution.item for contribution in machine.contributions.values()]
            if not (signs := strongest(items)):
                raise UnknownNameError(f"alarm {alarm}: its signs are no longer stored")
            mark = FalseAlarm(
                alarm=alarm, namespace=key[0], zone=key[1], time_ns=draft.now_ns + draft.stepped_ns, who=name,
                reason=reason, signs=signs,
            )  # fmt: skip
            self._note(mark)
            draft.transaction[FALSE_ALARMS][alarm] = mark
            events.append(machine.false_alarm_event(alarm, name, f"marked as false by {name}: {reason}", draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, "mark false", f"{key[0]}/{key[1]}", f"{alarm}: {reason}")

        await self._commit(step)
        return events[0]

    async def take_back(self, by: Principal, alarm: str, who: str = "") -> AlarmEvent:
        """Remove the mark of `alarm`; returns the event, once it is durable.

        Raises InvalidError, UnknownNameError if it is not marked, and StoreFailingError.
        """
        check_action(who)
        name = by.acting_as(who)
        events: list[AlarmEvent] = []

        def step(draft: Draft) -> None:
            mark = self._marks.pop(alarm, None)
            if mark is None:
                raise UnknownNameError(f"alarm {alarm[:40]} is not marked as false")
            key = (mark.namespace, mark.zone)
            self._zones.marks[key].pop(alarm, None)
            draft.transaction[FALSE_ALARMS][alarm] = None
            machine = self._zones.touch(draft, key)
            why = f"{name} has taken back that the alarm was false ({mark.reason})"
            events.append(machine.false_alarm_event(alarm, name, why, draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, "take back false", f"{key[0]}/{key[1]}", alarm)

        await self._commit(step)
        return events[0]

    async def _commit(self, step: Callable[[Draft], None]) -> None:
        try:
            await self._committer.commit(step)
        finally:  # the change may have been applied even if the caller was cancelled
            for changed in list(self._listeners):
                changed()

    def _note(self, mark: FalseAlarm) -> None:
        self._marks[mark.alarm] = mark
        self._zones.marks[mark.namespace, mark.zone][mark.alarm] = mark

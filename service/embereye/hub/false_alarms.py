"""The alarms that people marked as false: kept, told to the zones' machines and to the shards of their cameras."""

from collections.abc import Callable, Iterable

from embereye.hub.access.keeper import add_entry
from embereye.hub.access.roles import Principal
from embereye.hub.storage.committer import Committer, Draft
from embereye.hub.storage.history import History
from embereye.hub.zones import Zones
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm
from embereye.v1.evidence_pb2 import MarkedPlace, MarkedPlaces
from embereye.zone.false_alarms import strongest

MOST = 1_000  # marks in all: beyond that somebody should look at the detectors, not at the marks


class UnknownAlarmError(Exception):
    """There is no such alarm, or nothing of it is kept."""


class NotMarkedError(Exception):
    """What was asked for does not fit with what is marked already."""


class FalseAlarms:
    """Marks alarms and takes marks back. `changed` hears of both, once they hold here."""

    def __init__(self, committer: Committer, zones: Zones, history: History) -> None:
        self._committer = committer
        self._zones = zones
        self._history = history
        self._marks: dict[str, FalseAlarm] = {}
        self._listeners: set[Callable[[], None]] = set()

    def restore(self, marks: Iterable[FalseAlarm]) -> None:
        """Go on from what was stored."""
        for mark in marks:
            self._note(mark)

    def __len__(self) -> int:
        return len(self._marks)

    def all(self) -> list[FalseAlarm]:
        """Every mark, the newest first."""
        return sorted(self._marks.values(), key=lambda mark: (-mark.time_ns, mark.alarm))

    def find(self, alarm: str) -> FalseAlarm | None:
        """The mark of `alarm`."""
        return self._marks.get(alarm)

    def places(self, fleet: str) -> MarkedPlaces:
        """Where cameras of `fleet` ("namespace/kind/name") saw what was marked."""
        return MarkedPlaces(
            places=[
                MarkedPlace(alarm=mark.alarm, device=seen.device, kind=seen.kind, region=seen.region)
                for mark in self._marks.values()
                for seen in mark.signs
                if seen.fleet == fleet and seen.HasField("region")
            ]
        )

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have `changed` called after every change; returns what ends that."""
        self._listeners.add(changed)
        return lambda: self._listeners.discard(changed)

    async def mark(self, by: Principal, alarm: str, reason: str, who: str = "") -> AlarmEvent:
        """Note that `alarm` was false and why; returns the event, once it is durable.

        Raises UnknownAlarmError, NotMarkedError where it is marked already or there are too many marks, and
        StoreFailingError.
        """
        told = await self._history.alarm_events(alarm)
        if not told:
            raise UnknownAlarmError(f"there is no alarm {alarm[:40]}")
        key, name = (told[0].namespace, told[0].zone), by.acting_as(who)
        events: list[AlarmEvent] = []

        def step(draft: Draft) -> None:
            if known := self._marks.get(alarm):
                raise NotMarkedError(f"{known.who} has marked the alarm as false already: {known.reason}")
            if len(self._marks) >= MOST:
                raise NotMarkedError(f"{MOST} alarms are marked as false: take some marks back first")
            machine = self._zones.touch(draft, key)
            items = [item for event in told for item in event.contributions]
            if machine.alarm == alarm:
                items += [contribution.item for contribution in machine.contributions.values()]
            if not (signs := strongest(items)):
                raise UnknownAlarmError(f"nothing is kept of what was seen in alarm {alarm}")
            mark = FalseAlarm(
                alarm=alarm, namespace=key[0], zone=key[1], time_ns=draft.now_ns + draft.stepped_ns, who=name,
                reason=reason, signs=signs,
            )  # fmt: skip
            self._note(mark)
            draft.transaction.false_alarms[alarm] = mark
            events.append(machine.false_alarm_event(alarm, name, f"marked as false by {name}: {reason}", draft.now_ns))
            self._zones.add_events(draft, events)
            add_entry(draft, by, "mark false", f"{key[0]}/{key[1]}", f"{alarm}: {reason}")

        await self._commit(step)
        return events[0]

    async def take_back(self, by: Principal, alarm: str, who: str = "") -> AlarmEvent:
        """Note that `alarm` was no false one; returns the event, once it is durable.

        Raises UnknownAlarmError where it is not marked, and StoreFailingError.
        """
        name = by.acting_as(who)
        events: list[AlarmEvent] = []

        def step(draft: Draft) -> None:
            mark = self._marks.pop(alarm, None)
            if mark is None:
                raise UnknownAlarmError(f"alarm {alarm[:40]} is not marked as false")
            key = (mark.namespace, mark.zone)
            self._zones.marks[key].pop(alarm, None)
            draft.transaction.false_alarms[alarm] = None
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
        finally:  # it may hold also where nobody waits for it any more
            for changed in list(self._listeners):
                changed()

    def _note(self, mark: FalseAlarm) -> None:
        self._marks[mark.alarm] = mark
        self._zones.marks[mark.namespace, mark.zone][mark.alarm] = mark

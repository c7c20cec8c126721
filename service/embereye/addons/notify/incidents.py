"""Incidents and their escalations (pure): the messages that have to be sent, and when.

An incident is an alarm of a zone, from pre-alarm to reset, or a fault of a device. `apply` takes the hub's events, and
`pass_time` begins the steps that are due. Both add deliveries: one message to one route about one incident. Callers
store what `changed` names in one transaction with the position in the feed, so that no step is skipped or begun twice.

A delivery stays until its message was accepted. Steps that became due while no hub ran begin as soon as one does.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from embereye.addons.notify.options import (
    ALARM,
    CRITICAL,
    FAULT,
    FIRES,
    NORMAL,
    PRE_ALARM,
    Duty,
    Escalation,
    NotifyOptions,
    OnDuty,
)
from embereye.levels import Level, Sense, ZoneState
from embereye.units import DAY, SECOND
from embereye.v1.alarms_pb2 import AlarmEvent

OPEN, ACKNOWLEDGED, OVER = "open", "acknowledged", "over"
ESCALATED = "escalated"  # the news that a person escalated
FOLLOW_UP = -1  # the number of a message that says that an incident was acknowledged, or is over
ORDER = (PRE_ALARM, ALARM, CRITICAL)
RETAINED_NS = DAY  # after its end, so that an event that comes again opens nothing


@dataclass
class Progress:
    """The progress of one escalation of an incident."""

    began_ns: int  # its present round, on the hub's timeline
    round: int = 0
    step: int = 0  # the next one
    routes: list[str] = field(default_factory=list)  # of the previous step


@dataclass
class Incident:
    """An alarm or a fault that people have to know about."""

    key: str
    occasion: str  # the most serious one so far
    namespace: str
    zone: str
    why: str
    time_ns: int  # of its beginning, by the wall clock
    device: str = ""  # of a fault
    alarm: str = ""  # id; '' for a fault
    state: str = OPEN
    who: str = ""  # acknowledged it
    changed_ns: int = 0  # of `state`, on the hub's timeline
    generation: int = 0  # grows whenever its escalations start over
    pictures: list[list[Any]] = field(default_factory=list)  # device and kind of signs, cameras first
    progress: dict[str, Progress] = field(default_factory=dict)  # by escalation
    notified: dict[str, list[Any]] = field(default_factory=dict)  # by route: the escalation, and when (Unix seconds)
    reached: dict[str, int] = field(default_factory=dict)  # by escalation: steps that have begun

    @property
    def title(self) -> str:
        """Its place for people."""
        return f"{self.namespace}/{self.zone}"

    @property
    def document(self) -> dict[str, Any]:
        """Its fields for the database. They are not copied."""
        return {**vars(self), "progress": {name: vars(progress) for name, progress in self.progress.items()}}


@dataclass
class Delivery:
    """A message to a route about an incident, which the route has not accepted yet."""

    incident: str
    generation: int
    escalation: str
    round: int
    step: int
    route: str
    news: str  # an occasion, or the incident's new state
    made_ns: int  # on the hub's timeline
    attempts: int = 0
    why: str = ""  # the latest attempt failed
    dead_ns: int = 0  # when it was given up, on the hub's timeline; 0: it was not

    @property
    def key(self) -> str:
        """A name that no other delivery has."""
        return f"{self.incident}|{self.generation}|{self.escalation}|{self.round}.{self.step}|{self.route}|{self.news}"


class Incidents:
    """All incidents and deliveries. `changed` collects the keys of changed ones for the caller."""

    def __init__(
        self,
        options: NotifyOptions,
        profile_of: Callable[[str, str], str] = lambda *_: NORMAL,
        on_duty: OnDuty = Duty.routes,
    ) -> None:
        """`profile_of` returns the name of the present profile of a zone, by namespace and name."""
        self._options = options
        self._profile_of = profile_of
        self._on_duty = on_duty
        self._escalations = {escalation.name: escalation for escalation in options.escalations}
        self.incidents: dict[str, Incident] = {}
        self.deliveries: dict[str, Delivery] = {}
        self._zones = defaultdict[tuple[str, str], set[str]](set)  # incidents that are not over, by zone
        self._routes = defaultdict[str, dict[str, Delivery]](dict)  # deliveries by route
        self.changed: set[tuple[str, str]] = set()  # kind (incident or delivery) and key

    # Storage

    def load(self, incidents: Mapping[str, Any], deliveries: Mapping[str, Any]) -> None:
        """Restore stored documents by key."""
        for key, document in incidents.items():
            progress = {name: Progress(**each) for name, each in document.pop("progress").items()}
            incident = self.incidents[key] = Incident(**document, progress=progress)
            if incident.state != OVER:
                self._zones[incident.namespace, incident.zone].add(key)
        for key, document in deliveries.items():
            delivery = self.deliveries[key] = Delivery(**document)
            self._routes[delivery.route][key] = delivery

    def dump(self) -> Iterator[tuple[str, str, Any]]:
        """Yield kind, key and document of what has changed since the last call; None: removed.

        A document shares its parts with the state, so encode it before anything else happens: a copy of thousands of
        documents would delay the alarms of a storm.
        """
        changed, self.changed = self.changed, set()
        for kind, key in sorted(changed):
            if kind == "delivery":
                delivery = self.deliveries.get(key)
                yield kind, key, vars(delivery) if delivery else None
            else:
                incident = self.incidents.get(key)
                yield kind, key, incident.document if incident else None

    # Changes

    def apply(self, event: AlarmEvent, now_ns: int, at: datetime) -> None:
        """Apply an event of the hub at `now_ns` on its timeline, which is `at` for people."""
        silenced = event.HasField("silence")
        if event.type == AlarmEvent.TYPE_FAULT and not silenced:
            self._open_fault(event, now_ns)
        elif event.type == AlarmEvent.TYPE_FAULT_CLEARED:
            for incident in self._in_zone(event, FAULT):
                if incident.device == event.fault.device:
                    self._end(incident, OVER, "", now_ns)
        elif event.type == AlarmEvent.TYPE_EVIDENCE and event.who:
            self._escalate(event, now_ns, at)
        elif event.type in {AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE}:
            self._take_signs(event, now_ns, silenced=silenced)
        for key in self._zones[event.namespace, event.zone]:
            self._pass_time(self.incidents[key], now_ns, at)

    def _open_fault(self, event: AlarmEvent, now_ns: int) -> None:
        if any(incident.device == event.fault.device for incident in self._in_zone(event, FAULT)):
            return
        key = f"fault/{event.namespace}/{event.zone}/{event.fault.device}/{event.fault.since_ns or event.time_ns}"
        if key in self.incidents:
            return
        self._begin(
            Incident(key, FAULT, event.namespace, event.zone, event.why, event.time_ns, event.fault.device), now_ns
        )

    def _take_signs(self, event: AlarmEvent, now_ns: int, *, silenced: bool) -> None:
        state = ZoneState(event.state)
        if state in {ZoneState.PRE_ALARM, ZoneState.ALARM}:
            if not silenced:
                self._open_alarm(event, state, now_ns)
            return
        for incident in self._in_zone(event, *FIRES, PRE_ALARM):
            if state == ZoneState.NORMAL:
                self._end(incident, OVER, event.who, now_ns)
            elif incident.state == OPEN:
                self._end(incident, ACKNOWLEDGED, event.who, now_ns)

    def _open_alarm(self, event: AlarmEvent, state: ZoneState, now_ns: int) -> None:
        occasion = PRE_ALARM
        if state == ZoneState.ALARM:
            critical = any(item.level >= Level.CRITICAL for item in event.contributions)
            occasion = CRITICAL if critical else ALARM
        key = f"alarm/{event.alarm}"
        incident = self.incidents.get(key)
        if incident is None:
            incident = Incident(key, occasion, event.namespace, event.zone, event.why, event.time_ns, alarm=event.alarm)
            self._note_signs(incident, event)
            self._begin(incident, now_ns)
            return
        self._note_signs(incident, event)
        reopened = event.type == AlarmEvent.TYPE_STATE and incident.state != OPEN and state == ZoneState.ALARM
        if reopened or (incident.state == OPEN and ORDER.index(occasion) > ORDER.index(incident.occasion)):
            incident.occasion = max(occasion, incident.occasion, key=ORDER.index)
            incident.state, incident.who = OPEN, ""
            self._begin(incident, now_ns)

    def _escalate(self, event: AlarmEvent, now_ns: int, at: datetime) -> None:
        """Begin at once each step that has begun before, and the next one: a person asks for help.

        Escalations of an open alarm then continue. After an acknowledgement, each step is sent only once.
        """
        state = ZoneState(event.state)
        incident = self.incidents.get(f"alarm/{event.alarm}")
        if incident is None:
            self._open_alarm(event, state if state == ZoneState.PRE_ALARM else ZoneState.ALARM, now_ns)
            incident = self.incidents[f"alarm/{event.alarm}"]
            incident.state = OPEN if state in {ZoneState.PRE_ALARM, ZoneState.ALARM} else ACKNOWLEDGED
        reached = incident.reached
        self._note_signs(incident, event)
        self._begin(incident, now_ns, max(incident.occasion, ALARM, key=ORDER.index))
        for name, progress in incident.progress.items():
            escalation = self._escalations[name]
            last = min(reached.get(name, 0), len(escalation.steps) - 1)
            for _ in range(last + 1):
                self._step(incident, escalation, progress, now_ns, at, ESCALATED)
            progress.began_ns = now_ns - int(escalation.steps[last].after * SECOND)
        if incident.state != OPEN:
            incident.progress = {}

    def _note_signs(self, incident: Incident, event: AlarmEvent) -> None:
        signs = sorted(event.contributions, key=lambda item: (Sense(item.sense) is not Sense.CAMERA, -item.level))
        if signs:
            incident.why = event.why or incident.why
            incident.pictures = [[item.device, int(item.kind)] for item in signs][:4]
        self.changed.add(("incident", incident.key))

    def _in_zone(self, event: AlarmEvent, *occasions: str) -> list[Incident]:
        """The incidents in the event's zone that are not over."""
        keys = sorted(self._zones[event.namespace, event.zone])
        return [incident for key in keys if (incident := self.incidents[key]).occasion in occasions]

    def _begin(self, incident: Incident, now_ns: int, occasion: str = "") -> None:
        """Begin all escalations for `occasion`, by default the incident's present one."""
        incident.generation += 1
        incident.changed_ns = now_ns
        incident.reached = {}
        profile = self._profile_of(incident.namespace, incident.zone)
        incident.progress = {
            escalation.name: Progress(now_ns)
            for escalation in self._options.escalations
            if escalation.is_for(occasion or incident.occasion, incident.namespace, incident.zone, profile)
            and any(self._is_for(route, incident) for route in self._options.routes_of(escalation))
        }
        self.incidents[incident.key] = incident
        self._zones[incident.namespace, incident.zone].add(incident.key)
        self.changed.add(("incident", incident.key))

    def _is_for(self, route: str, incident: Incident) -> bool:
        return self._options.is_for(route, incident.namespace, incident.zone)

    def _end(self, incident: Incident, state: str, who: str, now_ns: int) -> None:
        """Stop the escalations, and let the notified routes know."""
        was_open = incident.state == OPEN
        incident.state, incident.changed_ns, incident.progress = state, now_ns, {}
        incident.who = who or incident.who
        if state == OVER:
            self._zones[incident.namespace, incident.zone].discard(incident.key)
        self.changed.add(("incident", incident.key))
        for route, (name, _) in incident.notified.items() if was_open else ():
            self._follow_up(incident, route, name, now_ns)

    def _follow_up(self, incident: Incident, route: str, name: str, now_ns: int) -> None:
        """Let a notified route know that the incident was acknowledged, or is over."""
        escalation = self._escalations.get(name)
        if escalation and escalation.follow_up and route in self._options.routes:
            self._add(Delivery(incident.key, incident.generation, name, 0, FOLLOW_UP, route, incident.state, now_ns))

    def _add(self, delivery: Delivery) -> None:
        self.deliveries[delivery.key] = self._routes[delivery.route][delivery.key] = delivery
        self.changed.add(("delivery", delivery.key))

    def pass_time(self, now_ns: int, at: datetime) -> None:
        """Begin all steps that are due at `now_ns`, and forget incidents that ended long ago."""
        for incident in list(self.incidents.values()):
            if incident.state == OPEN:
                self._pass_time(incident, now_ns, at)
            elif incident.state == OVER and now_ns - incident.changed_ns > RETAINED_NS:
                del self.incidents[incident.key]
                self.changed.add(("incident", incident.key))

    def _pass_time(self, incident: Incident, now_ns: int, at: datetime) -> None:
        for name, progress in incident.progress.items():
            escalation = self._escalations.get(name)
            while escalation and (due_ns := _due_ns(escalation, progress)) is not None and due_ns <= now_ns:
                self._step(incident, escalation, progress, now_ns, at)

    def _step(
        self, incident: Incident, escalation: Escalation, progress: Progress, now_ns: int, at: datetime, news: str = ""
    ) -> None:
        """Begin the next step, with `news` instead of the incident's occasion.

        If none of its routes serves the incident's zone, the step after it is due at once.
        """
        if progress.step == len(escalation.steps):
            progress.began_ns, progress.step = now_ns, 0
            progress.round += 1
        number = progress.step
        progress.step += 1
        incident.reached[escalation.name] = max(progress.step, incident.reached.get(escalation.name, 0))
        routes = self._options.expand(escalation.steps[number].routes, at, self._on_duty)
        progress.routes = [route for route in routes if self._is_for(route, incident)]
        if not progress.routes and progress.step < len(escalation.steps):
            progress.began_ns = now_ns - int(escalation.steps[progress.step].after * SECOND)
        self.changed.add(("incident", incident.key))
        for route in progress.routes:
            self._add(
                Delivery(
                    incident.key, incident.generation, escalation.name, progress.round, number, route,
                    news or incident.occasion, now_ns,
                )
            )  # fmt: skip

    def hurry(self, failing: Collection[str], now_ns: int, at: datetime) -> None:
        """Begin the next step of escalations whose previous step reached nobody: all of its routes are `failing`."""
        undelivered = {
            (delivery.incident, delivery.escalation, delivery.round, delivery.step, delivery.route)
            for delivery in self.deliveries.values()
        }
        for incident in self.incidents.values():
            for name, progress in incident.progress.items():
                escalation = self._escalations.get(name)
                if not escalation or not 0 < progress.step < len(escalation.steps) or not progress.routes:
                    continue
                place = incident.key, name, progress.round, progress.step - 1
                if all(route in failing and (*place, route) in undelivered for route in progress.routes):
                    progress.began_ns = now_ns - int(escalation.steps[progress.step].after * SECOND)
                    self.changed.add(("incident", incident.key))
        self.pass_time(now_ns, at)

    # Deliveries

    def pending(self, route: str) -> list[Delivery]:
        """The deliveries to `route` that are neither accepted nor given up, the oldest first."""
        return sorted(
            (each for each in self._routes[route].values() if not each.dead_ns), key=lambda each: each.made_ns
        )

    def dead(self, route: str = "") -> list[Delivery]:
        """The deliveries that were given up, of one route or of all."""
        return [each for each in self.deliveries.values() if each.dead_ns and route in {"", each.route}]

    def note_delivered(self, delivery: Delivery, seconds: int, state: str, now_ns: int) -> None:
        """Note that the route accepted a message with this delivery, written at the Unix time `seconds`.

        `state` is the incident's state at that time. If the incident was acknowledged, or ended, while the message was
        under way, the route is let know of that, too.
        """
        self.discard(delivery)
        incident = self.incidents.get(delivery.incident)
        if incident and delivery.step != FOLLOW_UP and delivery.route not in incident.notified:
            incident.notified[delivery.route] = [delivery.escalation, seconds]
            self.changed.add(("incident", incident.key))
            if state == OPEN != incident.state:
                self._follow_up(incident, delivery.route, delivery.escalation, now_ns)

    def note_failed(self, delivery: Delivery, why: str, *, dead_ns: int = 0) -> None:
        """Note a failed attempt, after which the delivery is given up if `dead_ns` is set."""
        delivery.attempts += 1
        delivery.why, delivery.dead_ns = why, dead_ns
        self.changed.add(("delivery", delivery.key))

    def revive(self, delivery: Delivery, now_ns: int) -> None:
        """Send a dead letter again."""
        delivery.dead_ns, delivery.made_ns = 0, now_ns
        self.changed.add(("delivery", delivery.key))

    def discard(self, delivery: Delivery) -> None:
        """Forget a delivery that cannot be sent any more."""
        self.deliveries.pop(delivery.key, None)
        self._routes[delivery.route].pop(delivery.key, None)
        self.changed.add(("delivery", delivery.key))

    def unrouted(self) -> list[Incident]:
        """The open alarms for which no escalation is declared."""
        return [
            incident
            for incident in self.incidents.values()
            if incident.state == OPEN and incident.occasion in FIRES and not incident.progress
        ]


def _due_ns(escalation: Escalation, progress: Progress) -> int | None:
    """The time at which the next step is due; None if all rounds are over."""
    if progress.step < len(escalation.steps):
        return progress.began_ns + int(escalation.steps[progress.step].after * SECOND)
    if not escalation.repeat or (escalation.rounds and progress.round + 1 >= escalation.rounds):
        return None
    return progress.began_ns + int((escalation.steps[-1].after + escalation.repeat) * SECOND)

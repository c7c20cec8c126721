"""The history of a span of time: the states of each zone and the dark devices. Pure.

`Timeline.add` gets the events of the span in their order. Each ends the open span of its zone or device, and may open
the next. A zone's first event also states its previous state, and thus the span that was open before. `lanes` adds what
has no event in this time, from summaries of alarms and from open faults. Spans that are still open end at 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, Fault

ZoneKey = tuple[str, str]  # namespace, name
Span = tuple[int, int]  # from and until, nanoseconds since the Unix epoch


@dataclass(frozen=True)
class StateSpan:
    """A stay of a zone in one state other than normal."""

    state: ZoneState
    alarm: str
    from_ns: int
    until_ns: int  # 0: not ended yet
    why: str


@dataclass(frozen=True)
class DarkSpan:
    """A time in which a device was not watched."""

    device: str
    reason: str
    from_ns: int
    until_ns: int  # 0: not ended yet


@dataclass
class Lane:
    """The spans of one zone, in order of time."""

    states: list[StateSpan] = field(default_factory=list)
    dark: list[DarkSpan] = field(default_factory=list)


@dataclass(frozen=True)
class PastAlarm:
    """The summary of an alarm."""

    alarm: str
    namespace: str
    zone: str
    began_ns: int
    ended_ns: int  # 0: still open
    worst: ZoneState  # PRE_ALARM or ALARM
    why: str
    first: int = 0  # cursor of its first event


@dataclass
class Timeline:
    """Builds the lanes from `from_ns` to `until_ns`, nanoseconds since the Unix epoch.

    `add` the events in their order. Events after `until_ns` only end spans that were open then.
    """

    from_ns: int
    until_ns: int
    _lanes: dict[ZoneKey, Lane] = field(default_factory=dict)
    _open: dict[ZoneKey, StateSpan] = field(default_factory=dict)
    _dark: dict[tuple[ZoneKey, str], DarkSpan] = field(default_factory=dict)
    _stepped: set[ZoneKey] = field(default_factory=set)  # zones whose state changed within this time

    def add(self, event: AlarmEvent) -> None:
        """Add the next event."""
        key = (event.namespace, event.zone)
        if event.type == AlarmEvent.TYPE_STATE:
            self._add_state(key, event)
        elif event.type == AlarmEvent.TYPE_FAULT and event.time_ns < self.until_ns:
            # A fault is published again when a silence ends: that is the same span.
            since_ns = max(event.fault.since_ns or event.time_ns, self.from_ns)
            self._dark.setdefault(
                (key, event.fault.device), DarkSpan(event.fault.device, event.fault.reason, since_ns, 0)
            )
        elif event.type == AlarmEvent.TYPE_FAULT_CLEARED:
            self._dark.pop((key, event.fault.device), None)
            self._add_dark(key, event.fault, event.time_ns)

    def _add_state(self, key: ZoneKey, event: AlarmEvent) -> None:
        before = self._open.pop(key, None)
        previous = ZoneState(event.previous)
        if before is None and key not in self._stepped and previous is not ZoneState.NORMAL:
            before = StateSpan(previous, event.alarm, self.from_ns, 0, "")  # since before `from_ns`
        if before is not None:
            self._add_span(key, before, event.time_ns)
        if ZoneState(event.state) is not ZoneState.NORMAL and event.time_ns < self.until_ns:
            self._open[key] = StateSpan(ZoneState(event.state), event.alarm, event.time_ns, 0, event.why)
        self._stepped.add(key)

    def _add_span(self, key: ZoneKey, span: StateSpan, until_ns: int) -> None:
        lane = self._lanes.setdefault(key, Lane())
        lane.states.append(StateSpan(span.state, span.alarm, span.from_ns, until_ns, span.why))

    def _add_dark(self, key: ZoneKey, fault: Fault, until_ns: int) -> None:
        """Add a span of `fault`, which ended at `until_ns` or is still open (0)."""
        if fault.since_ns >= self.until_ns:
            return
        span = DarkSpan(fault.device, fault.reason, max(fault.since_ns, self.from_ns), until_ns)
        self._lanes.setdefault(key, Lane()).dark.append(span)

    def lanes(self, alarms: Iterable[PastAlarm], faults: Mapping[ZoneKey, Iterable[Fault]]) -> dict[ZoneKey, Lane]:
        """The lanes of all zones with any span; `alarms` are those of this time, `faults` the open ones."""
        for key, span in self._open.items():
            self._add_span(key, span, 0)
        for alarm in alarms:
            lane = self._lanes.setdefault((alarm.namespace, alarm.zone), Lane())
            if not lane.states:  # open all the time, without an event
                span = StateSpan(alarm.worst, alarm.alarm, max(alarm.began_ns, self.from_ns), alarm.ended_ns, alarm.why)
                lane.states.append(span)
        known = set(self._dark)
        for (key, _), dark in self._dark.items():
            self._lanes.setdefault(key, Lane()).dark.append(dark)
        for key, open_faults in faults.items():
            for fault in open_faults:
                if (key, fault.device) not in known:
                    self._add_dark(key, fault, 0)
        return dict(sorted(self._lanes.items()))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap, so that no time counts twice."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined

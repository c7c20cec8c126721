"""A span of time as people look back on it: which states each zone was in, and what was dark. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, Fault

ZoneKey = tuple[str, str]  # namespace, name


@dataclass(frozen=True)
class StateSpan:
    """A zone was in one state, which was not normal."""

    state: ZoneState
    alarm: str
    from_ns: int
    until_ns: int  # 0: it still is
    why: str


@dataclass(frozen=True)
class DarkSpan:
    """A device was not watched."""

    device: str
    reason: str
    from_ns: int
    until_ns: int  # 0: it still is not


@dataclass
class Lane:
    """What there was of one zone, in order of time."""

    states: list[StateSpan] = field(default_factory=list)
    dark: list[DarkSpan] = field(default_factory=list)


@dataclass(frozen=True)
class PastAlarm:
    """An alarm in a few words."""

    alarm: str
    namespace: str
    zone: str
    began_ns: int
    ended_ns: int  # 0: it is open
    worst: ZoneState  # PRE_ALARM or ALARM
    why: str
    first: int = 0  # cursor of its first event


@dataclass
class Timeline:
    """What happened from `from_ns` to `until_ns`, nanoseconds since the Unix epoch; `add` events in their order."""

    from_ns: int
    until_ns: int
    _lanes: dict[ZoneKey, Lane] = field(default_factory=dict)
    _open: dict[ZoneKey, StateSpan] = field(default_factory=dict)
    _dark: dict[tuple[ZoneKey, str], DarkSpan] = field(default_factory=dict)
    _stepped: set[ZoneKey] = field(default_factory=set)  # zones whose state has changed within the span of time

    def add(self, event: AlarmEvent) -> None:
        """Take in what happened next; behind the span of time, what ended then of what was open within it."""
        key = (event.namespace, event.zone)
        if event.type == AlarmEvent.TYPE_STATE:
            self._add_state(key, event)
        elif event.type == AlarmEvent.TYPE_FAULT and event.time_ns < self.until_ns:
            # Told again, when a silence ends, it is the same span.
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
            before = StateSpan(previous, event.alarm, self.from_ns, 0, "")  # since before the span of time
        if before is not None:
            self._keep(key, before, event.time_ns)
        if ZoneState(event.state) is not ZoneState.NORMAL and event.time_ns < self.until_ns:
            self._open[key] = StateSpan(ZoneState(event.state), event.alarm, event.time_ns, 0, event.why)
        self._stepped.add(key)

    def _keep(self, key: ZoneKey, span: StateSpan, until_ns: int) -> None:
        lane = self._lanes.setdefault(key, Lane())
        lane.states.append(StateSpan(span.state, span.alarm, span.from_ns, until_ns, span.why))

    def _add_dark(self, key: ZoneKey, fault: Fault, until_ns: int) -> None:
        """A `fault` lasted until `until_ns`, or does still (0)."""
        if fault.since_ns >= self.until_ns:
            return
        span = DarkSpan(fault.device, fault.reason, max(fault.since_ns, self.from_ns), until_ns)
        self._lanes.setdefault(key, Lane()).dark.append(span)

    def lanes(self, alarms: Iterable[PastAlarm], faults: Mapping[ZoneKey, Iterable[Fault]]) -> dict[ZoneKey, Lane]:
        """All zones that anything was with. `alarms` are those of that time, `faults` those that are open now."""
        for key, span in self._open.items():
            self._keep(key, span, 0)
        for alarm in alarms:
            lane = self._lanes.setdefault((alarm.namespace, alarm.zone), Lane())
            if not lane.states:  # it lasted longer than the span of time, in which nothing happened
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

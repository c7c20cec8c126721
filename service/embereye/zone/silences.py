"""What a silence keeps from people, and what it never does. Pure.

A silence concerns notifications alone: everything is decided, recorded and shown as it would be without it. It covers
what is no worse than people knew when they asked for it.
"""

from collections.abc import Iterable

from embereye.levels import Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, Silence

_LEVELS = {
    ZoneState.PRE_ALARM: Level.PRE_ALARM,
    ZoneState.ALARM: Level.ALARM,
    ZoneState.ACKNOWLEDGED: Level.ALARM,
    ZoneState.RESTORED: Level.ALARM,
}


def level_in_force(event: AlarmEvent) -> Level:
    """How serious the zone of `event` is behind it; CRITICAL where one of its signs is, in an alarm."""
    level = _LEVELS.get(ZoneState(event.state), Level.CLEAR)
    critical = any(Level(item.level) is Level.CRITICAL for item in event.contributions)
    return Level.CRITICAL if critical and level is Level.ALARM else level


def covering(silences: Iterable[Silence], event: AlarmEvent) -> Silence | None:
    """The one of `silences`, all of the event's zone, that keeps `event` from notifying people; None: they are told."""
    if not _notifies(event):
        return None
    return next((silence for silence in silences if covers(silence, event)), None)


def covers(silence: Silence, event: AlarmEvent) -> bool:
    """Whether `silence` covers `event`, which is of its zone.

    Faults and pre-alarms are covered, and further signs of the alarm that was open when the silence began, no worse
    than then. That a zone goes into alarm is always told, that a fire is back and the first critical sign as well. A
    silence of one device covers what is about that device alone.
    """
    if silence.device and not _is_of(silence.device, event):
        return False
    if event.type == AlarmEvent.TYPE_FAULT:
        return True
    if event.type == AlarmEvent.TYPE_STATE and ZoneState(event.state) is ZoneState.ALARM:
        return False
    level = level_in_force(event)
    same = bool(event.alarm) and event.alarm == silence.alarm
    return level <= Level.PRE_ALARM or (same and level <= Level(silence.level))


def _notifies(event: AlarmEvent) -> bool:
    """Whether `event` is one that a silence may keep back: ends are always told, or an open alert would stay open."""
    if event.type == AlarmEvent.TYPE_STATE:
        return ZoneState(event.state).severity > ZoneState(event.previous).severity
    return event.type in {AlarmEvent.TYPE_FAULT, AlarmEvent.TYPE_EVIDENCE}


def _is_of(device: str, event: AlarmEvent) -> bool:
    if event.type == AlarmEvent.TYPE_FAULT:
        return event.fault.device == device
    return bool(event.contributions) and all(item.device == device for item in event.contributions)

"""Decide which events a silence covers. Pure.

A silence only stops notifications: everything is still decided, recorded and shown. It covers events that are no worse
than the state that people knew when they began the silence.
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
    """The zone's level after `event`: CRITICAL in an alarm with a critical sign."""
    level = _LEVELS.get(ZoneState(event.state), Level.CLEAR)
    critical = any(Level(item.level) is Level.CRITICAL for item in event.contributions)
    return Level.CRITICAL if critical and level is Level.ALARM else level


def covering(silences: Iterable[Silence], event: AlarmEvent) -> Silence | None:
    """The first of the zone's `silences` that covers `event`; None if people are to be notified.

    It never covers what a person did, such as asking for help.
    """
    if not _is_escalation(event) or event.who:
        return None
    return next((silence for silence in silences if is_covered(silence, event)), None)


def is_covered(silence: Silence, event: AlarmEvent) -> bool:
    """True if `silence` covers `event` of its zone.

    It covers faults and pre-alarms. It also covers further signs of the alarm that was open when the silence began, if
    they are no worse than then. It never covers a zone's change to alarm, a fire that returns, or the first critical
    sign. A silence for one device covers only events about that device alone.
    """
    if silence.device and not _is_about(silence.device, event):
        return False
    if event.type == AlarmEvent.TYPE_FAULT:
        return True
    if event.type == AlarmEvent.TYPE_STATE and ZoneState(event.state) is ZoneState.ALARM:
        return False
    level = level_in_force(event)
    is_known_alarm = bool(event.alarm) and event.alarm == silence.alarm
    return level <= Level.PRE_ALARM or (is_known_alarm and level <= Level(silence.level))


def _is_escalation(event: AlarmEvent) -> bool:
    """True if a silence may hide `event`. It never hides an end, or an alert outside would stay open."""
    if event.type == AlarmEvent.TYPE_STATE:
        return ZoneState(event.state).severity > ZoneState(event.previous).severity
    return event.type in {AlarmEvent.TYPE_FAULT, AlarmEvent.TYPE_EVIDENCE}


def _is_about(device: str, event: AlarmEvent) -> bool:
    if event.type == AlarmEvent.TYPE_FAULT:
        return event.fault.device == device
    return bool(event.contributions) and all(item.device == device for item in event.contributions)

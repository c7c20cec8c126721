"""The bodies of deliveries: EmberEye's JSON, or alerts in Alertmanager's formats (pure).

The sender calls `body_of` for each event. A change of a zone's state becomes up to two alerts: the previous state is
resolved, and the new one fires. An alert's labels are its identity and therefore never change while it lasts; the
changing reason is an annotation. In Alertmanager's formats, an event without an alert has an empty body and is not
delivered.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import json_format

from embereye.levels import ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent

ALARM, PRE_ALARM, FAULT = "EmberEyeAlarm", "EmberEyePreAlarm", "EmberEyeDeviceFault"
SILENCE = "EmberEyeSilence"
SEVERITIES = {ALARM: "critical", PRE_ALARM: "warning", FAULT: "warning", SILENCE: "info"}
NAMES = {
    ZoneState.PRE_ALARM: PRE_ALARM,
    ZoneState.ALARM: ALARM,
    ZoneState.ACKNOWLEDGED: ALARM,
    ZoneState.RESTORED: ALARM,
}
NEVER = "0001-01-01T00:00:00Z"
LONG = timedelta(days=30)  # how long an Alertmanager continues an alert that nobody resolves


@dataclass(frozen=True)
class Alert:
    """One alert that fires or is resolved."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts: datetime
    ends: datetime | None  # None: it is still firing

    @property
    def status(self) -> str:
        """The status in Alertmanager's words."""
        return "resolved" if self.ends else "firing"


def alerts_of(event: AlarmEvent) -> list[Alert]:
    """Convert `event` to alerts; a test has none."""
    time = _time(event.time_ns)
    if event.type in {AlarmEvent.TYPE_FAULT, AlarmEvent.TYPE_FAULT_CLEARED}:
        cleared = time if event.type == AlarmEvent.TYPE_FAULT_CLEARED else None
        return [_alert(event, FAULT, _time(event.fault.since_ns or event.time_ns), cleared, device=event.fault.device)]
    if event.type == AlarmEvent.TYPE_SILENCE:
        return [_silence(event)]
    if event.type not in {AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE}:
        return []
    now, before = NAMES.get(ZoneState(event.state), ""), NAMES.get(ZoneState(event.previous), "")
    starts = _time(min((sign.since_ns for sign in event.contributions if sign.since_ns), default=event.time_ns))
    ended = [_alert(event, before, starts, time, alarm=event.alarm)] if before and before != now else []
    return ended + ([_alert(event, now, starts, None, alarm=event.alarm)] if now else [])


def _silence(event: AlarmEvent) -> Alert:
    """Make the alert of a silence: it fires from the silence's first event to its end."""
    silence, where = event.silence, f"{event.namespace}/{event.zone}"
    labels = {
        "alertname": SILENCE, "severity": SEVERITIES[SILENCE], "namespace": event.namespace, "zone": event.zone,
        **({"device": silence.device} if silence.device else {}),
    }  # fmt: skip
    ends = _time(event.time_ns) if event.time_ns > silence.since_ns else None
    summary = f"{where}: {silence.device or 'the zone'} is silenced"
    notes = {"summary": summary, "description": event.why, "who": silence.who}
    return Alert(labels, notes, _time(silence.since_ns), ends)


def _alert(event: AlarmEvent, name: str, starts: datetime, ends: datetime | None, **labels: str) -> Alert:
    all_labels = {
        "alertname": name, "severity": SEVERITIES[name], "namespace": event.namespace, "zone": event.zone, **labels,
    }  # fmt: skip
    where = f"{event.namespace}/{event.zone}"
    summary = f"{where}: {ZoneState(event.state).word}" if name != FAULT else f"{where}: {event.fault.device} is dark"
    notes = {"summary": summary, "description": event.why}
    if event.who:
        notes["who"] = event.who
    return Alert(all_labels, notes, starts, ends)


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND, UTC)


def _text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def generic(webhook: str, event: AlarmEvent) -> object | None:
    """Build {"webhook": NAME, "event": AlarmEvent}, with the event as in the feeds."""
    return {"webhook": webhook, "event": json_format.MessageToDict(event)}


def alertmanager(webhook: str, event: AlarmEvent) -> object | None:
    """Build the message that an Alertmanager sends to webhooks, version 4; None if `event` is no alert."""
    alerts = alerts_of(event)
    if not alerts:
        return None
    group = {"namespace": event.namespace, "zone": event.zone}
    return {
        "version": "4",
        "groupKey": f"{webhook}:{event.namespace}/{event.zone}",
        "truncatedAlerts": 0,
        "status": "firing" if any(alert.ends is None for alert in alerts) else "resolved",
        "receiver": webhook,
        "groupLabels": group,
        "commonLabels": _common([alert.labels for alert in alerts]),
        "commonAnnotations": _common([alert.annotations for alert in alerts]),
        "externalURL": "",
        "alerts": [
            {
                "status": alert.status, "labels": alert.labels, "annotations": alert.annotations,
                "startsAt": _text(alert.starts), "endsAt": _text(alert.ends) if alert.ends else NEVER,
                "generatorURL": "", "fingerprint": _fingerprint(alert.labels),
            }
            for alert in alerts
        ],
    }  # fmt: skip


def alertmanager_api(webhook: str, event: AlarmEvent) -> object | None:
    """Build a request to an Alertmanager's /api/v2/alerts; None if `event` is no alert."""
    return [
        {
            "labels": alert.labels, "annotations": alert.annotations, "startsAt": _text(alert.starts),
            "endsAt": _text(alert.ends or _time(event.time_ns) + LONG),
        }
        for alert in alerts_of(event)
    ] or None  # fmt: skip


def _common(mappings: list[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for name, value in mappings[0].items() if all(each.get(name) == value for each in mappings)}


def _fingerprint(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


Build = Callable[[str, AlarmEvent], object | None]
FORMATS: dict[str, Build] = {
    "generic": generic,
    "alertmanager": alertmanager,
    "alertmanager-api": alertmanager_api,
}
EMPTY = {"alertmanager": b"{}", "alertmanager-api": b"[]"}  # bodies of a test delivery, which is no alert


def body_of(form: str, webhook: str, event: AlarmEvent) -> bytes:
    """Build the body of a delivery; empty if `form` has nothing for `event`."""
    built: Any = FORMATS[form](webhook, event)
    return b"" if built is None else json.dumps(built, ensure_ascii=False, separators=(",", ":")).encode()

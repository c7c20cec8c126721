"""Codes of events: EmberEye's events as SIA and Contact ID messages, and panels' messages as signs (pure).

Sources: SIA DC-03-2017 (two letters), SIA DC-05-2016 (Contact ID, three digits). An event of a zone becomes one report:
its subject (the kind of an alarm, or what else happened) chooses the code, and whether it is new or restored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from embereye.levels import Kind, Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent


@dataclass(frozen=True)
class Code:
    """The codes of a subject."""

    sia: str  # when it begins
    sia_restored: str
    cid: str  # with qualifier 1 when it begins, 3 when it is restored


# By subject. Contact ID 117 is a flame sensor, 118 a near alarm, 373 a fire-loop trouble, 607 a walk test.
CODES: Mapping[str, Code] = {
    "fire": Code("FA", "FR", "110"),
    "smoke": Code("FA", "FR", "111"),
    "heat": Code("KA", "KR", "114"),
    "gas": Code("GA", "GR", "151"),
    "flame": Code("FA", "FR", "117"),
    "pre-alarm": Code("FS", "FV", "118"),
    "fault": Code("FT", "FJ", "373"),
    "test": Code("FI", "FK", "607"),
}
ALARM = "alarm"  # subject of a reset: the station knows the code of the alarm
KINDS = {Kind.HEAT: "heat", Kind.SMOKE: "smoke", Kind.GAS: "gas", Kind.FLAME: "flame"}
# What panels report: a sign's kind by SIA code and by Contact ID code. Manual stations are smoke: people saw it.
SIGNS_SIA = {"FA": Kind.SMOKE, "KA": Kind.HEAT, "GA": Kind.GAS}
RESTORED_SIA = {"FR": Kind.SMOKE, "FH": Kind.SMOKE, "KR": Kind.HEAT, "KH": Kind.HEAT, "GR": Kind.GAS, "GH": Kind.GAS}
SIGNS_CID = {"110": Kind.SMOKE, "111": Kind.SMOKE, "112": Kind.SMOKE, "113": Kind.SMOKE, "114": Kind.HEAT,
             "115": Kind.SMOKE, "116": Kind.SMOKE, "117": Kind.FLAME, "151": Kind.GAS}  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A report to a station about a zone."""

    subject: str  # a key of CODES, or ALARM
    restored: bool
    namespace: str
    zone: str
    text: str  # one sentence for the station's operator


def reports_of(event: AlarmEvent) -> list[Report]:
    """Convert `event` to reports, in order; acknowledgements and silences have none."""
    where = event.namespace, event.zone
    match event.type:
        case AlarmEvent.TYPE_FAULT:
            return [Report("fault", False, *where, f"{event.fault.device}: {event.fault.reason}")]
        case AlarmEvent.TYPE_FAULT_CLEARED:
            return [Report("fault", True, *where, f"{event.fault.device} is watched again")]
        case AlarmEvent.TYPE_TEST:
            return [Report("test", not event.who or event.why.startswith("test ended"), *where, event.why)]
        case AlarmEvent.TYPE_STATE:
            return _of_state(event)
    return []


def _of_state(event: AlarmEvent) -> list[Report]:
    where = event.namespace, event.zone
    now, before = ZoneState(event.state), ZoneState(event.previous)
    reports = []
    if now == ZoneState.PRE_ALARM:
        reports.append(Report("pre-alarm", False, *where, event.why))
    elif now == ZoneState.ALARM:
        reports.append(Report(kind_of(event), False, *where, event.why))
    elif now == ZoneState.NORMAL and before in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED}:
        reports.append(Report(ALARM, True, *where, event.why))
    if before == ZoneState.PRE_ALARM:  # after the alarm, which is urgent
        reports.append(Report("pre-alarm", True, *where, event.why))
    return reports


def kind_of(event: AlarmEvent) -> str:
    """The subject of an alarm: the kind of its only or strongest signs; "fire" for several."""
    strongest = max((item.level for item in event.contributions), default=Level.UNSPECIFIED)
    kinds = {KINDS.get(Kind(item.kind), "fire") for item in event.contributions if item.level == strongest}
    return kinds.pop() if len(kinds) == 1 else "fire"

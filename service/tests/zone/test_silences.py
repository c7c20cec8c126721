"""The events that a silence covers, and those that notify people in spite of it."""

import pytest

from embereye.levels import Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, Fault, Silence
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.silences import covering

STATE, SIGN, FAULT = AlarmEvent.TYPE_STATE, AlarmEvent.TYPE_EVIDENCE, AlarmEvent.TYPE_FAULT


def change(
    state: ZoneState, previous: ZoneState, *devices: str, alarm: str = "a", level: Level = Level.ALARM
) -> AlarmEvent:
    items = [EvidenceItem(device=device, level=level.wire) for device in devices]
    return AlarmEvent(type=STATE, state=state.wire, previous=previous.wire, alarm=alarm, contributions=items)


def sign(*devices: str, alarm: str = "a", level: Level = Level.ALARM, state: ZoneState = ZoneState.ALARM) -> AlarmEvent:
    event = change(state, state, *devices, alarm=alarm, level=level)
    event.type = SIGN
    return event


def silence(device: str = "", alarm: str = "", level: Level = Level.CLEAR) -> Silence:
    return Silence(id="s", device=device, alarm=alarm, level=level.wire)


NORMAL, PRE, ALARM = ZoneState.NORMAL, ZoneState.PRE_ALARM, ZoneState.ALARM
ACKNOWLEDGED, RESTORED = ZoneState.ACKNOWLEDGED, ZoneState.RESTORED
OPEN = silence(alarm="a", level=Level.ALARM)


@pytest.mark.parametrize(
    ("given", "event", "covered"),
    [
        (silence(), change(PRE, NORMAL, "one"), True),
        (silence(), AlarmEvent(type=FAULT, fault=Fault(device="one")), True),
        (silence(), AlarmEvent(type=FAULT, state=ALARM.wire, alarm="b", fault=Fault(device="one")), True),
        (silence(), change(ALARM, NORMAL, "one"), False),
        (silence(alarm="a", level=Level.PRE_ALARM), change(ALARM, PRE, "one"), False),
        (OPEN, sign("two"), True),
        (OPEN, change(ACKNOWLEDGED, RESTORED, "two"), True),
        (OPEN, change(ALARM, RESTORED, "two"), False),
        (OPEN, sign("two", level=Level.CRITICAL), False),
        (OPEN, change(ALARM, NORMAL, "one", alarm="b"), False),
        (silence(alarm="a", level=Level.CRITICAL), sign("two", level=Level.CRITICAL), True),
        # An end is always published, or an alert elsewhere would never end.
        (OPEN, change(NORMAL, PRE), False),
        (OPEN, change(ACKNOWLEDGED, ALARM, "one"), False),
        (OPEN, change(NORMAL, ACKNOWLEDGED), False),
        # Somebody asks for help.
        (OPEN, AlarmEvent(type=SIGN, state=ALARM.wire, previous=ALARM.wire, alarm="a", who="Ada"), False),
        (silence(), AlarmEvent(type=AlarmEvent.TYPE_FAULT_CLEARED, fault=Fault(device="one")), False),
        (silence(), AlarmEvent(type=AlarmEvent.TYPE_TEST), False),
        (silence(), AlarmEvent(type=AlarmEvent.TYPE_SILENCE), False),
        # A silence for one device covers only events about that device alone.
        (silence("one"), change(PRE, NORMAL, "one"), True),
        (silence("one"), change(PRE, NORMAL, "one", "two"), False),
        (silence("one"), AlarmEvent(type=FAULT, fault=Fault(device="one")), True),
        (silence("one"), AlarmEvent(type=FAULT, fault=Fault(device="two")), False),
        (silence("one", "a", Level.ALARM), sign("one", "two"), False),
    ],
)  # fmt: skip
def test_a_silence_covers_events_no_worse_than_the_known_state(
    given: Silence, event: AlarmEvent, covered: bool
) -> None:
    assert (covering([given], event) is not None) == covered

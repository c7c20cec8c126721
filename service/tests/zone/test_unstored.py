import pytest

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.unstored import Unstored

FULL = "the hub cannot write its database: database or disk is full"


def test_a_hub_that_cannot_write_and_its_recovery_are_each_printed_once() -> None:
    unstored, failing, working = (
        Unstored(), AlarmEvent(type=AlarmEvent.TYPE_ALIVE, why=FULL), AlarmEvent(type=AlarmEvent.TYPE_ALIVE)
    )  # fmt: skip
    assert unstored.news(working) == ""
    assert unstored.news(failing).startswith(f"{FULL}; ")
    assert unstored.news(failing) == ""
    assert "again" in unstored.news(working)
    assert unstored.news(working) == ""


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (AlarmEvent(type=AlarmEvent.TYPE_STATE, state=ZoneState.PRE_ALARM.wire), "PRE-ALARM default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_EVIDENCE, state=ZoneState.ALARM.wire), "default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_FAULT), "FAULT default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_FAULT_CLEARED), "fault cleared default/attic: heat"),
    ],
)
def test_only_events_that_are_not_stored_yet_are_printed(event: AlarmEvent, sentence: str) -> None:
    event.namespace, event.zone, event.why = "default", "attic", "heat"
    assert Unstored().news(event) == ""
    event.unstored = True
    assert Unstored().news(event) == f"{sentence} (not stored yet)"

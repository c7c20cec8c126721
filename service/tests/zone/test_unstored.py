import pytest

from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.zone.unstored import Unstored

FULL = "the hub cannot write its database: database or disk is full"


def test_that_a_hub_can_write_nothing_is_told_once_and_so_is_that_it_can_again() -> None:
    beside, fails, well = (
        Unstored(), AlarmEvent(type=AlarmEvent.TYPE_ALIVE, why=FULL), AlarmEvent(type=AlarmEvent.TYPE_ALIVE)
    )  # fmt: skip
    assert beside.news(well) == ""
    assert beside.news(fails).startswith(f"{FULL}; ")
    assert beside.news(fails) == ""
    assert "again" in beside.news(well)
    assert beside.news(well) == ""


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (AlarmEvent(type=AlarmEvent.TYPE_STATE, state=ZoneState.PRE_ALARM.wire), "PRE-ALARM default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_EVIDENCE, state=ZoneState.ALARM.wire), "default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_FAULT), "FAULT default/attic: heat"),
        (AlarmEvent(type=AlarmEvent.TYPE_FAULT_CLEARED), "fault cleared default/attic: heat"),
    ],
)
def test_what_is_not_stored_is_told_as_such_and_what_is_the_feed_tells_itself(event: AlarmEvent, sentence: str) -> None:
    event.namespace, event.zone, event.why = "default", "attic", "heat"
    assert Unstored().news(event) == ""
    event.unstored = True
    assert Unstored().news(event) == f"{sentence} (not stored yet)"

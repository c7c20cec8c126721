import re

import pytest

from embereye.hub.tables.selection import EVERYTHING, Selection, levels_of, parse_selection, read_selection
from embereye.levels import Kind, Level, ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.alarms_pb2 import Selection as SelectionMessage
from embereye.v1.evidence_pb2 import EvidenceItem

HEAT = EvidenceItem(device="s-1", kind=Kind.HEAT.wire, level=Level.ALARM.wire)


def event(
    kind: AlarmEvent.Type.ValueType = AlarmEvent.TYPE_STATE,
    state: ZoneState = ZoneState.ALARM,
    previous: ZoneState = ZoneState.NORMAL,
    signs: tuple[EvidenceItem, ...] = (HEAT,),
    dark: str = "",
) -> AlarmEvent:
    result = AlarmEvent(
        namespace="plant", zone="hall", type=kind, state=state.wire, previous=previous.wire, contributions=signs
    )
    if dark:
        result.fault.device = dark
    return result


BURNING = EvidenceItem(device="s-1", kind=Kind.HEAT.wire, level=Level.CRITICAL.wire)
CRITICAL = event(signs=(HEAT, BURNING))
RESET = event(state=ZoneState.NORMAL, previous=ZoneState.ACKNOWLEDGED, signs=())
RESET_EARLY = event(state=ZoneState.NORMAL, previous=ZoneState.ACKNOWLEDGED)  # while a sign still lasts
DARK = event(AlarmEvent.TYPE_FAULT, ZoneState.NORMAL, signs=(), dark="s-9")


@pytest.mark.parametrize(
    ("asked", "wanted", "not_wanted"),
    [
        ({}, [event(), RESET, DARK], []),
        ({"zones": ["hall"]}, [event()], []),
        ({"zones": ["plant/hall", "attic"]}, [event()], []),
        ({"zones": ["other/hall", "attic"]}, [], [event(), DARK]),
        ({"levels": ["alarm"]}, [event(), RESET, DARK], [event(state=ZoneState.PRE_ALARM)]),
        ({"levels": ["pre-alarm"]}, [event(state=ZoneState.PRE_ALARM)], [event(), RESET]),
        ({"kinds": ["heat"]}, [event(), RESET, DARK], []),
        ({"kinds": ["smoke", "gas"]}, [RESET, DARK], [event()]),
        ({"devices": ["s-1"]}, [event(), RESET], [DARK]),
        ({"devices": ["s-9"]}, [DARK, RESET], [event()]),
        ({"types": ["fault", "fault-cleared"]}, [DARK], [event(), RESET]),
        ({"types": ["state"], "levels": ["alarm"]}, [event(), RESET], [DARK]),
        ({"levels": ["alarm"]}, [CRITICAL, RESET_EARLY], []),
        ({"levels": ["critical"]}, [CRITICAL, RESET, RESET_EARLY], [event()]),
        ({"levels": ["pre-alarm"]}, [], [CRITICAL, RESET_EARLY]),
        ({"kinds": ["smoke"]}, [RESET_EARLY], [CRITICAL]),
        ({"devices": ["s-9"]}, [RESET_EARLY], [CRITICAL]),
    ],
)
def test_a_selected_event_matches_every_field_that_is_set(
    asked: dict[str, object], wanted: list[AlarmEvent], not_wanted: list[AlarmEvent]
) -> None:
    selection = read_selection(asked)
    assert [event for event in [*wanted, *not_wanted] if selection.is_match(event)] == wanted
    assert read_selection(selection.words) == selection
    assert parse_selection(SelectionMessage.FromString(selection.message.SerializeToString())) == selection


def test_a_critical_sign_makes_an_alarm_critical() -> None:
    assert levels_of(CRITICAL) == {Level.ALARM, Level.CRITICAL}
    assert levels_of(event()) == {Level.ALARM}
    assert levels_of(event(state=ZoneState.PRE_ALARM, signs=(BURNING,))) == {Level.PRE_ALARM}
    assert levels_of(event(state=ZoneState.NORMAL, signs=())) == {Level.CLEAR}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"zone": ["hall"]}, '"zone" is not one of zones, levels, kinds, devices, types'),
        ({"levels": ["loud"]}, 'levels: "loud" is not one of clear, pre-alarm, alarm, critical'),
        ({"kinds": "heat"}, "kinds: 'heat' is not a list of strings"),
        ({"types": [1]}, "types: '[1]' is not a list of strings"),
        ({"devices": [""]}, 'devices: "" is not a name of 1 to 253 characters'),
        ({"zones": ["x"] * 501}, "zones: 501 values are too many. Use at most 500."),
    ],
)
def test_an_impossible_selection_is_refused_by_name(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(sentence) + "$"):
        read_selection(asked)


def test_unknown_enum_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="levels: 9 is not one of 1, 2, 3, 4"):
        parse_selection(SelectionMessage(levels=[9]))  # type: ignore[list-item]
    assert parse_selection(SelectionMessage()) == EVERYTHING == Selection()

import pytest

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.v1 import alarms_pb2, types_pb2


@pytest.mark.parametrize(
    ("enum", "wire", "prefix"),
    [
        (Kind, types_pb2.Kind, "KIND_"),
        (Level, types_pb2.Level, "LEVEL_"),
        (Sense, types_pb2.Sense, "SENSE_"),
        (ZoneState, alarms_pb2.ZoneState, "ZONE_STATE_"),
    ],
)
def test_every_value_of_the_wire_has_its_name_here(enum, wire, prefix):
    assert {f"{prefix}{member.name}": member.value for member in enum} == dict(wire.items())


def test_a_number_of_a_newer_version_is_preserved():
    kind = Kind(9)
    assert (int(kind), kind.wire, kind.word) == (9, 9, "sign")
    assert Kind(9) == kind != Kind(8)
    assert {kind: "x"}[Kind(9)] == "x"
    assert ZoneState(9).word == "unknown"
    assert ZoneState(9).severity < ZoneState.NORMAL.severity


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="'heat' is not a valid Kind"):
        Kind("heat")  # type: ignore[arg-type]


def test_levels_are_ordered_and_states_by_urgency():
    assert Level.CLEAR < Level.PRE_ALARM < Level.ALARM < Level.CRITICAL
    assert max(ZoneState, key=lambda state: state.severity) is ZoneState.ALARM
    assert ZoneState.RESTORED.severity < ZoneState.PRE_ALARM.severity


def test_enumerations_have_words_for_people():
    assert [state.word for state in ZoneState][1:3] == ["normal", "pre-alarm"]
    assert (Kind.FLAME.word, Level.CRITICAL.word) == ("flame", "critical")

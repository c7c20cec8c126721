"""The values of outputs for zones' states."""

from embereye.addons.modbus.decide import Decision
from embereye.addons.modbus.options import Place, Rule, Table
from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import Fault, Zone

COIL = Place("coil", 0)


def zone(state: ZoneState, name: str = "hall", *, testing: bool = False, faults: int = 0) -> Zone:
    return Zone(
        namespace="default", name=name, state=state.wire, testing=testing, faults=[Fault(device="s-01")] * faults
    )


def value(rule: Rule, *zones: Zone, unwatched: str = "") -> int:
    return Decision(Table("relays", [rule])).values(zones, unwatched)[rule.place]


def test_an_alarm_is_on_until_its_reset_and_a_siren_until_its_acknowledgement() -> None:
    latched, siren = Rule(COIL, "alarm", ("*",)), Rule(COIL, "alarm", ("*",), until="acknowledged")
    states = (
        ZoneState.NORMAL, ZoneState.PRE_ALARM, ZoneState.ALARM, ZoneState.ACKNOWLEDGED, ZoneState.RESTORED,
    )  # fmt: skip
    assert [value(latched, zone(state)) for state in states] == [0, 0, 1, 1, 1]
    assert [value(siren, zone(state)) for state in states] == [0, 0, 1, 0, 0]
    assert [value(Rule(COIL, "pre-alarm", ("*",)), zone(state)) for state in states] == [0, 1, 1, 1, 1]
    assert [value(Rule(COIL, "alarm", ("*",), on=0, off=1), zone(state)) for state in states] == [1, 1, 0, 0, 0]
    state = Rule(Place("register", 0), "state", ("*",))
    assert [value(state, zone(each)) for each in states] == [0, 1, 2, 3, 4]


def test_only_the_named_zones_count_and_one_is_enough() -> None:
    rule = Rule(COIL, "alarm", ("hall",))
    assert value(rule, zone(ZoneState.NORMAL), zone(ZoneState.ALARM, "store")) == 0
    assert value(Rule(COIL, "alarm", ("*",)), zone(ZoneState.NORMAL), zone(ZoneState.ALARM, "store")) == 1


def test_a_zone_in_test_switches_nothing_on_and_nothing_off() -> None:
    decision = Decision(Table("relays", [Rule(COIL, "alarm", ("*",))]))
    assert decision.values([zone(ZoneState.ALARM, testing=True)], "")[COIL] == 0
    assert decision.values([zone(ZoneState.ALARM)], "")[COIL] == 1
    assert decision.values([zone(ZoneState.ALARM, testing=True)], "")[COIL] == 1
    restarted = Decision(Table("relays", [Rule(COIL, "alarm", ("*",))]), decision.tripped)
    assert restarted.values([zone(ZoneState.ALARM, testing=True)], "")[COIL] == 1
    assert restarted.values([zone(ZoneState.NORMAL, testing=True)], "")[COIL] == 0
    assert restarted.values([zone(ZoneState.ALARM, testing=True)], "")[COIL] == 0
    fault = Rule(COIL, "fault", ("*",))
    assert value(fault, zone(ZoneState.NORMAL, testing=True, faults=1)) == 0
    assert value(fault, zone(ZoneState.NORMAL, faults=1)) == 1


def test_watched_is_off_for_a_dark_device_and_for_an_overdue_canary_only() -> None:
    rule = Rule(COIL, "watched", ("*",))
    assert value(rule, zone(ZoneState.ALARM)) == 1
    assert value(rule, zone(ZoneState.NORMAL), zone(ZoneState.NORMAL, "store", faults=1)) == 0
    assert value(rule, zone(ZoneState.NORMAL), unwatched="canaries are overdue") == 0
    alarm = Rule(COIL, "alarm", ("*",))
    assert value(alarm, zone(ZoneState.ALARM), unwatched="canaries are overdue") == 1


def test_a_zone_that_is_gone_is_forgotten() -> None:
    decision = Decision(Table("relays", [Rule(COIL, "alarm", ("*",))]))
    decision.values([zone(ZoneState.ALARM)], "")
    assert decision.values([], "")[COIL] == 0
    assert not decision.tripped

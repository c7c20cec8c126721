from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import Fault, Zone, ZonesResponse
from embereye.zone.unstored import Unstored

FULL = "the hub cannot write its database: database or disk is full"


def look(*zones: Zone, failing: str = "") -> ZonesResponse:
    return ZonesResponse(zones=zones, failing=failing)


def zone(name: str, state: ZoneState = ZoneState.NORMAL, why: str = "", dark: int = 0) -> Zone:
    faults = [Fault(device=f"s-{number}", reason="silent for 3 s") for number in range(dark)]
    return Zone(namespace="default", name=name, state=state.wire, why=why, faults=faults)


def test_a_hub_that_can_write_tells_everything_itself() -> None:
    beside = Unstored()
    assert beside.news(look(zone("hall"))) == []
    assert beside.news(look(zone("hall", ZoneState.ALARM, "smoke", dark=1))) == []


def test_what_gets_worse_while_nothing_can_be_stored_is_told_once_and_so_are_its_begin_and_end() -> None:
    beside = Unstored()
    beside.news(look(zone("hall", ZoneState.ALARM, "smoke"), zone("attic", dark=1)))
    first, *others = beside.news(look(zone("hall", ZoneState.ALARM, "smoke"), zone("attic", dark=1), failing=FULL))
    assert first.startswith(f"{FULL}; ")
    assert others == [], "the feed told it"
    burning = zone("attic", ZoneState.PRE_ALARM, "heat", dark=2)
    assert beside.news(look(zone("hall", ZoneState.ALARM, "smoke"), burning, failing=FULL)) == [
        "PRE-ALARM default/attic: heat (not stored yet)",
        "FAULT default/attic: s-1 is dark: silent for 3 s (not stored yet)",
    ]
    assert beside.news(look(zone("hall"), burning, failing=FULL)) == []
    (last,) = beside.news(look(zone("hall"), burning))
    assert "again" in last


def test_very_many_devices_that_go_dark_are_one_sentence() -> None:
    (_, told) = Unstored().news(look(zone("hall", dark=5), failing=FULL))
    assert told.count("is dark") == 3
    assert told.endswith("; 2 more are dark (not stored yet)")
    (_, told) = Unstored().news(look(zone("hall", dark=3), failing=FULL))
    assert "more" not in told

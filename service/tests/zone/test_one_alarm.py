"""One fire is one alarm in spite of reordered reports, resends and restarts."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.fusion import alone, judge
from embereye.zone.state import ZoneMachine

NOW = 1_700_000_000 * SECOND
LEVELS = [Level.CLEAR, Level.PRE_ALARM, Level.ALARM, Level.CRITICAL]
KINDS = [Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME]


@st.composite
def fires(draw: st.DrawFn) -> list[EvidenceItem]:
    """The reports of up to four devices about one fire, one per second, ordered by the time they were seen."""
    items = []
    for device in range(draw(st.integers(1, 4))):
        camera = draw(st.booleans())
        kind = draw(st.sampled_from(KINDS))
        start = draw(st.integers(0, 10))
        for number, level in enumerate(draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6))):
            until = NOW + (start + number) * SECOND + device
            items.append(
                EvidenceItem(
                    id=f"{device}-{number}",
                    episode=f"{device}",
                    fleet="default/cameras/c" if camera else "default/sensors/s",
                    device=f"d{device}",
                    zone="hall",
                    kind=kind.wire,
                    sense=Sense.CAMERA.wire if camera else Sense.SENSOR.wire,
                    level=level.wire,
                    since_ns=NOW + start * SECOND,
                    until_ns=until,
                )
            )
    return sorted(items, key=lambda item: item.until_ns)


@settings(max_examples=120, deadline=None)
@given(fires(), st.data())
def test_a_fire_is_one_alarm_in_spite_of_reordering_resends_and_restarts(
    fire: list[EvidenceItem], data: st.DataObject
) -> None:
    deliveries = data.draw(st.permutations([*fire, *data.draw(st.lists(st.sampled_from(fire), max_size=8))]))
    machine, known, events, now = ZoneMachine("default", "hall"), set[str](), list[AlarmEvent](), NOW
    for item in deliveries:
        now += data.draw(st.sampled_from([0, SECOND // 10, SECOND]))
        if item.id not in known:  # the store drops resends, also after a restart
            known.add(item.id)
            events += machine.add_evidence(item, now)
        if data.draw(st.booleans()):
            machine = ZoneMachine.load(machine.dump(now), now)
        if data.draw(st.booleans()) and machine.state == ZoneState.ALARM:
            events += machine.acknowledge("Ada", "", now)
    raised = {event.alarm for event in events if event.state == ZoneState.ALARM}
    assert len(raised) <= 1
    if any(alone(item) >= Level.ALARM for item in fire):
        assert len(raised) == 1, "an alarm-level report was swallowed"
    closed = machine.state == ZoneState.NORMAL
    assert closed == (not machine.alarm)
    for before, after in itertools.pairwise(events):
        assert after.previous == before.state


@settings(max_examples=100, deadline=None)
@given(fires())
def test_a_fire_reported_in_order_ends_in_the_state_of_its_last_signs(fire: list[EvidenceItem]) -> None:
    machine, latest = ZoneMachine("default", "hall"), dict[tuple[str, int], EvidenceItem]()
    alarmed = False
    for item in fire:
        machine.add_evidence(item, item.until_ns)
        latest[item.device, item.kind] = item
        level = judge(latest.values()).level
        alarmed = alarmed or level == Level.ALARM
        expected = {
            Level.CLEAR: ZoneState.NORMAL,
            Level.PRE_ALARM: ZoneState.PRE_ALARM,
        }
        assert machine.state == (ZoneState.ALARM if alarmed else expected[level])

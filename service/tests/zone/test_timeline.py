from embereye.levels import ZoneState
from embereye.v1.alarms_pb2 import AlarmEvent, Fault
from embereye.zone.timeline import PastAlarm, Timeline

FROM, UNTIL = 1_000, 2_000


def step(at: int, state: ZoneState, previous: ZoneState, zone: str = "hall") -> AlarmEvent:
    return AlarmEvent(
        time_ns=at, namespace="default", zone=zone, alarm="a", type=AlarmEvent.TYPE_STATE, state=state.wire,
        previous=previous.wire, why="heat",
    )  # fmt: skip


def fault(at: int, kind: AlarmEvent.Type.ValueType, since: int, device: str = "s-01") -> AlarmEvent:
    reported = Fault(device=device, reason="silent", since_ns=since)
    return AlarmEvent(time_ns=at, namespace="default", zone="hall", type=kind, fault=reported)


def spans(timeline: Timeline, *alarms: PastAlarm, **faults: list[Fault]) -> dict[str, list[tuple[object, int, int]]]:
    lanes = timeline.lanes(alarms, {("default", zone): open_now for zone, open_now in faults.items()})
    return {
        name: [(span.state.word, span.from_ns, span.until_ns) for span in lane.states]
        + [(span.device, span.from_ns, span.until_ns) for span in lane.dark]
        for (_, name), lane in lanes.items()
    }


def test_an_alarm_is_one_span_for_each_of_its_states() -> None:
    timeline = Timeline(FROM, UNTIL)
    for event in (
        step(1_100, ZoneState.ALARM, ZoneState.NORMAL),
        step(1_200, ZoneState.ACKNOWLEDGED, ZoneState.ALARM),
        step(1_300, ZoneState.NORMAL, ZoneState.ACKNOWLEDGED),
    ):
        timeline.add(event)
    assert spans(timeline) == {"hall": [("alarm", 1_100, 1_200), ("acknowledged", 1_200, 1_300)]}


def test_a_span_is_cut_at_the_start_and_open_ended_while_it_lasts() -> None:
    timeline = Timeline(FROM, UNTIL)
    timeline.add(step(1_100, ZoneState.ACKNOWLEDGED, ZoneState.ALARM))
    assert spans(timeline) == {"hall": [("alarm", FROM, 1_100), ("acknowledged", 1_100, 0)]}


def test_an_alarm_without_events_in_the_span_is_listed() -> None:
    alarm = PastAlarm("a", "default", "hall", 500, 0, ZoneState.ALARM, "heat")
    assert spans(Timeline(FROM, UNTIL), alarm) == {"hall": [("alarm", FROM, 0)]}


def test_a_fault_is_a_span_if_either_of_its_ends_is_inside() -> None:
    timeline = Timeline(FROM, UNTIL)
    timeline.add(fault(1_100, AlarmEvent.TYPE_FAULT_CLEARED, 400))
    timeline.add(fault(1_200, AlarmEvent.TYPE_FAULT, 1_200, "s-02"))
    timeline.add(fault(1_300, AlarmEvent.TYPE_FAULT_CLEARED, 1_200, "s-02"))
    timeline.add(fault(1_400, AlarmEvent.TYPE_FAULT, 1_400, "s-03"))
    still = [Fault(device="s-03", since_ns=1_400), Fault(device="s-04", since_ns=600)]
    assert spans(timeline, hall=still) == {
        "hall": [("s-01", FROM, 1_100), ("s-02", 1_200, 1_300), ("s-03", 1_400, 0), ("s-04", FROM, 0)]
    }


def test_an_alarm_from_before_the_span_is_listed_after_a_cleared_fault() -> None:
    timeline = Timeline(FROM, UNTIL)
    timeline.add(fault(1_100, AlarmEvent.TYPE_FAULT_CLEARED, 500))
    timeline.add(step(1_200, ZoneState.ACKNOWLEDGED, ZoneState.ALARM))
    timeline.add(step(1_300, ZoneState.NORMAL, ZoneState.ACKNOWLEDGED))
    assert spans(timeline) == {"hall": [("alarm", FROM, 1_200), ("acknowledged", 1_200, 1_300), ("s-01", FROM, 1_100)]}


def test_a_fault_that_began_later_is_not_listed() -> None:
    assert spans(Timeline(FROM, UNTIL), hall=[Fault(device="s-01", since_ns=3_000)]) == {}


def test_a_span_that_was_open_at_the_end_gets_its_later_end() -> None:
    timeline = Timeline(FROM, UNTIL)
    for event in (
        step(1_100, ZoneState.ALARM, ZoneState.NORMAL),
        fault(1_200, AlarmEvent.TYPE_FAULT, 1_200),
        step(2_000, ZoneState.NORMAL, ZoneState.ACKNOWLEDGED, "attic"),
        step(2_100, ZoneState.ACKNOWLEDGED, ZoneState.ALARM),
        fault(2_200, AlarmEvent.TYPE_FAULT_CLEARED, 1_200),
        fault(2_300, AlarmEvent.TYPE_FAULT, 2_300),
        step(2_400, ZoneState.PRE_ALARM, ZoneState.NORMAL, "yard"),
        step(2_500, ZoneState.NORMAL, ZoneState.PRE_ALARM, "yard"),
    ):
        timeline.add(event)
    still = [Fault(device="s-01", since_ns=2_300)]
    assert spans(timeline, hall=still) == {
        "attic": [("acknowledged", FROM, 2_000)],
        "hall": [("alarm", 1_100, 2_100), ("s-01", 1_200, 2_200)],
    }

import re
from collections.abc import Collection, Iterable

import pytest

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone import fusion, state
from embereye.zone.fusion import WINDOW_NS, Verdict
from embereye.zone.profile import Profile
from embereye.zone.state import TEST_NS, TRANSITIONS, Action, NotAllowedError, ZoneMachine

NOW = 1_700_000_000 * SECOND
NORMAL = ZoneState.NORMAL
PRE_ALARM = ZoneState.PRE_ALARM
ALARM = ZoneState.ALARM
ACKNOWLEDGED = ZoneState.ACKNOWLEDGED
RESTORED = ZoneState.RESTORED


def sign(
    device: str = "s-01",
    kind: Kind = Kind.SMOKE,
    level: Level = Level.ALARM,
    *,
    at: float = 0,
    since: float | None = None,
    episode: str = "",
    sense: Sense = Sense.SENSOR,
    name: str = "",
) -> EvidenceItem:
    return EvidenceItem(
        id=name or f"{device}/{kind}/{level}/{at}/{episode}",
        episode=episode or f"{device}/{kind}",
        fleet="default/sensors/f",
        device=device,
        zone="hall",
        kind=kind.wire,
        level=level.wire,
        sense=sense.wire,
        since_ns=NOW + int((at if since is None else since) * SECOND),
        until_ns=NOW + int(at * SECOND),
        snapshot=b"jpeg",
    )


def at(seconds: float) -> int:
    return NOW + int(seconds * SECOND)


def zone() -> ZoneMachine:
    return ZoneMachine("default", "hall")


def in_alarm() -> ZoneMachine:
    machine = zone()
    machine.add_evidence(sign(), at(0))
    assert machine.state == ALARM
    return machine


def test_a_fire_goes_from_pre_alarm_to_reset_under_one_id() -> None:
    machine = zone()
    events = machine.add_evidence(sign(level=Level.PRE_ALARM), at(0))
    events += machine.add_evidence(sign(kind=Kind.HEAT, level=Level.PRE_ALARM, at=1), at(1))
    events += machine.acknowledge("Ada", "", at(2))
    events += machine.add_evidence(sign(level=Level.CLEAR, at=3), at(3))
    events += machine.add_evidence(sign(kind=Kind.HEAT, level=Level.CLEAR, at=4), at(4))
    events += machine.reset("Ada", "toast", at(5))
    assert [event.state for event in events] == [PRE_ALARM, ALARM, ACKNOWLEDGED, RESTORED, NORMAL]
    assert [event.previous for event in events] == [NORMAL, PRE_ALARM, ALARM, ACKNOWLEDGED, RESTORED]
    assert len({event.alarm for event in events}) == 1
    assert events[0].alarm
    assert all(event.why for event in events)
    assert events[-1].who == "Ada"
    assert events[-1].why == "reset by Ada: toast"
    assert machine.is_idle


def test_events_carry_no_snapshot() -> None:
    (event,) = zone().add_evidence(sign(), at(0))
    assert event.contributions[0].device == "s-01"
    assert not event.contributions[0].snapshot


def test_a_pre_alarm_ends_when_its_sign_is_clear() -> None:
    machine = zone()
    machine.add_evidence(sign(level=Level.PRE_ALARM), at(0))
    (event,) = machine.add_evidence(sign(level=Level.CLEAR, at=1), at(1))
    assert event.state == NORMAL
    assert event.alarm
    assert not machine.alarm


def test_a_pre_alarm_ends_when_its_sign_is_not_renewed() -> None:
    machine = zone()
    machine.add_evidence(sign(level=Level.PRE_ALARM), at(0))
    assert machine.tick(NOW + WINDOW_NS - 1) == []
    (event,) = machine.tick(NOW + WINDOW_NS)
    assert (event.state, event.why) == (NORMAL, "the signs have ended unconfirmed")
    assert machine.is_idle


def test_an_alarm_latches_until_a_person_acknowledges_it() -> None:
    machine = in_alarm()
    machine.add_evidence(sign(level=Level.CLEAR, at=1), at(1))
    assert machine.tick(at(3600)) == []
    assert machine.state == ALARM
    events = machine.acknowledge("Ada", "", at(3601))
    assert [event.state for event in events] == [ACKNOWLEDGED, RESTORED]


def test_an_open_alarm_is_escalated_with_a_note_and_keeps_its_state() -> None:
    with pytest.raises(NotAllowedError, match="no alarm to escalate"):
        zone().escalate("Ada", "", at(0))
    machine = in_alarm()
    event = machine.escalate("Ada", "nobody is at the gate", at(1))
    assert (event.type, event.state, event.who) == (AlarmEvent.TYPE_EVIDENCE, ALARM, "Ada")
    assert event.why.startswith("escalated by Ada: nobody is at the gate; alarm: ")
    assert machine.state == ALARM


def test_an_acknowledged_alarm_is_restored_when_its_signs_are_not_renewed() -> None:
    machine = in_alarm()
    machine.acknowledge("Ada", "", at(1))
    machine.add_evidence(sign(at=20, since=0), at(20))
    assert machine.tick(at(49)) == []
    (event,) = machine.tick(at(50))
    assert event.state == RESTORED


def test_a_sign_does_not_end_when_its_device_burns() -> None:
    machine = in_alarm()
    machine.acknowledge("Ada", "", at(1))
    machine.open_fault("default/sensors/f", "s-01", "silent for 7 s", at(8))
    assert machine.tick(at(60)) == []
    assert machine.state == ACKNOWLEDGED
    events = machine.clear_fault("default/sensors/f", "s-01", "is watched again", at(70))
    assert [event.type for event in events] == [AlarmEvent.TYPE_FAULT_CLEARED, AlarmEvent.TYPE_STATE]
    assert machine.state == RESTORED


def test_a_fire_that_returns_before_the_reset_needs_another_acknowledgement() -> None:
    machine = in_alarm()
    alarm = machine.alarm
    machine.acknowledge("Ada", "", at(1))
    machine.add_evidence(sign(level=Level.CLEAR, at=2), at(2))
    assert machine.state == RESTORED
    (event,) = machine.add_evidence(sign(at=10, episode="second"), at(10))
    assert (event.state, event.alarm) == (ALARM, alarm)
    assert event.why.startswith("the fire is back: ")


def test_a_weak_sign_after_restoration_returns_to_acknowledged() -> None:
    machine = in_alarm()
    machine.acknowledge("Ada", "", at(1))
    machine.add_evidence(sign(level=Level.CLEAR, at=2), at(2))
    (event,) = machine.add_evidence(sign(at=10, level=Level.PRE_ALARM, episode="second"), at(10))
    assert event.state == ACKNOWLEDGED


def test_signs_that_continue_after_a_reset_raise_a_new_alarm() -> None:
    machine = in_alarm()
    first = machine.alarm
    machine.acknowledge("Ada", "", at(1))
    machine.reset("Ada", "", at(2))
    (event,) = machine.add_evidence(sign(at=3, since=0), at(3))
    assert event.state == ALARM
    assert event.alarm != first


def test_evidence_from_before_a_reset_raises_no_alarm_after_it() -> None:
    machine = in_alarm()
    machine.acknowledge("Ada", "", at(5))
    machine.reset("Ada", "", at(10))
    assert machine.add_evidence(sign(at=9, name="spooled elsewhere"), at(20)) == []
    assert machine.state == NORMAL


def test_a_sign_that_joins_an_alarm_is_announced_once_and_again_when_it_grows() -> None:
    machine = in_alarm()
    (joined,) = machine.add_evidence(sign("s-02", level=Level.PRE_ALARM, at=1), at(1))
    assert (joined.type, joined.state) == (AlarmEvent.TYPE_EVIDENCE, ALARM)
    assert joined.why == "also smoke score 0 at s-02"
    assert machine.add_evidence(sign("s-02", level=Level.PRE_ALARM, at=2), at(2)) == []
    (grown,) = machine.add_evidence(sign("s-02", level=Level.ALARM, at=3), at(3))
    assert grown.why.startswith("stronger: ")
    assert machine.add_evidence(sign("s-01", at=4), at(4)) == []


@pytest.mark.parametrize("acknowledged", [False, True])
def test_signs_that_continue_in_an_alarm_are_not_judged_again(
    monkeypatch: pytest.MonkeyPatch, acknowledged: bool
) -> None:
    machine, judged = in_alarm(), list[int]()
    if acknowledged:
        machine.acknowledge("Ada", "", at(0))
    names = [f"s-{number:02d}" for number in range(50)]
    for name in names:
        machine.add_evidence(sign(name), at(0))

    def judge(
        items: Iterable[EvidenceItem], marks: Collection[FalseAlarm] = (), profile: Profile | None = None
    ) -> Verdict:
        judged.append(len(signs := list(items)))
        return fusion.judge(signs, marks, profile)

    monkeypatch.setattr(state, "judge", judge)
    for second in range(1, 4):
        for name in names:
            assert machine.add_evidence(sign(name, at=second), at(second)) == []
        assert machine.tick(at(second)) == []
    assert not judged, "the hub would be busy with one burning hall full of sensors"
    for name in names:
        machine.add_evidence(sign(name, level=Level.CLEAR, at=4), at(4))
    machine.tick(at(WINDOW_NS / SECOND + 1))
    assert machine.state == (RESTORED if acknowledged else ALARM)


def test_an_alarm_that_arrives_late_is_raised_and_says_so() -> None:
    (event,) = zone().add_evidence(sign(at=0), at(600))
    assert event.state == ALARM
    assert event.why.endswith("(seen 10 min ago, reported late)")


def test_a_late_alarm_counts_although_a_weaker_report_arrived_first() -> None:
    machine = zone()
    machine.add_evidence(sign(at=10, level=Level.PRE_ALARM, episode="b"), at(10))
    (event,) = machine.add_evidence(sign(at=5, episode="a"), at(11))
    assert event.state == ALARM


def test_a_report_that_a_later_one_overtook_changes_nothing() -> None:
    machine = zone()
    machine.add_evidence(sign(at=10, level=Level.PRE_ALARM), at(10))
    machine.add_evidence(sign(at=11, level=Level.CLEAR), at(11))
    assert machine.add_evidence(sign(at=9, level=Level.PRE_ALARM), at(12)) == []
    assert machine.state == NORMAL


def test_a_sign_ends_although_its_end_arrived_faster_than_its_last_report() -> None:
    machine = in_alarm()
    # Both reports carry the time at which the sign was last seen, shifted by their delay on the way to the hub.
    machine.add_evidence(sign(at=5.02, since=0), at(5.02))
    machine.add_evidence(sign(level=Level.CLEAR, at=5.01, since=0), at(8.01))
    (event, restored) = machine.acknowledge("Ada", "", at(9))
    assert (event.state, restored.state) == (ACKNOWLEDGED, RESTORED)


def test_the_end_of_an_earlier_sign_does_not_end_a_later_one() -> None:
    machine = in_alarm()
    machine.add_evidence(sign(at=10, episode="second"), at(10))
    machine.add_evidence(sign(level=Level.CLEAR, at=5), at(11))
    (event,) = machine.acknowledge("Ada", "", at(12))
    assert event.state == ACKNOWLEDGED


def test_a_device_whose_clock_runs_ahead_does_not_prolong_its_sign() -> None:
    machine = zone()
    machine.add_evidence(sign(at=7200, level=Level.PRE_ALARM), at(0))
    (event,) = machine.tick(at(30))
    assert event.state == NORMAL


@pytest.mark.parametrize(
    ("state", "action", "sentence"),
    [
        (NORMAL, "acknowledge", "zone default/hall is in state normal: there is no alarm to acknowledge"),
        (NORMAL, "reset", "zone default/hall is in state normal: there is no alarm to reset"),
        (PRE_ALARM, "reset", "zone default/hall is in state pre-alarm: there is no alarm to reset"),
        (ALARM, "reset", "zone default/hall is in alarm: acknowledge it before you reset it"),
        (ACKNOWLEDGED, "acknowledge", "zone default/hall: Ada has already acknowledged the alarm"),
    ],
)
def test_a_step_that_the_state_does_not_allow_is_refused(state: ZoneState, action: str, sentence: str) -> None:
    machine = ZoneMachine("default", "hall", state=state, acknowledged_by="Ada")
    with pytest.raises(NotAllowedError) as caught:
        getattr(machine, action)("Bob", "", NOW)
    assert str(caught.value) == sentence
    assert machine.state == state


def test_faults_are_announced_once_and_cleared_once() -> None:
    machine = zone()
    (event,) = machine.open_fault("f", "cam-2", "silent for 6.2 s", NOW)
    assert (event.type, event.why) == (AlarmEvent.TYPE_FAULT, "cam-2 is dark: silent for 6.2 s")
    assert event.fault.device == "cam-2"
    assert machine.open_fault("f", "cam-2", "silent for 7.2 s", NOW) == []
    assert machine.message(NOW).faults[0].reason == "silent for 7.2 s"
    (event,) = machine.clear_fault("f", "cam-2", "is watched again", NOW)
    assert (event.type, event.state) == (AlarmEvent.TYPE_FAULT_CLEARED, NORMAL)
    assert machine.clear_fault("f", "cam-2", "is watched again", NOW) == []
    assert machine.is_idle


def test_a_zone_shows_an_alarm_and_a_fault_together() -> None:
    machine = in_alarm()
    machine.open_fault("f", "cam-2", "silent", at(1))
    message = machine.message(at(1))
    assert (message.state, len(message.faults)) == (ALARM, 1)


def test_a_zone_under_test_raises_alarms_that_mention_the_test() -> None:
    machine = zone()
    (event,) = machine.toggle_test("Ada", "yearly", at(0))
    assert (event.type, event.why, event.who) == (AlarmEvent.TYPE_TEST, "test started by Ada: yearly", "Ada")
    (event,) = machine.add_evidence(sign(at=1), at(1))
    assert event.state == ALARM
    assert event.why.endswith("(zone under test by Ada)")
    (event,) = machine.toggle_test("Bob", "", at(2))
    assert event.why == "test ended by Bob"
    assert not machine.is_under_test


def test_a_forgotten_test_ends_automatically() -> None:
    machine = zone()
    machine.toggle_test("Ada", "", NOW)
    assert machine.tick(NOW + TEST_NS - 1) == []
    (event,) = machine.tick(NOW + TEST_NS)
    assert event.why == "test started by Ada ended automatically after 30 min"
    assert machine.is_idle


def test_a_zone_continues_unchanged_after_it_was_stored_and_loaded() -> None:
    machine = in_alarm()
    machine.add_evidence(sign("s-02", at=1), at(1))
    machine.open_fault("f", "cam-2", "silent", at(2))
    machine.toggle_test("Ada", "", at(3))
    machine.acknowledge("Ada", "", at(4))
    loaded = ZoneMachine.load(machine.dump(at(4)), at(4))
    loaded.revision = machine.revision
    assert loaded == machine
    assert loaded.tick(at(31)) == machine.tick(at(31))


def test_a_zone_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99 is not one of"):
        ZoneMachine.load(b'{"format": 99}', 0)


def test_an_open_alarm_lists_the_signs_that_ended_as_clear() -> None:
    machine = in_alarm()
    machine.add_evidence(sign("s-02", at=1), at(1))
    machine.add_evidence(sign("s-02", level=Level.CLEAR, at=2), at(2))
    levels = {item.device: item.level for item in machine.message(at(2)).contributions}
    assert levels == {"s-01": Level.ALARM, "s-02": Level.CLEAR}


def test_a_fire_that_returns_before_the_reset_is_announced() -> None:
    machine = in_alarm()
    machine.add_evidence(sign(level=Level.CLEAR, at=10), at(13))
    events = machine.add_evidence(sign(at=300, episode="second"), at(300))
    assert [(event.type, event.state) for event in events] == [(AlarmEvent.TYPE_EVIDENCE, ALARM)]
    assert events[0].why.startswith("again: smoke")
    assert machine.add_evidence(sign(at=301, episode="second"), at(301)) == [], "a sign that continues is not announced"


def test_a_fire_is_announced_again_after_hub_and_shard_restarted() -> None:
    machine = in_alarm()
    machine.add_evidence(sign(at=5), at(5))
    machine = ZoneMachine.load(machine.dump(at(6)), at(600))
    events = machine.add_evidence(sign(at=610, episode="second"), at(610))
    assert [event.why.partition(":")[0] for event in events] == ["again"]


def test_a_restarted_hub_does_not_announce_continuing_signs_again() -> None:
    machine = in_alarm()
    machine = ZoneMachine.load(machine.dump(at(5)), at(6))
    assert machine.add_evidence(sign(at=7), at(7)) == []


def test_a_sign_that_comes_and_goes_all_day_does_not_flood_people() -> None:
    machine, announced = in_alarm(), 0
    for number in range(1, 1000):
        machine.add_evidence(sign(level=Level.CLEAR, at=80 * number), at(80 * number))
        announced += len(machine.add_evidence(sign(at=80 * number + 40, episode=f"e{number}"), at(80 * number + 40)))
        if number % 7 == 0:
            machine = ZoneMachine.load(machine.dump(at(80 * number + 41)), at(80 * number + 41))
    assert 5 <= announced <= 35, "ever more rarely, but never not at all"


def test_a_sign_that_returned_too_soon_is_announced_when_it_lasts() -> None:
    machine = in_alarm()
    for number in (1, 2):
        machine.add_evidence(sign(level=Level.CLEAR, at=100 * number), at(100 * number))
        machine.add_evidence(sign(at=100 * number + 40, episode=f"e{number}"), at(100 * number + 40))
    machine.add_evidence(sign(level=Level.CLEAR, at=250), at(250))
    announced = [
        second for second in range(290, 900) if machine.add_evidence(sign(at=second, episode="e3"), at(second))
    ]
    assert len(announced) == 1


def test_a_zone_that_the_previous_version_stored_is_read() -> None:
    stored = in_alarm().dump(at(1)).replace(b'"format":3', b'"format":2').replace(b'"again":[],', b"")
    stored = stored.replace(b',"returned":false', b"")
    assert b"again" not in stored
    assert ZoneMachine.load(stored, at(2)).state == ALARM


def test_the_table_in_the_module_matches_the_transitions() -> None:
    inputs = [Level.CLEAR, Level.PRE_ALARM, Level.ALARM, Action.ACKNOWLEDGE, Action.RESET]
    for source, targets in TRANSITIONS.items():
        row = " ".join([source.word, *(targets[trigger].word if trigger in targets else "·" for trigger in inputs)])
        assert row in re.sub(" +", " ", state.__doc__ or "")

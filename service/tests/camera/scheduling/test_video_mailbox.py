import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.camera.scheduling.mailbox import Mailbox
from embereye.camera.scheduling.video import MAX_REPLAYED, MAX_UNSENT, SENT_UNITS, Depth
from embereye.camera.scheduling.video_mailbox import WAITS_FOR_KEY, VideoFrame, VideoMailbox
from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

STEP = SECOND // 15


def unit(number, *, key=False, reference=True, damaged="", refreshes=False):
    spoils = bool(damaged) and reference and not refreshes
    return AccessUnit(b"%d" % number, number, (640, 360), key, reference, damaged, refreshes, damages_following=spoils)


def offered(box, *units, boosted=False, refused=False):
    return [
        box.offer_unit(unit, unit.timestamp * STEP, unit.timestamp * STEP, boosted=boosted, refused=refused)
        for unit in units
    ]


def taken_frame(box):
    frame = box.mailbox.take_frame()
    return box.with_units(frame) if isinstance(frame, VideoFrame) else None


def taken(box):
    frame = taken_frame(box)
    return [int(coded_unit.data) for coded_unit in frame.units] if frame else None


def limited(box):
    box.mailbox.rate_controller.configure(1.0, 1.0)


def test_a_frame_comes_with_the_units_to_decode_before_it():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1), unit(2))
    assert taken(box) == [0, 1, 2]
    offered(box, unit(3))
    assert taken(box) == [3]
    assert box.mailbox.ledger.offered == 4
    assert box.mailbox.ledger.shed == {"superseded": 2}


def test_a_frame_above_the_rate_is_shed_and_decoded_with_the_next_one():
    box = VideoMailbox(Mailbox())
    limited(box)
    offered(box, unit(0, key=True))
    assert taken(box) == [0]
    offered(box, unit(1), unit(2, reference=False), unit(3))
    assert taken(box) is None
    offered(box, unit(16))
    assert taken(box) == [1, 3, 16]
    assert box.mailbox.ledger.shed == {"above target rate": 3}


def test_an_unreferenced_picture_is_decoded_only_if_analysed():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1, reference=False))
    assert taken(box) == [0, 1]
    offered(box, unit(2, reference=False), unit(3))
    assert taken(box) == [3]


def test_a_key_frame_makes_earlier_units_unnecessary():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1), unit(2), unit(3, key=True), unit(4))
    assert taken(box) == [3, 4]


def test_after_a_damaged_picture_nothing_is_decoded_until_the_next_key_frame():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1))
    assert taken(box) == [0, 1]
    reasons = offered(box, unit(2, damaged="a part of it was lost"), unit(3, damaged="it refers to it"))
    assert reasons == ["damaged: a part of it was lost", "damaged: it refers to it"]
    assert taken(box) is None
    offered(box, unit(4, key=True))
    assert taken(box) == [4]
    assert box.mailbox.ledger.rejected == {"damaged": 2}


def test_a_damaged_unreferenced_picture_affects_no_other():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1))
    assert taken(box) == [0, 1]
    offered(box, unit(2, reference=False, damaged="a part of it was lost"), unit(3))
    assert taken(box) == [3]
    assert box.mailbox.ledger.rejected == {"damaged": 1}


def test_pictures_during_a_gradual_refresh_are_decoded_but_not_analysed():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True, damaged="began before", refreshes=True), unit(1, damaged="x", refreshes=True))
    assert taken(box) is None
    offered(box, unit(2))
    assert taken(box) == [0, 1, 2]


def test_a_video_that_begins_in_the_middle_waits_for_a_key_frame():
    box = VideoMailbox(Mailbox())
    offered(box, unit(1), unit(2))
    assert taken(box) is None
    assert box.mailbox.ledger.shed == {WAITS_FOR_KEY: 2}


@pytest.mark.parametrize(
    ("depth", "seen"), [(Depth.ALL, [0, 1, 2, 3, 4]), (Depth.REFERENCES, [0, 2, 3, 4]), (Depth.KEYS, [0, 3])]
)
def test_the_depth_limits_the_decoded_pictures(depth, seen):
    box, decoded = VideoMailbox(Mailbox(), depth=depth), []
    for coded_unit in (unit(0, key=True), unit(1, reference=False), unit(2), unit(3, key=True), unit(4)):
        offered(box, coded_unit)
        decoded += taken(box) or []
    assert decoded == seen
    assert box.mailbox.ledger.shed["overload"] == 5 - len(seen)


def test_a_suspected_camera_is_decoded_to_its_full_depth_from_the_next_key_frame_on():
    box = VideoMailbox(Mailbox(), depth=Depth.KEYS)
    offered(box, unit(0, key=True), unit(1))
    offered(box, unit(2), boosted=True)
    assert taken(box) == [0]
    offered(box, unit(3, key=True), unit(4), boosted=True)
    assert taken(box) == [3, 4]


def test_a_restarted_decoder_gets_everything_since_the_key_frame():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1), unit(2))
    assert taken(box) == [0, 1, 2]
    box.restart_decoding(replay=True)
    offered(box, unit(3))
    assert taken(box) == [0, 1, 2, 3]


def test_undecodable_units_are_not_retried():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1))
    assert taken(box) == [0, 1]
    box.restart_decoding(replay=False)
    offered(box, unit(2))
    assert taken(box) is None
    offered(box, unit(3, key=True))
    assert taken(box) == [3]


def test_waiting_frames_of_an_undecodable_group_are_dropped():
    box = VideoMailbox(Mailbox(), slots=3)
    offered(box, unit(0, key=True), unit(1), unit(2))
    assert taken(box) == [0]
    box.restart_decoding(replay=False)
    assert [taken(box), taken(box)] == [None, None]
    assert box.mailbox.ledger.shed == {WAITS_FOR_KEY: 2}


def test_with_more_slots_every_frame_has_a_separate_turn():
    box = VideoMailbox(Mailbox(), slots=3)
    offered(box, unit(0, key=True), unit(1), unit(2), unit(3))
    assert [taken(box), taken(box), taken(box), taken(box)] == [[0, 1], [2], [3], None]
    assert box.mailbox.ledger.shed == {"superseded": 1}


def test_a_long_group_is_not_retained_for_a_restarted_decoder():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True))
    for number in range(1, MAX_REPLAYED + 20):
        offered(box, unit(number))
        assert taken(box)
    box.restart_decoding(replay=True)
    offered(box, unit(500))
    assert taken(box) is None
    offered(box, unit(501))
    assert box.mailbox.ledger.shed[WAITS_FOR_KEY] == 2


def test_undecoded_units_do_not_pile_up_at_a_low_rate():
    box = VideoMailbox(Mailbox())
    limited(box)
    offered(box, unit(0, key=True))
    assert taken(box) == [0]
    sizes = []
    for number in range(1, 400):
        box.offer_unit(unit(number), STEP, STEP + number, boosted=False, refused=False)
        sizes.append(len(taken(box) or []))
    assert max(sizes) == MAX_UNSENT
    assert sum(sizes) > 300


def test_a_refused_camera_restarts_with_a_key_frame():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), unit(1), refused=True)
    offered(box, unit(2))
    assert taken(box) is None
    assert box.mailbox.ledger.shed == {"refused": 2, WAITS_FOR_KEY: 1}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_ledger_is_exact_and_every_reference_is_decoded_first(data):
    box = VideoMailbox(Mailbox(), slots=data.draw(st.integers(1, 3)))
    box.mailbox.rate_controller.configure(data.draw(st.sampled_from([0.0, 3.0, 15.0])), 0.5)
    given_up = []
    known: list[int] = []  # the reference units of the current group
    decoded: list[int] = []
    turns = 0
    for number in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["key", "p", "p", "p", "b", "damaged", "spoilt b", "depth", "lost", "failed"]))
        if step == "depth":
            box.depth = data.draw(st.sampled_from(list(Depth)))
        elif step in {"lost", "failed"}:
            given_up += [box._group] if step == "failed" else []
            box.restart_decoding(replay=step == "lost")
            decoded = []
        else:
            broken = step in {"damaged", "spoilt b"}
            coded_unit = unit(
                number, key=step == "key", reference="b" not in step.split(), damaged="x" if broken else ""
            )
            if coded_unit.key:
                known = []
            offered(box, coded_unit, boosted=data.draw(st.booleans()))
            if coded_unit.reference:
                known.append(number)
        if data.draw(st.booleans()) and (frame := taken_frame(box)):
            turns += 1
            assert frame.group not in given_up
            numbers = [int(coded_unit.data) for coded_unit in frame.units]
            if frame.units[0].key:
                decoded = []
            for earlier in numbers[:-1]:
                assert not decoded or earlier > decoded[-1]
                decoded.append(earlier)
            decoded.append(numbers[-1])
            if frame.group is box._group:
                needed = [reference for reference in known if reference <= numbers[-1]]
                assert set(needed) - {numbers[-1]} <= set(decoded) or box.depth is not Depth.ALL
    assert box.mailbox.ledger.waiting - turns == box.mailbox.count


def test_more_units_than_fit_into_a_message_wait_for_the_next_key_frame():
    box = VideoMailbox(Mailbox())
    offered(box, unit(0, key=True), *(unit(number) for number in range(1, SENT_UNITS)))
    assert len(taken(box)) == SENT_UNITS
    offered(box, unit(0, key=True), *(unit(number) for number in range(1, SENT_UNITS + 1)))
    assert taken(box) is None
    offered(box, unit(1))
    assert taken(box) is None
    offered(box, unit(2, key=True))
    assert taken(box) == [2]

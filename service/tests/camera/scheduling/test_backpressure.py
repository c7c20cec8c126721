import pytest

from embereye.camera.scheduling.backpressure import FLUSH_NS, LATE_NS, PAUSE_MAX_NS, PushBackpressure
from embereye.units import SECOND

NOW = 1_000 * SECOND


def after(backpressure, now_ns, wanted_ns, late_ns=0):
    return backpressure.next_read_ns(now_ns, wanted_ns=wanted_ns, flush_ns=FLUSH_NS, late_ns=late_ns, frame_rate=15.0)


def test_a_sender_whose_frames_are_all_looked_at_is_never_held_back():
    backpressure = PushBackpressure()
    assert [after(backpressure, NOW + number, 0) for number in range(5)] == [0] * 5
    assert (backpressure.frame_rate, backpressure.unread) == (0, 0)


def test_a_rest_ends_in_time_for_what_has_waited_to_be_passed_over():
    assert after(PushBackpressure(), NOW, NOW + SECOND // 2) == NOW + SECOND // 2 - FLUSH_NS


def test_no_rest_is_so_long_that_what_waited_looks_like_a_clock_that_jumps():
    assert after(PushBackpressure(), NOW, NOW + 10 * SECOND) == NOW + PAUSE_MAX_NS


def test_a_sender_whose_frames_arrive_late_although_they_are_read_is_read_on():
    assert after(PushBackpressure(), NOW, NOW + SECOND // 2, late_ns=LATE_NS + 1) == 0


def test_what_is_left_with_a_sender_is_estimated_from_its_own_rate():
    backpressure, now = PushBackpressure(), NOW
    for _ in range(60):  # looks, one a second: what has waited, then a fresh frame
        for pause in (0, SECOND // 15):
            now += pause
            after(backpressure, now, now + SECOND)
        now += SECOND - SECOND // 15
    assert backpressure.frame_rate == 15
    assert backpressure.unread == pytest.approx(60 * 13, rel=0.05)


def test_a_sender_that_is_no_longer_held_back_is_counted_by_what_arrives():
    backpressure = PushBackpressure()
    after(backpressure, NOW, NOW + SECOND)
    after(backpressure, NOW + SECOND, 0)
    unread = backpressure.unread
    after(backpressure, NOW + 5 * SECOND, 0)
    assert (backpressure.frame_rate, backpressure.unread) == (0, unread)

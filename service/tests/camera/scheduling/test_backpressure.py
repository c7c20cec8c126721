import pytest

from embereye.camera.scheduling.backpressure import FLUSH_NS, HELD_UP_NS, REST_NS, Rest
from embereye.units import SECOND

NOW = 1_000 * SECOND


def after(rest, now_ns, wanted_ns, late_ns=0):
    return rest.after(now_ns, wanted_ns=wanted_ns, flush_ns=FLUSH_NS, late_ns=late_ns, frame_rate=15.0)


def test_a_sender_whose_frames_are_all_looked_at_is_never_held_back():
    rest = Rest()
    assert [after(rest, NOW + number, 0) for number in range(5)] == [0] * 5
    assert (rest.frame_rate, rest.unread) == (0, 0)


def test_a_rest_ends_in_time_for_what_has_waited_to_be_passed_over():
    assert after(Rest(), NOW, NOW + SECOND // 2) == NOW + SECOND // 2 - FLUSH_NS


def test_no_rest_is_so_long_that_what_waited_looks_like_a_clock_that_jumps():
    assert after(Rest(), NOW, NOW + 10 * SECOND) == NOW + REST_NS


def test_a_sender_whose_frames_arrive_late_although_they_are_read_is_read_on():
    assert after(Rest(), NOW, NOW + SECOND // 2, late_ns=HELD_UP_NS + 1) == 0


def test_what_is_left_with_a_sender_is_estimated_from_its_own_rate():
    rest, now = Rest(), NOW
    for _ in range(60):  # looks, one a second: what has waited, then a fresh frame
        for pause in (0, SECOND // 15):
            now += pause
            after(rest, now, now + SECOND)
        now += SECOND - SECOND // 15
    assert rest.frame_rate == 15
    assert rest.unread == pytest.approx(60 * 13, rel=0.05)


def test_a_sender_that_is_no_longer_held_back_is_counted_by_what_arrives():
    rest = Rest()
    after(rest, NOW, NOW + SECOND)
    after(rest, NOW + SECOND, 0)
    unread = rest.unread
    after(rest, NOW + 5 * SECOND, 0)
    assert (rest.frame_rate, rest.unread) == (0, unread)

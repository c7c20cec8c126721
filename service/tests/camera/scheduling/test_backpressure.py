import pytest

from embereye.camera.scheduling.backpressure import FLUSH_NS, LATE_NS, PAUSE_MAX_NS, PushBackpressure
from embereye.units import SECOND

NOW = 1_000 * SECOND


def after(backpressure, now_ns, wanted_ns, late_ns=0):
    return backpressure.next_read_ns(now_ns, wanted_ns=wanted_ns, flush_ns=FLUSH_NS, late_ns=late_ns, frame_rate=15.0)


def test_a_sender_whose_frames_are_all_analysed_is_never_paused():
    backpressure = PushBackpressure()
    assert [after(backpressure, NOW + number, 0) for number in range(5)] == [0] * 5
    assert (backpressure.frame_rate, backpressure.unread) == (0, 0)


def test_a_pause_ends_early_enough_to_skip_waiting_frames():
    assert after(PushBackpressure(), NOW, NOW + SECOND // 2) == NOW + SECOND // 2 - FLUSH_NS


def test_no_pause_is_so_long_that_it_looks_like_a_clock_jump():
    assert after(PushBackpressure(), NOW, NOW + 10 * SECOND) == NOW + PAUSE_MAX_NS


def test_a_sender_with_late_frames_is_not_paused():
    assert after(PushBackpressure(), NOW, NOW + SECOND // 2, late_ns=LATE_NS + 1) == 0


def test_unread_frames_are_estimated_from_the_senders_rate():
    backpressure, now = PushBackpressure(), NOW
    for _ in range(60):  # reads, one per second: a waiting frame, then a fresh one
        for pause in (0, SECOND // 15):
            now += pause
            after(backpressure, now, now + SECOND)
        now += SECOND - SECOND // 15
    assert backpressure.frame_rate == 15
    assert backpressure.unread == pytest.approx(60 * 13, rel=0.05)


def test_after_a_pause_only_arriving_frames_are_counted():
    backpressure = PushBackpressure()
    after(backpressure, NOW, NOW + SECOND)
    after(backpressure, NOW + SECOND, 0)
    unread = backpressure.unread
    after(backpressure, NOW + 5 * SECOND, 0)
    assert (backpressure.frame_rate, backpressure.unread) == (0, unread)

from itertools import pairwise

import pytest

from embereye.camera.scheduling.shortfall import AMPLE_PERIODS, Shortfall
from embereye.units import SECOND


def judged(periods, *, least=5.0, arriving=15.0):
    """Judge after periods of 4 s, each with so many frames (analysed, superseded)."""
    shortfall, now, totals = Shortfall(), 1_000 * SECOND, [0, 0]
    shortfall.judge(now, analysed=0, superseded=0, least=least, arriving=arriving)
    for analysed, superseded in periods:
        totals = [totals[0] + analysed, totals[1] + superseded]
        now += 4 * SECOND
        shortfall.judge(now, analysed=totals[0], superseded=totals[1], least=least, arriving=arriving)
    return shortfall.reason


def test_a_camera_below_its_minimum_rate_is_reported_with_the_remedy():
    reason = judged([(60, 0), (12, 30), (12, 30)])
    assert reason.startswith("3.0 frames/s analysed, below its minimum of 5")
    assert "Add shards" in reason


@pytest.mark.parametrize(
    ("period", "arriving"),
    [((20, 40), 15.0), ((18, 40), 15.0), ((8, 0), 2.0), ((8, 1), 2.0), ((0, 0), 0.0), ((0, 0), 15.0)],
    ids=["full rate", "nearly", "it sends less", "it sends less and one came late", "silent", "unusable frames"],
)
def test_a_camera_that_gets_its_minimum_or_sends_less_is_not_reported(period, arriving):
    assert not judged([period] * 3, arriving=arriving)


SHORT, AMPLE = (4, 50), (20, 40)


def test_a_single_short_period_is_not_reported():
    assert not judged([AMPLE, SHORT, AMPLE, SHORT, AMPLE])


def test_a_camera_is_reported_until_it_had_its_minimum_for_a_whole_rotation():
    assert judged([SHORT] * 2)
    assert judged([*[SHORT] * 2, *[AMPLE] * (AMPLE_PERIODS - 1)])
    assert not judged([*[SHORT] * 2, *[AMPLE] * AMPLE_PERIODS])


def test_a_shard_at_its_limit_does_not_change_the_status_every_few_seconds():
    shortfall, now, reasons = Shortfall(), 1_000 * SECOND, []
    for half_second in range(240):
        few = "only key frames are decoded" if half_second // 10 % 2 else ""
        shortfall.judge(
            now, analysed=half_second, superseded=half_second, least=5.0, arriving=15.0, key_frames_only=few
        )
        now += SECOND // 2
        reasons.append(shortfall.reason)
    assert sum(before != after for before, after in pairwise(reasons)) == 1


def test_key_frames_alone_are_a_shortage_even_if_no_frame_is_superseded():
    shortfall, now = Shortfall(), 1_000 * SECOND
    for _ in range(20):
        shortfall.judge(now, analysed=0, superseded=0, least=5.0, arriving=15.0, key_frames_only="only key frames")
        now += SECOND // 2
    assert shortfall.reason == "only key frames"


def test_a_time_with_a_suspended_machine_is_not_judged():
    shortfall = Shortfall()
    shortfall.judge(1_000 * SECOND, analysed=0, superseded=0, least=5.0, arriving=15.0)
    shortfall.judge(1_060 * SECOND, analysed=60, superseded=40, least=5.0, arriving=15.0)
    assert not shortfall.reason


def test_nothing_is_judged_before_a_whole_period():
    shortfall = Shortfall()
    shortfall.judge(1_000 * SECOND, analysed=0, superseded=0, least=5.0, arriving=15.0)
    shortfall.judge(1_003 * SECOND, analysed=1, superseded=9, least=5.0, arriving=15.0)
    assert not shortfall.reason


def slow(*rates):
    """Return why flames cannot be detected after each period, in which so many frames/s came and were analysed."""
    shortfall, now, reasons = Shortfall(), 1_000 * SECOND, []
    for rate in (0.0, *rates):
        shortfall.judge(now, analysed=0, superseded=0, least=1.0, arriving=rate)
        now += 4 * SECOND
        reasons.append(shortfall.slow)
    return reasons[1:]


def test_a_camera_with_too_few_pictures_for_flames_is_reported_after_a_while():
    assert slow(1.0, 1.0, 1.0, 1.04) == ["", "", *["it sends 1.0 frames/s, too few to detect flames (3 needed)"] * 2]


def test_a_starting_or_pausing_camera_is_not_reported_for_few_pictures():
    assert not any(slow(0.3, 2.0, 15.0, 15.0, 2.0, 1.0, 15.0, 0.0, 0.0, 0.0, 0.0))
    assert not any(slow(2.9, 2.9, 2.9, 2.9, 2.9))


def test_a_camera_that_sends_enough_again_is_no_longer_reported():
    assert slow(1.0, 1.0, 1.0, 5.0, 1.0)[2:] == ["it sends 1.0 frames/s, too few to detect flames (3 needed)", "", ""]

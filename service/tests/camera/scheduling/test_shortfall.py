import pytest

from embereye.camera.scheduling.shortfall import Shortfall
from embereye.units import SECOND


def judged(periods, *, least=5.0, arriving=15.0):
    """After periods of 4 s, in each of which so many frames were (analysed, superseded)."""
    shortfall, now, totals = Shortfall(), 1_000 * SECOND, [0, 0]
    shortfall.judge(now, analysed=0, superseded=0, least=least, arriving=arriving)
    for analysed, superseded in periods:
        totals = [totals[0] + analysed, totals[1] + superseded]
        now += 4 * SECOND
        shortfall.judge(now, analysed=totals[0], superseded=totals[1], least=least, arriving=arriving)
    return shortfall.reason


def test_a_camera_that_falls_below_its_least_rate_is_named_with_what_it_got_and_what_helps():
    reason = judged([(60, 0), (12, 30)])
    assert reason.startswith("analysed 3.0 times/s, its least rate is 5")
    assert "add shards" in reason


@pytest.mark.parametrize(
    ("period", "arriving"),
    [((20, 40), 15.0), ((18, 40), 15.0), ((8, 0), 2.0), ((8, 1), 2.0), ((0, 0), 0.0), ((0, 0), 15.0)],
    ids=["kept", "nearly", "it sends less", "it sends less and one came late", "silent", "unusable frames"],
)
def test_a_camera_that_gets_what_it_is_due_or_sends_no_more_is_not_named(period, arriving):
    assert not judged([period], arriving=arriving)


def test_it_is_no_longer_named_once_it_gets_its_due_again():
    assert judged([(4, 50)])
    assert not judged([(4, 50), (20, 40)])


def test_nothing_is_said_of_a_time_in_which_the_machine_stood_still():
    shortfall = Shortfall()
    shortfall.judge(1_000 * SECOND, analysed=0, superseded=0, least=5.0, arriving=15.0)
    shortfall.judge(1_060 * SECOND, analysed=60, superseded=40, least=5.0, arriving=15.0)
    assert not shortfall.reason


def test_nothing_is_said_before_a_whole_period_has_passed():
    shortfall = Shortfall()
    shortfall.judge(1_000 * SECOND, analysed=0, superseded=0, least=5.0, arriving=15.0)
    shortfall.judge(1_003 * SECOND, analysed=1, superseded=9, least=5.0, arriving=15.0)
    assert not shortfall.reason

import math

import pytest

from embereye.camera.scheduling.rate_controller import RateController, least_rate
from embereye.units import SECOND


def arrivals(controller, rate, seconds, *, start=0.0):
    """Return the admitted frames of a camera that sends `rate` per second."""
    times = (int((1000 + start + number / rate) * SECOND) for number in range(int(rate * seconds)))
    return sum(not controller.admit_frame(now) for now in times)


def paced(target=15.0, least=5.0):
    controller = RateController()
    controller.configure(target, least)
    return controller


def test_a_pool_that_keeps_up_analyses_every_frame():
    assert arrivals(paced(), 15, 60) == 900
    assert arrivals(paced(), 30, 60) == 900


@pytest.mark.parametrize("late", [0.02, 0.06])
def test_a_late_frame_does_not_shed_the_punctual_next_one(late):
    controller = paced()
    times = [1000 + number / 15 + (late if number % 5 == 3 else 0) for number in range(150)]
    assert not any(controller.admit_frame(int(time * SECOND)) for time in times)


def test_frames_are_admitted_after_the_clock_was_set_back():
    controller = paced()
    arrivals(controller, 15, 5)
    assert arrivals(controller, 15, 5, start=-3600) == 75


@pytest.mark.parametrize(("granted", "rate"), [(1.0, 5.0), (9.0, 9.0), (100.0, 15.0), (math.inf, 15.0)])
def test_a_granted_rate_is_limited_to_minimum_and_target(granted, rate):
    controller = paced()
    controller.grant(granted)
    assert controller.rate == rate
    assert controller.is_limited == (rate < 15)
    assert arrivals(controller, 15, 60) == pytest.approx(60 * rate, abs=3)


@pytest.mark.parametrize("rate", [5.5, 7.0, 10.0, 13.0])
def test_a_rate_between_the_limits_is_met_on_average(rate):
    controller = paced()
    controller.rate = rate
    taken = sum(not controller.admit_frame(int((1000 + number / 15) * SECOND)) for number in range(15 * 60))
    assert taken == pytest.approx(60 * rate, abs=3)


@pytest.mark.parametrize("rate", [1.0, 2.5, 7.0, 14.0])
def test_exactly_the_frames_that_come_when_wanted_are_analysed(rate):
    controller = paced(least=1.0)
    controller.rate = rate
    for number in range(300):
        now = (1000 * 30 + number) * SECOND // 30
        wanted = controller.wanted_ns
        assert (controller.admit_frame(now) == "") == (now >= wanted or not wanted), number


def test_fresh_frames_may_come_early_without_raising_the_rate():
    controller = paced(least=1.0)
    controller.rate = 3.0
    early = SECOND // 16
    taken = sum(not controller.admit_frame(1000 * SECOND + number * SECOND // 100, early) for number in range(100 * 60))
    assert taken == pytest.approx(60 * 3, abs=3)


def test_without_overload_every_frame_is_wanted_except_in_a_flood():
    controller = paced()
    controller.admit_frame(1000 * SECOND)
    assert controller.wanted_ns == 0
    assert controller.admit_frame(1000 * SECOND + 1000) == "above target rate"
    assert 1000 * SECOND < controller.wanted_ns < 1001 * SECOND
    assert not controller.admit_frame(controller.wanted_ns + 1)
    controller.admit_frame(controller.wanted_ns + 2)
    controller.configure(0.0, 0.0)
    assert controller.wanted_ns == 0


def test_new_limits_apply_at_once():
    controller = paced()
    controller.rate = 5.0
    controller.configure(15.0, 8.0)
    assert controller.rate == 8
    controller.configure(6.0, 2.0)
    assert controller.rate == 6
    controller.configure(0.0, 2.0)
    controller.grant(3.0)
    assert arrivals(controller, 100, 1) == 100


def test_the_deadline_also_sets_a_minimum_rate():
    assert least_rate(5.0, 2 * SECOND) == 5
    assert least_rate(1.0, SECOND // 2) == 4

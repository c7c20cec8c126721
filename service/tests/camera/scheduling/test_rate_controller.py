import pytest

from embereye.camera.scheduling.rate_controller import RateController, least_rate
from embereye.units import SECOND


def arrivals(controller, rate, seconds, *, start=0.0, waited=0.0, urgent=False):
    """Frames taken of a camera that sends `rate` a second, each of which waits `waited` seconds."""
    taken = 0
    for number in range(int(rate * seconds)):
        now = int((1000 + start + number / rate) * SECOND)
        if not controller.admit_frame(now):
            taken += 1
            controller.record_wait(waited, now, urgent=urgent)
    return taken


def paced(target=15.0, least=5.0):
    controller = RateController()
    controller.configure(target, least)
    return controller


def test_a_pool_that_keeps_up_looks_at_every_frame():
    assert arrivals(paced(), 15, 60) == 900
    assert arrivals(paced(), 30, 60) == 900


@pytest.mark.parametrize("late", [0.02, 0.06])
def test_a_frame_that_comes_late_does_not_cost_the_one_that_comes_on_time(late):
    controller = paced()
    times = [1000 + number / 15 + (late if number % 5 == 3 else 0) for number in range(150)]
    assert not any(controller.admit_frame(int(time * SECOND)) for time in times)


def test_frames_are_admitted_after_the_clock_was_set_back():
    controller = paced()
    arrivals(controller, 15, 5)
    assert arrivals(controller, 15, 5, start=-3600) == 75


def test_under_overload_the_rate_falls_to_the_least_and_no_further():
    controller = paced()
    arrivals(controller, 15, 20, waited=0.5)
    assert controller.rate == 5
    assert arrivals(controller, 15, 60, start=20, waited=0.5) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("rate", [5.5, 7.0, 10.0, 13.0])
def test_a_rate_between_is_kept_on_average(rate):
    controller = paced()
    controller.rate = rate
    taken = sum(not controller.admit_frame(int((1000 + number / 15) * SECOND)) for number in range(15 * 60))
    assert taken == pytest.approx(60 * rate, abs=3)


def test_a_short_pause_of_the_machine_changes_nothing():
    controller = paced()
    arrivals(controller, 15, 5)
    arrivals(controller, 15, 2 / 15, start=5, waited=0.8)
    arrivals(controller, 15, 1, start=6)
    assert controller.rate == 15


def test_the_rate_comes_back_step_by_step_and_only_after_a_quiet_time():
    controller = paced()
    arrivals(controller, 15, 10, waited=0.5)
    arrivals(controller, 15, 2.5, start=10)
    assert controller.rate == 5
    arrivals(controller, 15, 4, start=12.5)
    assert 6 <= controller.rate <= 10
    arrivals(controller, 15, 12, start=16.5)
    assert controller.rate == 15


def test_waits_between_quiet_and_late_hold_the_rate():
    controller = paced()
    controller.rate = 9.0
    arrivals(controller, 15, 30, waited=0.06)
    assert controller.rate == 9


def test_a_suspect_is_never_slowed_down():
    controller = paced()
    arrivals(controller, 15, 10, waited=0.5, urgent=True)
    assert controller.rate == 15


@pytest.mark.parametrize("rate", [1.0, 2.5, 7.0, 14.0])
def test_exactly_those_frames_are_looked_at_that_come_when_one_is_wanted(rate):
    controller = paced(least=1.0)
    controller.rate = rate
    for number in range(300):
        now = (1000 * 30 + number) * SECOND // 30
        wanted = controller.wanted_ns
        assert (controller.admit_frame(now) == "") == (now >= wanted or not wanted), number


def test_a_fresh_frame_may_come_before_its_time_without_more_being_looked_at():
    controller = paced(least=1.0)
    controller.rate = 3.0
    early = SECOND // 16
    taken = sum(not controller.admit_frame(1000 * SECOND + number * SECOND // 100, early) for number in range(100 * 60))
    assert taken == pytest.approx(60 * 3, abs=3)


def test_while_the_pool_keeps_up_every_frame_is_wanted_but_of_a_flood_none_before_the_next_turn():
    controller = paced()
    controller.admit_frame(1000 * SECOND)
    assert controller.wanted_ns == 0
    assert controller.admit_frame(1000 * SECOND + 1000) == "above target rate"
    assert 1000 * SECOND < controller.wanted_ns < 1001 * SECOND
    assert not controller.admit_frame(controller.wanted_ns + 1)
    controller.admit_frame(controller.wanted_ns + 2)
    controller.configure(0.0, 0.0)
    assert controller.wanted_ns == 0


def test_a_pause_that_costs_some_frames_cuts_nobody():
    controller = paced()
    for number in range(6):
        controller.record_wait(number / 15, 1000 * SECOND + number * SECOND // 15, urgent=False, unseen=True)
    controller.record_wait(0.4, 1000 * SECOND + SECOND // 2, urgent=False)
    controller.record_wait(0.02, 1000 * SECOND + SECOND * 2 // 3, urgent=False)
    assert controller.rate == 15


def test_frames_that_take_each_others_place_unseen_halve_the_rate_until_it_is_the_least():
    controller = paced(least=1.0)
    for number in range(15 * 3):
        controller.record_wait(number / 15, 1000 * SECOND + number * SECOND // 15, urgent=False, unseen=True)
    assert controller.rate == 1


def test_new_limits_hold_at_once():
    controller = paced()
    controller.rate = 5.0
    controller.configure(15.0, 8.0)
    assert controller.rate == 8
    controller.configure(6.0, 2.0)
    assert controller.rate == 6
    controller.configure(0.0, 2.0)
    assert arrivals(controller, 100, 1, waited=1.0) == 100


def test_the_deadline_sets_a_least_rate_of_its_own():
    assert least_rate(5.0, 2 * SECOND) == 5
    assert least_rate(1.0, SECOND // 2) == 4

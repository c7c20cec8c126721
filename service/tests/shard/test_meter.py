import pytest

from embereye.shard.meter import Meter


def test_rates_and_cost_are_those_of_the_last_seconds():
    meter = Meter()
    for second in range(20):
        meter.sample(second, offered=100 * second, analysed=50 * second, cpu=0.5 * second)
    assert meter.arrival_rate == pytest.approx(100)
    assert meter.cost_seconds == pytest.approx(0.01)
    assert meter.utilization == pytest.approx(0.5)
    for second in range(20, 30):
        meter.sample(second, offered=2000, analysed=1000, cpu=10)
    assert meter.arrival_rate == 0
    assert meter.utilization == 0
    assert meter.load(queue_depth=3, oldest_age_ns=7).cost_seconds == pytest.approx(0.01)  # a backlog still costs


def test_no_rate_is_measured_before_two_samples():
    meter = Meter()
    meter.sample(5.0, offered=10, analysed=10, cpu=1)
    assert (meter.arrival_rate, meter.cost_seconds, meter.utilization) == (0, 0, 0)


def test_a_backlog_after_a_stall_does_not_count_as_a_rate() -> None:
    meter, offered = Meter(), 0
    for second in range(100, 200):
        if not 130 < second < 170:
            offered += 100 if second != 171 else 4_100
            meter.sample(float(second), offered=offered, analysed=offered // 2, cpu=offered * 1e-3)
        if second > 102:
            assert meter.arrival_rate == pytest.approx(100)
            assert meter.utilization == pytest.approx(0.1)
            assert meter.cost_seconds == pytest.approx(2e-3)


def test_a_machine_that_stalls_repeatedly_is_still_measured() -> None:
    meter, at, offered = Meter(), 100.0, 0
    for number in range(400):
        at += 3.5 if number % 3 == 0 else 0.5
        offered += 100 if number < 200 else 1000
        meter.sample(at, offered=offered, analysed=offered, cpu=offered * 1e-4)
    assert meter.arrival_rate > 300

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


def test_nothing_is_measured_before_there_are_two_samples():
    meter = Meter()
    meter.sample(5.0, offered=10, analysed=10, cpu=1)
    assert (meter.arrival_rate, meter.cost_seconds, meter.utilization) == (0, 0, 0)

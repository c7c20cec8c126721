import math

import pytest

from embereye.camera.scheduling.video import WINDOW_NS, CodedUnit, Depth, VideoFlow
from embereye.units import SECOND

KEY, OTHER = CodedUnit(b"", 1, key=True), CodedUnit(b"", 2)


def flow(rate=15, group=30, disposable=0, cost=0.01, key_cost=0.02):
    """A flow of `rate` units/s, a key frame in each `group`, of which every `disposable`-th is no reference."""
    found = VideoFlow()
    for number in range(int(2.2 * rate * WINDOW_NS / SECOND)):
        reference = not disposable or number % disposable != 1
        found.record_arrival(key=number % group == 0, reference=reference, now_ns=1 + number * SECOND // rate)
    found.record_turn([KEY], key_cost)
    found.record_turn([OTHER, OTHER], 2 * cost)
    return found


def test_it_measures_what_comes_and_what_it_costs():
    found = flow(disposable=2)
    assert found.rate == pytest.approx(15, rel=0.05)
    assert found.key_rate == pytest.approx(0.5, abs=0.15)
    assert found.work(Depth.ALL) == pytest.approx(0.15, rel=0.05)
    assert found.work(Depth.REFERENCES) == pytest.approx(0.08, rel=0.15)
    assert found.work(Depth.KEYS) == pytest.approx(0.01, abs=0.003)


def test_everything_is_decoded_where_there_is_time_or_nothing_is_known():
    assert VideoFlow().depth(0.0, 0.9) is Depth.ALL
    assert flow().depth(math.inf, 0.9) is Depth.ALL
    assert flow().depth(0.16, 0.9) is Depth.ALL


def test_pictures_that_no_other_refers_to_are_left_out_first():
    assert flow(disposable=2).depth(0.12, 0.99) is Depth.REFERENCES


def test_of_cameras_that_are_short_as_many_are_decoded_in_full_as_there_is_time_for():
    phases = [number / 100 for number in range(100)]
    for seconds in (0.02, 0.05, 0.1, 0.14):
        one = flow()
        used = sum(one.work(one.depth(seconds, phase)) for phase in phases)
        assert used == pytest.approx(100 * seconds, rel=0.1)


def test_before_less_is_decoded_fewer_pictures_are_looked_at():
    one = flow(rate=10, cost=0.01, key_cost=0.02)
    for _ in range(200):
        one.record_turn([OTHER], 0.01, 0.005)
    assert one.work(Depth.ALL) == pytest.approx(0.15, rel=0.05)
    assert one.analysis_rate(math.inf, Depth.ALL) == math.inf
    for seconds, looks in ((0.14, 8), (0.12, 4)):
        assert one.depth(seconds, 0.99, least=2.0) is Depth.ALL
        assert one.analysis_rate(seconds, Depth.ALL) == pytest.approx(looks, rel=0.1)
        assert one.work(Depth.ALL, one.analysis_rate(seconds, Depth.ALL)) == pytest.approx(seconds, rel=0.05)
    assert one.depth(0.105, 0.99, least=2.0) is Depth.KEYS
    assert one.analysis_rate(0.105, Depth.KEYS) == math.inf


def test_with_less_than_key_frames_need_key_frames_are_decoded():
    assert flow().depth(0.0, 0.0) is Depth.KEYS


def test_a_flow_that_stops_is_forgotten():
    found = flow()
    found.record_arrival(key=True, reference=True, now_ns=100 * SECOND)
    assert not found.known

import math

import pytest

from embereye.camera.scheduling.video import WINDOW_NS, CodedUnit, Depth, VideoFlow
from embereye.units import SECOND

KEY, OTHER = CodedUnit(b"", 1, key=True), CodedUnit(b"", 2)


def flow(rate=15, group=30, disposable=0, cost=0.01, key_cost=0.02):
    """Return a flow of `rate` units/s with a key frame per `group`; every `disposable`-th unit is unreferenced."""
    video_flow = VideoFlow()
    for number in range(int(2.2 * rate * WINDOW_NS / SECOND)):
        reference = not disposable or number % disposable != 1
        video_flow.record_arrival(key=number % group == 0, reference=reference, now_ns=1 + number * SECOND // rate)
    video_flow.record_turn([KEY], key_cost)
    video_flow.record_turn([OTHER, OTHER], 2 * cost)
    return video_flow


def test_a_flow_measures_arrivals_and_costs():
    video_flow = flow(disposable=2)
    assert video_flow.rate == pytest.approx(15, rel=0.05)
    assert video_flow.key_rate == pytest.approx(0.5, abs=0.15)
    assert video_flow.work(Depth.ALL) == pytest.approx(0.15, rel=0.05)
    assert video_flow.work(Depth.REFERENCES) == pytest.approx(0.08, rel=0.15)
    assert video_flow.work(Depth.KEYS) == pytest.approx(0.01, abs=0.003)


def test_everything_is_decoded_if_there_is_time_or_costs_are_unknown():
    assert VideoFlow().depth(0.0, 0.9) is Depth.ALL
    assert flow().depth(math.inf, 0.9) is Depth.ALL
    assert flow().depth(0.16, 0.9) is Depth.ALL


def test_unreferenced_pictures_are_left_out_first():
    assert flow(disposable=2).depth(0.12, 0.99) is Depth.REFERENCES


def test_as_many_cameras_as_possible_are_decoded_in_full():
    phases = [number / 100 for number in range(100)]
    for seconds in (0.02, 0.05, 0.1, 0.14):
        video_flow = flow()
        used = sum(video_flow.work(video_flow.depth(seconds, phase)) for phase in phases)
        assert used == pytest.approx(100 * seconds, rel=0.1)


def test_fewer_pictures_are_analysed_before_fewer_are_decoded():
    video_flow = flow(rate=10, cost=0.01, key_cost=0.02)
    for _ in range(200):
        video_flow.record_turn([OTHER], 0.01, 0.005)
    assert video_flow.work(Depth.ALL) == pytest.approx(0.15, rel=0.05)
    assert video_flow.analysis_rate(math.inf, Depth.ALL) == math.inf
    for seconds, rate in ((0.14, 8), (0.12, 4)):
        assert video_flow.depth(seconds, 0.99, least=2.0) is Depth.ALL
        assert video_flow.analysis_rate(seconds, Depth.ALL) == pytest.approx(rate, rel=0.1)
        assert video_flow.work(Depth.ALL, video_flow.analysis_rate(seconds, Depth.ALL)) == pytest.approx(
            seconds, rel=0.05
        )
    assert video_flow.depth(0.105, 0.99, least=2.0) is Depth.KEYS
    assert video_flow.analysis_rate(0.105, Depth.KEYS) == math.inf


def test_key_frames_are_decoded_even_with_too_little_time():
    assert flow().depth(0.0, 0.0) is Depth.KEYS


def test_a_flow_that_stops_is_forgotten():
    video_flow = flow()
    video_flow.record_arrival(key=True, reference=True, now_ns=100 * SECOND)
    assert not video_flow.is_known

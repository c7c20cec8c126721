import numpy as np
import pytest

from embereye.detect.vision.detector import CALM_NS, Detector
from embereye.levels import Kind
from embereye.sim.scenes.lookalikes import candle, filmed
from embereye.units import SECOND

START = 1_700_000_000 * SECOND
RNG = np.random.default_rng(6)


def noisy():
    return np.clip(RNG.normal(100, 2, (120, 160, 3)), 0, 255).astype(np.uint8)


@pytest.fixture
def detected(monkeypatch):
    """The times at which pictures were analysed for flames, nanoseconds."""
    times, observe = [], Detector().flame.observe.__func__
    monkeypatch.setattr(
        "embereye.detect.vision.flame.flame.FlameDetector.observe",
        lambda self, picture, time_ns, ignored=None: times.append(time_ns) or observe(self, picture, time_ns, ignored),
    )
    return times


@pytest.mark.parametrize(("rate", "every"), [(30, 3), (15, 2), (8, 1), (5, 1)])
def test_without_flicker_some_pictures_repeat_the_previous_result(detected, rate, every):
    detector = Detector()
    for number in range(3 * rate):
        seen = detector.detect(noisy(), time_ns := START + number * SECOND // rate)
        assert seen.time_ns == time_ns
        assert [finding.kind for finding in seen.findings] == [Kind.FLAME, Kind.SMOKE]
    assert len(detected) == pytest.approx(3 * rate / every, abs=2)
    assert min(np.diff(detected)) >= min(CALM_NS, SECOND // rate) - 1


def test_every_picture_is_analysed_as_soon_as_a_flame_flickers(detected):
    detector = Detector()
    for picture, at in filmed(candle(24), 15.0, 6):
        detector.detect(picture, START + int(at * 1e9))
    late = [time_ns for time_ns in detected if time_ns > START + 2 * SECOND]
    assert len(late) >= 4 * 15 - 1


def test_a_clock_that_steps_back_does_not_stop_analysis(detected):
    detector = Detector()
    for time_ns in (START, START + 10, START - SECOND):
        detector.detect(noisy(), time_ns)
    assert detected == [START, START - SECOND]

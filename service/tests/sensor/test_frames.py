"""The hot spot in a sensor's frames."""

import numpy as np
from harness.settings import HEAT

from embereye.detect.thermal.heat import extremes
from embereye.levels import Level
from embereye.sensor.device.frames import FrameAnalysis
from embereye.shard.selftests import RunningTest
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Region, SelfTest

DICE = np.random.default_rng(2)


def test_the_place_of_a_fire_next_to_a_hotter_machine_is_reported() -> None:
    frames = FrameAnalysis("s-01", HEAT)
    for second in range(150):
        celsius = DICE.normal(22, 0.3, (24, 32)).astype(np.float32)
        celsius[3:6, 3:9], celsius[15, 20] = 52, 22 + max(second - 120, 0)
        assessment = frames.analyse(b"", celsius, extremes(celsius[None])[0], (1000 + second) * SECOND)
    assert (assessment.level, assessment.hottest) == (Level.ALARM, (15, 20))
    where = {name: value for name, value, _, _ in assessment.measured}
    assert (where["spot.row"], where["spot.column"], where["spot.pixels"]) == (15, 20, 1)


HEATER = slice(2, 5), slice(3, 7)


def self_test(until: int = 10_000) -> RunningTest:
    region = Region(x=0.0625, y=0.05, width=0.1875, height=0.2)  # a pixel more than the heater on each side
    test = SelfTest(id="a", device="s-01", region=region, rise=20, unit="K")
    return RunningTest(test, lambda: None, until * SECOND)


def watched(frames: FrameAnalysis, seconds: range, fire: tuple[slice, slice] | None, celsius: float) -> Level:
    """The highest level while the place `fire` has `celsius`, one frame a second."""
    levels = []
    for second in seconds:
        frame = DICE.normal(22, 0.3, (24, 32)).astype(np.float32)
        if fire:
            frame[fire] = celsius
        words = int(second).to_bytes(4)  # no two frames repeat each other
        levels.append(frames.analyse(words, frame, extremes(frame[None])[0], second * SECOND).level)
    return max(levels)


def test_the_heater_of_a_self_test_is_measured_and_is_no_fire() -> None:
    frames = FrameAnalysis("s-01", HEAT)
    assert watched(frames, range(1000, 1030), None, 0) == Level.CLEAR
    frames.self_test = test = self_test()
    assert watched(frames, range(1030, 1035), None, 0) == Level.CLEAR
    assert test.is_ready
    assert watched(frames, range(1035, 1050), HEATER, 120) == Level.CLEAR
    assert 95 < test.rise < 100
    assert watched(frames, range(1050, 1060), None, 0) == Level.CLEAR
    frames.self_test = None
    assert watched(frames, range(1060, 1070), HEATER, 120) == Level.CRITICAL, "it is watched again"


def test_a_fire_elsewhere_during_a_self_test_is_an_alarm() -> None:
    frames = FrameAnalysis("s-01", HEAT)
    watched(frames, range(1000, 1030), None, 0)
    frames.self_test = self_test()
    watched(frames, range(1030, 1035), None, 0)
    assert watched(frames, range(1035, 1040), (slice(15, 18), slice(20, 24)), 120) == Level.CRITICAL


def test_a_self_test_that_nobody_ends_is_over_at_its_limit() -> None:
    frames = FrameAnalysis("s-01", HEAT)
    watched(frames, range(1000, 1030), None, 0)
    frames.self_test = self_test(until=1040)
    watched(frames, range(1030, 1035), None, 0)
    assert watched(frames, range(1035, 1040), HEATER, 120) == Level.CLEAR
    assert watched(frames, range(1040, 1050), HEATER, 120) == Level.CRITICAL

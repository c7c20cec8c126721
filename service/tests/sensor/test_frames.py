"""The hot spot in a sensor's frames."""

import numpy as np
from harness.settings import HEAT

from embereye.detect.thermal.heat import extremes
from embereye.levels import Level
from embereye.sensor.device.frames import FrameAnalysis
from embereye.units import SECOND

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

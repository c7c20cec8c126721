"""Frames of several devices in one batch."""

import numpy as np

from embereye.detect.thermal.batch import temperatures
from embereye.detect.thermal.mlx90640 import NOT_MEASURED, Calibration
from embereye.sim.mlx90640 import invent_eeprom, measure


def test_a_mixed_batch_gives_each_device_the_same_result_as_alone() -> None:
    dice = np.random.default_rng(5)
    runs = []
    for number in range(5):
        calibration = Calibration.from_eeprom(invent_eeprom(number))
        scenes = [dice.uniform(15, 30 + 100 * number, (24, 32)) for _ in range(1 + 20 * (number % 2))]
        frames = np.stack([measure(calibration, scene, subpage=index % 2) for index, scene in enumerate(scenes)])
        runs.append((calibration, frames.astype(np.uint16), 0.95 - 0.1 * number))
    runs[2][1][0, :768] = NOT_MEASURED
    runs[3][1][0, 800] = 1  # an impossible ambient temperature
    mixed = temperatures(runs)
    alone = np.concatenate([calibration.temperatures(frames, emissivity) for calibration, frames, emissivity in runs])
    np.testing.assert_allclose(mixed, alone, atol=2e-3)
    assert np.isnan(mixed[22]).all()


def test_no_frames_give_no_temperatures() -> None:
    assert temperatures([]).shape == (0, 24, 32)

import numpy as np
import pytest

from embereye.detect.vision.motion import MotionGate
from embereye.units import SECOND

RNG = np.random.default_rng(3)


def grey(level=100, noise=2.0):
    return np.clip(RNG.normal(level, noise, (60, 80)), 0, 255).astype(np.uint8)


def test_noise_is_no_motion_but_a_new_thing_is():
    gate = MotionGate()
    for n in range(10):
        motion = gate.observe(grey(), n * SECOND)
    assert motion.share < 0.001
    changed = grey()
    changed[:30] = 200
    assert gate.observe(changed, 11 * SECOND).share == pytest.approx(0.5, abs=0.01)


def test_nothing_moves_in_ignored_parts():
    ignored = np.zeros((60, 80), bool)
    ignored[:20] = True
    gate = MotionGate()
    gate.observe(grey(), 0, ignored=ignored)
    changed = grey()
    changed[:30] = 200
    assert gate.observe(changed, SECOND, ignored=ignored).share == pytest.approx(1 / 6, abs=0.01)


def test_a_lasting_thing_becomes_background_unless_it_is_frozen():
    frozen = np.zeros((60, 80), bool)
    frozen[:, :40] = True
    gate = MotionGate()
    gate.observe(grey(), 0)
    for n in range(1, 60):
        motion = gate.observe(grey(200), n * SECOND, frozen=frozen)
    assert motion.share == pytest.approx(0.5, abs=0.02)

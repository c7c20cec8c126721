"""A camera whose pictures never arrive whole: it still sees with the rest, and reports the checks it cannot do."""

import cv2
import numpy as np
import pytest
from harness.settings import camera_settings

from embereye.camera.replay import START_NS, Replay
from embereye.units import SECOND

RATE = 10.0
RANDOM = np.random.default_rng(3)
YARD = cv2.resize(RANDOM.integers(30, 200, (12, 16, 3)).astype(np.uint8), (640, 480), interpolation=cv2.INTER_NEAREST)


def damaged(picture, number):
    """Return `picture` as JPEG with a strip missing, and that strip."""
    noisy = np.clip(picture + RANDOM.normal(0, 2, picture.shape), 0, 255).astype(np.uint8)
    top = 24 * (number % 20)
    noisy[top : top + 24] = 128
    return cv2.imencode(".jpg", noisy)[1].tobytes(), ((0.0, top / 480, 1.0, 0.05),)


def shown(picture, seconds, replay=None, *, whole=False):
    """Show the pictures and return (why not covered, why degraded) after each."""
    replay, reasons = replay or Replay(camera_settings()), []
    began = replay.seconds
    for number in range(int(seconds * RATE)):
        data, lost = damaged(picture, number)
        replay.show(data, began + (number + 1) / RATE, () if whole else lost)
        status = replay.camera.message(START_NS + round(replay.seconds * SECOND))
        reasons.append((status.reason, status.degraded))
    return reasons


@pytest.mark.parametrize(("level", "fault"), [(4, "picture black"), (250, "picture white")])
def test_pictures_with_lost_parts_can_be_black_or_white(level, fault):
    reasons = [reason for reason, _ in shown(np.full((480, 640, 3), level), 30)]
    assert fault in reasons[:40]
    assert reasons[-1] == fault


def test_a_fault_of_damaged_pictures_ends_with_them():
    replay = Replay(camera_settings())
    shown(np.full((480, 640, 3), 4), 5, replay)
    assert shown(YARD, 5, replay)[-1][0] == ""


def test_checks_that_damaged_pictures_prevent_are_reported():
    replay = Replay(camera_settings())
    reasons = shown(YARD, 20, replay)
    assert not any(reason for reason, _ in reasons)
    assert not any(degraded for _, degraded in reasons[:90])
    assert reasons[-1][1].startswith("no whole picture arrives")
    assert shown(YARD, 3, replay, whole=True)[-1] == ("", "")

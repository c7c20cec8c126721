"""A panning camera reports that it cannot judge its pictures, to people and in the fleet's coverage."""

import cv2
import numpy as np
from harness.settings import camera_settings

from embereye.camera.replay import START_NS, Replay
from embereye.units import SECOND

RATE = 10.0


def street(width):
    """Draw an invented wide view with houses and poles."""
    random = np.random.default_rng(4)
    picture = np.full((240, width, 3), 120, np.uint8)
    for _ in range(width // 6):
        x, y, w, h = (int(value) for value in (*random.integers(0, (width, 240)), *random.integers(10, 70, 2)))
        cv2.rectangle(picture, (x, y), (x + w, y + h), random.integers(30, 200, 3).tolist(), -1)
    return picture


def test_a_panning_camera_is_not_covered_until_it_stops():
    wide, random, replay = street(1600), np.random.default_rng(5), Replay(camera_settings())
    reasons = []
    for number in range(140):
        left = 8 * min(number, 80)  # a quarter of the width per second, for 8 s
        shown = wide[:, left : left + 320] + random.normal(0, 2, (240, 320, 3))
        jpeg = cv2.imencode(".jpg", np.clip(shown, 0, 255).astype(np.uint8))[1].tobytes()
        replay.show(jpeg, number / RATE)
        status = replay.camera.message(START_NS + round(number / RATE * SECOND))
        assert status.covered == (not status.reason)
        reasons.append(status.reason)
    assert reasons[60].startswith("camera moves: the picture shifts by 2")
    assert reasons[-1] == ""
    assert [fault.reason for fault in replay.faults if fault.reason.startswith("camera moves")]

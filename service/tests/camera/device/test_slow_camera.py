"""A camera too slow for flicker is covered, because it sees smoke, and reports that it cannot see flames."""

import pytest
from harness.settings import camera_settings

from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.replay import START_NS, Replay
from embereye.levels import Level
from embereye.sim.scenes.scene import Room
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device


def shown(rate, seconds=40, **device):
    """Replay a large fire to a camera that sends `rate` frames/s."""
    replay = Replay(camera_settings())
    settings = camera_settings(deadline="4s")
    links = ShardLinks(submit=replay._run_turn, report=replay._observe, clock=lambda: replay._now_ns)
    replay.camera = camera = CameraDevice(Device(id="camera", zone="recording", fps_min=1, **device), settings, links)
    for number, picture in enumerate(Room(320, 240, 4).fire(3.0, int(seconds * rate), rate)):
        replay.show(picture, number / rate)
        camera.arrivals.judge_rate(START_NS + round(number / rate * SECOND))
    return replay


def test_a_camera_with_one_picture_per_second_is_covered_but_degraded():
    replay = shown(1.0)
    assert not replay.detections or max(detection.level for detection in replay.detections) < Level.ALARM
    status = replay.camera.message(replay._now_ns)
    assert (status.covered, status.degraded) == (True, "it sends 1.0 frames/s, too few to detect flames (3 needed)")


@pytest.mark.parametrize(("rate", "detectors"), [(5.0, []), (1.0, ["smoke"])])
def test_a_camera_that_needs_no_higher_rate_is_not_degraded(rate, detectors):
    status = (replay := shown(rate, detectors=detectors)).camera.message(replay._now_ns)
    assert (status.covered, status.degraded) == (True, "")

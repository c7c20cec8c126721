"""A released camera: its late frames and frames in work use no resources of the shard."""

import pytest

from embereye.camera.clips.ring import Budget
from embereye.camera.decode.image import decode_frame
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.scheduling.turn import Turn
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

from ..conftest import camera_settings, noisy_jpeg
from ..decode.test_video_pool import access_units

JPEG = noisy_jpeg(size=(120, 160))
NOW = 1_000 * SECOND


class Shard:
    """The shard's services for a camera."""

    def __init__(self):
        self.submitted, self.seen, self.recorded = [], [], []
        self.links = ShardLinks(
            submit=self.submitted.append, report=lambda _, seen: self.seen.append(seen), ring_budget=Budget(),
            video_budget=Budget(), record=lambda _, unit: self.recorded.append(unit), clock=lambda: NOW,
        )  # fmt: skip
        self.camera = CameraDevice(Device(id="gate", fps_target=15, fps_min=1), camera_settings(), self.links)

    @property
    def lent(self):
        budgets = self.links.ring_budget, self.links.video_budget
        return [(budget.used, budget.rings) for budget in budgets]


@pytest.fixture
def shard():
    return Shard()


def test_a_released_cameras_frame_in_work_is_not_stored_for_a_clip(shard):
    camera = shard.camera
    camera.offer_frame(JPEG)
    frame = camera.next_frame()
    order = camera.decode_order(frame)
    camera.close()
    camera.finish_turn(Turn(frame, 0.0, 0.0, result=decode_frame(order, JPEG, 160, 120)))
    assert shard.lent == [(0, 0), (0, 0)]
    assert not shard.seen


@pytest.mark.parametrize("data", [JPEG, access_units(count=1)[0]], ids=["picture", "video"])
def test_frames_offered_after_release_are_ignored(shard, data):
    shard.camera.close()
    shard.camera.offer_frame(data)
    shard.camera.record_frame(data)
    assert shard.lent == [(0, 0), (0, 0)]
    assert not shard.submitted
    assert not shard.recorded

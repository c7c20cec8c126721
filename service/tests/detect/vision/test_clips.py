"""Recordings that revealed general weaknesses; they are not distributed."""

import pytest
from harness.need import CLIPS, FOOTAGE
from harness.settings import camera_settings

from embereye.camera.recording import Settings, watch

pytestmark = pytest.mark.needs(FOOTAGE)


def alarms(name):
    return [alarm.time for alarm in watch(str(CLIPS / name), Settings(camera_settings())).alarms]


def test_a_clipped_violet_fire_behind_a_sofa_is_detected():
    assert alarms("video2/batman_room_cam104.mp4")[0] < 10


def test_a_fire_divided_by_a_pillar_is_detected():
    assert alarms("video2/sukhi_workshop_car_lift.mp4")[0] < 3.5 + 15


def test_traffic_at_night_in_infrared_light_raises_no_alarm():
    assert not alarms("video/babu_fence_night_ir.mp4")

"""Recordings that revealed general weaknesses; they are not distributed."""

import pytest
from harness.need import CLIPS, FOOTAGE
from harness.settings import camera_settings

from embereye.camera.recording import Settings, watch
from embereye.levels import Kind

pytestmark = pytest.mark.needs(FOOTAGE)


def alarms(name):
    return [alarm.time for alarm in watch(str(CLIPS / name), Settings(camera_settings())).alarms]


def test_a_clipped_violet_fire_behind_a_sofa_is_detected():
    assert alarms("video2/batman_room_cam104.mp4")[0] < 10


def test_a_fire_divided_by_a_pillar_is_detected():
    assert alarms("video2/sukhi_workshop_car_lift.mp4")[0] < 3.5 + 15


def test_traffic_at_night_in_infrared_light_raises_no_alarm():
    assert not alarms("video/babu_fence_night_ir.mp4")


@pytest.mark.parametrize("name", ["video/wsy_fire_smoke9_smoulder.mp4", "video3/ashot_forest_plume_drone.mp4"])
def test_smoke_that_is_there_from_the_first_picture_is_detected(name):
    alarms = watch(str(CLIPS / name), Settings(camera_settings())).alarms
    assert any(alarm.kind == Kind.SMOKE and alarm.time < 15 for alarm in alarms)


@pytest.mark.parametrize("name", ["video3/hannah_fog_mountain.mp4", "video/carson_mist.mp4", "video3/abhi_sky.mp4"])
def test_fog_mist_and_clouds_raise_no_alarm(name):
    assert not alarms(name)

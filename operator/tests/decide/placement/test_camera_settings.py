import pytest

from embereye.camera.device.setup import Setup
from embereye.detect.vision.thresholds import SmokeScene
from embereye.v1.types_pb2 import Device
from embereye_operator.api.cameras import CameraFleetSpec, Detection, SmokeDetection
from embereye_operator.decide.placement.assignments import build_camera_settings


@pytest.mark.parametrize("scene", ["room", "yard", "landscape"])
def test_the_declared_scene_reaches_a_cameras_detector_of_smoke(scene):
    spec = CameraFleetSpec(detection=Detection(smoke=SmokeDetection(scene=scene)))
    setup = Setup.of(Device(id="c-01"), build_camera_settings(spec))
    assert setup.smoke_scene == SmokeScene(scene)


def test_cameras_watch_rooms_unless_declared_otherwise():
    assert Setup.of(Device(id="c-01"), build_camera_settings(CameraFleetSpec())).smoke_scene == SmokeScene.ROOM

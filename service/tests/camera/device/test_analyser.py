import pytest

from embereye.camera.device.analyser import UNSMOOTHED_AFTER_NS, Analyser
from embereye.camera.device.picture_analyst import AnalysedFrame
from embereye.camera.scheduling.video import PictureGroup
from embereye.camera.scheduling.video_mailbox import VideoFrame
from embereye.detect.vision.networks.appearance import EVERY_NS, Interest
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device, Mask
from embereye.wire.jpeg.header import JpegHeader

from ..conftest import camera_settings

START_NS = 1_000 * SECOND


def frame(width, height, after_ns=0):
    header = JpegHeader(width, height, 3, is_multi_scan=False, complete=True)
    now = START_NS + after_ns
    return VideoFrame(header, now, now, encoding="H264", group=PictureGroup(), until=0)


@pytest.fixture
def analyser():
    configured = Analyser()
    configured.configure(Device(id="hall", source="rtsp://hall/"), camera_settings(), 2 * SECOND)
    return configured


@pytest.mark.parametrize(("size", "smoothed"), [((1920, 1080), False), ((640, 360), False), ((320, 240), True)])
def test_blocks_of_large_videos_are_not_smoothed_without_suspicion(analyser, size, smoothed):
    assert analyser.decode_order(frame(*size)).smoothed is smoothed


def test_blocks_are_smoothed_from_the_first_suspicion_until_some_time_after_the_last(analyser):
    suspected = frame(1920, 1080)
    finding = Finding(Kind.SMOKE, Level.CLEAR, 0.9, lasted_ns=1)
    seen = Observation(time_ns=suspected.time_ns, findings=(finding,), motion=0.0)
    assert seen.suspected
    analyser.conclude(suspected, AnalysedFrame(seen, b"", 0.0))
    assert analyser.decode_order(frame(1920, 1080, UNSMOOTHED_AFTER_NS)).smoothed
    assert not analyser.decode_order(frame(1920, 1080, UNSMOOTHED_AFTER_NS + 1)).smoothed


def test_the_appearance_network_is_told_all_masks_and_only_with_an_inspection():
    mask, private = Mask(x=[0, 0.25, 0.25], y=[0, 0, 0.5]), Mask(x=[1, 0.5, 0.5], y=[1, 1, 0.75])
    device = Device(id="hall", source="rtsp://hall/", masks=[mask], privacy_masks=[private])
    analyser = Analyser()
    analyser.configure(device, camera_settings(), 2 * SECOND)
    orders = [analyser.decode_order(frame(640, 360, after)) for after in range(0, 12 * SECOND, SECOND // 4)]
    inspected = {order.masked for order in orders if order.close_ups is not None}
    assert inspected == {(((0, 0), (0.25, 0), (0.25, 0.5)), ((1, 1), (0.5, 1), (0.5, 0.75)))}
    assert {order.masked for order in orders if order.close_ups is None} == {()}


def test_cameras_that_start_together_are_inspected_one_after_the_other():
    asked = []
    for number in range(20):
        analyser = Analyser()
        analyser.configure(Device(id=f"hall-{number}", source="rtsp://hall/"), camera_settings(), 2 * SECOND)
        times = range(0, EVERY_NS[Interest.STILL], SECOND // 10)
        orders = ((after, analyser.decode_order(frame(640, 360, after))) for after in times)
        asked.append(next(after for after, order in orders if order.close_ups is not None))
    assert len(set(asked)) > 8

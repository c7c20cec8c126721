"""The source of the appearance network's close-ups."""

import cv2
import numpy as np
import pytest
from av.video.frame import VideoFrame

from embereye.camera.decode.image import DecodeOrder, add_logits, decode_frame
from embereye.camera.decode.video import VideoDecoder, bgr
from embereye.detect.vision.networks.appearance import FOR_SMOKE, AppearanceNetwork
from embereye.detect.vision.working import CLOSER_SIDE, cut, working_scale

BOX = (0.4, 0.4, 0.15, 0.15)


class Network(AppearanceNetwork):
    """Records the pictures that it is given."""

    def __init__(self):
        pass

    def logits(self, picture, close_ups, closer=None, masked=()):
        self.shown = picture.shape, None if closer is None else closer.shape
        return (0.0,) * (1 + len(close_ups))


def network_shapes(width, height, close_ups):
    """Return the shapes of the whole picture and of the close-ups' source, as the network gets them."""
    picture = np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8)
    data = cv2.imencode(".jpg", picture)[1].tobytes()
    order, network = DecodeOrder(working_scale(width, height), close_ups=close_ups), Network()
    decoded = add_logits(decode_frame(order, data, width, height), order, network)
    assert decoded.closer is None, "it is not sent to the shard"
    return network.shown


@pytest.mark.parametrize(
    ("size", "side"), [((640, 480), 640), ((1920, 1080), 960), ((1280, 720), 640), ((704, 576), 704)]
)
def test_only_close_ups_are_cut_from_a_picture_with_more_pixels(size, side):
    (_, width, _), closer = network_shapes(size[0], size[1], [BOX])
    assert width <= 200
    assert closer[1] == side


def test_inspecting_only_the_whole_picture_decodes_no_more_pixels():
    assert network_shapes(640, 480, [])[1] is None
    assert network_shapes(640, 480, [FOR_SMOKE])[1] is None, "smoke is judged in the picture as it is"


def test_a_small_picture_has_no_additional_pixels():
    assert network_shapes(160, 120, [BOX])[1] is None


@pytest.mark.parametrize(("size", "side"), [((640, 480), 160), ((1920, 1080), 160), ((320, 240), 80)])
def test_a_detail_is_the_wanted_part_at_the_resolution_of_close_ups(size, side):
    width, height = size
    picture = np.zeros((height, width, 3), np.uint8)
    picture[height // 2 :, width // 2 :] = 200
    order = DecodeOrder(working_scale(width, height), detail=(0.375, 0.375, 0.25, 0.25))
    decoded = decode_frame(order, cv2.imencode(".jpg", picture)[1].tobytes(), width, height)
    assert decoded.detail.shape[1] == side
    rows, columns = decoded.detail.shape[:2]
    assert decoded.detail[rows // 2 + 4 :, columns // 2 + 4 :].min() > 180
    assert decoded.detail[: rows // 2 - 4].max() < 20


@pytest.mark.parametrize(
    ("size", "detailed"), [((1920, 1080), True), ((640, 360), True), ((352, 288), True), ((176, 144), False)]
)
def test_a_videos_detail_equals_a_cut_of_the_whole_picture(size, detailed):
    width, height = size
    room = cv2.GaussianBlur(np.random.default_rng(2).integers(0, 255, (height, width, 3), np.uint8), (0, 0), width / 80)
    frame = VideoFrame.from_ndarray(4 * (room - room.min()), format="bgr24")
    frame, place = frame.reformat(format="yuv420p"), (0.2, 0.5, 0.25, 0.25 * width / height)
    decoded = VideoDecoder("H264")._rendered(DecodeOrder(1, detail=place), frame, 0.0)
    if not detailed:
        assert decoded.detail is None
        return
    assert decoded.detail is not None
    expected = cut(bgr(frame, CLOSER_SIDE), place)
    assert decoded.detail.shape == expected.shape
    assert cv2.absdiff(decoded.detail, expected).mean() < 3


def test_a_small_picture_has_no_detail():
    data = cv2.imencode(".jpg", np.zeros((120, 160, 3), np.uint8))[1].tobytes()
    assert decode_frame(DecodeOrder(1, detail=BOX), data, 160, 120).detail is None

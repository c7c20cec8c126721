import cv2
import numpy as np
import pytest

from embereye.detect.vision.working import WORKING_SIDE, shrunk, to_working_size, working_scale


@pytest.mark.parametrize(
    ("width", "height", "scale", "working"),
    [
        (640, 480, 4, (160, 120)),
        (704, 576, 4, (176, 144)),  # near enough
        (1280, 720, 8, (160, 90)),
        (1920, 1080, 8, (160, 90)),
        (1080, 1920, 8, (90, 160)),
        (3840, 2160, 8, (160, 90)),
        (120, 90, 1, (120, 90)),
    ],
)
def test_pictures_of_any_size_are_reduced_to_about_the_working_size(width, height, scale, working):
    assert working_scale(width, height) == scale
    reduced = np.zeros((-(-height // scale), -(-width // scale), 3), np.uint8)
    assert to_working_size(reduced).shape == (*working[::-1], 3)


@pytest.mark.parametrize("side", [200, 240, 300, 480])
def test_no_pixel_is_left_out_when_a_picture_is_reduced(side):
    for place in range(side):
        line = np.zeros((side, side), np.uint8)
        line[:, place] = 255
        weight = shrunk(line, WORKING_SIDE).sum(dtype=int) / (255 * WORKING_SIDE)
        assert weight == pytest.approx(WORKING_SIDE / side, rel=0.3)


def test_a_smooth_picture_is_the_same_however_it_is_reduced():
    noise = np.random.default_rng(1).normal(128, 60, (135, 240)).clip(0, 255).astype(np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 4).astype(np.uint8)
    area = cv2.resize(smooth, (160, 90), interpolation=cv2.INTER_AREA)
    assert np.abs(shrunk(smooth, 160).astype(int) - area).max() <= 2

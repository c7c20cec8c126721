"""The words that are drawn into an annotated video."""

import cv2
import numpy as np
import pytest

from embereye.camera.annotate import draw, wrap
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

SMOKE = (
    Term(name="smoke.likeness", value=93, threshold=4, unit="%"),
    Term(name="smoke.usual", value=4, unit="%"),
    Term(name="smoke.growing", value=9, unit="s"),
    Term(name="smoke.drift.left", value=3, unit="%/s"),
)


@pytest.mark.parametrize(("width", "height"), [(320, 240), (640, 360), (1920, 1080)])
def test_the_words_of_smoke_end_inside_the_picture(width, height):
    finding = Finding(Kind.SMOKE, Level.ALARM, 0.93, None, SMOKE, 9 * SECOND, 4 * SECOND)
    picture = np.zeros((height, width, 3), np.uint8)
    draw(picture, 12.5, Observation(0, findings=(finding,)))
    assert picture[:, : width // 2].any()
    assert not picture[:, -3:].any()
    assert not picture[-3:].any()


@pytest.mark.parametrize(("width", "height"), [(320, 240), (640, 360), (1920, 1080)])
def test_a_dark_outline_encloses_the_letters_and_nothing_else_is_dark(width, height):
    finding = Finding(Kind.SMOKE, Level.ALARM, 0.93, None, SMOKE, 9 * SECOND, 4 * SECOND)
    blue = np.full((height, width, 3), (255, 0, 0), np.uint8)
    picture = blue.copy()
    draw(picture, 12.5, Observation(0, findings=(finding,)))
    red = picture[:, :, 2]  # of the letters, which are white and red; neither the background nor the outline has any
    drawn = (picture != blue).any(axis=2)
    assert np.count_nonzero(red > 200) > 100
    assert drawn[around(red > 64, 1)].all()
    assert around(red > 0, 2 + max(1, round(height / 600)))[drawn].all()


def around(mask, pixels):
    """The pixels of `mask` and those at most `pixels` away."""
    return cv2.dilate(mask.astype(np.uint8), np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)) > 0


@pytest.mark.parametrize("width", [150, 300, 2000])
def test_wrapped_words_are_complete_and_fit(width):
    words = "smoke 0.93 for 9.0 s, smoke-like 93 % of this place, usually 4 %; growing for 9 s; drifts to the left"
    lines = wrap(words, width, 0.5)
    assert " ".join(lines) == words
    assert all(cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)[0][0] <= width for line in lines)


def test_a_word_wider_than_the_picture_has_a_line_of_its_own():
    assert wrap("a considerable b", 20, 1.0) == ["a", "considerable", "b"]

"""A small distant flame in a video, analysed with all pixels of the video."""

from dataclasses import replace
from fractions import Fraction

import cv2
import numpy as np
import pytest
from av.codec.context import CodecContext
from av.video.frame import VideoFrame

from embereye.camera.decode.image import add_logits
from embereye.detect.vision.networks.appearance import MARKS, AppearanceNetwork
from embereye.levels import Level
from embereye.sim.scenes.lookalikes import ROOM, candle, filmed
from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

from .test_joined_frames import Hall

RATE, SECONDS = 15, 14.0
SMALL = 12  # pixels high: detection has 3 of them
SIZE = 640, 480
MIDDLE = slice(180, 300), slice(240, 400)


class Agrees(AppearanceNetwork):
    """A network that finds every close-up fire-like."""

    def __init__(self):
        pass

    def logits(self, picture, close_ups, closer=None, masked=()):
        return (0.0, *(2.0 for box in close_ups if box not in MARKS))


@pytest.fixture(scope="module")
def film():
    """Return the access units of a camera with a candle in a sixteenth of its picture."""
    context = CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = *SIZE, "yuv420p"
    context.framerate, context.time_base, context.gop_size = Fraction(RATE), Fraction(1, RATE), 2 * RATE
    context.options = {"preset": "veryfast", "tune": "zerolatency", "threads": "1", "crf": "18"}
    units, far = [], cv2.resize(0.6 * ROOM, SIZE).astype(np.uint8)
    for number, (picture, _) in enumerate(filmed(candle(SMALL), RATE, SECONDS)):
        whole = far.copy()
        whole[MIDDLE] = picture
        frame = VideoFrame.from_ndarray(whole, "bgr24")
        frame.pts = number
        units += [
            AccessUnit(bytes(packet), number * 90_000 // RATE, SIZE, key=packet.is_keyframe)
            for packet in context.encode(frame)
        ]
    return units


def watched(film, *, detailed):
    """Return the details' shapes and the highest level of `film`; without more pixels unless `detailed`."""
    shapes = []

    def decode(order, frame):
        decoded = add_logits(hall.decode_video(order, frame), order, Agrees())
        if decoded.detail is not None:
            shapes.append(decoded.detail.shape[:2])
        return decoded if detailed else replace(decoded, detail=None)

    hall = Hall(decode)
    for unit in film:
        hall.show(unit, SECOND // RATE)
    assert hall.ledger.analysed >= len(film) - 2, "none is lost; the last may wait for the next one"
    return shapes, max(seen.level for seen in hall.seen)


def test_a_small_flame_in_a_video_is_analysed_with_more_pixels(film):
    shapes, level = watched(film, detailed=True)
    assert len(shapes) > 5 * RATE
    assert set(shapes) == {(160, 160)}, "a quarter of 640 pixels, none of them reduced"
    assert level == Level.ALARM


def test_without_more_pixels_the_flame_is_too_small_for_an_alarm(film):
    _, level = watched(film, detailed=False)
    assert level < Level.ALARM

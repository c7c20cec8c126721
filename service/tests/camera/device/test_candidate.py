"""A candidate judges the same pictures as the settings in force, and only the right differences are found."""

from fractions import Fraction

import cv2
import numpy as np
import pytest
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from harness.settings import camera_settings

from embereye.camera.candidate import CameraCandidate
from embereye.camera.decode.image import add_logits
from embereye.camera.device.signs import signs_of
from embereye.detect.vision.networks.appearance import MARKS, AppearanceNetwork
from embereye.levels import Kind, Level
from embereye.sim.scenes.lookalikes import ROOM, candle, filmed
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Assignment, Candidate
from embereye.wire.video.access_unit import AccessUnit

from .test_joined_frames import Hall

RATE, SECONDS = 15, 9.0
SIZE = 320, 240


class Agrees(AppearanceNetwork):
    """A network that finds every close-up fire-like."""

    def __init__(self):
        pass

    def logits(self, picture, close_ups, closer=None, masked=()):
        return (0.0, *(2.0 for box in close_ups if box not in MARKS))


@pytest.fixture(scope="module")
def film():
    """Return the access units of a camera with a candle."""
    context = CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = *SIZE, "yuv420p"
    context.framerate, context.time_base, context.gop_size = Fraction(RATE), Fraction(1, RATE), 2 * RATE
    context.options = {"preset": "veryfast", "tune": "zerolatency", "threads": "1", "crf": "18"}
    units, far = [], cv2.resize(0.6 * ROOM, SIZE).astype(np.uint8)
    for number, (picture, _) in enumerate(filmed(candle(24), RATE, SECONDS)):
        whole = far.copy()
        whole[60:180, 80:240] = picture
        frame = VideoFrame.from_ndarray(whole, "bgr24")
        frame.pts = number
        units += [
            AccessUnit(bytes(packet), number * 90_000 // RATE, SIZE, key=packet.is_keyframe)
            for packet in context.encode(frame)
        ]
    return units


def flame(threshold):
    return camera_settings(detection={"detectors": ["flame"], "flame": {"threshold": threshold}})


def compared(film, in_force, candidate, *, busy=False):
    """Return the differences, the candidate's counts and the highest level in force."""

    def analysed(camera, frame, decoded):
        for sign in signs_of(camera, hall.seen[-1]):
            shadow.note_in_force(sign, hall.now, "")
        shadow.judge(camera, frame, decoded, hall.now, None, Assignment())

    hall = Hall(lambda order, frame: add_logits(hall.decode_video(order, frame), order, Agrees()), analysed, in_force)
    shadow = CameraCandidate(Candidate(name="c", id="1", camera=candidate), "default/cameras/f", lambda: busy)
    shadow.watch({"hall": hall.camera}, hall.now - 60 * SECOND)
    for unit in film:
        hall.show(unit, SECOND // RATE)
    differences = shadow.differences(hall.now + 20 * SECOND)
    return (
        [(entry.kind, entry.level, entry.which) for entry in differences],
        shadow.counts,
        max(seen.level for seen in hall.seen),
    )


def test_equal_settings_find_the_same_flame(film):
    differences, counts, level = compared(film, flame(0.5), flame(0.5))
    assert (differences, level, counts.unseen) == ([], Level.ALARM, 0)
    assert counts.seen > len(film) / 3


def test_a_higher_threshold_misses_the_flame_in_force(film):
    assert compared(film, flame(0.5), flame(1.0))[0] == [(Kind.FLAME, Level.ALARM, "inForce")]


def test_a_lower_threshold_finds_a_flame_that_is_not_in_force(film):
    differences, _, level = compared(film, flame(1.0), flame(0.5))
    assert (differences, level) == ([(Kind.FLAME, Level.ALARM, "candidate")], Level.CLEAR)


def test_a_busy_shard_leaves_the_candidate_out(film):
    differences, counts, level = compared(film, flame(0.5), flame(1.0), busy=True)
    assert (differences, level, counts.seen) == ([], Level.ALARM, 0)
    assert counts.unseen > len(film) / 3

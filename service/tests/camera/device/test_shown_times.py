"""Pictures of a video are analysed at rising times, even with bad time stamps."""

import itertools

import cv2
import numpy as np
import pytest

from embereye.camera.decode.image import PictureDelayedError
from embereye.levels import Kind, Level
from embereye.sim.scenes.lookalikes import candle
from embereye.units import SECOND

from ..decode.test_video_pool import access_units
from .test_joined_frames import STEP, Hall

B_FRAMES = "bframes=2:b-adapt=0:b-pyramid=none:scenecut=0"


def burning(number, width, height, _):
    picture = candle(24)(number * STEP / SECOND, np.random.default_rng(number))
    return cv2.resize(np.clip(picture, 0, 255).astype(np.uint8), (width, height))


def burnt(stamp, count=150, **options):
    """Show a flame to a hall; `stamp` maps a picture's numbers in sending and display order to its time stamp."""

    def decode(order, frame):
        try:
            return hall.decode_video(order, frame)
        except PictureDelayedError as error:
            raise PictureDelayedError from error

    hall = Hall(decode)
    for number, unit in enumerate(access_units(count=count, gop=15, draw=burning, **options)):
        hall.now += STEP
        shown = unit.timestamp * 15 // 90_000
        hall.camera.offer_frame(unit, hall.now - SECOND // 3 + stamp(number, shown))
        hall.serve()
    return hall


def alarmed(hall):
    return any(
        finding.kind == Kind.FLAME and finding.level >= Level.ALARM for seen in hall.seen for finding in seen.findings
    )


def has_falling_times(hall):
    times = [seen.time_ns for seen in hall.seen]
    return sum(later < earlier for earlier, later in itertools.pairwise(times))


def test_pictures_stamped_in_display_order_keep_their_times():
    hall = burnt(lambda number, shown: (shown - number) * STEP, x264=B_FRAMES)
    steps = np.diff([seen.time_ns for seen in hall.seen])
    assert set(steps) <= {STEP, 2 * STEP}  # two at a time until it burns
    assert np.count_nonzero(steps == STEP) > 130
    assert alarmed(hall)


def test_pictures_stamped_in_sending_order_are_analysed_in_display_order():
    hall = burnt(lambda number, shown: 0, x264=B_FRAMES)
    assert len(hall.seen) > 140
    assert not has_falling_times(hall)
    assert alarmed(hall)
    assert not hall.camera.reason(hall.now)


@pytest.mark.parametrize("options", [{}, {"x264": B_FRAMES}])
def test_a_clock_that_steps_back_hides_no_flame_and_is_reported(options):
    hall = burnt(lambda number, shown: (shown - number) * STEP - number // 45 * SECOND // 5, **options)
    assert not has_falling_times(hall)
    assert alarmed(hall)
    assert hall.camera.reason(hall.now) == "the sender's clock jumps: 3 times in 10 s, last by -0.1 s"


def test_a_clock_that_is_set_back_once_is_no_fault():
    hall = burnt(lambda number, shown: (shown - number) * STEP - (number > 40) * SECOND // 5)
    assert not has_falling_times(hall)
    assert alarmed(hall)
    assert not hall.camera.reason(hall.now)

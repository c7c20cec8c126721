"""Detection with more pixels of things too small to be measured in the whole picture."""

from itertools import pairwise

import cv2
import numpy as np
import pytest

from embereye.camera.decode.shipped import load_network
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.detail import RESTED_NS, SIDE, WATCHED_NS
from embereye.detect.vision.networks.appearance import MARKS, Inspection
from embereye.detect.vision.working import cut, to_working_size
from embereye.levels import Kind, Level
from embereye.sim.scenes.lookalikes import LOOKALIKES, ROOM, candle, filmed
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask

START = 1_700_000_000 * SECOND
FAR = cv2.resize(0.6 * ROOM, (640, 480)).astype(np.uint8)
SMALL = 14  # pixels high: detection has 3.5 of them
MIDDLE = slice(180, 300), slice(240, 400)


def far_away(draw, rate, seconds):
    """Yield pictures of a 640 x 480 camera with `draw` in a sixteenth of the picture, and their times."""
    for picture, at in filmed(draw, rate, seconds):
        whole = FAR.copy()
        whole[MIDDLE] = picture
        yield whole, START + int(at * SECOND)


class Agrees:
    """A network that finds every close-up fire-like, and sees no smoke."""

    def logits(self, picture, close_ups, closer=None, masked=()):
        return (0.0, *(2.0 for box in close_ups if box not in MARKS))


def watch(draw, rate=15.0, seconds=14.0, detector=None, network=None, *, detailed=True):
    detector, seen = detector or Detector(), []
    for picture, time_ns in far_away(draw, rate, seconds):
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            logits = network.logits(to_working_size(picture), close_ups, picture)
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        place = detector.wanted_detail(time_ns)
        detail = cut(picture, place) if place and detailed else None
        small = cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA)
        seen.append(detector.detect(to_working_size(small), time_ns, detail=detail))
    return seen


@pytest.fixture(scope="module")
def network():
    return load_network()


def highest(seen):
    return max(observation.level for observation in seen)


@pytest.mark.parametrize("rate", [15.0, 8.0])
def test_a_flame_of_a_few_pixels_is_detected_if_the_camera_has_more_pixels(rate):
    seen = watch(candle(SMALL), rate, network=Agrees())
    assert highest(seen) == Level.ALARM
    assert highest(watch(candle(SMALL), rate, network=Agrees(), detailed=False)) < Level.ALARM
    alarming = next(observation for observation in seen if observation.level == Level.ALARM)
    [finding] = [finding for finding in alarming.findings if finding.kind == Kind.FLAME]
    x, y, width, height = finding.box
    assert abs(x + width / 2 - 0.5) < 0.03
    assert abs(y + height / 2 - 0.52) < 0.05
    assert 0.01 < height < 0.08


def test_a_detail_raises_no_alarm_unless_the_network_agrees():
    assert highest(watch(candle(SMALL))) < Level.ALARM


NEAR_ONLY = "headlights in rain"  # from afar they raise an alarm even without a detail, as small flames do


@pytest.mark.parametrize("name", [name for name in LOOKALIKES if name != NEAR_ONLY])
def test_distant_lookalikes_raise_no_alarm(name, network):
    assert highest(watch(LOOKALIKES[name], seconds=20.0, network=network)) < Level.ALARM


def test_no_detail_is_wanted_if_nothing_small_flickers():
    detector = Detector()
    watch(lambda t, random: 0.6 * ROOM, seconds=3.0, detector=detector)
    assert detector.wanted_detail(START + 4 * SECOND) is None


def test_no_detail_is_wanted_if_pictures_are_rare():
    """Few pixels in few pictures look like flames by chance: a lamp in a tunnel did, at 6 frames/s."""
    detector, wanted = Detector(), set()
    for picture, time_ns in far_away(candle(SMALL), 6.0, 8.0):
        wanted.add(detector.wanted_detail(time_ns))
        detector.detect(to_working_size(cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA)), time_ns)
    assert detector.flame.distant, "its flicker is noticed"
    assert wanted == {None}


def test_a_detail_is_a_square_part_of_the_picture_around_the_flicker():
    detector = Detector()
    watch(candle(SMALL), seconds=2.0, detector=detector)
    left, top, width, height = detector.wanted_detail(START + 3 * SECOND)
    assert (width, height) == pytest.approx((SIDE, SIDE * 4 / 3))
    assert left < 0.5 < left + width
    assert top < 0.52 < top + height


def test_a_place_without_a_flame_is_not_watched_again_for_a_while():
    detector, asked = Detector(), []
    for picture, time_ns in far_away(candle(SMALL), 15.0, (RESTED_NS + WATCHED_NS) / SECOND):
        if place := detector.wanted_detail(time_ns):
            asked.append(time_ns)
        small = cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA)
        detector.detect(small, time_ns, detail=cut(picture, place) if place else None)
    rests = [later - earlier for earlier, later in pairwise(asked) if later - earlier > SECOND]
    assert rests == [pytest.approx(RESTED_NS - WATCHED_NS, abs=SECOND)]


def test_a_mask_also_applies_to_a_detail():
    detector = Detector(masks=[Mask(x=[0.45, 0.55, 0.55, 0.45], y=[0.4, 0.4, 0.6, 0.6])])
    seen = watch(candle(SMALL), detector=detector)
    assert highest(seen) == Level.CLEAR


def test_a_camera_without_details_wants_one_of_the_current_flicker():
    detector, wanted = Detector(), []
    for picture, time_ns in far_away(candle(SMALL), 15.0, WATCHED_NS / SECOND + 2):
        wanted.append(detector.wanted_detail(time_ns))
        detector.detect(cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA), time_ns)
    assert any(wanted[-5:])

"""The lamp of a self-test in the pictures of a camera, and fires elsewhere in them."""

import asyncio

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.detect.vision.detector import Detector
from embereye.levels import Level
from embereye.shard.selftests import RunningTest
from embereye.sim.cameras.thermal_camera import HEIGHT, WIDTH, ThermalRoom
from embereye.sim.scenes.fire import Fire
from embereye.sim.scenes.scene import Room
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Region, SelfTest
from embereye.wire.radiometric import wrap

from .conftest import assignment, device
from .test_shard import push

START = 1_700_000_000 * SECOND
UNTIL = 2**62


def self_test(box, unit="%", rise=10.0, until=UNTIL):
    x, y, width, height = box
    region = Region(x=x, y=y, width=width, height=height)
    return RunningTest(SelfTest(id="a", device="c1", region=region, rise=rise, unit=unit), lambda: None, until)


@pytest.fixture(scope="module")
def films():
    """The pictures of a quiet room and of a fire in it, and the box of the fire."""
    room = Room(320, 240, 4)

    def decoded(jpegs):
        return [cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_REDUCED_COLOR_2) for jpeg in jpegs]

    quiet, fire = decoded(room.quiet(30)), decoded(room.fire(0.0, 120, 15.0))
    box = next(finding.box for seen in levels_of(Detector(), quiet + fire) for finding in seen.findings
                 if finding.level == Level.ALARM and finding.box)  # fmt: skip
    return quiet, fire, box


def levels_of(detector, pictures, start=0.0):
    return [detector.detect(picture, START + int((start + n / 15) * SECOND)) for n, picture in enumerate(pictures)]


def highest(seen):
    return max(observation.level for observation in seen)


def around(box, margin):
    x, y, width, height = box
    left, top = max(0.0, x - margin), max(0.0, y - margin)
    return left, top, min(1.0, x + width + margin) - left, min(1.0, y + height + margin) - top


def test_what_flickers_in_the_region_of_a_self_test_is_no_fire_and_is_one_after_it(films):
    quiet, fire, box = films
    detector = Detector()
    levels_of(detector, quiet)
    detector.hide(around(box, 0.2))
    assert highest(levels_of(detector, fire, start=2)) == Level.CLEAR
    detector.hide(None)
    assert highest(levels_of(detector, fire, start=11)) == Level.ALARM


def test_a_fire_beside_the_region_of_a_self_test_is_an_alarm_as_usual(films):
    quiet, fire, box = films
    x = 0.0 if box[0] > 0.5 else 0.85
    detector = Detector()
    levels_of(detector, quiet)
    detector.hide((x, 0.0, 0.15, 0.3))
    bright = [picture.copy() for picture in fire]
    for picture in bright:
        picture[: int(0.3 * picture.shape[0]), int(x * picture.shape[1]) : int((x + 0.15) * picture.shape[1])] = 250
    assert highest(levels_of(detector, bright, start=2)) == Level.ALARM


def lit(level):
    """A picture of grey noise with a lamp."""
    picture = np.clip(np.random.default_rng().normal(90, 4, (240, 320, 3)), 0, 255).astype(np.uint8)
    picture[40:80, 200:240] = level
    return cv2.imencode(".jpg", picture)[1].tobytes()


async def test_a_camera_measures_its_lamp(running):
    shard = running.shard
    shard.apply(assignment(1, device("c1")))
    test = self_test((0.625, 0.16, 0.125, 0.17))
    shard.note_self_tests({"c1": test})
    ledger = shard._cameras["c1"].arrivals.mailbox.ledger

    async def show(level, frames):
        enough = ledger.analysed + frames
        while ledger.analysed < enough:  # a picture that comes too soon after the one before is shed
            push(shard, "c1", lit(level))
            await eventually(lambda: not ledger.waiting)
            await asyncio.sleep(0.02)

    await show(60, 4)
    assert (test.is_ready, test.rise) == (True, pytest.approx(0, abs=2))
    await show(250, 3)
    assert test.rise == pytest.approx(74, abs=8)
    assert shard._cameras["c1"].analyser.pictures.detector.hidden is not None
    shard.apply(assignment(2, device("c1", view="2")))
    assert shard._cameras["c1"].analyser.pictures.detector.hidden is not None, "new detectors know of it"
    shard.note_self_tests({})
    assert shard._cameras["c1"].analyser.pictures.detector.hidden is None
    shard.note_self_tests({"c1": self_test((0, 0, 0.1, 0.1), until=0)})
    await eventually(
        lambda: shard._cameras["c1"].analyser.pictures.detector.hidden is None, goal="its limit has passed"
    )
    assert not running.reports


async def _burn(running, box):
    """Show a radiometric camera a fire while a test of `box` runs; the test, and the highest level."""
    shard = running.shard
    shard.apply(assignment(1, device("hot", detectors=["heat"])))
    room, camera, now = ThermalRoom(3, [Fire(4, 60)]), shard._cameras["hot"], START
    camera._clock = lambda: now
    test = self_test(box, "K", 20)
    camera.analyser.set_self_test(test)
    highest = Level.CLEAR
    for number in range(9 * 15):
        now += SECOND // 9
        assert push(shard, "hot", wrap(WIDTH, HEIGHT, room.frame(number / 9)), now).reason == ""
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
        highest = max(highest, camera.analyser.observation.level)
    return test, highest, (room._place[0] / WIDTH, room._place[1] / HEIGHT)


async def test_heat_in_the_region_of_a_self_test_is_measured_and_is_no_fire(running):
    (column, row), side = ThermalRoom(3, [])._place, 0.5
    x, y = column / WIDTH, row / HEIGHT
    box = (min(max(x - side / 2, 0), 1 - side), min(max(y - side / 2, 0), 1 - side), side, side)
    test, level, _ = await _burn(running, box)
    assert (level, test.rise > 20) == (Level.CLEAR, True)


async def test_heat_beside_the_region_of_a_self_test_is_an_alarm(running):
    column = ThermalRoom(3, [])._place[0] / WIDTH
    test, level, _ = await _burn(running, (0.0 if column > 0.5 else 0.8, 0.0, 0.2, 0.2))
    assert (level, test.rise < 20) == (Level.CRITICAL, True)

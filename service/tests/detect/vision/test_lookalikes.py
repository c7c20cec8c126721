"""Lookalikes of fire, drawn with their physics, at the frame rates of cameras."""

import numpy as np
import pytest

from embereye.camera.decode.shipped import load_network
from embereye.detect.vision.detector import FLAME, Detector
from embereye.detect.vision.networks.appearance import Inspection
from embereye.levels import Level
from embereye.sim.scenes.lookalikes import COLUMNS, FINE, LOOKALIKES, ROWS, candle, filmed

START = 1_700_000_000 * 1_000_000_000
SECONDS = 20


@pytest.fixture(scope="module")
def network():
    return load_network()


def watch(draw, rate, seconds=SECONDS, quality=80, network=None, *, pauses=False):
    """Return the highest level at a camera whose pictures show `draw`; without a `network` if None.

    If it `pauses`, it sends nothing for three quarters of a second, every three seconds.
    """
    detector, highest = Detector(), Level.CLEAR
    for picture, at in filmed(draw, rate, seconds, quality):
        if pauses and at % 3 >= 2.25:
            continue
        time_ns = START + int(at * 1e9)
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            logits = network.logits(picture, close_ups)
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        highest = max(highest, detector.detect(picture, time_ns).level)
    return highest


@pytest.mark.parametrize("rate", [15.0, pytest.param(6.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_lookalike_raises_no_alarm(name, rate):
    assert watch(LOOKALIKES[name], rate) < Level.ALARM


@pytest.mark.parametrize("rate", [pytest.param(15.0, marks=pytest.mark.slow), 6.0])
@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_lookalike_raises_no_alarm_even_if_the_network_sees_fire(name, rate, network):
    assert watch(LOOKALIKES[name], rate, network=network) < Level.ALARM


@pytest.mark.parametrize("rate", [30.0, 15.0, 8.0, 5.0])
def test_a_flame_is_detected_at_any_usual_frame_rate(rate):
    assert watch(candle(24), rate, seconds=8) == Level.ALARM


@pytest.mark.parametrize("rate", [15.0, 6.0])
def test_a_flame_is_also_detected_with_the_network(rate, network):
    assert watch(candle(24), rate, seconds=8, network=network) == Level.ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_lookalike_raises_no_alarm_at_a_pausing_camera(name):
    assert watch(LOOKALIKES[name], 15.0, pauses=True) < Level.ALARM


@pytest.mark.parametrize("size", [12, 24])
@pytest.mark.parametrize("rate", [25.0, 15.0, 8.0])
def test_a_flame_is_detected_by_a_camera_that_pauses_repeatedly(rate, size):
    assert watch(candle(size), rate, seconds=10, pauses=True) == Level.ALARM


@pytest.mark.parametrize(("rate", "soonest"), [(15.0, 2.0), (6.0, 2.7)])
def test_two_seconds_suffice_for_a_clear_flame_only_in_frequent_pictures(rate, soonest):
    detector, needed = Detector(), set()
    for picture, at in filmed(candle(24), rate, 8):
        time_ns = START + int(at * 1e9)
        if (close_ups := detector.due_inspection(time_ns)) is not None:
            detector.add_inspection(Inspection(time_ns, 4.0, tuple((box, 4.0) for box in close_ups)))
        for finding in detector.detect(picture, time_ns).findings:
            needed |= {term.threshold for term in finding.terms if term.name == "flame.lasted"}
    assert min(needed) == pytest.approx(soonest)


def test_the_picture_rate_right_after_a_pause_is_that_before_it():
    detector, needed = Detector(), set()
    for picture, at in filmed(candle(24), 8.0, 20):
        if at % 3 >= 2.25:
            continue
        time_ns = START + int(at * 1e9)
        if (close_ups := detector.due_inspection(time_ns)) is not None:
            detector.add_inspection(Inspection(time_ns, 4.0, tuple((box, 4.0) for box in close_ups)))
        for finding in detector.detect(picture, time_ns).findings:
            needed |= {term.threshold for term in finding.terms if term.name == "flame.lasted"}
    assert min(needed) == pytest.approx(2.7)


def test_a_thing_that_moves_for_minutes_and_leaves_causes_no_smoke():
    film = list(filmed(LOOKALIKES["a yellow jacket"], 6.0, 20))
    detector = Detector()
    for number in range(6 * 200):
        seen = detector.detect(film[number % len(film)][0], START + int(number / 6.0 * 1e9))
        assert seen.level < Level.ALARM


@pytest.mark.parametrize("quality", [30, 60, 90])
def test_a_flame_is_detected_in_pictures_of_any_usual_quality(quality):
    assert watch(candle(24), 15.0, seconds=8, quality=quality) == Level.ALARM


def test_a_lasting_flame_keeps_its_level():
    detector = Detector()
    levels = [detector.detect(picture, START + int(at * 1e9)).level for picture, at in filmed(candle(24), 6.0, 100)]
    assert min(levels[60:]) >= Level.PRE_ALARM  # the evidence keeps the level it once had
    assert levels[-60:].count(Level.ALARM) > 30


@pytest.mark.parametrize(("draw", "wanted"), [(LOOKALIKES["brake lights"], False), (candle(24), True)])
def test_a_close_up_is_wanted_only_if_it_could_decide(draw, wanted):
    detector, seen = Detector(), []
    for picture, at in filmed(draw, 15.0, 6):
        detector.detect(picture, START + int(at * 1e9))
        if detector.flame.sites:
            seen.append(bool(detector.flame.close_ups()))
    assert len(seen) > 10
    assert all(seen) == any(seen) == wanted


def infrared(draw):
    """Return `draw` at night: without colour, in front of a dark room, with clipped highlights."""

    def grey(t, random):
        picture = draw(t, random)
        return np.repeat(np.clip(1.6 * picture[..., 2:] - 60, 0, 300), 3, axis=2)

    return grey


@pytest.mark.parametrize("logit", [0.0, 4.0])
def test_a_flame_without_colour_is_a_pre_alarm_at_most_with_a_reason(logit):
    """At night, in infrared light, a picture lacks the colour that distinguishes flames from lamps."""
    assert watch_with(logit, infrared(tongues(30)), 15.0) == Level.PRE_ALARM
    detector, names = Detector(), set()
    for picture, at in filmed(infrared(tongues(30)), 15.0, 8):
        seen = detector.detect(picture, START + int(at * 1e9))
        names |= {term.name for finding in seen.findings for term in finding.terms if finding.level > Level.CLEAR}
    assert "flame.colourless.below" in names


@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_lookalike_without_colour_raises_no_alarm(name):
    assert watch(infrared(LOOKALIKES[name]), 15.0, seconds=8) < Level.ALARM


def watch_with(logit, draw, rate):
    """Return the highest level of `draw` with the network's `logit`, limited so that it raises no alarm alone."""
    whole = min(logit, FLAME.likeness_min - 0.1)
    detector, highest = Detector(), Level.CLEAR
    for picture, at in filmed(draw, rate, 8):
        time_ns = START + int(at * 1e9)
        if (close_ups := detector.due_inspection(time_ns)) is not None:
            detector.add_inspection(Inspection(time_ns, whole, tuple((box, logit) for box in close_ups)))
        highest = max(highest, detector.detect(picture, time_ns).level)
    return highest


def overexposed(draw):
    """Show `draw` through a camera exposed for a dark room: glowing things are white, everything else is darker."""

    def exposed(t, random):
        picture = np.clip(draw(t, random), 0, 255)
        hot = np.clip((picture[..., 2:] - picture[..., :1] - 50) / 60, 0, 1)
        return 0.7 * picture * (1 - hot) + np.array((235, 245, 255)) * hot

    return exposed


def tongues(size):
    """Draw three flames side by side, each with a separate rhythm."""

    def draw(t, random):
        flames = (np.roll(candle(size)((1 + 0.13 * n) * t + n, random), 15 * n - 15, axis=1) for n in range(3))
        return np.maximum.reduce(list(flames))

    return draw


@pytest.mark.parametrize("rate", [25.0, 15.0])
def test_white_flames_that_move_as_such_are_detected_if_the_network_agrees(rate):
    assert watch_with(4.0, overexposed(tongues(30)), rate) == Level.ALARM
    assert watch_with(-3.0, overexposed(tongues(30)), rate) <= Level.PRE_ALARM, "lit fountains rise like flames"


@pytest.mark.parametrize("rate", [25.0, 15.0])
def test_a_single_white_flicker_is_detected_if_the_network_agrees(rate):
    assert watch_with(4.0, overexposed(candle(40)), rate) == Level.ALARM


def test_a_failing_white_lamp_raises_no_alarm_even_if_the_network_agrees():
    assert watch_with(4.0, overexposed(LOOKALIKES["a tube that fails"]), 15.0) < Level.ALARM


@pytest.mark.parametrize("rate", [25.0, 15.0])
def test_a_single_white_flicker_is_no_flame_if_the_network_disagrees(rate):
    assert watch_with(-3.0, overexposed(candle(40)), rate) == Level.CLEAR


def sun_on_water(t, random):
    """Sunlight on waves: glints that appear and vanish independently."""
    picture = np.dstack([50 + 0 * ROWS, 80 + 0 * ROWS, 120 + 0 * ROWS])
    first_wave = FINE[(ROWS + 5 * np.sin(1.7 * t)).astype(int) % 240, (COLUMNS + int(11 * t)).astype(int) % 320]
    second_wave = FINE[(ROWS * 1.7 + 13 * t).astype(int) % 240, (COLUMNS + 160 - int(7 * t)).astype(int) % 320]
    glints = np.clip((first_wave + second_wave - 1.05) * 6, 0, 1) * (np.abs(COLUMNS - 80) < 18) * (ROWS > 50)
    return picture + glints[..., None] * (90, 160, 230)


@pytest.mark.xfail(reason="each glint flickers like a flame; a mask helps")
def test_glints_of_the_sun_on_waves_are_no_fire():
    assert watch(sun_on_water, 10.0) < Level.ALARM

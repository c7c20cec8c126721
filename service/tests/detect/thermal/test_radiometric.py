import numpy as np
import pytest
from harness.settings import HEAT

from embereye.detect.thermal.radiometric import CENTIKELVIN, RadiometricWatch, is_swapped, to_celsius
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Radiometry

RNG = np.random.default_rng(8)
SHAPE = (120, 160)


def centikelvin(celsius, noise=0.05):
    return np.round((celsius + RNG.normal(0, noise, celsius.shape) + 273.15) * 100).astype(np.uint16)


def room(shape=SHAPE, hottest=None, at=(30, 40), size=6):
    celsius = np.full(shape, 21.0) + np.linspace(0, 3, shape[1])
    if hottest is not None:
        celsius[at[0] : at[0] + size, at[1] : at[1] + size] = hottest
    return celsius


def run(watch, pictures, start=0.0, rate=9):
    """Let `watch` observe `pictures`, one every 1/rate s, and return its results."""
    return [watch.observe(words, int((1000 + start + n / rate) * SECOND)) for n, words in enumerate(pictures)]


@pytest.mark.parametrize("shape", [(120, 160), (512, 640), (24, 32)])
def test_a_hot_spot_raises_an_alarm_with_its_place_at_any_resolution(shape):
    watch = RadiometricWatch(HEAT)
    run(watch, [centikelvin(room(shape)) for _ in range(5)])
    heats = run(watch, [centikelvin(room(shape, 80.0, (8, 20), 5)) for _ in range(6)], start=1)[-1]
    assert heats.assessment.level == Level.ALARM
    terms = {name: value for name, value, _, _ in heats.assessment.measured}
    assert terms["temperature.max"] == pytest.approx(80, abs=0.5)
    assert (terms["spot.row"], terms["spot.column"], terms["spot.pixels"]) == (10, 22, 25)
    assert heats.box == (20 / shape[1], 8 / shape[0], 5 / shape[1], 5 / shape[0])
    assert heats.fault == ""


def test_only_the_fire_in_a_cold_corner_of_a_hot_hall_is_marked():
    watch = RadiometricWatch(HEAT)
    for second in range(300):
        celsius = np.full(SHAPE, 45.0)
        celsius[:50, :50], celsius[10:14, 20:24] = 20.0, 20 + min(max(second - 100, 0) / 2, 20)
        heats = watch.observe(centikelvin(celsius), (1000 + second) * SECOND)
    assert heats.assessment.level == Level.PRE_ALARM
    x, y, width, height = heats.box
    assert 20 <= round(x * 160) < round((x + width) * 160) <= 24
    assert 10 <= round(y * 120) < round((y + height) * 120) <= 14


def test_a_quiet_room_is_clear_and_without_a_fault():
    heats = run(RadiometricWatch(HEAT), [centikelvin(room()) for _ in range(90)])
    assert {heat.assessment.level for heat in heats} == {Level.CLEAR}
    assert not any(heat.fault for heat in heats)


@pytest.mark.parametrize("hottest", [None, 21.5, 300.0])
def test_words_with_swapped_bytes_are_a_fault(hottest):
    pictures = [centikelvin(room(hottest=hottest)) for _ in range(30)]
    heats = run(RadiometricWatch(HEAT), [words.byteswap() for words in pictures])
    assert all("bytes of its 16-bit words are swapped" in heat.fault for heat in heats)
    assert max(heat.assessment.level for heat in heats) <= Level.CLEAR
    heats = run(RadiometricWatch(HEAT), pictures)
    assert not any(heat.fault for heat in heats)


@pytest.mark.parametrize("words", [
    np.full(SHAPE, 0x7500, np.uint16), np.full((120, 1), 0x1234, np.uint16), np.zeros(SHAPE, np.uint16),
    (RNG.integers(100, 120, SHAPE) * 256).astype(np.uint16),
    RNG.integers(0, 65_536, SHAPE).astype(np.uint16),
])  # fmt: skip
def test_byte_order_is_not_judged_if_both_orders_look_alike(words):
    assert not is_swapped(words)


def test_the_cameras_scale_is_used():
    watch = RadiometricWatch(HEAT, Radiometry(scale=0.04, offset=-100))
    words = np.round((room(hottest=95.0) + 100) / 0.04).astype(np.uint16)
    assert watch.observe(words, SECOND).assessment.level == Level.CRITICAL


def test_a_lone_hot_pixel_is_a_defect_and_an_unmeasured_one_is_unknown():
    words = centikelvin(room())
    words[50, 60] = 60_000
    words[10, 10], words[11, 11] = 0, 65_535
    celsius = to_celsius(words, Radiometry(scale=0.01, offset=-273.15))
    assert celsius[50, 60] < 25
    assert np.isnan(celsius[10, 10])
    assert np.isnan(celsius[11, 11])
    assert np.isnan(celsius).sum() == 2
    words[50, 61] = 60_000
    assert to_celsius(words, Radiometry(scale=0.01, offset=-273.15))[50, 60] > 300


@pytest.mark.parametrize("place", [(0, 0), (1, 1)])
def test_a_pixel_without_measured_neighbours_keeps_its_temperature(place):
    words = centikelvin(room())
    words[:3, :3], words[place] = 0, 29_415
    assert to_celsius(words, CENTIKELVIN)[place] == pytest.approx(21, abs=0.1)
    heats = run(RadiometricWatch(HEAT), [words + np.uint16(n % 2) * (words > 0) for n in range(90)])
    assert not any(heat.fault for heat in heats)


def test_a_frame_repeated_by_a_shutter_is_no_fault_and_confirms_nothing():
    watch = RadiometricWatch(HEAT)
    run(watch, [centikelvin(room()) for _ in range(9)])
    spike = centikelvin(room(hottest=70.0))
    heats = run(watch, [spike] * 8, start=1)
    assert not any(heat.fault for heat in heats)
    assert max(heat.assessment.level for heat in heats) < Level.ALARM
    assert run(watch, [centikelvin(room())], start=2)[0].assessment.level == Level.CLEAR


def test_a_picture_that_stays_the_same_is_frozen_until_it_changes():
    watch = RadiometricWatch(HEAT)
    same = centikelvin(room())
    heats = run(watch, [same] * 60)
    assert heats[40].fault == ""
    assert heats[-1].fault == "picture frozen: exactly the same for 7 s"
    assert run(watch, [centikelvin(room())], start=7)[0].fault == ""


def test_a_lens_cap_is_a_fault_and_a_closed_shutter_is_none():
    watch = RadiometricWatch(HEAT)
    flat = np.full(SHAPE, 22.0)
    run(watch, [centikelvin(room()) for _ in range(9)])
    assert not any(heat.fault for heat in run(watch, [centikelvin(flat, 0.01) for _ in range(9)], start=1))
    heats = run(watch, [centikelvin(flat, 0.01) for _ in range(60)], start=2)
    assert heats[-1].fault == "lens covered: every pixel has the same temperature"


def test_a_shutter_that_is_closed_when_a_camera_returns_is_no_fault():
    watch = RadiometricWatch(HEAT)
    flat = np.full(SHAPE, 22.0)
    run(watch, [centikelvin(room()) for _ in range(9)])
    assert not any(heat.fault for heat in run(watch, [centikelvin(flat, 0.01) for _ in range(9)], start=60))


def test_a_frame_without_a_measured_pixel_is_unknown():
    heats = RadiometricWatch(HEAT).observe(np.zeros(SHAPE, np.uint16), SECOND)
    assert heats.assessment.level == Level.UNSPECIFIED
    assert heats.fault == "only 0 of 19200 pixels are measured"

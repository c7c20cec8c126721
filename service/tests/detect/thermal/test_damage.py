"""Damaged words in thermal frames raise no alarm; what optics can show alarms within one frame more."""

import numpy as np
import pytest
from harness.settings import HEAT
from numpy.typing import NDArray

from embereye.detect.thermal.damage import JUMP_K, AuxiliaryFilter, PixelFilter
from embereye.detect.thermal.heat import extremes
from embereye.detect.thermal.mlx90640 import COLUMNS, FRAME_WORDS, PIXELS, PTAT, ROWS, Calibration
from embereye.levels import Level
from embereye.sensor.device.frames import FrameAnalysis
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.units import SECOND

FRAME_NS = SECOND // 4
SPOT = (11, 17)


def room(dice: np.random.Generator) -> NDArray[np.float64]:
    return 22 + np.linspace(-1, 1, ROWS)[:, None] + dice.normal(0, 0.1, (ROWS, COLUMNS))


class Device:
    """A sensor of a shard, with one of three EEPROMs, that is shown frames four times a second."""

    def __init__(self, seed: int = 3) -> None:
        self.dice = np.random.default_rng(seed)
        self.eeprom = invent_eeprom(seed)
        self.calibration = Calibration.from_eeprom(self.eeprom)
        self.analysis = FrameAnalysis("s-1", HEAT)
        self.analysis.calibrate(self.eeprom.astype(">u2").tobytes())
        self.now_ns = SECOND

    def measure(self, scene: NDArray[np.float64], **state: float) -> NDArray[np.uint16]:
        return measure(self.calibration, scene, **state)  # type: ignore[arg-type]

    def show(self, frame: NDArray[np.uint16]) -> Level:
        """Analyse a frame as a shard does; return the level."""
        self.now_ns += FRAME_NS
        celsius = self.calibration.temperatures(frame[None])
        words = frame.astype(">u2").tobytes()
        return self.analysis.analyse(words, celsius[0], extremes(celsius)[0], self.now_ns).level

    def show_room(self, frames: int = 4) -> None:
        for _ in range(frames):
            assert self.show(self.measure(room(self.dice))) == Level.CLEAR


def blurred(peak: float, dice: np.random.Generator, spread: float = 0.5) -> NDArray[np.float64]:
    """A hot spot that optics blur over about one pixel, in a room."""
    rows, columns = np.indices((ROWS, COLUMNS))
    distance = (rows - SPOT[0]) ** 2 + (columns - SPOT[1]) ** 2
    radiation = (room(dice) + 273.15) ** 4
    radiation += ((peak + 273.15) ** 4 - (22 + 273.15) ** 4) * np.exp(-distance / (2 * spread**2))
    return radiation**0.25 - 273.15


def test_one_damaged_pixel_in_one_frame_is_no_alarm_and_is_counted() -> None:
    device = Device()
    device.show_room()
    frame = device.measure(room(device.dice))
    frame[400] = 0x0A00
    assert device.calibration.temperatures(frame[None]).max() > HEAT.critical_c
    assert device.show(frame) == Level.CLEAR
    assert device.analysis.damaged == 1
    assert device.analysis.picture is not None
    assert np.nanmax(device.analysis.picture.pixels) < 30, "people see its neighbours' value"
    device.show_room()
    assert device.analysis.damaged == 1


def test_a_damaged_first_frame_is_no_alarm() -> None:
    device = Device()
    frame = device.measure(room(device.dice))
    frame[400] = 0x0A00
    assert device.show(frame) == Level.CLEAR


@pytest.mark.parametrize("word", [PTAT, 768, 776, 778, 808, 810, 832])
@pytest.mark.parametrize("first", [True, False])
def test_no_damage_to_an_auxiliary_word_is_an_alarm(word: int, first: bool) -> None:
    for bits in (0x0100, 0x1000, 0x4000, 0x8000, 0xFF00, 0x00FF):
        device = Device()
        if not first:
            device.show_room(2)
        frame = device.measure(room(device.dice))
        frame[word] ^= bits
        assert device.show(frame) <= Level.CLEAR
        device.show_room(3)


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_no_single_damaged_byte_or_word_is_an_alarm(seed: int) -> None:
    device = Device(seed)
    device.show_room()
    damages = 0
    for attempt in range(600):
        frame = device.measure(room(device.dice))
        place = int(device.dice.integers(FRAME_WORDS - 1))
        match attempt % 3:
            case 0:
                frame[place] = (int(frame[place]) & 0xFF) << 8 | int(frame[place]) >> 8  # bytes exchanged
            case 1:
                frame[place] = int(frame[place]) & 0xFF00 | int(device.dice.integers(256))
            case _:
                frame[place] = int(frame[place]) & 0x00FF | int(device.dice.integers(256)) << 8
        damages += int(device.calibration.temperatures(frame[None]).max() > HEAT.pre_alarm_c)
        assert device.show(frame) <= Level.CLEAR, (seed, attempt, place)
        assert device.show(device.measure(room(device.dice))) <= Level.CLEAR
    assert damages > 50, "the damage would have raised alarms"
    assert device.analysis.damaged >= damages


def test_a_small_hot_spot_of_one_pixels_blur_alarms_in_one_frame_more() -> None:
    device = Device()
    device.show_room()
    hot = [device.measure(blurred(300, device.dice)) for _ in range(2)]
    # In chess pattern a frame renews half of the pixels: the neighbours beside and above are still of the frame before.
    rows, columns = np.indices((ROWS, COLUMNS))
    stale = ((rows + columns) % 2 != sum(SPOT) % 2).ravel()
    hot[0][:PIXELS][stale] = device.measure(room(device.dice))[:PIXELS][stale]
    levels = [device.show(frame) for frame in hot]
    assert levels[1] == Level.CRITICAL
    assert device.analysis.damaged <= 1


def test_what_optics_can_show_alarms_in_its_first_frame() -> None:
    device = Device()
    device.show_room()
    assert device.show(device.measure(blurred(300, device.dice, spread=1.0))) == Level.CRITICAL
    assert device.analysis.damaged == 0


def test_a_lone_hot_pixel_that_stays_is_believed_and_a_repeated_frame_is_not() -> None:
    device = Device()
    device.show_room()
    frame = device.measure(room(device.dice))
    frame[400] = 0x0A00
    assert [device.show(frame) for _ in range(3)] == [Level.CLEAR] * 3, "the same words again confirm nothing"
    again = device.measure(room(device.dice))
    again[400] = 0x0A10
    assert device.show(again) == Level.CRITICAL


def test_a_chip_that_heats_up_quickly_for_good_is_watched_after_one_frame() -> None:
    device = Device()
    device.show_room()
    assert device.show(device.measure(blurred(300, device.dice, spread=1.0), ambient=45.0)) == Level.CLEAR
    assert device.show(device.measure(blurred(300, device.dice, spread=1.0), ambient=45.5)) == Level.CRITICAL


def test_a_sensor_whose_own_values_are_always_noisy_is_never_ignored_for_long() -> None:
    device = Device()
    calibration = device.calibration
    watch = AuxiliaryFilter()
    answers = []
    for number in range(30):
        frame = device.measure(room(device.dice), vdd=3.3 + 0.15 * (number % 3 - 1))
        answers.append(watch.is_damaged(frame.astype(">u2").tobytes(), calibration))
    assert not any(all(answers[start : start + 3]) for start in range(28))


def test_an_uncalibrated_device_ignores_a_lone_jump_of_counts_as_well() -> None:
    analysis, dice = FrameAnalysis("s-1", HEAT), np.random.default_rng(1)

    def show(spoil: int = 0, around: int = 0) -> Level:
        counts = np.round(-60 + dice.normal(0, 1.4, PIXELS)).astype(np.int16)
        counts[400 - COLUMNS : 400 + COLUMNS + 1 : COLUMNS] += around
        counts[400] += spoil
        return analysis.analyse(counts.view(np.uint16).astype(">u2").tobytes(), None, None, SECOND).level

    for _ in range(3):
        assert show() == Level.CLEAR
    assert show(4000) == Level.CLEAR
    assert show() == Level.CLEAR
    assert show(4000, around=1000) == Level.PRE_ALARM


def test_pixels_without_a_measurement_are_neither_damaged_nor_neighbours() -> None:
    watch, values = PixelFilter(JUMP_K, kelvin=True), np.full(PIXELS, 22, np.float32)
    values[:COLUMNS] = np.nan
    assert watch.damaged(values) == []
    hot = values.copy()
    hot[COLUMNS] = 300
    assert watch.damaged(hot) == [COLUMNS]
    assert watch.damaged(hot) == []

"""Faulty supplies, chips and pixels."""

from typing import Any

import numpy as np
import pytest
from harness.settings import HEAT
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from embereye.detect.thermal.health import FRAMES_LOST_NS, LIMIT, WINDOW_CHECKS, FrameRhythm, PixelWatch, doubt
from embereye.detect.thermal.heat import HeatWatch
from embereye.detect.thermal.mlx90640 import GAIN, PIXELS, Calibration, words_of
from embereye.levels import Level
from embereye.sim import sensors
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.units import DAY, SECOND

STUCK_CHECKS = 60  # of this device, whose pixels change in 70 % of the checks
CALIBRATION = Calibration.from_eeprom(invent_eeprom(3))
ROOM = np.full((24, 32), 22.0)


class Chip:
    """Raw words of a still room with a real device's noise of 1 to 2 counts; `spoil` changes each picture."""

    def __init__(self, seed: int = 7) -> None:
        self.dice = np.random.default_rng(seed)
        self.pattern = self.dice.normal(-60, 12, (24, 32))  # offsets differ from pixel to pixel
        self.watch = PixelWatch()

    def show(self, checks: int, spoil: object = None, *, quiet: bool = True) -> frozenset[int]:
        for check in range(checks):
            picture = self.pattern + self.dice.normal(0, 1.4, (24, 32))
            if callable(spoil):
                spoil(picture, check, self.dice)
            self.watch.inspect_pixels(np.round(picture).astype(np.int16).view(np.uint16).ravel(), quiet=quiet)
        return self.watch.deviating


def stuck(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
    picture[5, 6] = -77


def noisy(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
    picture[20, 3] += dice.choice([-60, 60])


def flame(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
    """A distant flame in one pixel and weakly in its neighbours, of changing strength."""
    strength = dice.choice([0, 0, 80, 160])
    picture[11:14, 14:17] += 0.1 * strength
    picture[12, 15] += 0.9 * strength


def test_no_pixel_of_a_working_device_is_replaced() -> None:
    assert Chip().show(3 * WINDOW_CHECKS) == frozenset()


def test_a_pixel_that_never_changes_is_stuck_until_it_changes_again() -> None:
    chip = Chip()
    assert chip.show(STUCK_CHECKS - 10, stuck) == frozenset()
    assert chip.show(20, stuck) == {5 * 32 + 6}
    assert chip.show(1) == frozenset()


def test_no_pixel_is_stuck_in_a_picture_that_does_not_change_at_all() -> None:
    def frozen(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
        picture[:] = -60

    assert Chip().show(3 * STUCK_CHECKS, frozen) == frozenset()


@given(
    rate=st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
    period=st.sampled_from([1.0, 5.0, 7.3]),
    late=st.floats(0, 0.5),
    seed=st.integers(0, 9),
)
@settings(max_examples=12)
def test_no_pixel_of_a_simulated_chip_is_stuck_at_any_rate_phase_or_jitter(
    rate: float, period: float, late: float, seed: int
) -> None:
    chip, watch, dice = sensors.Chip(seed), PixelWatch(), np.random.default_rng(seed)
    for check in range(4 * STUCK_CHECKS):
        number = int((check * period + 0.01) * rate) + int(dice.random() < late)
        watch.inspect_pixels(words_of(chip.frame(0.0, number))[:PIXELS], quiet=True)
        assert len(watch.deviating) < LIMIT / 10


@given(
    reads=st.sampled_from([1, 2, 4, 8]),
    step=st.sampled_from([1, 2, 3, 4, 5, 20]),
    spread=st.sampled_from([0.35, 0.7, 1.4, 2.8]),
    late=st.floats(0, 0.5),
    seed=st.integers(0, 99),
)
@settings(max_examples=15)
def test_no_pixel_is_stuck_in_a_chip_that_is_read_more_often_than_it_refreshes(
    reads: int, step: int, spread: float, late: float, seed: int
) -> None:
    """The chip measures one subpage per refresh, with noise of 16 to 19 bits; it is read `reads` times in between."""
    dice, watch = np.random.default_rng(seed), PixelWatch()
    rows, columns = np.indices((24, 32))
    subpage = (rows + columns) % 2
    pattern = dice.normal(-60, 12, (24, 32))
    ram, refreshed = np.round(pattern + dice.normal(0, spread, (24, 32))), 0
    for check in range(4 * STUCK_CHECKS):
        refresh = (check * step + int(dice.random() < late)) // reads
        for number in range(max(refreshed, refresh - 2), refresh):  # older subpages are overwritten
            fresh = np.round(pattern + dice.normal(0, spread, (24, 32)))
            ram[subpage == number % 2] = fresh[subpage == number % 2]
        refreshed = max(refreshed, refresh)
        watch.inspect_pixels(ram.astype(np.int16).view(np.uint16).ravel(), quiet=True)
        assert len(watch.deviating) < LIMIT / 10


def test_a_pixel_is_stuck_in_a_chip_whose_frames_repeat_now_and_then() -> None:
    chip, picture = Chip(), np.zeros((24, 32))
    for check in range(3 * STUCK_CHECKS):
        if check % 2 == 0:
            picture = chip.pattern + chip.dice.normal(0, 1.4, (24, 32))
        stuck(picture, check, chip.dice)
        chip.watch.inspect_pixels(np.round(picture).astype(np.int16).view(np.uint16).ravel(), quiet=True)
    assert chip.watch.deviating == {5 * 32 + 6}


def test_a_pixel_is_noisy_while_it_deviates_in_both_directions() -> None:
    chip = Chip()
    chip.show(10)
    assert chip.show(WINDOW_CHECKS, noisy) == {20 * 32 + 3}
    assert chip.show(WINDOW_CHECKS) == frozenset()


def test_a_flame_in_one_pixel_is_not_noise() -> None:
    chip = Chip()
    chip.show(20)
    assert chip.show(3 * WINDOW_CHECKS, flame) == frozenset()


def test_noise_is_not_judged_while_something_is_hot() -> None:
    assert Chip().show(2 * WINDOW_CHECKS, noisy, quiet=False) == frozenset()


def test_a_saturated_pixel_is_not_stuck_if_its_neighbours_are_warm() -> None:
    def blaze(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
        picture[8:11, 8:11] += 0.1 * 32000
        picture[9, 9] = 32767

    def broken(picture: NDArray[np.float64], check: int, dice: np.random.Generator) -> None:
        picture[9, 9] = 32767

    assert Chip().show(2 * STUCK_CHECKS, blaze, quiet=False) == frozenset()
    assert Chip().show(2 * STUCK_CHECKS, broken, quiet=False) == {9 * 32 + 9}


def test_a_deviating_pixel_is_replaced_by_its_neighbours() -> None:
    frame = measure(CALIBRATION, ROOM)
    frame[9 * 32 + 9] = 0x7000
    assert CALIBRATION.temperatures(frame[None])[0, 9, 9] > 100
    mended = CALIBRATION.replacing({9 * 32 + 9})
    assert mended.temperatures(frame[None])[0, 9, 9] == pytest.approx(22, abs=0.3)
    assert mended.replacing(()).temperatures(frame[None])[0, 9, 9] > 100


def test_without_a_calibration_a_deviating_pixel_is_ignored() -> None:
    watch, broken = HeatWatch(HEAT), 9 * 32 + 9
    pixels = np.full(768, 1000, np.uint16)
    watch.observe_words(pixels, 1)
    pixels[broken] += 1000
    assert watch.observe_words(pixels, 2, {broken}).level == Level.CLEAR
    assert watch.observe_words(pixels, 3).level == Level.PRE_ALARM


@pytest.mark.parametrize(
    ("state", "sentence"),
    [({"vdd": 2.8}, "supply reads 2.80 V"), ({"vdd": 3.9}, "supply reads 3.90 V"), ({"ambient": 95.0}, "95 °C")],
)
def test_a_supply_or_a_chip_out_of_its_range_is_named(state: dict[str, Any], sentence: str) -> None:
    assert sentence in doubt(CALIBRATION, measure(CALIBRATION, ROOM, **state))


def test_a_damaged_gain_is_reported_and_a_working_sensor_is_not() -> None:
    frame = measure(CALIBRATION, ROOM)
    assert doubt(CALIBRATION, frame) == ""
    frame[GAIN] = 5
    assert "gain" in doubt(CALIBRATION, frame)


def test_time_in_which_the_device_was_away_is_not_counted() -> None:
    rhythm = FrameRhythm()
    for second in range(0, 150, 5):
        rhythm.observe(second * SECOND, changed=True)
    back_ns = 145 * SECOND + DAY
    rhythm.note_gap(DAY, back_ns)
    assert rhythm.fault(back_ns + 30 * SECOND) == ""
    for second in range(5, 60, 5):  # readings, but no frames
        rhythm.note_gap(5 * SECOND, back_ns + second * SECOND)
    assert rhythm.fault(back_ns + 55 * SECOND) == "its thermal frames stopped 86455 s ago"
    rhythm.observe(back_ns + 60 * SECOND, changed=True)
    rhythm.note_gap(DAY, back_ns + 60 * SECOND)  # noticed only after a frame: the next loss is not noticed later
    assert rhythm.fault(back_ns + 180 * SECOND) == "its thermal frames stopped 120 s ago"


def test_after_days_without_frames_the_next_loss_is_reported_soon() -> None:
    rhythm = FrameRhythm()
    for second in (*range(100), *range(3 * 86_400, 3 * 86_400 + 30)):
        rhythm.observe(second * SECOND, changed=True)
    ended_ns = 3 * DAY + 29 * SECOND
    assert rhythm.fault(ended_ns + FRAMES_LOST_NS) == ""
    assert rhythm.fault(ended_ns + 2 * FRAMES_LOST_NS) == "its thermal frames stopped 60 s ago"


def test_a_device_whose_frames_become_rare_gets_more_time_after_some_of_them() -> None:
    rhythm, rare = FrameRhythm(), 600
    for second in (*range(100), *range(100, 100 + 6 * rare, rare)):
        rhythm.observe(second * SECOND, changed=True)
    assert rhythm.fault((100 + 6 * rare) * SECOND) == ""

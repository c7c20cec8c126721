"""Stuck and noisy sensors."""

import math
import random
from collections.abc import Sequence

import pytest

from embereye.detect.sensing.health import SensorHealth
from embereye.units import SECOND

DICE = random.Random(4)


def faults_of(rows: Sequence[tuple[float, ...]]) -> dict[str, str]:
    health = SensorHealth()
    faults: dict[str, str] = {}
    for second, row in enumerate(rows):
        faults = health.inspect_row(row, second * SECOND)
    return faults


def test_a_sensor_at_rest_has_no_fault() -> None:
    rows = [(283 + DICE.randint(-4, 4), 1305 + DICE.randint(-1, 1), 2.0) for _ in range(4000)]
    assert faults_of(rows) == {}


def test_a_value_that_never_moves_is_stuck() -> None:
    rows = [(283.0, 1305 + DICE.randint(-1, 1), 0.0) for _ in range(1900)]
    assert list(faults_of(rows)) == ["smoke"]
    assert "stuck at 283 counts" in faults_of(rows)["smoke"]
    assert faults_of([*rows, (284.0, 1305.0, 0.0)]) == {}


def test_jumping_smoke_values_are_noise_but_a_flickering_flame_is_not() -> None:
    rows = [(DICE.choice([10.0, 900.0]), DICE.choice([10.0, 4000.0]), math.nan) for _ in range(200)]
    assert list(faults_of(rows)) == ["smoke"]


def test_smoke_that_rises_as_fast_as_in_a_fire_is_no_noise() -> None:
    rows = [(min(283.0 + 80 * second, 3000.0 + DICE.randint(-60, 60)), math.nan, math.nan) for second in range(90)]
    assert faults_of(rows) == {}


def test_a_coarser_converter_has_more_time_to_change() -> None:
    health = SensorHealth()
    row = (283.0 / 4, 1305.0 / 4, math.nan)
    for minutes in range(121):
        assert not health.inspect_row(row, minutes * 60 * SECOND, full_scale=1023)
    assert list(health.inspect_row(row, 7260 * SECOND, full_scale=1023)) == ["smoke", "flame"]


def test_a_device_with_the_same_value_after_a_night_switched_off_is_not_stuck() -> None:
    health = SensorHealth()
    row = (71.0, 330.0, math.nan)
    for second in (*range(0, 200, 5), *range(8 * 3600, 8 * 3600 + 200, 5)):
        assert not health.inspect_row(row, second * SECOND, full_scale=1023)


def test_a_sensor_at_the_end_of_its_range_in_a_fire_may_be_noisy_but_not_stuck() -> None:
    health = SensorHealth()
    health.inspect_row((4095.0, math.nan, math.nan), SECOND)
    assert not health.inspect_row((4095.0, math.nan, math.nan), 4000 * SECOND, alarmed=True)
    for second in range(4001, 4100):
        faults = health.inspect_row((DICE.choice([10.0, 3000.0]), math.nan, math.nan), second * SECOND, alarmed=True)
    assert "jumps" in faults["smoke"]


def test_a_channel_that_is_no_longer_reported_is_silent() -> None:
    health = SensorHealth()
    row = (283.0, 1305.0, 400.0)
    assert not health.inspect_row(row, 100 * SECOND, omitted={2: 50 * SECOND})
    assert health.inspect_row(row, 120 * SECOND, omitted={2: 50 * SECOND}) == {
        "gas": "gas has not been reported for 70 s"
    }
    assert not health.inspect_row(
        (283.0, 1305.0, math.nan), 120 * SECOND, omitted={2: 50 * SECOND}
    )  # it was never reported


def test_a_sensor_that_falls_to_nothing_is_unplugged_unless_it_never_read_more() -> None:
    rows = [(283.0 + DICE.randint(-4, 4), math.nan, DICE.choice([0.0, 2.0, 7.0])) for _ in range(100)]
    assert faults_of([*rows, *((0.0, math.nan, 2.0) for _ in range(30))]) == {}
    assert list(faults_of([*rows, *((0.0, math.nan, 2.0) for _ in range(90))])) == ["smoke"]


@pytest.mark.parametrize("garbled", [28_305.0, 1e308, math.inf, -1.0])
def test_an_impossible_value_does_not_count_as_noise(garbled: float) -> None:
    rows = [(283.0 + second % 2, math.nan, math.nan) for second in range(200)]
    rows[100] = (garbled, math.nan, math.nan)
    assert faults_of(rows[:102]) == {}
    noisy = [(DICE.choice([10.0, 3000.0]), math.nan, math.nan) for _ in range(200)]
    assert list(faults_of([*rows, *noisy])) == ["smoke"]

"""Stuck and noisy sensors."""

import math
import random

from embereye.sensor.health import SECOND, Health

DICE = random.Random(4)


def looked(rows: list[tuple[float, ...]]) -> dict[str, str]:
    health = Health()
    faults: dict[str, str] = {}
    for second, row in enumerate(rows):
        faults = health.look(row, second * SECOND)
    return faults


def test_a_sensor_at_rest_has_no_fault() -> None:
    rows = [(283 + DICE.randint(-4, 4), 1305 + DICE.randint(-1, 1), 2.0) for _ in range(4000)]
    assert looked(rows) == {}


def test_a_value_that_never_moves_is_stuck() -> None:
    rows = [(283.0, 1305 + DICE.randint(-1, 1), 0.0) for _ in range(1900)]
    assert list(looked(rows)) == ["smoke"]
    assert "stuck at 283 counts" in looked(rows)["smoke"]
    assert looked([*rows, (284.0, 1305.0, 0.0)]) == {}


def test_smoke_that_jumps_is_noise_and_a_flame_that_flickers_is_none() -> None:
    rows = [(DICE.choice([10.0, 900.0]), DICE.choice([10.0, 4000.0]), math.nan) for _ in range(200)]
    assert list(looked(rows)) == ["smoke"]


def test_smoke_that_rises_as_quickly_as_a_fire_makes_it_is_no_noise() -> None:
    rows = [(min(283.0 + 80 * second, 3000.0 + DICE.randint(-60, 60)), math.nan, math.nan) for second in range(90)]
    assert looked(rows) == {}

"""The place and growth of the hot spot."""

import numpy as np
import pytest

from embereye.detect.thermal.spot import SpotWatch, hot_spot
from embereye.units import SECOND


def room(*spots: tuple[int, int, int, float]) -> np.ndarray:
    celsius = np.random.default_rng(1).normal(22, 0.1, (24, 32))
    for row, column, size, temperature in spots:
        celsius[row : row + size, column : column + size] = temperature
    return celsius


def test_the_hottest_spot_is_found_with_its_place_and_size() -> None:
    spot = hot_spot(room((10, 20, 3, 90.0), (2, 2, 4, 70.0)), (10, 20))
    assert spot is not None
    assert (spot.row, spot.column, spot.pixels) == (pytest.approx(11), pytest.approx(21), 9)


def test_the_spot_of_a_rising_place_next_to_a_machine_excludes_the_machine() -> None:
    spot = hot_spot(room((10, 20, 3, 90.0), (2, 2, 4, 70.0)), (3, 4))
    assert spot is not None
    assert (spot.row, spot.column, spot.pixels) == (pytest.approx(3.5), pytest.approx(3.5), 16)


def test_a_spot_is_found_at_the_edge_and_among_unmeasured_pixels() -> None:
    celsius = room((0, 30, 2, 90.0))
    celsius[5] = np.nan
    spot = hot_spot(celsius, (0, 31))
    assert spot is not None
    assert (spot.row, spot.column, spot.pixels) == (pytest.approx(0.5), pytest.approx(30.5), 4)


def test_an_even_or_hotter_picture_has_no_spot() -> None:
    celsius = np.full((24, 32), 21.0)
    assert hot_spot(celsius, (0, 0)) is None
    celsius[4, 5] = 20.0
    assert hot_spot(celsius, (4, 5)) is None


def test_growth_is_in_pixels_per_minute() -> None:
    watch = SpotWatch()
    rates = [watch.growth(spot, second * SECOND) for second, size in enumerate((2, 3, 4))
             if (spot := hot_spot(room((5, 5, size, 80.0)), (5, 5)))]  # fmt: skip
    assert rates == pytest.approx([0, 5 * 60, 12 / 2 * 60])
    watch.forget()
    later = hot_spot(room((5, 5, 4, 80.0)), (5, 5))
    assert later is not None
    assert watch.growth(later, 9 * SECOND) == 0

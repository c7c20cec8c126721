"""Plots in text."""

import pytest

from embereye_bench.plot import HEIGHT, plot


def test_larger_values_are_higher_and_larger_places_further_right() -> None:
    rows = plot([10, 1_000], {"p50": [1, 100], "p99": [5, 1_000]}, "subscribers", "ms").splitlines()
    marks = {
        (mark, column): row
        for row, line in enumerate(rows[1 : HEIGHT + 1])
        for column, mark in enumerate(line)
        if mark in "·o"
    }
    assert len(marks) == 4
    for mark in "·o":
        (_, first), (_, second) = sorted(place for place in marks if place[0] == mark)
        assert marks[mark, second] < marks[mark, first]
    assert rows[0].split() == ["ms", "·", "p50", "o", "p99"]
    assert rows[1].split()[0] == "1,000"
    assert rows[HEIGHT].split()[0] == "1"
    assert rows[-1].split() == ["10", "1,000", "subscribers"]


@pytest.mark.parametrize("value", [1.0, 10.0, 0.37])
def test_a_single_value_has_a_scale(value: float) -> None:
    assert "·" in plot([5], {"p50": [value]}, "n", "ms")


def test_a_value_of_zero_has_no_place_on_a_logarithmic_axis() -> None:
    rows = plot([1, 10], {"cores": [0.0, 0.5]}, "fleets", "cores").splitlines()
    assert sum(line.count("·") for line in rows[1 : HEIGHT + 1]) == 1
    assert plot([1, 10], {"cores": [0.0, 0.0]}, "fleets", "cores").split() == ["cores", "no", "value", "above", "0"]

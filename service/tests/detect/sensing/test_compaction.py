"""What stands for readings that are given up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embereye.detect.sensing.compaction import summarize

FULL_SCALE = 4095.0
NAN = math.nan


def test_a_summary_tells_extremes_last_slope_and_count_of_each_channel() -> None:
    rows = np.array([[100.0, 5, NAN, 0], [300, 5, NAN, 1], [200, 5, NAN, 0]])
    found = summarize(rows, FULL_SCALE)
    assert found.readings == 3
    assert found.lowest.tolist()[:2] == [100, 5]
    assert found.highest.tolist()[:2] == [300, 5]
    assert found.last.tolist()[:2] == [200, 5]
    assert found.slope.tolist()[:2] == [50, 0]
    assert found.highest[3] == 1
    assert np.isnan([found.lowest[2], found.highest[2], found.last[2], found.slope[2]]).all()


def test_a_channel_that_is_said_now_and_then_is_summarized_over_what_it_said() -> None:
    found = summarize(
        np.array([[NAN, 1, 1, 0], [10, 1, 1, 0], [NAN, 1, 1, 0], [30, 1, 1, 0], [NAN, 1, 1, 0]]), FULL_SCALE
    )
    assert (found.lowest[0], found.highest[0], found.last[0], found.slope[0]) == (10, 30, 30, 10)


def test_a_value_that_no_converter_gives_does_not_hide_the_highest_that_is_real() -> None:
    found = summarize(np.array([[280.0, 1, 1, 0], [4000, 1, 1, 0], [999_999, 1, 1, 0], [-5, 1, 1, 0]]), FULL_SCALE)
    assert (found.lowest[0], found.highest[0], found.last[0]) == (280, 4000, -5)


values = st.one_of(st.floats(0, 4095, width=32), st.just(NAN))


@given(arrays(np.float64, st.tuples(st.integers(1, 40), st.just(4)), elements=values))
def test_a_summary_agrees_with_looking_at_each_reading(rows: np.ndarray) -> None:
    found = summarize(rows, FULL_SCALE)
    for column in range(4):
        places = np.flatnonzero(~np.isnan(rows[:, column]))
        said = rows[places, column]
        if not len(said):
            assert math.isnan(found.highest[column])
            continue
        assert (found.lowest[column], found.highest[column]) == (said.min(), said.max())
        assert found.last[column] == said[-1]
        expected = np.polyfit(places, said, 1)[0] if len(said) > 1 else 0.0
        assert found.slope[column] == pytest.approx(expected, abs=1e-6)

"""Summaries of readings that are dropped."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embereye.detect.sensing.compaction import summarize

FULL_SCALE = 4095.0
NAN = math.nan


def test_a_summary_has_extremes_last_value_slope_and_count_of_each_channel() -> None:
    rows = np.array([[100.0, 5, NAN, 0], [300, 5, NAN, 1], [200, 5, NAN, 0]])
    summary = summarize(rows, FULL_SCALE)
    assert summary.readings == 3
    assert summary.lowest.tolist()[:2] == [100, 5]
    assert summary.highest.tolist()[:2] == [300, 5]
    assert summary.last.tolist()[:2] == [200, 5]
    assert summary.slope.tolist()[:2] == [50, 0]
    assert summary.highest[3] == 1
    assert np.isnan([summary.lowest[2], summary.highest[2], summary.last[2], summary.slope[2]]).all()


def test_a_channel_that_is_reported_sometimes_is_summarized_over_its_values() -> None:
    summary = summarize(
        np.array([[NAN, 1, 1, 0], [10, 1, 1, 0], [NAN, 1, 1, 0], [30, 1, 1, 0], [NAN, 1, 1, 0]]), FULL_SCALE
    )
    assert (summary.lowest[0], summary.highest[0], summary.last[0], summary.slope[0]) == (10, 30, 30, 10)


def test_an_impossible_value_does_not_hide_the_highest_real_one() -> None:
    summary = summarize(np.array([[280.0, 1, 1, 0], [4000, 1, 1, 0], [999_999, 1, 1, 0], [-5, 1, 1, 0]]), FULL_SCALE)
    assert (summary.lowest[0], summary.highest[0], summary.last[0]) == (280, 4000, -5)


values = st.one_of(st.floats(0, 4095, width=32), st.just(NAN))


@given(arrays(np.float64, st.tuples(st.integers(1, 40), st.just(4)), elements=values))
def test_a_summary_agrees_with_the_single_readings(rows: np.ndarray) -> None:
    summary = summarize(rows, FULL_SCALE)
    for column in range(4):
        places = np.flatnonzero(~np.isnan(rows[:, column]))
        reported = rows[places, column]
        if not len(reported):
            assert math.isnan(summary.highest[column])
            continue
        assert (summary.lowest[column], summary.highest[column]) == (reported.min(), reported.max())
        assert summary.last[column] == reported[-1]
        expected = np.polyfit(places, reported, 1)[0] if len(reported) > 1 else 0.0
        assert summary.slope[column] == pytest.approx(expected, abs=1e-6)

"""The clock that durations are measured on."""

import time

import pytest

from embereye.process.timing import clock
from embereye.process.timing.clock import Timeline

HOUR = 3_600_000_000_000
DAY = 24 * HOUR


def test_a_process_measures_time_that_no_step_of_the_wall_clock_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = clock.now_ns(), time.time_ns
    assert clock.stepped_ns() == 0
    monkeypatch.setattr(time, "time_ns", lambda: real() - HOUR)
    assert 0 <= clock.now_ns() - before < HOUR / 60
    assert clock.stepped_ns() == -HOUR


@pytest.mark.parametrize(
    ("away", "believed"), [(0, True), (HOUR, True), (DAY, True), (DAY + 1, False), (365 * DAY, False), (-1, False)]
)
def test_a_timeline_goes_on_from_what_was_stored_and_counts_an_absence_that_can_be_one(
    away: int, believed: bool
) -> None:
    latest = 1_000 * DAY
    timeline = Timeline(lambda: latest + away, lambda: 5)
    assert timeline.resume(latest) == (0 if believed else away)
    assert timeline.now_ns() == latest + (away if believed else 0)
    assert abs(timeline.now_ns() + timeline.stepped_ns() - (latest + away)) <= clock.LABEL_NS
    assert Timeline(lambda: 7, lambda: 5).resume(0) == 0, "nothing was stored yet"

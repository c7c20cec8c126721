"""The clock that durations are measured on."""

import time

import pytest

from embereye.process.timing import clock
from embereye.process.timing.clock import Timeline

HOUR = 3_600_000_000_000
DAY = 24 * HOUR


def test_a_step_of_the_wall_clock_does_not_change_measured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = clock.now_ns(), time.time_ns
    assert clock.stepped_ns() == 0
    monkeypatch.setattr(time, "time_ns", lambda: real() - HOUR)
    assert 0 <= clock.now_ns() - before < HOUR / 60
    assert clock.stepped_ns() == -HOUR


def test_leases_count_time_in_which_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.clock_gettime_ns
    before = clock.lease_ns()
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) + HOUR * (which == time.CLOCK_BOOTTIME))
    assert HOUR <= clock.lease_ns() - before < HOUR + HOUR / 60
    assert clock.lease_seconds() == pytest.approx(clock.lease_ns() / 1e9, abs=60)


def test_leases_use_the_monotonic_clock_without_a_boot_time_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    before = time.monotonic_ns()
    assert before <= clock.lease_ns() <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("away", "believed"), [(0, True), (HOUR, True), (DAY, True), (DAY + 1, False), (365 * DAY, False), (-1, False)]
)
def test_a_timeline_continues_from_the_stored_time_plus_a_plausible_absence(away: int, believed: bool) -> None:
    latest = 1_000 * DAY
    timeline = Timeline(lambda: latest + away, lambda: 5)
    assert timeline.resume(latest) == (0 if believed else away)
    assert timeline.now_ns() == latest + (away if believed else 0)
    assert abs(timeline.now_ns() + timeline.stepped_ns() - (latest + away)) <= clock.LABEL_NS
    assert Timeline(lambda: 7, lambda: 5).resume(0) == 0, "nothing was stored yet"

"""Rates of false alarms and their exact limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from embereye.units import DAY
from embereye.zone.quality import DeviceWatch, RaisedAlarm, interval, rows
from embereye.zone.timeline import DarkSpan

HALL, YARD = ("default", "hall"), ("default", "yard")
SENSOR, CAMERA = ("default/sensors/f", "s-01"), ("default/cameras/f", "c-01")


# F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936), 95 %.
@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (0, 0, 2.996),  # one-sided
        (1, 0.0253, 5.572),
        (2, 0.2422, 7.225),
        (5, 1.623, 11.668),
        (10, 4.795, 18.390),
        (50, 37.11, 65.92),
    ],
)
def test_limits_are_those_of_the_published_table(count: int, low: float, high: float) -> None:
    assert interval(count) == pytest.approx((low, high), rel=1e-3)


@given(st.integers(0, 100), st.floats(0.5, 0.999))
def test_limits_are_the_exact_ones_of_scipy(count: int, confidence: float) -> None:
    low, high = interval(count, confidence)
    tail = (1 - confidence) / 2 if count else 1 - confidence
    assert high == pytest.approx(chi2.isf(tail, 2 * count + 2) / 2, rel=1e-9)
    assert low == pytest.approx(chi2.ppf(tail, 2 * count) / 2 if count else 0, rel=1e-9)


def watch(device: tuple[str, str], zone: tuple[str, str] = HALL, since: int = 0) -> DeviceWatch:
    return DeviceWatch(*device, zone, since)


def row_of(counted, *subject: str, version: str = "1"):
    (row,) = [row for row in counted if row.subject == subject and row.version == version]
    return row


def test_only_time_in_which_a_device_was_watched_counts() -> None:
    dark = {HALL: [DarkSpan("s-01", "silent", 2 * DAY, 4 * DAY), DarkSpan("s-01", "silent", 3 * DAY, 5 * DAY)],
            YARD: [DarkSpan("s-01", "another zone's device", 0, 0)]}  # fmt: skip
    counted = rows((DAY, 10 * DAY), [watch(SENSOR), watch(CAMERA, since=9 * DAY)], dark, [], [(0, "1")])
    assert row_of(counted, "device", *SENSOR).days == 6
    assert row_of(counted, "device", *CAMERA).days == 1
    assert row_of(counted).days == 7
    assert row_of(counted, "sensor").days == 6


def test_a_false_alarm_counts_once_for_its_zone_and_once_for_each_device() -> None:
    devices = [watch(SENSOR), watch(CAMERA)]
    false = RaisedAlarm(HALL, DAY, frozenset({SENSOR, CAMERA}), is_false=True)
    true = RaisedAlarm(HALL, 2 * DAY, frozenset({SENSOR}), is_false=False)
    counted = rows((0, 10 * DAY), devices, {}, [false, true], [(0, "1")])
    counts = {row.subject: (row.alarms, row.false_alarms) for row in counted}
    assert counts == {
        (): (2, 1), ("sensor",): (2, 1), ("camera",): (1, 1), ("zone", *HALL): (2, 1), ("device", *SENSOR): (2, 1),
        ("device", *CAMERA): (1, 1),
    }  # fmt: skip
    assert row_of(counted).per_day == 1 / 20


def test_each_version_has_a_count_of_its_own() -> None:
    alarms = [RaisedAlarm(HALL, at * DAY, frozenset({SENSOR}), is_false=True) for at in (1, 5, 6)]
    counted = rows((0, 10 * DAY), [watch(SENSOR)], {}, alarms, [(0, "1"), (4 * DAY, "2")])
    assert (row_of(counted).days, row_of(counted).false_alarms) == (4, 1)
    assert (row_of(counted, version="2").days, row_of(counted, version="2").false_alarms) == (6, 2)


def test_thirty_days_without_a_false_alarm_prove_at_most_one_in_ten_days() -> None:
    counted = row_of(rows((0, 30 * DAY), [watch(CAMERA)], {}, [], [(0, "1")]), "camera", version="1")
    assert counted.limits == pytest.approx((0, 0.1), rel=2e-3)


def test_a_device_that_was_never_heard_has_no_rate() -> None:
    counted = rows((0, DAY), [watch(SENSOR, since=2 * DAY)], {}, [], [])
    assert row_of(counted, version="unknown").per_day is None
    assert row_of(counted, version="unknown").limits is None

"""The analysis of readings does not depend on how a device splits them into lines."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from harness.settings import sensor_settings
from hypothesis import example, given
from hypothesis import strategies as st

from embereye.detect.sensing.bands import BandTable
from embereye.levels import Kind, Level
from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.evidence.episodes import Episodes
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

START = 1_700_000_000 * SECOND
NAN = math.nan
Row = tuple[float, float, float, float]
Reports = list[tuple[int, int, int]]  # second, kind, level


def by_channel(row: Row) -> list[Row]:
    smoke, flame, gas, digital = row
    return [(smoke, NAN, NAN, NAN), (NAN, flame, NAN, digital), (NAN, NAN, gas, NAN)]


def reports_of(seconds: Iterable[Sequence[Row]]) -> Reports:
    """The reports to the hub about a device that sends some lines at once each second."""
    device = SensorDevice(Device(id="s", zone="hall"), sensor_settings(), BandTable())
    episodes = Episodes("f")
    reported: Reports = []
    for second, rows in enumerate(seconds):
        now = START + second * SECOND
        reports = [episodes.observe(sign, now) for sign in device.analyse_readings(np.array(rows), now)]
        reported += [(second, report.kind, report.level) for report in reports if report]
    return sorted(reported)


def test_a_sign_is_reported_every_second_with_each_channel_in_a_separate_line() -> None:
    burning = [(820.0 + second % 3, 5.0, 400.0, 0.0) for second in range(120)]
    renewed = reports_of(map(by_channel, burning))
    assert renewed == [(second, Kind.SMOKE, Level.PRE_ALARM) for second in range(120)]


def test_a_short_sign_ends_with_each_channel_in_a_separate_line() -> None:
    dips = [(820.0, 5.0, 400.0, 0.0)] * 3 + [(300.0, 5.0, 400.0, 0.0)] * 5
    assert reports_of(map(by_channel, dips))[-1] == (5, Kind.SMOKE, Level.CLEAR)


def test_a_channel_that_keeps_crossing_its_threshold_does_not_hide_another() -> None:
    rows = [(820.0, 5.0, gas, 0.0) for gas in (400.0, 4000.0) * 20]
    smoke = [report for report in reports_of(map(by_channel, rows)) if report[1] == Kind.SMOKE]
    assert smoke == [(second, Kind.SMOKE, Level.PRE_ALARM) for second in range(40)]


@pytest.mark.parametrize("digital", ["activeHigh", "activeLow"])
def test_a_flame_that_both_outputs_saw_is_an_alarm_where_its_readings_are_compacted(digital: str) -> None:
    device = SensorDevice(Device(id="s", zone="hall"), sensor_settings(flame={"digital": digital}), BandTable())
    off, on = (0.0, 1.0) if digital == "activeHigh" else (1.0, 0.0)
    quiet, flame = [300.0, 200, 400, off], [300.0, 0.6 * 4095, 400, on]
    signs = device.compact_readings(np.array([quiet] * 400 + [flame] * 200 + [quiet] * 400), START)
    assert max(sign.level for sign in signs) == Level.ALARM
    assert device.levels.in_force(Kind.FLAME) == Level.CLEAR


def counts(*edges: float) -> st.SearchStrategy[float]:
    return st.sampled_from([0.0, 300.0, *edges, 4095.0, 5000.0])


reading = st.tuples(
    counts(600, 820, 1200), counts(1500, 2600, 3400), counts(600, 1100, 2400), st.sampled_from([0.0, 1])
)


@given(st.lists(reading, max_size=12))
@example([(820.0, 1500, 600, 0), (300.0, 1500, 600, 0)] * 6)
@example([(300.0, 1500, 600, 1.0), (820.0, 3400, 600, 0)] * 6)
def test_a_reading_in_one_line_or_in_a_line_per_channel_has_the_same_outcome(rows: list[Row]) -> None:
    assert reports_of(map(by_channel, rows)) == reports_of([row] for row in rows)

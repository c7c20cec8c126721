"""The last hour and day of a device's measurements."""

import math

from embereye.hub.coverage.measured import DAY_SLOT, DAY_SLOTS, MOST, SAMPLE, SLOT, SLOTS, Measured
from embereye.v1.types_pb2 import Term


def celsius(value: float) -> Term:
    return Term(name="temperature.max", value=value, unit="°C")


def test_each_time_has_its_highest_value_and_gaps_remain_gaps() -> None:
    measured = Measured()
    for at, value in ((0, 20.0), (SAMPLE, 31.5), (2 * SAMPLE, 21.0), (3 * SLOT, 40.0)):
        measured.note([celsius(value)], 1000 * SLOT + at)
    (series,) = measured.hour.series(1000 * SLOT + 4 * SLOT)
    assert (series.name, series.unit, len(series.values)) == ("temperature.max", "°C", SLOTS)
    assert series.values[-6:] == (None, 31.5, None, None, 40.0, None)


def test_values_older_than_an_hour_are_gone() -> None:
    measured = Measured()
    measured.note([celsius(20)], 5 * SLOT)
    (series,) = measured.hour.series((5 + SLOTS) * SLOT)
    assert set(series.values) == {None}


def test_a_day_is_stored_more_coarsely_than_an_hour() -> None:
    measured = Measured()
    for at, value in ((0, 20.0), (SLOT, 61.0), (2 * DAY_SLOT, 22.0)):
        measured.note([celsius(value)], 1000 * DAY_SLOT + at)
    (series,) = measured.day.series(1002 * DAY_SLOT)
    assert len(series.values) == DAY_SLOTS
    assert series.values[-4:] == (None, 61.0, None, 22.0)


def test_only_a_few_finite_quantities_of_a_device_are_stored() -> None:
    measured = Measured()
    measured.note([celsius(math.nan), Term(name="age", value=3, unit="ms")], SLOT)
    measured.note([Term(name=f"gas.{number}", value=1, unit="ppm") for number in range(9)], 2 * SLOT)
    series = list(measured.hour.series(2 * SLOT))
    assert len(series) == MOST
    assert series[0].values == (None,) * SLOTS

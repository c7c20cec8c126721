"""Smoke, flame and gas readings against their thresholds."""

from typing import Any

import numpy as np
import pytest
from harness.settings import sensor_settings

from embereye.detect.sensing.mq135 import ppm
from embereye.detect.sensing.thresholds import Thresholds, percent
from embereye.levels import Level

CLEAR, PRE_ALARM, ALARM = Level.CLEAR, Level.PRE_ALARM, Level.ALARM
UNKNOWN = Level.UNSPECIFIED
FULL_SCALE = 4095.0
USUAL = Thresholds(sensor_settings())  # the settings of a fleet that declares none


def amount(adc: Any) -> Any:
    return ppm(adc, USUAL.board, FULL_SCALE)


def declared(**spec: object) -> Thresholds:
    return Thresholds(sensor_settings(**spec))


def test_a_real_device_at_rest_is_clear() -> None:
    for smoke, flame, gas in ((277, 1304, 2), (297, 1303, 2), (283, 1308, 7), (284, 1307, 0)):
        assert USUAL.assess_smoke(smoke).level == CLEAR
        assert USUAL.assess_flame(flame, False).level == CLEAR
        assert USUAL.assess_gas(gas).level == CLEAR


@pytest.mark.parametrize(
    ("value", "level"), [(14.9, CLEAR), (15.1, PRE_ALARM), (24.9, PRE_ALARM), (25.1, ALARM), (100, ALARM)]
)
def test_smoke_is_compared_in_per_cent_of_the_converters_range(value: float, level: int) -> None:
    assessment = USUAL.assess_smoke(value / 100 * FULL_SCALE)
    assert assessment.level == level
    [term] = assessment.terms
    assert (term.name, term.unit, term.threshold) == ("smoke", "%", 25 if level == ALARM else 15)
    assert term.value == pytest.approx(value)


def test_thresholds_of_the_fleet_replace_the_defaults_one_by_one() -> None:
    fleet = declared(smoke={"preAlarmPercent": 5})
    assert fleet.assess_smoke(283).level == PRE_ALARM
    assert fleet.assess_smoke(0.26 * FULL_SCALE).level == ALARM


def test_a_level_is_left_only_clearly_below_its_threshold() -> None:
    just_below = 0.245 * FULL_SCALE
    assert USUAL.assess_smoke(just_below).level == PRE_ALARM
    assert USUAL.assess_smoke(just_below, current=ALARM).level == ALARM
    assert USUAL.assess_smoke(0.22 * FULL_SCALE, current=ALARM).level == PRE_ALARM
    assert USUAL.assess_smoke(0.14 * FULL_SCALE, current=PRE_ALARM).level == PRE_ALARM
    assert USUAL.assess_smoke(0.13 * FULL_SCALE, current=ALARM).level == CLEAR


def test_the_score_grows_with_the_value_and_passes_its_fixed_points() -> None:
    scores = [USUAL.assess_smoke(value / 100 * FULL_SCALE).score for value in (0, 15, 20, 25, 50, 100)]
    assert scores == pytest.approx([0, 0.4, 0.55, 0.7, 1, 1])


@pytest.mark.parametrize("adc", [-1, 4096, 65535, float("nan"), float("inf")])
def test_counts_that_the_converter_cannot_give_are_unknown_not_clear(adc: float) -> None:
    for assessment in (USUAL.assess_smoke(adc), USUAL.assess_gas(adc), USUAL.assess_flame(adc, False)):
        assert assessment.level == UNKNOWN
        assert "outside its converter's 0 to 4095" in assessment.blind


@pytest.mark.parametrize(
    ("adc", "detected", "level"),
    [
        (1305, False, CLEAR),
        (1305, True, PRE_ALARM),
        (None, True, PRE_ALARM),
        (None, False, CLEAR),
        (2300, None, PRE_ALARM),
        (2300, False, PRE_ALARM),
        (2300, True, ALARM),
        (3200, False, ALARM),
        (3200, None, ALARM),
        (9999, True, PRE_ALARM),
        (None, None, UNKNOWN),
    ],
)
def test_flame_needs_more_than_its_digital_output_for_an_alarm(
    adc: float | None, detected: bool | None, level: int
) -> None:
    assert USUAL.assess_flame(adc, detected).level == level


def test_the_digital_flame_output_is_among_the_reasons() -> None:
    assessment = USUAL.assess_flame(1305, True)
    assert [(term.name, term.value) for term in assessment.terms][1:] == [("flame.digital", 1.0)]
    assert assessment.note == "digital flame output alone"


def test_gas_follows_the_datasheets_curve() -> None:
    # Rs = R0 at 116.6 ppm; the divider then gives 10 / (10 + 76.63) of the range.
    assert amount(FULL_SCALE * 10 / 86.63) == pytest.approx(116.6, rel=1e-4)
    # Half the resistance means 2^2.769 times the concentration.
    assert amount(FULL_SCALE * 10 / (10 + 76.63 / 2)) == pytest.approx(116.6 * 2**2.769034857, rel=1e-4)
    assert amount(2) < 0.01


def test_gas_never_falls_while_counts_rise_and_stays_finite() -> None:
    amounts = amount(np.arange(0, 4096))
    assert np.isfinite(amounts).all()
    assert (np.diff(amounts) >= 0).all()
    assert amounts[-1] == 1_000_000


def test_an_array_of_counts_is_converted_like_single_counts() -> None:
    counts = np.array([0, 283, 1305, 4095])
    np.testing.assert_allclose(percent(counts, FULL_SCALE), [0, 6.911, 31.868, 100], atol=1e-3)
    np.testing.assert_allclose(amount(counts), [amount(float(count)) for count in counts])


def test_the_boards_resistances_change_the_gas_level() -> None:
    counts = 1500.0
    assert USUAL.assess_gas(counts).level == ALARM
    assert declared(gas={"cleanAirKilohm": 20}).assess_gas(counts).level == CLEAR
    assert declared(gas={"loadKilohm": 47}).assess_gas(counts).level == CLEAR
    assert declared(gas={"alarmPpm": 20_000}).assess_gas(counts).level == PRE_ALARM
    [term] = USUAL.assess_gas(counts).terms
    assert (term.name, term.unit, term.threshold) == ("gas", "ppm", USUAL.gas.alarm)

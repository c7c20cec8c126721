"""Smoke, flame and gas readings against their thresholds."""

import numpy as np
import pytest

from embereye.detect.sensing.thresholds import (
    FULL_SCALE,
    GAS_DEFAULTS,
    assess_flame,
    assess_gas,
    assess_smoke,
    percent,
    ppm,
)
from embereye.levels import Level
from embereye.v1.shard_pb2 import GasThresholds, PercentThresholds

CLEAR, PRE_ALARM, ALARM = Level.CLEAR, Level.PRE_ALARM, Level.ALARM
UNKNOWN = Level.UNSPECIFIED
NONE = PercentThresholds()  # the defaults


def test_a_real_device_at_rest_gives_no_evidence() -> None:
    for smoke, flame, gas in ((277, 1304, 2), (297, 1303, 2), (283, 1308, 7), (284, 1307, 0)):
        assert assess_smoke(smoke, NONE).level == CLEAR
        assert assess_flame(flame, False, NONE).level == CLEAR
        assert assess_gas(gas, GasThresholds()).level == CLEAR


@pytest.mark.parametrize(
    ("value", "level"), [(14.9, CLEAR), (15.1, PRE_ALARM), (24.9, PRE_ALARM), (25.1, ALARM), (100, ALARM)]
)
def test_smoke_is_held_against_per_cent_of_the_converters_range(value: float, level: int) -> None:
    assessment = assess_smoke(value / 100 * FULL_SCALE, NONE)
    assert assessment.level == level
    [term] = assessment.terms
    assert (term.name, term.unit, term.threshold) == ("smoke", "%", 25 if level == ALARM else 15)
    assert term.value == pytest.approx(value)


def test_thresholds_of_the_fleet_replace_the_defaults_one_by_one() -> None:
    fleet = PercentThresholds(pre_alarm=5)
    assert assess_smoke(283, fleet).level == PRE_ALARM
    assert assess_smoke(0.26 * FULL_SCALE, fleet).level == ALARM


def test_a_level_is_left_only_clearly_below_its_threshold() -> None:
    just_below = 0.245 * FULL_SCALE
    assert assess_smoke(just_below, NONE).level == PRE_ALARM
    assert assess_smoke(just_below, NONE, held=ALARM).level == ALARM
    assert assess_smoke(0.22 * FULL_SCALE, NONE, held=ALARM).level == PRE_ALARM
    assert assess_smoke(0.14 * FULL_SCALE, NONE, held=PRE_ALARM).level == PRE_ALARM
    assert assess_smoke(0.13 * FULL_SCALE, NONE, held=ALARM).level == CLEAR


def test_the_score_grows_with_the_value_through_its_fixed_points() -> None:
    scores = [assess_smoke(value / 100 * FULL_SCALE, NONE).score for value in (0, 15, 20, 25, 50, 100)]
    assert scores == pytest.approx([0, 0.4, 0.55, 0.7, 1, 1])


@pytest.mark.parametrize("adc", [-1, 4096, 65535, float("nan"), float("inf")])
def test_counts_that_the_converter_cannot_give_are_unknown_not_clear(adc: float) -> None:
    for assessment in (assess_smoke(adc, NONE), assess_gas(adc, GasThresholds()), assess_flame(adc, False, NONE)):
        assert assessment.level == UNKNOWN
        assert "outside of its converter's 0 to 4095" in assessment.blind


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
    assert assess_flame(adc, detected, NONE).level == level


def test_the_digital_flame_output_is_among_the_reasons() -> None:
    assessment = assess_flame(1305, True, NONE)
    assert [(term.name, term.value) for term in assessment.terms][1:] == [("flame.digital", 1.0)]
    assert assessment.note == "digital flame output alone"


def test_gas_follows_the_datasheets_curve() -> None:
    # Rs = R0 at 116.6 ppm; the divider then gives 10 / (10 + 76.63) of the range.
    assert ppm(FULL_SCALE * 10 / 86.63) == pytest.approx(116.6, rel=1e-4)
    # Half the resistance: 2^2.769 times as much.
    assert ppm(FULL_SCALE * 10 / (10 + 76.63 / 2)) == pytest.approx(116.6 * 2**2.769034857, rel=1e-4)
    assert ppm(2) < 0.01


def test_gas_never_falls_while_counts_rise_and_stays_finite() -> None:
    amounts = ppm(np.arange(0, 4096))  # type: ignore[arg-type]
    assert np.isfinite(amounts).all()
    assert (np.diff(amounts) >= 0).all()
    assert amounts[-1] == 1_000_000


def test_many_counts_are_converted_as_one() -> None:
    counts = np.array([0, 283, 1305, 4095])
    np.testing.assert_allclose(percent(counts), [0, 6.911, 31.868, 100], atol=1e-3)
    np.testing.assert_allclose(ppm(counts), [ppm(float(count)) for count in counts])


def test_the_boards_own_resistances_move_the_gas_level() -> None:
    counts = 1500.0
    assert assess_gas(counts, GasThresholds()).level == ALARM
    assert assess_gas(counts, GasThresholds(r0_kohm=20)).level == CLEAR
    assert assess_gas(counts, GasThresholds(load_kohm=47)).level == CLEAR
    assert assess_gas(counts, GasThresholds(alarm_ppm=20_000)).level == PRE_ALARM
    [term] = assess_gas(counts, GasThresholds()).terms
    assert (term.name, term.unit, term.threshold) == ("gas", "ppm", GAS_DEFAULTS.alarm_ppm)

from typing import Any

import pytest

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term
from embereye.zone.fusion import WINDOW_NS, judge
from embereye.zone.profile import Profile, sorts

HEAT, SMOKE, GAS, FLAME = Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME
PRE, ALARM, CRITICAL, CLEAR = (
    Level.PRE_ALARM,
    Level.ALARM,
    Level.CRITICAL,
    Level.CLEAR,
)
SENSOR, CAMERA = Sense.SENSOR, Sense.CAMERA


def sign(
    device: str,
    kind: Any,  # of the wire
    level: Level,
    sense: Sense = SENSOR,
    *,
    relative: bool = False,
    at: int = 0,
    why: tuple[Term, ...] = (),
) -> EvidenceItem:
    return EvidenceItem(
        id=f"{device}-{kind}-{at}",
        device=device,
        kind=kind,
        level=level.wire,
        sense=sense.wire,
        relative=relative,
        since_ns=at,
        until_ns=at,
        why=why,
        score=0.5,
    )


@pytest.mark.parametrize(
    ("signs", "level"),
    [
        ([], CLEAR),
        ([sign("s1", HEAT, CLEAR)], CLEAR),
        # alone
        ([sign("s1", SMOKE, ALARM)], ALARM),
        ([sign("s1", GAS, ALARM)], ALARM),
        ([sign("s1", HEAT, ALARM)], ALARM),
        ([sign("s1", HEAT, CRITICAL)], ALARM),
        ([sign("c1", FLAME, ALARM, CAMERA)], ALARM),
        ([sign("c1", SMOKE, ALARM, CAMERA)], ALARM),
        ([sign("s1", FLAME, ALARM)], PRE),
        ([sign("s1", FLAME, CRITICAL)], PRE),
        ([sign("s1", HEAT, CRITICAL, relative=True)], PRE),
        ([sign("s1", 9, CRITICAL)], PRE),
        ([sign("s1", SMOKE, PRE)], PRE),
        ([sign("c1", FLAME, PRE, CAMERA)], PRE),
        # together
        ([sign("s1", FLAME, PRE), sign("s1", HEAT, PRE)], ALARM),
        ([sign("s1", HEAT, PRE), sign("s2", SMOKE, PRE)], ALARM),
        ([sign("c1", FLAME, PRE, CAMERA), sign("s1", FLAME, PRE)], ALARM),
        ([sign("c1", SMOKE, PRE, CAMERA), sign("s1", SMOKE, PRE)], ALARM),
        ([sign("c1", SMOKE, PRE, CAMERA), sign("s1", GAS, PRE)], ALARM),
        ([sign("s1", HEAT, PRE, relative=True), sign("c1", FLAME, PRE, CAMERA)], ALARM),
        # the same thing twice is not a second opinion
        ([sign("s1", HEAT, PRE), sign("s2", HEAT, PRE)], PRE),
        ([sign("s1", FLAME, ALARM), sign("s2", FLAME, ALARM)], PRE),
        ([sign("c1", FLAME, PRE, CAMERA), sign("c2", FLAME, PRE, CAMERA)], PRE),
        # signs seen long after each other do not agree, whenever they were reported
        ([sign("s1", HEAT, PRE, at=0), sign("s2", SMOKE, PRE, at=WINDOW_NS)], ALARM),
        ([sign("s1", HEAT, PRE, at=0), sign("s2", SMOKE, PRE, at=WINDOW_NS + 1)], PRE),
    ],
)
def test_signs_are_judged_by_the_rules(signs: list[EvidenceItem], level: Level) -> None:
    assert judge(signs).level == level
    assert judge(reversed(signs)).level == level


def test_agreement_is_explained_with_both_values_and_thresholds() -> None:
    heat = Term(name="temperature.max", value=61.3, threshold=57, unit="°C")
    flame = Term(name="flame.score", value=0.82, threshold=0.6000000238418579, unit="1")
    verdict = judge([sign("cam-2", FLAME, PRE, CAMERA, why=(flame,)), sign("s-01", HEAT, ALARM, why=(heat,))])
    assert verdict.why == "heat 61.3 °C ≥ 57 °C at s-01, and flame 0.82 ≥ 0.6 at cam-2 agree"


def test_the_explanation_uses_the_term_that_crossed_its_threshold() -> None:
    terms = (
        Term(name="temperature.max", value=49, threshold=57, unit="°C"),
        Term(name="temperature.rise", value=12.25, threshold=4, unit="°C/min"),
    )
    assert judge([sign("s-01", HEAT, ALARM, why=terms)]).why == "heat 12.2 °C/min ≥ 4 °C/min at s-01"


def test_a_temperature_over_normal_is_explained_as_a_difference() -> None:
    terms = (
        Term(name="temperature.max", value=34, threshold=47, unit="°C"),
        Term(name="temperature.over_normal", value=11.2, threshold=10, unit="K"),
    )
    assert judge([sign("s-01", HEAT, ALARM, why=terms)]).why == "heat 11.2 K ≥ 10 K over normal at s-01"


def test_an_uncalibrated_device_says_so() -> None:
    term = Term(name="rise", value=310, threshold=200, unit="1")
    why = judge([sign("s-01", HEAT, ALARM, relative=True, why=(term,))]).why
    assert why == "heat 310 ≥ 200 (a rise, not calibrated) at s-01"


def test_a_sign_without_terms_is_explained_by_its_score() -> None:
    assert judge([sign("cam-1", SMOKE, ALARM, CAMERA)]).why == "smoke score 0.5 at cam-1"


@pytest.mark.parametrize(
    ("signs", "level"),
    [
        ([sign("s1", SMOKE, ALARM)], PRE),
        ([sign("c1", FLAME, ALARM, CAMERA), sign("s1", SMOKE, ALARM)], PRE),
        ([sign("c1", SMOKE, ALARM, CAMERA), sign("s1", SMOKE, ALARM)], PRE),
        ([sign("s1", SMOKE, CRITICAL)], ALARM),
        ([sign("s1", HEAT, ALARM)], ALARM),
        ([sign("s1", SMOKE, ALARM), sign("s2", GAS, PRE)], ALARM),
        ([sign("s1", SMOKE, CLEAR)], CLEAR),
    ],
)
def test_signs_that_the_profile_expects_need_one_that_it_does_not(signs: list[EvidenceItem], level: Level) -> None:
    assert judge(signs, profile=Profile("welding", sorts(SMOKE) | sorts(FLAME))).level is level


def test_a_profile_may_expect_only_what_one_sense_sees() -> None:
    sensors = Profile("welding", sorts(FLAME, SENSOR))
    assert judge([sign("s1", FLAME, ALARM), sign("s2", FLAME, ALARM)], profile=sensors).level is PRE
    assert judge([sign("c1", FLAME, ALARM, CAMERA)], profile=sensors).level is ALARM


def test_at_night_one_weak_sign_of_a_named_kind_is_an_alarm() -> None:
    night = Profile("night", alarm_alone=sorts(SMOKE))
    verdict = judge([sign("s1", SMOKE, PRE)], profile=night)
    assert verdict.level is ALARM
    assert verdict.why.endswith("at s1, an alarm in the profile night")
    assert judge([sign("s1", GAS, PRE)], profile=night).level is PRE
    assert judge([sign("s1", SMOKE, CLEAR)], profile=night).level is CLEAR


def measured(kind: Kind, level: Level, *terms: tuple[str, float]) -> EvidenceItem:
    why = tuple(Term(name=name, value=value, threshold=10, unit="%") for name, value in terms)
    return sign("s1", kind, level, why=why)


@pytest.mark.parametrize(
    ("item", "level"),
    [
        (measured(SMOKE, ALARM, ("smoke", 14.0)), PRE),  # over the device's threshold, below the profile's limit
        (measured(SMOKE, ALARM, ("smoke", 20.0)), ALARM),
        (measured(SMOKE, CRITICAL, ("smoke", 14.0)), ALARM),
        (measured(SMOKE, ALARM, ("smoke.likeness", 14.0)), ALARM),  # a camera measures no smoke
        (measured(HEAT, ALARM, ("temperature.rising", 9.0), ("temperature.max", 70.0)), PRE),
        (measured(HEAT, PRE, ("temperature.max", 80.0)), ALARM),
        (measured(GAS, PRE, ("gas", 5.0)), ALARM),  # a limit below the device's threshold of an alarm
        (measured(GAS, CLEAR, ("gas", 5.0)), CLEAR),
    ],
)
def test_a_limit_of_the_profile_replaces_the_threshold_of_an_alarm(item: EvidenceItem, level: Level) -> None:
    kitchen = Profile("kitchen", limits={"smoke": 20.0, "heat": 80.0, "gas": 5.0})
    assert judge([item], profile=kitchen).level is level


def test_a_sign_below_the_limit_is_confirmed_by_another_kind() -> None:
    kitchen = Profile("kitchen", limits={"smoke": 20.0})
    smoke = measured(SMOKE, ALARM, ("smoke", 14.0))
    verdict = judge([smoke], profile=kitchen)
    assert verdict.why.endswith("as expected in the profile kitchen")
    assert judge([smoke, sign("s2", HEAT, PRE)], profile=kitchen).level is ALARM

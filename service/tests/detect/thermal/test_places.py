"""Rising places next to hotter ones."""

import numpy as np
from harness.settings import HEAT

from embereye.detect.thermal.heat import HeatAssessment, HeatWatch
from embereye.detect.thermal.places import Places
from embereye.levels import Level
from embereye.units import SECOND

START = 1_700_000_000 * SECOND
DICE = np.random.default_rng(2)
NAN = np.float32(np.nan)


def picture(here: float, machine: float = 22.0) -> np.ndarray:
    celsius = DICE.normal(22, 0.3, (24, 32)).astype(np.float32)
    celsius[3:6, 3:9] = machine
    celsius[15, 20] = here
    return celsius


class Watched:
    def __init__(self, machine: float = 52.0) -> None:
        self.watch, self.machine, self.now = HeatWatch(HEAT), machine, START

    def show(self, here: float, seconds: int = 1) -> HeatAssessment:
        for _ in range(2 * seconds):
            self.now += SECOND // 2
            assessment = self.watch.observe(picture(here, self.machine), self.now)
        return assessment


def test_a_fire_next_to_a_hotter_machine_raises_an_alarm_by_its_rise() -> None:
    watched = Watched()
    assert watched.show(22, 120).level == Level.PRE_ALARM  # the machine, by the fixed threshold
    for celsius in range(22, 51, 2):
        assessment = watched.show(celsius)
    assert (assessment.level, assessment.hottest) == (Level.ALARM, (15, 20))
    terms = {term.name: term for term in assessment.terms}
    assert terms["temperature.rising"].threshold == 47
    assert terms["temperature.max"].value == 52
    assert terms["temperature.rise"].value > 4
    assert assessment.note == "thresholds lowered by 10 °C because of the rise"


def test_a_place_that_was_always_warm_does_not_rise() -> None:
    watched = Watched()
    watched.show(49, 120)
    assert watched.show(49, 60).hottest != (15, 20)
    assert watched.show(49).level == Level.PRE_ALARM


def test_a_critical_temperature_stays_critical_next_to_a_rise() -> None:
    watched = Watched(machine=95.0)
    watched.show(22, 60)
    assert [watched.show(celsius).level for celsius in range(22, 89, 6)] == [Level.CRITICAL] * 12


def test_people_who_walk_by_raise_no_alarm() -> None:
    watched = Watched(machine=22.0)
    watched.show(22, 60)
    assert {watched.show(36.0 if second % 7 else 22.0).level for second in range(120)} == {Level.CLEAR}


def test_a_place_that_rose_and_stays_warm_eventually_becomes_normal() -> None:
    places, now = Places(), START
    for second in range(3000):
        now += SECOND
        assessment = places.observe_frame(picture(22.0 if second < 60 else 45.0), now, 4, 10)
        if second == 200:
            assert assessment is not None
            assert assessment.pixel == 15 * 32 + 20
    assert assessment is None


def test_an_unmeasured_place_does_not_rise_when_it_is_first_measured() -> None:
    places, now = Places(), START
    for second in range(60):
        now += SECOND
        shown = picture(40.0)
        shown[: 12 if second < 30 else 0] = NAN
        assert places.observe_frame(shown, now, 4, 10) is None
    shown[15, 20] = NAN
    assert places.observe_frame(shown, now + SECOND, 4, 10) is None


def test_frames_that_come_more_often_than_once_a_second_are_not_due() -> None:
    places = Places()
    assert places.is_due(START)
    places.observe_frame(picture(22), START, 4, 10)
    assert not places.is_due(START + SECOND // 4)
    assert places.is_due(START + SECOND)

"""Heat findings from thermal frames."""

from collections.abc import Iterator

import numpy as np
import pytest
from harness.settings import HEAT, sensor_settings
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from embereye.detect.thermal.heat import RELATIVE_RISE_COUNTS, HeatAssessment, HeatWatch
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.shard_pb2 import HeatThresholds

START = 1_700_000_000 * SECOND
CLEAR, PRE_ALARM, ALARM, CRITICAL = (
    Level.CLEAR,
    Level.PRE_ALARM,
    Level.ALARM,
    Level.CRITICAL,
)


def frame(hottest: float, room: float = 22.0) -> NDArray[np.float32]:
    celsius = np.full((24, 32), room, np.float32)
    celsius[7, 9] = hottest
    return celsius


class Device:
    """A watched device with 4 frames per second."""

    def __init__(self, thresholds: HeatThresholds | None = None, period: float = 0.25) -> None:
        self.watch = HeatWatch(thresholds or HEAT)
        self.now = START
        self.period = int(period * SECOND)

    def show(self, hottest: float, seconds: float = 0.0) -> HeatAssessment:
        """Show one frame, or frames for so many seconds, and return the last assessment."""
        for assessment in self.ramp(hottest, hottest, seconds):
            last = assessment
        return last

    def ramp(self, start: float, end: float, seconds: float) -> Iterator[HeatAssessment]:
        count = max(int(seconds * SECOND / self.period), 1)
        for index in range(count):
            self.now += self.period
            yield self.watch.observe(frame(start + (end - start) * (index + 1) / count), self.now)


def test_a_room_is_clear_and_its_warmest_pixel_is_reported() -> None:
    assessment = Device().show(24.0, 60)
    assert (assessment.level, assessment.score, assessment.hottest) == (CLEAR, 0.0, (7, 9))
    assert assessment.blind == assessment.note == ""
    assert not assessment.relative
    assert [(term.name, term.unit) for term in assessment.terms] == [
        ("temperature.max", "°C"),
        ("temperature.rise", "°C/min"),
        ("temperature.over_normal", "K"),
    ]


@pytest.mark.parametrize(
    ("hottest", "level"),
    [(46.9, CLEAR), (47.0, PRE_ALARM), (56.9, PRE_ALARM), (57.0, ALARM), (89.9, ALARM), (90.0, CRITICAL)],
)
def test_fixed_temperatures_give_their_levels(hottest: float, level: int) -> None:
    device = Device()
    for _ in range(3):  # from the first frame on, when no rise is known
        assessment = device.show(hottest)
    assert assessment.level == level
    if level > CLEAR:
        assert assessment.terms[0].threshold == {PRE_ALARM: 47, ALARM: 57, CRITICAL: 90}[level]


def test_ninety_degrees_need_only_one_frame() -> None:
    device = Device()
    device.show(22, 30)
    assert device.show(95).level == CRITICAL


def test_an_alarm_is_confirmed_by_three_frames_in_a_row() -> None:
    device = Device()
    device.show(22, 5)
    assert [device.show(70).level for _ in range(4)] == [PRE_ALARM, PRE_ALARM, ALARM, ALARM]


def test_rare_frames_confirm_an_alarm_by_the_time_between_them() -> None:
    device = Device(period=2)
    device.show(22, 10)
    unconfirmed = device.show(70)
    assert (unconfirmed.level, unconfirmed.note) == (PRE_ALARM, "hot enough for an alarm, not confirmed yet")
    assert device.show(70).level == ALARM


def test_one_hot_frame_among_cool_ones_confirms_nothing() -> None:
    device = Device()
    device.show(22, 5)
    for _ in range(10):
        assert device.show(70).level == PRE_ALARM
        device.show(22, 1)


def test_thresholds_are_lowered_during_a_fast_rise() -> None:
    device = Device()
    device.show(22, 120)
    levels = [(assessment.level, assessment.terms) for assessment in device.ramp(22, 52, 180)]  # 10 °C/min
    first = {
        level: next(terms[0].value for reached, terms in levels if reached == level) for level in (PRE_ALARM, ALARM)
    }
    assert first[PRE_ALARM] == pytest.approx(37, abs=0.2)
    assert first[ALARM] == pytest.approx(47, abs=0.3)
    assert levels[-1][1][1].value > 4


def test_a_slow_rise_keeps_the_fixed_thresholds() -> None:
    device = Device(period=1)
    device.show(22, 120)
    for assessment in device.ramp(22, 50, 14 * 60):  # 2 °C/min
        hottest = assessment.terms[0].value
        assert assessment.level == (PRE_ALARM if hottest >= 47 else CLEAR)


def test_a_place_that_rose_fast_and_stays_warm_stays_suspect() -> None:
    device = Device()
    device.show(22, 120)
    list(device.ramp(22, 42, 60))
    assert device.show(42, 300).level == PRE_ALARM
    assert "lowered by 10 °C" in device.show(42).note


def test_a_heater_that_is_turned_on_eventually_becomes_normal() -> None:
    device = Device(period=1)
    device.show(22, 120)
    list(device.ramp(22, 42, 60))
    assert device.show(42, 540).level == PRE_ALARM
    assert device.show(42, 3600).level == CLEAR


def test_a_fire_never_becomes_normal() -> None:
    device = Device(period=5)
    device.show(22, 120)
    assert device.show(70, 8 * 3600).level == ALARM


def test_a_level_is_left_only_clearly_below_its_threshold() -> None:
    device = Device()
    device.show(58, 1)
    assert device.show(55).level == ALARM
    assert device.show(53.9).level == PRE_ALARM
    assert device.show(44.5).level == PRE_ALARM
    assert device.show(43.9).level == CLEAR
    assert device.show(46).level == CLEAR


def test_a_device_that_starts_in_a_fire_raises_an_alarm() -> None:
    device = Device()
    assert device.show(200).level == CRITICAL


def test_new_thresholds_apply_from_the_next_frame_and_normal_is_preserved() -> None:
    device = Device()
    device.show(40, 120)
    device.watch.configure(sensor_settings(thermal={"preAlarmCelsius": 38, "alarmCelsius": 70}).heat)
    assessment = device.show(40)
    assert assessment.level == PRE_ALARM
    assert assessment.terms[2].value == pytest.approx(0, abs=0.1)


def test_a_threshold_of_zero_means_the_default() -> None:
    hotter = sensor_settings(thermal={"alarmCelsius": 65}).heat
    assert (hotter.alarm_c, hotter.critical_c) == (65, 90)
    assert hotter.pre_alarm_c == HEAT.pre_alarm_c


def test_a_frame_without_pixels_is_unknown_not_clear() -> None:
    assessment = HeatWatch(HEAT).observe(np.full((24, 32), np.nan), START)
    assert (assessment.level, assessment.hottest) == (Level.UNSPECIFIED, None)
    assert assessment.blind == "only 0 of 768 pixels are measured"


def test_a_half_missing_frame_still_shows_a_fire() -> None:
    celsius = frame(120.0)
    celsius[12:] = np.nan
    celsius[0] = np.nan
    assessment = HeatWatch(HEAT).observe(celsius, START)
    assert assessment.level == CRITICAL
    assert assessment.blind == "only 352 of 768 pixels are measured"


@given(st.lists(st.tuples(st.floats(-40, 500), st.integers(-SECOND, 90 * SECOND)), max_size=40))
def test_any_sequence_gives_a_valid_score_and_at_least_the_fixed_level(
    course: list[tuple[float, int]],
) -> None:
    watch, now = HeatWatch(HEAT), START
    for hottest, step in course:
        now += step
        assessment = watch.observe(frame(hottest, room=-40), now)
        assert 0 <= assessment.score <= 1
        assert all(np.isfinite(term.value) for term in assessment.terms)
        if hottest >= 90:
            assert assessment.level == CRITICAL
        elif hottest >= 47:
            assert assessment.level >= PRE_ALARM


def words(rise: int = 0, everywhere: int = 0) -> NDArray[np.uint16]:
    counts = np.full(768, -80 + everywhere, np.int16)
    counts[40] += rise
    return counts.view(np.uint16)


def test_a_relative_rise_of_raw_words_is_a_pre_alarm_at_most() -> None:
    watch = HeatWatch(HEAT)
    assert watch.observe_words(words(), START).level == CLEAR
    assessment = watch.observe_words(words(20_000), START + SECOND)
    assert (assessment.level, assessment.relative, assessment.hottest) == (PRE_ALARM, True, (1, 8))
    assert assessment.score == pytest.approx(0.4)
    assert "not a temperature" in assessment.note
    assert [(term.name, term.value, term.threshold) for term in assessment.terms] == [
        ("counts.rise", 20_000, RELATIVE_RISE_COUNTS)
    ]


def test_a_relative_rise_of_the_whole_scene_counts_too() -> None:
    watch = HeatWatch(HEAT)
    watch.observe_words(words(), START)
    assert watch.observe_words(words(everywhere=400), START + SECOND).level == PRE_ALARM


def test_a_saturated_pixel_is_a_rise_and_an_empty_frame_is_unknown() -> None:
    watch = HeatWatch(HEAT)
    empty = watch.observe_words(np.full(834, 0x7FFF, np.uint16), START)
    assert (empty.level, empty.relative) == (Level.UNSPECIFIED, True)
    assert "only 0 of 768" in empty.blind
    assert watch.observe_words(words(), START + SECOND).level == CLEAR
    saturated = words()
    saturated[100] = 0x7FFF
    assert watch.observe_words(saturated, START + 2 * SECOND).level == PRE_ALARM


def test_slow_drift_of_raw_words_is_learned_but_a_fire_is_not() -> None:
    watch, now = HeatWatch(HEAT), START
    for drift in range(0, 1000, 5):  # 20 counts a minute
        now += 15 * SECOND
        assert watch.observe_words(words(everywhere=drift), now).level == CLEAR
    for _ in range(100):
        now += 5 * SECOND
        assert watch.observe_words(words(rise=600, everywhere=995), now).level == PRE_ALARM

import numpy as np
import pytest

from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.usual_levels import KNOWN_S, LARGE, UsualLevels
from embereye.levels import Level
from embereye.sim.scenes.lookalikes import candle, filmed
from embereye.units import SECOND

NOON = 1_700_000_000 * SECOND // (86400 * SECOND) * 86400 * SECOND + 12 * 3600 * SECOND
HOUR, DAY = 3600 * SECOND, 86400 * SECOND
STOVE, ELSEWHERE = (0.4, 0.5, 0.05, 0.08), (0.7, 0.2, 0.05, 0.08)
AREA = 0.004


def known(area=AREA, seconds=KNOWN_S, time_ns=NOON):
    usual_levels = UsualLevels()
    for second in range(int(seconds)):
        usual_levels.learn(STOVE, area, 1.0, time_ns + second * SECOND)
    return usual_levels


def test_a_thing_seen_for_ten_minutes_is_known_only_at_that_time_of_day():
    usual_levels = known()
    assert usual_levels.familiarity(STOVE, AREA, NOON + 20 * 60 * SECOND) == pytest.approx(1.0, abs=0.05)
    assert usual_levels.familiarity(STOVE, AREA, NOON + DAY) == pytest.approx(1.0, abs=0.1)
    assert usual_levels.familiarity(STOVE, AREA, NOON + 5 * HOUR) == 0


def test_a_thing_seen_for_a_minute_is_not_known():
    assert known(seconds=60).familiarity(STOVE, AREA, NOON + 60 * SECOND) == 0


def test_a_thing_elsewhere_or_a_larger_one_is_new():
    usual_levels, later = known(), NOON + 20 * 60 * SECOND
    assert usual_levels.familiarity(ELSEWHERE, AREA, later) == 0
    assert usual_levels.familiarity(STOVE, 2 * AREA, later) == 0
    assert usual_levels.familiarity((0.1, 0.1, 0.8, 0.8), AREA, later) == 0


def test_a_fire_of_a_few_per_cent_of_the_picture_never_becomes_known():
    assert known(area=LARGE).familiarity(STOVE, LARGE, NOON) == 0


def test_a_thing_that_never_returns_is_forgotten_in_weeks():
    usual_levels = known()
    for day in range(1, 60):
        usual_levels.learn(ELSEWHERE, AREA, 1.0, NOON + day * DAY)
    assert usual_levels.familiarity(STOVE, AREA, NOON + 60 * DAY) == 0


def test_a_clock_that_steps_back_forgets_nothing():
    usual_levels = known()
    usual_levels.learn(ELSEWHERE, AREA, 1.0, NOON - 400 * DAY)
    assert usual_levels.familiarity(STOVE, AREA, NOON) > 0.9


def test_a_marked_false_alarm_is_known_at_any_time_of_day():
    usual_levels = UsualLevels()
    usual_levels.set_marks([(STOVE, AREA)])
    assert {usual_levels.familiarity(STOVE, AREA, NOON + hour * HOUR) for hour in range(24)} == {1.0}
    assert usual_levels.familiarity(ELSEWHERE, AREA, NOON) == 0


def test_removing_a_mark_preserves_the_learned_levels():
    usual_levels = known()
    usual_levels.set_marks([(STOVE, AREA), (ELSEWHERE, AREA)])
    usual_levels.set_marks([])
    assert usual_levels.familiarity(ELSEWHERE, AREA, NOON) == 0
    assert usual_levels.familiarity(STOVE, AREA, NOON + 20 * 60 * SECOND) > 0.9
    assert usual_levels.familiarity(STOVE, AREA, NOON + 5 * HOUR) == 0


def test_saved_levels_are_bounded_and_restored_unchanged():
    usual_levels = known()
    data = usual_levels.dump()
    assert len(data) < 44_000
    assert UsualLevels.load(data).familiarity(STOVE, AREA, NOON) == usual_levels.familiarity(STOVE, AREA, NOON)
    assert UsualLevels.load(data).known_share(NOON) == usual_levels.known_share(NOON) > 0


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * 36864, b"\0" * 36860])
def test_bytes_that_are_no_saved_view_are_refused(data):
    with pytest.raises(ValueError, match="a saved view"):
        UsualLevels.load(data)


def watch(detector, draw, since_ns, seconds, rate=6.0):
    """Yield (level, terms) of the flame for each frame of `draw`, a film of 20 s that repeats."""
    film = list(filmed(draw, rate, 20.0))
    for number in range(int(seconds * rate)):
        picture, _ = film[number % len(film)]
        finding = detector.detect(picture, since_ns + int(number / rate * SECOND)).findings[0]
        yield finding.level, {term.name: term.value for term in finding.terms}


def shifted(draw, columns):
    return lambda t, random: np.maximum(draw(t, random), np.roll(draw(t + 3.7, random), columns, axis=1))


def test_a_stove_becomes_known_and_a_new_fire_next_to_it_is_detected():
    """Simulated time: only the beginning and end of an hour are drawn; the presence of a stove is added in between."""
    detector = Detector(smoke=None)
    stove = candle(12)
    levels, _ = zip(*watch(detector, stove, NOON, 30), strict=True)
    assert max(levels) == Level.ALARM, "it is a flame, and new"
    site = max(detector.flame.sites, key=lambda site: site.odds)
    x, y, width, height = site.box
    box, area = (x / 160, y / 120, width / 160, height / 120), np.count_nonzero(site.mask) / 19200
    for second in range(30, 1770):
        detector.flame.usual_levels.learn(box, area, 1.0, NOON + second * SECOND)
    levels, terms = zip(*watch(detector, stove, NOON + 1770 * SECOND, 60), strict=True)
    assert max(levels) < Level.ALARM, "half an hour later it is known"
    assert max(entry.get("flame.familiar.below", 0.0) for entry in terms) > 90
    levels, _ = zip(*watch(detector, shifted(candle(24), 50), NOON + 1830 * SECOND, 10), strict=True)
    assert max(levels) == Level.ALARM, "a fire next to it raises an alarm"


def test_a_fire_that_outgrows_a_known_place_is_detected():
    detector = Detector(smoke=None)
    detector.flame.usual_levels.set_marks([((0.4, 0.4, 0.2, 0.3), 0.004)])
    levels, _ = zip(*watch(detector, candle(40), NOON, 10, rate=15.0), strict=True)
    assert max(levels) == Level.ALARM

import numpy as np
import pytest

from embereye.detect.vision.detector import FLAME, Detector
from embereye.detect.vision.flame.usual_levels import KNOWN_S, UsualLevels
from embereye.detect.vision.networks.appearance import Inspection
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask

START = 1_700_000_000 * SECOND
RNG = np.random.default_rng(8)
ROOM = RNG.integers(60, 120, (120, 160, 3)).astype(np.uint8)
CLEARLY = FLAME.likeness_min + 1.0


def watch(says, seconds=12.0, *, moves=True, rate=10, start=START, colour=True, **options):
    """The levels of a flame, and its terms, in a room where something grey moves, of which a network `says` that."""
    detector, levels, terms = Detector(**options), [], None
    room = ROOM if colour else np.repeat(ROOM[..., :1], 3, axis=2)
    for number in range(int(seconds * rate)):
        time_ns = start + number * SECOND // rate
        picture = room.copy()
        if moves:
            left = number * 7 % 140
            picture[40:60, left : left + 20] = 200
        if (close_ups := detector.due_inspection(time_ns)) is not None:
            odds = says(number / rate) if callable(says) else says
            detector.add_inspection(Inspection(time_ns, odds, tuple((box, odds) for box in close_ups)))
        [found] = [one for one in detector.detect(picture, time_ns).findings if one.kind == Kind.FLAME]
        levels.append(found.level)
        terms = found.terms or terms
    return levels, {term.name: term for term in terms or ()}


def test_a_picture_that_looks_like_fire_for_seconds_is_a_fire_though_no_site_is():
    levels, terms = watch(CLEARLY)
    assert levels[-1] == Level.ALARM
    assert levels.index(Level.ALARM) / 10 <= 10
    assert terms["flame.likeness"].value == pytest.approx(CLEARLY)
    assert terms["flame.likeness"].threshold == pytest.approx(FLAME.likeness_min, abs=0.1)
    assert terms["flame.lasted"].value >= terms["flame.lasted"].threshold


def test_what_the_network_says_less_clearly_is_none():
    assert max(watch(FLAME.likeness_min - 0.1)[0]) == Level.CLEAR


def test_a_moment_is_none():
    assert max(watch(lambda second: CLEARLY if 4 <= second < 5 else -3.0)[0]) == Level.CLEAR


def test_a_still_picture_of_a_fire_is_none():
    assert max(watch(CLEARLY, moves=False)[0]) == Level.CLEAR


def test_pictures_without_colour_make_a_pre_alarm_at_most():
    assert max(watch(CLEARLY, colour=False)[0]) == Level.PRE_ALARM


def test_where_something_is_masked_the_network_decides_nothing_by_itself():
    masks = [Mask(x=[0, 0.1, 0.1], y=[0, 0, 0.1])]
    assert max(watch(CLEARLY, masks=masks)[0]) == Level.CLEAR


def test_an_alarm_ends_when_the_picture_looks_like_fire_no_more():
    levels, _ = watch(lambda second: CLEARLY if second < 10 else -3.0, 20.0)
    assert levels[100] == Level.ALARM
    assert levels[-1] == Level.CLEAR


def test_what_a_view_usually_looks_like_needs_that_much_more():
    usual_levels = UsualLevels()
    for second in range(0, int(3 * KNOWN_S), 2):
        usual_levels.learn_usual(CLEARLY, 2.0, START - int(3 * KNOWN_S - second) * SECOND)
    assert usual_levels.usual_odds(START) > 1.5
    assert max(watch(CLEARLY, usual_levels=usual_levels)[0]) == Level.CLEAR
    usual_levels = UsualLevels.load(usual_levels.dump())
    assert max(watch(CLEARLY + usual_levels.usual_odds(START) + 0.1, usual_levels=usual_levels)[0]) == Level.ALARM


def test_a_fire_is_found_long_before_it_is_usual():
    levels, _ = watch(CLEARLY, 60.0, rate=4)
    assert levels[-1] == Level.ALARM


def test_a_still_view_is_looked_at_rarely_and_one_where_something_moves_at_once():
    asked = []

    def says(second):
        asked.append(second)
        return -3.0

    watch(says, 60.0, moves=False)
    assert len(asked) <= 8
    asked.clear()
    watch(says, 60.0)
    assert len(asked) >= 19


def test_what_a_still_view_usually_looks_like_is_learnt_from_rare_looks():
    usual_levels = UsualLevels()
    watch(CLEARLY, KNOWN_S, moves=False, rate=2, usual_levels=usual_levels)
    assert usual_levels.usual_odds(START) > 0.5 * CLEARLY


@pytest.mark.parametrize("away", [0, 3600])
def test_an_alarm_ends_when_the_network_can_look_no_more(away):
    """Of pictures that lose a part it is not asked."""
    detector, levels = Detector(), []
    for number in range(240):
        time_ns = START + number * SECOND // 10 + (number >= 120) * away * SECOND
        picture = ROOM.copy()
        picture[40:60, number * 7 % 140 :][:, :20] = 200
        if number < 120 and detector.due_inspection(time_ns) is not None:
            detector.add_inspection(Inspection(time_ns, CLEARLY))
        lost = [(0.0, 0.9, 1.0, 0.1)] if number >= 120 else ()
        levels.append(detector.detect(picture, time_ns, lost).level)
    assert levels[119] == Level.ALARM
    assert max(levels[120 if away else 200 :]) == Level.CLEAR


def test_a_clock_that_jumps_starts_the_evidence_anew():
    detector = Detector()
    for number, time_ns in enumerate([START, START + SECOND, START + 3600 * SECOND, START - 3600 * SECOND]):
        detector.add_inspection(Inspection(time_ns, CLEARLY))
        detector.detect(np.where(number % 2, ROOM, 255 - ROOM), time_ns)
    assert not detector._likeness.holds

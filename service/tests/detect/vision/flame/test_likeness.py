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


def watch(odds_at, seconds=12.0, *, moves=True, rate=10, start=START, colour=True, **options):
    """Return a flame's levels and terms in a room where something grey moves, with the network's odds."""
    detector, levels, terms = Detector(**options), [], None
    room = ROOM if colour else np.repeat(ROOM[..., :1], 3, axis=2)
    for number in range(int(seconds * rate)):
        time_ns = start + number * SECOND // rate
        picture = room.copy()
        if moves:
            left = number * 7 % 140
            picture[40:60, left : left + 20] = 200
        if (close_ups := detector.due_inspection(time_ns)) is not None:
            odds = odds_at(number / rate) if callable(odds_at) else odds_at
            detector.add_inspection(Inspection(time_ns, odds, tuple((box, odds) for box in close_ups)))
        [finding] = [entry for entry in detector.detect(picture, time_ns).findings if entry.kind == Kind.FLAME]
        levels.append(finding.level)
        terms = finding.terms or terms
    return levels, {term.name: term for term in terms or ()}


def test_a_picture_that_is_fire_like_for_seconds_is_a_fire_without_a_site():
    levels, terms = watch(CLEARLY)
    assert levels[-1] == Level.ALARM
    assert levels.index(Level.ALARM) / 10 <= 10
    assert terms["flame.likeness"].value == pytest.approx(CLEARLY)
    assert terms["flame.likeness"].threshold == pytest.approx(FLAME.likeness_min, abs=0.1)
    assert terms["flame.lasted"].value >= terms["flame.lasted"].threshold


def test_lower_odds_of_the_network_are_no_fire():
    assert max(watch(FLAME.likeness_min - 0.1)[0]) == Level.CLEAR


def test_a_fire_like_moment_is_no_fire():
    assert max(watch(lambda second: CLEARLY if 4 <= second < 5 else -3.0)[0]) == Level.CLEAR


def test_a_still_picture_of_a_fire_is_no_fire():
    assert max(watch(CLEARLY, moves=False)[0]) == Level.CLEAR


def test_pictures_without_colour_raise_a_pre_alarm_at_most():
    assert max(watch(CLEARLY, colour=False)[0]) == Level.PRE_ALARM


LEFT_HALF = Mask(x=[0, 0.5, 0.5, 0], y=[0, 0, 1, 1])
BAND = Mask(x=[0, 1, 1, 0], y=[0.3, 0.3, 0.6, 0.6])  # in which everything moves


def test_the_network_decides_alone_about_what_masks_leave():
    assert max(watch(CLEARLY, masks=[LEFT_HALF])[0]) == Level.ALARM


def test_what_moves_in_a_mask_is_no_fire():
    assert max(watch(CLEARLY, masks=[BAND])[0]) == Level.CLEAR


def test_the_network_learns_which_parts_are_ignored():
    detector = Detector(masks=[LEFT_HALF])
    assert detector.masked == (((0, 0), (0.5, 0), (0.5, 1), (0, 1)),)
    detector.hide((0.5, 0.0, 0.25, 0.5))
    assert detector.masked[1] == ((0.5, 0), (0.75, 0), (0.75, 0.5), (0.5, 0.5))
    detector.hide(None)
    assert len(detector.masked) == 1


def test_an_alarm_ends_when_the_picture_is_no_longer_fire_like():
    levels, _ = watch(lambda second: CLEARLY if second < 10 else -3.0, 20.0)
    assert levels[100] == Level.ALARM
    assert levels[-1] == Level.CLEAR


def test_a_view_with_usual_odds_needs_correspondingly_more():
    usual_levels = UsualLevels()
    for second in range(0, int(3 * KNOWN_S), 2):
        usual_levels.learn_usual(CLEARLY, 2.0, START - int(3 * KNOWN_S - second) * SECOND)
    assert usual_levels.usual_odds(START) > 1.5
    assert max(watch(CLEARLY, usual_levels=usual_levels)[0]) == Level.CLEAR
    usual_levels = UsualLevels.load(usual_levels.dump())
    assert max(watch(CLEARLY + usual_levels.usual_odds(START) + 0.1, usual_levels=usual_levels)[0]) == Level.ALARM


def test_a_fire_is_detected_long_before_it_becomes_usual():
    levels, _ = watch(CLEARLY, 60.0, rate=4)
    assert levels[-1] == Level.ALARM


def test_a_still_view_is_inspected_rarely_and_a_moving_one_at_once():
    asked = []

    def odds_at(second):
        asked.append(second)
        return -3.0

    watch(odds_at, 60.0, moves=False, smoke=None)
    assert len(asked) <= 8
    asked.clear()
    watch(odds_at, 60.0, smoke=None)
    assert len(asked) >= 19


def test_a_still_views_usual_odds_are_learned_from_rare_inspections():
    usual_levels = UsualLevels()
    watch(CLEARLY, KNOWN_S, moves=False, rate=2, usual_levels=usual_levels)
    assert usual_levels.usual_odds(START) > 0.5 * CLEARLY


@pytest.mark.parametrize("away", [0, 3600])
def test_an_alarm_ends_when_inspections_become_impossible(away):
    """The network does not run on pictures with lost parts."""
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


def test_a_clock_jump_resets_the_persistence():
    detector = Detector()
    for number, time_ns in enumerate([START, START + SECOND, START + 3600 * SECOND, START - 3600 * SECOND]):
        detector.add_inspection(Inspection(time_ns, CLEARLY))
        detector.detect(np.where(number % 2, ROOM, 255 - ROOM), time_ns)
    assert not detector._likeness.is_fire_like

import cv2
import numpy as np
import pytest

from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.detect.vision.networks.appearance import ONLY_SMOKE, PLACES, Inspection, SmokeOdds
from embereye.detect.vision.thresholds import SmokeScene, SmokeThresholds
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask

START = 1_700_000_000 * SECOND
RATE = 3.0
CLEAR_ODDS = -2.5
RANDOM = np.random.default_rng(4)
SCENE = cv2.GaussianBlur(RANDOM.integers(60, 180, (120, 160, 3), np.uint8), (0, 0), 6)
SCENE = np.interp(SCENE, (SCENE.min(), SCENE.max()), (60, 180)).astype(np.uint8)


def places(odds=CLEAR_ODDS, smoke=3.0, rows=slice(0), columns=slice(0)):
    grid = np.full((PLACES, PLACES), odds, np.float32)
    grid[rows, columns] = smoke
    return grid


def plume(seconds, begin=20.0, drift=0.0):
    """Odds of a plume of 5 % that begins, grows and drifts."""
    if seconds < begin:
        return -2.0, places()
    size, left = 2 + min(2, int((seconds - begin) / 4)), 3 + int(drift * (seconds - begin))
    return 2.0, places(rows=slice(4, 4 + size), columns=slice(max(0, left), max(0, left) + size))


def stirring(seconds):
    """A picture that changes a little everywhere."""
    return np.roll(SCENE, int(seconds * RATE) % 7, axis=1)


def still(_):
    return SCENE


class Watch:
    """Feeds a detector with pictures, and with odds in place of the network's."""

    def __init__(self, smoke=None, usual_levels=None, begin_s=0.0, masks=()):
        self.detector = Detector(None, smoke or SmokeThresholds(), masks, usual_levels)
        self.begin_ns = START + int(begin_s * SECOND)
        self.looks, self.highest, self.levels = [], Level.CLEAR, []

    def run(self, odds_of, picture_of=stirring, seconds=60.0, rate=RATE):
        for number in range(int(seconds * rate)):
            second = number / rate
            time_ns = self.begin_ns + round(second * SECOND)
            picture = picture_of(second)
            if (close_ups := self.detector.due_inspection(time_ns)) is not None:
                assert close_ups == (ONLY_SMOKE,)
                whole, grid = odds_of(second)
                self.looks.append(second)
                self.detector.add_inspection(Inspection(time_ns, 0.0, smoke=SmokeOdds(whole, grid)))
            observation = self.detector.detect(picture, time_ns)
            (self.finding,) = (finding for finding in observation.findings if finding.kind == Kind.SMOKE)
            self.levels.append((second, self.finding.level, self.finding))
        self.highest = max(level for _, level, _ in self.levels)
        return self

    def first(self, least):
        return next((second for second, level, _ in self.levels if level >= least), None)


def terms_of(finding):
    return {term.name: term for term in finding.terms}


@pytest.mark.parametrize("phase", [0.0, 1.0, 2.5, 4.0])
def test_a_growing_plume_alarms_within_fifteen_seconds(phase):
    watch = Watch().run(lambda second: plume(second, 20.0 + phase))
    assert watch.first(Level.PRE_ALARM) - 20.0 - phase <= 8.0
    assert watch.first(Level.ALARM) - 20.0 - phase <= 15.0


def test_the_alarm_has_the_place_and_its_reasons():
    watch = Watch().run(lambda second: plume(second, drift=-0.15), seconds=34)
    alarm = next(finding for _, level, finding in watch.levels if level >= Level.ALARM)
    x, y, width, height = alarm.box
    assert 0.1 <= x <= 0.5
    assert y == pytest.approx(0.5)
    assert width * height < 0.3
    terms = terms_of(alarm)
    assert terms["smoke.likeness"].value > 90
    assert terms["smoke.usual"].value < 10
    assert any("smoke.growing" in terms_of(finding) for *_, finding in watch.levels)
    assert any("smoke.drift.left" in terms_of(finding) for *_, finding in watch.levels)


def test_smoke_from_the_first_picture_alarms_later_than_smoke_that_begins():
    always, begins = Watch().run(lambda _: plume(99.0)), Watch().run(plume)
    assert 8.0 <= always.first(Level.ALARM) <= 20.0
    assert begins.first(Level.ALARM) - 20.0 <= always.first(Level.ALARM)


def test_a_smoke_like_thing_that_is_still_is_no_smoke():
    assert Watch().run(lambda _: plume(99.0), still).highest == Level.CLEAR


def test_fog_over_the_whole_picture_is_no_smoke():
    watch = Watch().run(lambda second: (2.5, places(3.0)) if second > 20 else (-2.0, places()), seconds=35)
    assert watch.highest < Level.ALARM


def test_fog_that_stays_is_no_smoke():
    fog = (2.5, places(3.0))
    watch = Watch().run(lambda second: fog if second > 20 else (-2.0, places()), seconds=80)
    assert watch.highest < Level.ALARM


def test_a_little_smoke_counts_where_the_view_was_clear_before():
    little = 0.2, places(smoke=0.6, rows=slice(4, 6), columns=slice(3, 5))
    rises = Watch().run(lambda second: little if second > 20 else (-2.0, places()), seconds=45)
    assert rises.highest == Level.PRE_ALARM
    assert rises.first(Level.PRE_ALARM) > 20
    assert Watch().run(lambda _: little, seconds=45).highest == Level.CLEAR


@pytest.mark.parametrize(("rows", "highest"), [(4, Level.ALARM), (5, Level.PRE_ALARM)])
def test_smoke_over_most_of_the_view_from_the_start_may_be_fog(rows, highest):
    assert Watch().run(lambda _: (3.0, places(rows=slice(rows), columns=slice(None))), seconds=60).highest == highest


def test_fog_that_is_there_when_a_shard_starts_is_at_most_a_pre_alarm():
    assert Watch().run(lambda _: (3.0, places(3.0)), seconds=80).highest <= Level.PRE_ALARM


def test_smoke_that_fills_the_view_after_it_began_in_a_part_alarms():
    def fills(second):
        return (3.0, places(3.0)) if second > 32 else plume(second)

    assert Watch().run(fills).first(Level.ALARM) is not None


def test_noise_does_not_make_a_still_thing_stir():
    def noisy(second):
        noise = np.random.default_rng(int(second * RATE)).normal(0, 10, SCENE.shape)
        return np.clip(SCENE + noise, 0, 255).astype(np.uint8)

    assert Watch().run(lambda _: plume(99.0), noisy).highest == Level.CLEAR


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.4])
def test_smoke_is_found_in_few_pictures(rate):
    assert Watch().run(plume, seconds=100, rate=rate).first(Level.ALARM) - 20.0 <= max(20.0, 4 / rate)


def test_a_light_that_flashes_does_not_hide_smoke():
    def flashing(second):
        return np.clip(stirring(second) * (1.4 if int(second) % 2 else 1.0), 0, 255).astype(np.uint8)

    assert Watch().run(plume, flashing).first(Level.ALARM) - 20.0 <= 20.0


LOWER_HALF = Mask(x=(0.0, 1.0, 1.0, 0.0), y=(0.5, 0.5, 1.0, 1.0))
UPPER_HALF = Mask(x=(0.0, 1.0, 1.0, 0.0), y=(0.0, 0.0, 0.5, 0.5))
EVERYTHING = Mask(x=(0.0, 1.0, 1.0, 0.0), y=(0.0, 0.0, 1.0, 1.0))


def test_smoke_outside_the_masks_alarms_and_smoke_inside_does_not():
    assert Watch(masks=[UPPER_HALF]).run(plume).first(Level.ALARM) - 20.0 <= 15.0
    assert Watch(masks=[LOWER_HALF]).run(plume).highest == Level.CLEAR


def test_a_camera_that_is_masked_everywhere_is_not_inspected_for_smoke():
    assert Watch(masks=[EVERYTHING]).run(plume).looks == []


def test_a_place_marked_as_a_false_alarm_needs_more_smoke():
    usual_levels = UsualLevels()
    usual_levels.set_smoke_marks([(0.3, 0.45, 0.5, 0.5)])
    assert Watch(usual_levels=usual_levels).run(plume).highest < Level.ALARM
    stronger = Watch(usual_levels=usual_levels).run(lambda second: (plume(second)[0] * 2.5, plume(second)[1] * 2))
    assert stronger.highest == Level.ALARM
    usual_levels.set_smoke_marks([])
    assert Watch(usual_levels=usual_levels).run(plume).highest == Level.ALARM


def test_a_mark_never_covers_most_of_the_picture():
    usual_levels = UsualLevels()
    usual_levels.set_smoke_marks([(0.0, 0.0, 1.0, 1.0)])
    assert Watch(usual_levels=usual_levels).run(plume).highest == Level.ALARM


def test_an_inspection_for_smoke_alone_says_nothing_about_flames():
    detector = Detector()
    smoke = Inspection.of(START - SECOND // 10, (ONLY_SMOKE,), (0.0, -2.0, *[-2.0] * PLACES**2))
    flame = Inspection.of(START, (), (-6.0,))
    for inspection in (smoke, flame):  # a decoder shows a video's pictures later than it gets them
        detector.add_inspection(inspection)
    assert detector.flame.inspections.whole(START) == -6.0


def test_a_step_of_the_exposure_is_no_smoke():
    def exposed(second):
        return np.clip(stirring(second) * (1.5 if second > 20 else 1.0), 0, 255).astype(np.uint8)

    def odds(second):
        return plume(99.0) if 20 < second < 25 else (-2.0, places())

    assert Watch().run(odds, exposed).highest == Level.CLEAR


def test_a_puff_is_no_alarm():
    assert Watch().run(lambda second: plume(99.0) if 20 < second < 24 else (-2.0, places())).highest < Level.ALARM


def test_steam_that_returns_is_learned():
    def steam(second):
        return plume(99.0) if second % 60 < 20 else (-2.0, places())

    usual_levels = UsualLevels()
    Watch(usual_levels=usual_levels).run(steam, seconds=900)
    later = Watch(usual_levels=usual_levels, begin_s=900).run(steam, seconds=120)
    assert later.highest < Level.ALARM


def test_what_is_always_smoke_like_is_learned_and_more_than_that_still_alarms():
    usual_levels = UsualLevels()
    haze = 1.0, places(rows=slice(0, 3), columns=slice(None), smoke=1.2)
    Watch(usual_levels=usual_levels).run(lambda _: haze, seconds=600)
    again = Watch(usual_levels=usual_levels, begin_s=600).run(lambda _: haze)
    assert again.highest == Level.CLEAR
    more = Watch(usual_levels=usual_levels, begin_s=600)
    assert more.run(lambda second: (3.0, np.maximum(haze[1], plume(second)[1]))).highest >= Level.ALARM


@pytest.mark.parametrize(("scene", "most"), [(SmokeScene.ROOM, 15), (SmokeScene.YARD, 20), (SmokeScene.LANDSCAPE, 60)])
def test_a_scene_with_more_lookalikes_needs_more_time(scene, most):
    watch = Watch(SmokeThresholds(scene=scene)).run(plume, seconds=90)
    needed = watch.first(Level.ALARM) - 20.0
    assert needed <= most
    assert scene == SmokeScene.ROOM or needed > Watch().run(plume).first(Level.ALARM) - 20.0


def test_looks_are_rare_until_something_is_smoke_like():
    calm = Watch().run(lambda _: (-2.0, places()))
    assert len(calm.looks) <= 60 / 5 + 1
    assert len(Watch().run(lambda _: plume(99.0)).looks) >= 50


def test_odds_of_a_damaged_view_are_refused_and_earlier_views_load():
    usual_levels = UsualLevels()
    usual_levels.learn_smoke(places(2.0), 300.0, START)
    restored = UsualLevels.load(usual_levels.dump())
    assert restored.usual_smoke(START) == pytest.approx(usual_levels.usual_smoke(START))
    earlier = usual_levels.dump()[: 4 * (2 * 24 * 12 * 16 + 24)]
    assert UsualLevels.load(earlier).usual_smoke(START).max() == pytest.approx(-3.0)

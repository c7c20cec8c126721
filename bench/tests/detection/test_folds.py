import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embereye.detect.vision.thresholds import FlameThresholds
from embereye_bench.detection.changed import CHANGES, apply_table, changed
from embereye_bench.detection.fitting import Course, Fit, Judgement, _likeliest, fit, strength
from embereye_bench.detection.folds import LabelledClip, fold_of_scene, labelled_clips, source_of
from embereye_bench.detection.footage import Footage
from embereye_bench.detection.score_folds import Outcome, exact_range, poisson, roc, summary

LIMITS = FlameThresholds()
NAMES = list(LIMITS.weights)
RNG = np.random.default_rng(5)


def clip(name, label="fire", scene="", fixed=True, onset=0.0):
    return LabelledClip(Path(name), label, scene or name, onset, fixed)


def course(name, fire, strengths):
    """A clip whose only site has just a flicker term: its log odds in each judgement."""
    judgements = []
    for number, value in enumerate(strengths):
        site = np.zeros(len(NAMES))
        site[NAMES.index("flicker")] = value
        judgements.append(Judgement(0.15 * number, site[None]))
    return Course(name, fire, 0.0, tuple(judgements))


def test_clips_of_a_source_are_in_one_fold_whatever_the_other_clips_are():
    clips = [clip(f"source{n // 3}_{n}.mp4", scene=f"scene {n}") for n in range(90)]
    fold = fold_of_scene(clips)
    assert set(fold) == {member.scene for member in clips}
    assert set(fold.values()) == {0, 1, 2, 3}
    by_source = {member.source: set() for member in clips}
    for member in clips:
        by_source[member.source].add(fold[member.scene])
    assert all(len(folds) == 1 for folds in by_source.values())
    assert fold_of_scene(clips[:9]) == {member.scene: fold[member.scene] for member in clips[:9]}


def test_stills_of_a_source_share_its_fold():
    assert source_of("abg3/Smoke-Detection") == source_of("abg3_hpwren_ridge") == "abg3"


def test_cameras_of_one_event_are_one_scene(tmp_path):
    entries = [{"file": f"{scene}.avi", "label": "fire", "scene": scene} for scene in ("batman_room", "batman_roof")]
    (tmp_path / "labels.json").write_text(json.dumps(entries))
    assert {member.scene for member in labelled_clips([tmp_path])} == {"batman_room"}


def test_the_fit_separates_fires_from_others_and_leaves_useless_weights_alone():
    courses = [course(f"fire{n}", True, RNG.normal(1.0, 0.4, 40)) for n in range(10)]
    courses += [course(f"street{n}", False, RNG.normal(-1.0, 0.4, 40)) for n in range(10)]
    fitted = fit(courses, LIMITS)
    values = np.array([*fitted.multipliers.values(), fitted.prior])
    strengths = {clip_course.scene: strength(clip_course, values) for clip_course in courses}
    assert min(value for name, value in strengths.items() if "fire" in name) > 0
    assert max(value for name, value in strengths.items() if "street" in name) < 0
    assert fitted.multipliers["flicker"] > 1
    assert fitted.multipliers["rest"] == pytest.approx(1.0)


def test_a_term_with_the_wrong_sign_gets_weight_zero_and_is_never_inverted():
    courses = [course(f"fire{n}", True, [-1.0] * 40) for n in range(20)]
    courses += [course(f"street{n}", False, [1.0] * 40) for n in range(20)]
    assert fit(courses, LIMITS).multipliers["flicker"] == 0


def test_scaling_a_weight_scales_its_log_odds_at_every_value():
    weight = LIMITS.weights["travel"]
    for value in (0.0, 0.1, 0.3, 0.9):
        assert weight.times(1.7).of(value) == pytest.approx(1.7 * weight.of(value))
    weakened = Fit(dict.fromkeys(NAMES, 0.5), -3.0).apply_to(LIMITS)
    assert weakened.prior == -3.0
    assert weakened.weights["rest"].most == 0.5 * LIMITS.weights["rest"].most


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (50, 100, 0.3983, 0.6017), (3, 7, 0.0990, 0.8159), (0, 0, 0.0, 1.0)],
)
def test_intervals_of_shares_are_exact(count, total, low, high):
    assert exact_range(count, total) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.69), (1, 0.025, 5.57), (10, 4.8, 18.39)])
def test_intervals_of_counts_are_poisson_intervals(count, low, high):
    assert poisson(count) == pytest.approx((low, high), rel=0.05, abs=0.03)


def test_late_fires_and_moving_cameras_are_counted_separately():
    outcomes = [
        Outcome(clip("a", onset=1.0), 20, 4.0, None),
        Outcome(clip("b"), 20, 9.0, None),
        Outcome(clip("c"), 20, None, None),
        Outcome(clip("d", fixed=False), 20, None, None),
        Outcome(clip("g", fixed=False), 20, None, None, 6.0),
        Outcome(clip("h", "ambiguous"), 20, None, None, 9.0),
        Outcome(clip("e", "negative"), 43200, None, 3.0),
        Outcome(clip("f", "negative"), 43200, None, None),
    ]
    by_name = {result.name: result for result in summary(outcomes)}
    assert by_name["fixed-fires-5s"].value == pytest.approx(100 / 3)
    assert by_name["fixed-fires-15s"].value == pytest.approx(200 / 3)
    assert by_name["fixed-negatives-alarmed"].value == 50
    assert not by_name["fixed-negatives-alarmed"].ok
    assert by_name["moving-fires-5s"].value == 0
    assert by_name["moving-fires-found-or-blind-15s"].value == 50
    assert by_name["moving-fires-5s"].ok, "reported, not required"
    assert by_name["moving-cameras-told-to-move"].value == 50
    assert by_name["fixed-cameras-told-to-move"].value == pytest.approx(100 / 6)
    (point,) = roc({0.0: outcomes})
    assert point.false_per_day == 1
    assert point.share_found == pytest.approx(1 / 3)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_footage_is_changed_equally_everywhere(change):
    pictures = RNG.integers(0, 256, (3, 9, 16, 3)).astype(np.uint8)
    film = changed(Footage(clip("street"), pictures, np.arange(3.0)), change)
    assert film.pictures.shape == pictures.shape
    assert not np.array_equal(film.pictures, pictures)
    assert np.array_equal(film.pictures[1], apply_table(CHANGES[change], pictures[1]))
    assert np.array_equal(film.closer(2), film.pictures[2]), "without larger pictures"
    for channel in range(3):
        levels = CHANGES[change][:, channel].astype(int)
        assert (np.diff(levels) >= 0).all(), "brighter pixels stay brighter"


def test_a_scene_counts_as_its_most_valuable_course_for_any_number_of_courses():
    street, fire = course("street", False, [-1.0] * 20), course("fire", True, [1.0] * 20)
    other = course("other", False, [0.5] * 20)
    weak = [replace(street, worth=0.5)] * 4
    alone = _likeliest([street, other, fire], np.ones(len(NAMES) + 1))[2]
    many = _likeliest([street, *weak, other, fire], np.ones(len(NAMES) + 1))[2]
    assert many[:20].sum() + many[20:100].sum() == pytest.approx(alone[:20].sum())
    assert many[20:100].sum() == pytest.approx(2 * many[:20].sum()), "shared by the worth of each"
    assert many[100:120].sum() == pytest.approx(alone[20:40].sum())

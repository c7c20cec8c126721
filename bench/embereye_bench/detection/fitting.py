"""Fits the weights of the flame's terms to labelled sites: regularised logistic regression around what stands there.

A weight says by how much its quantity counts, and in which direction; the fit only multiplies it, by 0 or more, and
moves the prior. Where clips say little the weights stay as physics suggested them.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from embereye.detect.vision.thresholds import FlameThresholds

Floats = npt.NDArray[np.float64]

DEVIATION = 0.25  # of a multiplier from 1, a priori
PRIOR_DEVIATION = 3.0  # of the prior, in log odds
SCENE_WORTH = 12.0  # independent sites that one scene counts for: its judgements resemble each other
ROUNDS = 4  # of choosing the likeliest site of each judgement, and fitting anew
STEPS = 60
NEARLY = 1.0  # log odds: a clip so far on the wrong side of the threshold counts as three quarters wrong
FALSE_WORTH = 2.0  # a share of false alarms, in shares of missed fires
WINDOW_S = 2.7  # in which a site has to be a flame: what a threshold is chosen by


@dataclass(frozen=True)
class Judgement:
    """All sites of one moment of one clip, measured."""

    seconds: float
    sites: Floats  # (count, terms): the log odds of each term, by the weights that stand there


@dataclass(frozen=True)
class Course:
    """What was measured of one clip."""

    scene: str
    fire: bool
    onset_s: float
    judgements: tuple[Judgement, ...]
    worth: float = 1.0  # beside a clip of a real scene


@dataclass(frozen=True)
class Fit:
    """By how much each weight is multiplied, and the prior."""

    multipliers: Mapping[str, float]
    prior: float

    def applied(self, limits: FlameThresholds) -> FlameThresholds:
        """`limits` with these weights."""
        weights = {name: weight.times(self.multipliers[name]) for name, weight in limits.weights.items()}
        return replace(limits, weights=weights, prior=self.prior)


def fit(courses: Sequence[Course], limits: FlameThresholds) -> Fit:
    """The weights that tell the fires of `courses` from everything else."""
    names = list(limits.weights)
    values = np.concatenate([np.ones(len(names)), [limits.prior]])
    for _ in range(ROUNDS):
        values = _regressed(*_likeliest(courses, values), values, limits.prior)
    values[-1] += _offset(courses, values)
    return Fit(dict(zip(names, values[:-1].tolist(), strict=True)), float(values[-1]))


def _likeliest(courses: Sequence[Course], values: Floats) -> tuple[Floats, Floats, Floats]:
    """(terms, labels, worth) of the likeliest site of each judgement; only sites of a fire that burns are flames.

    A scene counts as much as its most worthy course, however many it has: they share that by what they are worth.
    """
    rows, labels, worth = [], [], []
    of_scene: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    for course in courses:
        of_scene[course.scene, course.fire].append(course.worth)
    for course in courses:
        chosen = [
            one for one in course.judgements if len(one.sites) and (not course.fire or one.seconds > course.onset_s)
        ]
        for one in chosen:
            rows.append(one.sites[int(np.argmax(one.sites @ values[:-1]))])
            labels.append(float(course.fire))
            its = of_scene[course.scene, course.fire]
            worth.append(SCENE_WORTH * max(its) * course.worth / sum(its) / len(chosen))
    weights, truth = np.array(worth), np.array(labels)
    for label in (0.0, 1.0):  # both alike: how rare a fire is, is for the threshold
        weights[truth == label] *= 0.5 * weights.sum() / max(1e-9, weights[truth == label].sum())
    return np.array(rows), truth, weights


def _regressed(rows: Floats, labels: Floats, worth: Floats, start: Floats, prior: float) -> Floats:
    """Newton's steps to the likeliest multipliers (0 or more) and prior."""
    centre = np.append(np.ones(rows.shape[1]), prior)
    precision = np.append(np.full(rows.shape[1], DEVIATION**-2), PRIOR_DEVIATION**-2)
    design = np.column_stack([rows, np.ones(len(rows))])
    values = start.copy()
    for _ in range(STEPS):
        chance = _chance(design @ values)
        slope = design.T @ (worth * (chance - labels)) + precision * (values - centre)
        curve = (design.T * (worth * chance * (1 - chance))) @ design + np.diag(precision)
        step = np.linalg.solve(curve, slope)
        values = values - 0.5 * step
        values[:-1] = np.maximum(values[:-1], 0.0)
        if np.abs(step).max() < 1e-6:
            break
    return values


def _offset(courses: Sequence[Course], values: Floats) -> float:
    """What to add to the prior so that the fewest clips are wrong, or nearly so: every clip counts, by its distance."""
    strengths = np.array([strength(course, values) for course in courses])
    worth, fire = np.array([course.worth for course in courses]), np.array([course.fire for course in courses])
    missed_worth, false_worth = worth * fire, FALSE_WORTH * worth * ~fire
    missed_worth, false_worth = (
        missed_worth / max(1e-9, (worth * fire).sum()),
        false_worth / max(1e-9, (worth * ~fire).sum()),
    )
    cuts = np.linspace(-6.0, 3.0, 181)
    beyond = (cuts[:, None] - strengths) / NEARLY
    return -float(cuts[int(np.argmin(_chance(beyond) @ missed_worth + _chance(-beyond) @ false_worth))])


def _chance(odds: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(odds, -30, 30)))


def strength(course: Course, values: Floats, within: float = 5.0) -> float:
    """The highest mean odds of a clip's likeliest sites over WINDOW_S; of fires within that many seconds of onset."""
    times = np.array([one.seconds for one in course.judgements])
    odds = np.array(
        [
            max(-6.0, float((one.sites @ values[:-1]).max()) + values[-1]) if len(one.sites) else -6.0
            for one in course.judgements
        ]
    )
    if course.fire:
        chosen = (times >= course.onset_s) & (times <= course.onset_s + within)
        times, odds = times[chosen], odds[chosen]
    best = -6.0
    for start in range(len(times)):
        inside = (times >= times[start]) & (times < times[start] + WINDOW_S)
        if times[start] + WINDOW_S > times[-1] + 0.5:
            break
        best = max(best, float(np.minimum(odds[inside], 1.0 + 2.0).mean()))
    return best if math.isfinite(best) else -6.0

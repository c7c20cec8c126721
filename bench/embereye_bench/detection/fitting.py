"""Fit the weights of the flame's terms to labelled sites, by regularised logistic regression around current values.

A weight says how much its quantity counts, and in which direction. The fit only multiplies it by 0 or more, and moves
the prior. With little evidence from clips, weights stay as physics suggested them.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from embereye.detect.vision.thresholds import FlameThresholds

Floats = npt.NDArray[np.float64]

DEVIATION = 0.25  # of a multiplier from 1, assumed in advance
PRIOR_DEVIATION = 3.0  # of the prior, in log odds, assumed in advance
SCENE_WORTH = 12.0  # independent sites that one scene counts as: its judgements resemble each other
ROUNDS = 4  # of choosing the likeliest site of each judgement, and fitting again
STEPS = 60
NEARLY = 1.0  # log odds: a clip this far on the wrong side of the threshold counts as three quarters wrong
FALSE_WORTH = 2.0  # weight of a share of false alarms, in shares of missed fires
WINDOW_S = 2.7  # during which a site must be a flame, for the choice of the threshold


@dataclass(frozen=True)
class Judgement:
    """The measured sites at one moment of a clip."""

    seconds: float
    sites: Floats  # (count, terms): the log odds of each term, with the current weights


@dataclass(frozen=True)
class Course:
    """The measurements of one clip."""

    scene: str
    fire: bool
    onset_s: float
    judgements: tuple[Judgement, ...]
    worth: float = 1.0  # relative to a clip of a real scene


@dataclass(frozen=True)
class Fit:
    """The factor of each weight, and the prior."""

    multipliers: Mapping[str, float]
    prior: float

    def apply_to(self, limits: FlameThresholds) -> FlameThresholds:
        """Return `limits` with these weights."""
        weights = {name: weight.times(self.multipliers[name]) for name, weight in limits.weights.items()}
        return replace(limits, weights=weights, prior=self.prior)


def fit(courses: Sequence[Course], limits: FlameThresholds) -> Fit:
    """Fit the weights that distinguish the fires of `courses` from everything else."""
    names = list(limits.weights)
    values = np.concatenate([np.ones(len(names)), [limits.prior]])
    for _ in range(ROUNDS):
        values = _regressed(*_likeliest(courses, values), values, limits.prior)
    values[-1] += _offset(courses, values)
    return Fit(dict(zip(names, values[:-1].tolist(), strict=True)), float(values[-1]))


def _likeliest(courses: Sequence[Course], values: Floats) -> tuple[Floats, Floats, Floats]:
    """(terms, labels, worth) of the likeliest site of each judgement; only sites of a burning fire are flames.

    A scene counts as much as its most valuable course; its courses share that by their worth.
    """
    rows, labels, worth = [], [], []
    of_scene: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    for course in courses:
        of_scene[course.scene, course.fire].append(course.worth)
    for course in courses:
        started = course.onset_s if course.fire else -math.inf
        chosen = [judgement for judgement in course.judgements if len(judgement.sites) and judgement.seconds > started]
        for judgement in chosen:
            rows.append(judgement.sites[int(np.argmax(judgement.sites @ values[:-1]))])
            labels.append(float(course.fire))
            worths = of_scene[course.scene, course.fire]
            worth.append(SCENE_WORTH * max(worths) * course.worth / sum(worths) / len(chosen))
    weights, truth = np.array(worth), np.array(labels)
    for label in (0.0, 1.0):  # equal sums: the threshold accounts for the rarity of fires
        weights[truth == label] *= 0.5 * weights.sum() / max(1e-9, weights[truth == label].sum())
    return np.array(rows), truth, weights


def _regressed(rows: Floats, labels: Floats, worth: Floats, start: Floats, prior: float) -> Floats:
    """Take Newton's steps to the likeliest multipliers (0 or more) and prior."""
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
    """The offset of the prior with the fewest wrong clips; every clip counts by its distance from the threshold."""
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
    """The highest mean odds of a clip's likeliest sites over WINDOW_S; for fires, within that many seconds of onset."""
    times = np.array([judgement.seconds for judgement in course.judgements])
    odds = np.array(
        [
            max(-6.0, float((moment.sites @ values[:-1]).max()) + values[-1]) if len(moment.sites) else -6.0
            for moment in course.judgements
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

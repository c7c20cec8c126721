"""Fits the head: regularised logistic regression over what the trunk makes of pictures."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from embereye_training.features import Described, Floats
from embereye_training.network import Head

CLIP_SHARE = 0.45  # of what is learnt from comes from clips
PLAIN_SHARE = 0.5  # … and is as it was taken: the rest was changed as cameras change it
FREEDOM = 100.0  # how far a head may depart from saying nothing: as of that many pictures beside a Gaussian of 1
LEAST_DEVIATION = 1e-3  # of a channel


def fit(described: Sequence[Described]) -> Head:
    """What tells fire from what is none.

    Scenes, the clips of a scene and its pictures count alike, sources of stills by the root of their size; half of all
    is fire.
    """
    channels, weights, truth = [], [], []
    for one, its in zip(described, _worth(described), strict=True):
        for share, part in ((PLAIN_SHARE, one.plain), (1.0 - PLAIN_SHARE, one.versions)):
            channels.append(part)
            weights.append(np.full(len(part), share * its / len(part)))
            truth.append(np.full(len(part), one.group.fire))
    return _regressed(np.concatenate(channels), np.concatenate(truth), np.concatenate(weights))


def _worth(described: Sequence[Described]) -> list[float]:
    """How much each group counts: together, 1."""
    scenes: defaultdict[tuple[bool, bool, str], list[int]] = defaultdict(list)
    for number, one in enumerate(described):
        group = one.group
        scenes[group.fire, bool(group.scene), group.scene or group.name].append(number)
    weight = {
        key: 1.0 if key[1] else sum(len(described[number].plain) for number in numbers) ** 0.5
        for key, numbers in scenes.items()
    }
    worth = [0.0] * len(described)
    for (fire, clip, _), numbers in scenes.items():
        alike = sum(its for key, its in weight.items() if key[:2] == (fire, clip))
        share = 0.5 * (CLIP_SHARE if clip else 1.0 - CLIP_SHARE)
        for number in numbers:
            group = described[number].group
            its = weight[fire, clip, group.scene or group.name]
            worth[number] = share * its / alike / len(numbers)
    return worth


def _regressed(channels: Floats, truth: npt.NDArray[np.bool_], weights: npt.NDArray[np.float64]) -> Head:
    mean = np.average(channels, axis=0, weights=weights)
    deviation = np.sqrt(np.average((channels - mean) ** 2, axis=0, weights=weights)) + LEAST_DEVIATION
    regression = LogisticRegression(C=1.0, max_iter=400)
    regression.fit((channels - mean) / deviation, truth, sample_weight=FREEDOM * weights / weights.sum())
    kernel = regression.coef_[0] / deviation
    return Head(kernel.astype(np.float32), float(regression.intercept_[0] - kernel @ mean))


def odds(head: Head, channels: Floats) -> npt.NDArray[np.float64]:
    """What `head` makes of `channels` (count, channels): natural log odds."""
    found: npt.NDArray[np.float64] = channels.astype(np.float64) @ head.kernel + head.offset
    return found

"""Fit of the head: regularised logistic regression on the trunk's features.

Every group gets a weight, so that fire and other things weigh the same, and a large source does not dominate. Channels
are standardised for the fit, and the scaling is then included in the head, which stays one linear map.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from embereye_training.features import Described, Floats
from embereye_training.network import Head

CLIP_SHARE = 0.45  # share of the weight of clips; the rest are stills
PLAIN_SHARE = 0.5  # share of the weight of plain pictures; the rest are augmented
FREEDOM = 100.0  # weight of the data, in pictures, against a Gaussian prior of 1
LEAST_DEVIATION = 1e-3  # of a channel


def fit(described: Sequence[Described]) -> Head:
    """Fit a head that separates fire from everything else.

    Scenes, the clips of a scene and its pictures have equal weights; sources of stills have the root of their size.
    Half of the weight is fire.
    """
    channels, weights, truth = [], [], []
    for entry, weight in zip(described, _group_weights(described), strict=True):
        for share, part in ((PLAIN_SHARE, entry.plain), (1.0 - PLAIN_SHARE, entry.versions)):
            channels.append(part)
            weights.append(np.full(len(part), share * weight / len(part)))
            truth.append(np.full(len(part), entry.group.fire))
    return _regressed(np.concatenate(channels), np.concatenate(truth), np.concatenate(weights))


def _group_weights(described: Sequence[Described]) -> list[float]:
    """Return each group's weight; together they are 1."""
    scenes: defaultdict[tuple[bool, bool, str], list[int]] = defaultdict(list)
    for number, entry in enumerate(described):
        group = entry.group
        scenes[group.fire, bool(group.scene), group.scene or group.name].append(number)
    weight = {
        key: 1.0 if key[1] else sum(len(described[number].plain) for number in numbers) ** 0.5
        for key, numbers in scenes.items()
    }
    group_weights = [0.0] * len(described)
    for (fire, clip, _), numbers in scenes.items():
        total = sum(value for key, value in weight.items() if key[:2] == (fire, clip))
        share = 0.5 * (CLIP_SHARE if clip else 1.0 - CLIP_SHARE)
        for number in numbers:
            group = described[number].group
            own_weight = weight[fire, clip, group.scene or group.name]
            group_weights[number] = share * own_weight / total / len(numbers)
    return group_weights


def _regressed(channels: Floats, truth: npt.NDArray[np.bool_], weights: npt.NDArray[np.float64]) -> Head:
    mean = np.average(channels, axis=0, weights=weights)
    deviation = np.sqrt(np.average((channels - mean) ** 2, axis=0, weights=weights)) + LEAST_DEVIATION
    regression = LogisticRegression(C=1.0, max_iter=400)
    regression.fit((channels - mean) / deviation, truth, sample_weight=FREEDOM * weights / weights.sum())
    kernel = regression.coef_[0] / deviation
    return Head(kernel.astype(np.float32), float(regression.intercept_[0] - kernel @ mean))


def odds(head: Head, channels: Floats) -> npt.NDArray[np.float64]:
    """Apply `head` to `channels` (count, channels) and return natural log odds."""
    logits: npt.NDArray[np.float64] = channels.astype(np.float64) @ head.kernel + head.offset
    return logits

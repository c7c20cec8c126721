"""`python -m embereye_training DATA OUT`: train the appearance network in folds and on everything, then export it."""

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import jax
import numpy as np

from embereye_bench.detection.folds import NETWORK_FOLDS, LabelledClip, fold_of_scene, labelled_clips
from embereye_training.data import Group, load_clip, load_stills
from embereye_training.export import export
from embereye_training.fit import Course, fit, logits
from embereye_training.network import Tree, parameter_count

logger = logging.getLogger(__name__)

SEED = 20
STILLS_STEPS, STILLS_RATE = 2400, 2e-3
CLIPS_STEPS, CLIPS_RATE = (1200, 300), 1e-3  # of each course: the rate rises and falls
CLIP_SHARE = 0.6  # of a batch that comes from clips
BURNING_S = 0.5  # after its onset a fire is sure to be seen
QUICK = 50  # of how many steps one is taken where only the way is tried
IN_A_ROW = 4  # frames whose mean is a clip's score at best


def main() -> None:
    """Train whatever of the folds and the final network is not trained yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with video/, video2/ and images/, each with labels.json")
    parser.add_argument("out", type=Path, help="folder for checkpoints, folds and the model")
    parser.add_argument(
        "--quick", action="store_true", help="a few steps of each course: tries the way, not the network"
    )
    arguments = parser.parse_args()
    share = QUICK if arguments.quick else 1
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cv2.setNumThreads(1)
    out: Path = arguments.out
    clips = labelled_clips([arguments.data / "video", arguments.data / "video2"])
    groups = {clip.name: load_clip(clip, out / "clips") for clip in clips}
    stills = load_stills(arguments.data / "images", out, SEED)
    logger.info("%d clips, %d stills", len(groups), sum(len(group.pictures) for group in stills))
    start = fit(stills, Course(STILLS_STEPS // share, STILLS_RATE, SEED), None, out / "stills.pickle")
    logger.info("%d parameters", parameter_count(start[0]))
    learnt = [_burning(clip, groups[clip.name]) for clip in clips if clip.label != "smoke"]  # smoke may hide a fire
    fold = fold_of_scene(clips)
    scores: list[dict[str, Any]] = []
    for number in range(NETWORK_FOLDS):
        others = [group for group in learnt if fold[group.scene] != number]
        trained = _trained([*stills, *others], start, SEED + 1 + number, out / f"fold{number}", share)
        export(*trained, out / f"fold{number}.onnx")
        scores += [_scored(trained, clip, groups[clip.name]) for clip in clips if fold[clip.scene] == number]
    (out / "folds.json").write_text(json.dumps(scores))
    logger.info("by folds, a fire's score is above that of a clip without one in %.1f %% of pairs", 100 * _auc(scores))
    trained = _trained([*stills, *learnt], start, SEED + 1 + NETWORK_FOLDS, out / "all", share)
    export(*trained, out / "appearance.onnx")


def _trained(groups: Sequence[Group], start: tuple[Tree, Tree], seed: int, out: Path, share: int) -> tuple[Tree, Tree]:
    """The mean of the networks after each course over clips, of one of `share` steps; `out` begins checkpoints' names.

    The mean keeps what the first has learnt of fires, and most of what the second has of lookalikes.
    """
    after = []
    for number, steps in enumerate(CLIPS_STEPS):
        course = Course(steps // share, CLIPS_RATE, seed + 100 * number, CLIP_SHARE, lookalikes=number > 0)
        start = fit(groups, course, start, out.with_name(f"{out.name}-{number}.pickle"))
        after.append(start)
    mean: tuple[Tree, Tree] = jax.tree.map(lambda *values: sum(values) / len(values), *after)
    return mean


def _burning(clip: LabelledClip, group: Group) -> Group:
    """Of a fire, the pictures in which it burns; of anything else, all."""
    if not group.fire:
        return group
    chosen = group.seconds >= clip.onset_s + (BURNING_S if clip.onset_s else 0.0)
    return replace(group, pictures=group.pictures[chosen], seconds=group.seconds[chosen])


def _scored(trained: tuple[Tree, Tree], clip: LabelledClip, group: Group) -> dict[str, Any]:
    found = logits(*trained, _burning(clip, group).pictures)
    best = max(found[start : start + IN_A_ROW].mean() for start in range(max(1, len(found) - IN_A_ROW + 1)))
    return {"clip": clip.name, "label": clip.label, "score": float(best), "logits": np.round(found, 3).tolist()}


def _auc(scores: Sequence[dict[str, Any]]) -> float:
    """How often a fire has a higher score than a clip without fire."""
    fires, others = ([one["score"] for one in scores if one["label"] == label] for label in ("fire", "negative"))
    return float(np.mean([[fire > other for other in others] for fire in fires]))


if __name__ == "__main__":
    main()

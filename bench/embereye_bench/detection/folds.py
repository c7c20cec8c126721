"""Divide labelled clips by scene, so that no clip is judged by a fit to its own scene."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Scenes that show the same event from several cameras.
ONE_EVENT = {"batman_roof": "batman_room"}
NETWORK_FOLDS = 4  # for training the appearance network; for the terms' weights, single scenes are left out
SEED = 20
LABELS = ("fire", "smoke", "negative", "ambiguous")


@dataclass(frozen=True)
class LabelledClip:
    """One clip of a folder with labels.json."""

    path: Path
    label: str  # "fire", "smoke", "ambiguous" (a wanted flame) or "negative"
    scene: str  # shared by clips of one scene, or of one event
    onset_s: float  # start of the label's validity
    fixed: bool  # the camera does not move

    @property
    def name(self) -> str:
        """The file's name, which is unique over all folders."""
        return self.path.name


def labelled_clips(folders: Iterable[Path]) -> list[LabelledClip]:
    """All clips of `folders`; OSError, ValueError, KeyError or TypeError if a labels.json is unusable."""
    clips = []
    for folder in folders:
        entries: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text())
        for entry in entries:
            if entry["label"] not in LABELS:
                raise ValueError(f'label "{entry["label"]}" of {entry["file"]} is not one of {", ".join(LABELS)}')
            scene = str(entry.get("scene", entry["file"]))
            onset, fixed = float(entry.get("onset_s") or 0.0), entry.get("fixed_camera") is not False
            clips.append(
                LabelledClip(folder / entry["file"], entry["label"], ONE_EVENT.get(scene, scene), onset, fixed)
            )
    return clips


def fold_of_scene(clips: Iterable[LabelledClip], folds: int = NETWORK_FOLDS, seed: int = SEED) -> dict[str, int]:
    """The fold of each scene: random, with the scenes of each label spread evenly."""
    scenes: defaultdict[str, set[str]] = defaultdict(set)
    for clip in clips:
        scenes[clip.scene].add(clip.label)
    by_label: defaultdict[str, list[str]] = defaultdict(list)
    for scene, labels in scenes.items():
        by_label["fire" if "fire" in labels else min(labels)].append(scene)
    fold, number = {}, 0
    for label in sorted(by_label):
        names = sorted(by_label[label])
        random.Random(seed).shuffle(names)
        for name in names:
            fold[name] = number % folds
            number += 1
    return fold

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
# When smoke is first visible, in seconds, where only a label's notes say so.
SMOKE_ONSETS = {"sangtrx_scooter_home.mp4": 10.5, "sangtrx_ebike_shop.mp4": 4.6, "cheka_storage_units_bw.mp4": 2.6}
NOT_REAL_TIME = ("timelapse", "low_rate")  # fields of a label
NETWORK_FOLDS = 4  # for training the appearance network; for the terms' weights, single scenes are left out
SEED = 20
LABELS = ("fire", "smoke", "negative", "ambiguous")
OVERLAY = "overlay"  # smoke on black, to paste into scenes; no clip to judge


@dataclass(frozen=True)
class LabelledClip:
    """One clip of a folder with labels.json."""

    path: Path
    label: str  # "fire", "smoke", "ambiguous" (a wanted flame) or "negative"
    scene: str  # shared by clips of one scene, or of one event
    onset_s: float  # start of the label's validity
    fixed: bool  # the camera does not move
    smokes: bool | None = None  # it shows smoke; None: not stated
    smoke_s: float | None = None  # when smoke is first visible; None: no smoke, or not stated
    real_time: bool = True  # its seconds are those of the scene: no timelapse, no pictures chosen from a longer film

    @property
    def name(self) -> str:
        """The file's name, which is unique over all folders."""
        return self.path.name


def labelled_clips(folders: Iterable[Path]) -> list[LabelledClip]:
    """All clips of `folders`; OSError, ValueError, KeyError or TypeError if a labels.json is unusable."""
    clips = []
    for folder in folders:
        for entry in _entries(folder):
            label = entry["label"]
            if label == OVERLAY:
                continue
            if label not in LABELS:
                raise ValueError(f'label "{label}" of {entry["file"]} is not one of {", ".join(LABELS)}')
            scene, onset = str(entry.get("scene", entry["file"])), float(entry.get("onset_s") or 0.0)
            smoke_s = entry.get("smoke_onset_s", onset if label == "smoke" else SMOKE_ONSETS.get(entry["file"]))
            clips.append(
                LabelledClip(
                    folder / entry["file"],
                    label,
                    ONE_EVENT.get(scene, scene),
                    onset,
                    fixed=entry.get("fixed_camera") is not False,
                    smokes=True if label == "smoke" else entry.get("smoke"),
                    smoke_s=None if smoke_s is None else float(smoke_s),
                    real_time=not any(entry.get(name) for name in NOT_REAL_TIME),
                )
            )
    return clips


def overlays(folder: Path) -> list[Path]:
    """Return the clips of `folder` with smoke on black."""
    return [folder / entry["file"] for entry in _entries(folder) if entry["label"] == OVERLAY]


def _entries(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text())
    return entries


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

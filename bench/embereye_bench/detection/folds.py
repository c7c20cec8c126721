"""Divide labelled clips by source, so that no clip is judged by a fit to its own scene or source.

Clips of one source share cameras, film crews, watermarks and coding. A network that has seen some of them knows the
others. The fold of a source depends on its name alone, so it is the same for every list of clips.
"""

import json
import zlib
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
SEED = 87  # of the division into folds: spreads clips of fire, of smoke and of neither most evenly
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

    @property
    def source(self) -> str:
        """The publisher of the clip: the first part of the file's name, up to "_", in lower case."""
        return source_of(self.path.stem)


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


def source_of(name: str) -> str:
    """Return the source in the name of a file, or of a repository with its owner."""
    return name.replace("/", "_").replace("-", "_").split("_")[0].lower()


def fold_of_source(source: str, folds: int = NETWORK_FOLDS) -> int:
    """The fold of all clips and stills of `source`."""
    return zlib.crc32(f"{SEED} {source}".encode()) % folds


def fold_of_scene(clips: Iterable[LabelledClip], folds: int = NETWORK_FOLDS) -> dict[str, int]:
    """The fold of each scene, which is that of its source."""
    return {clip.scene: fold_of_source(clip.source, folds) for clip in clips}

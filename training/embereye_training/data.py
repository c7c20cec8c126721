"""Training pictures: labelled stills with close-ups of their boxes, and two frames per second of labelled clips.

Everything is squeezed to squares of SIDE pixels and cached in files, because decoding takes long. A `Group` has the
pictures of one clip, or of one source and label of stills, which share a weight. Clips are cached by their content,
stills by the seed that places their close-ups.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from embereye_bench.detection.folds import LabelledClip
from embereye_bench.detection.footage import content_digest

Pictures = npt.NDArray[np.uint8]  # (count, SIDE, SIDE, 3), BGR

SIDE = 160  # pixels; slightly more than the network's input, so that crops lose nothing
CLIP_STEP_S = 0.5
CONTEXT = (1.3, 2.6)  # relative to a box's side: range of its close-ups' sides


@dataclass(frozen=True)
class Group:
    """Pictures with a common weight: those of one clip, or of one source of stills."""

    name: str
    scene: str  # "" for stills
    fire: bool
    pictures: Pictures
    seconds: npt.NDArray[np.float64]  # of each picture, in clips


def load_clip(clip: LabelledClip, cache: Path) -> Group:
    """Load two frames per second of `clip`, decoded once and then cached in `cache`."""
    cache_file = cache / f"{clip.name}-{content_digest(clip.path)}.npz"
    if not cache_file.exists():
        pictures, seconds = frames_of(clip.path)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(cache_file, pictures=pictures, seconds=seconds)
    arrays = np.load(cache_file)
    return Group(clip.name, clip.scene, clip.label in {"fire", "ambiguous"}, arrays["pictures"], arrays["seconds"])


def frames_of(path: Path) -> tuple[Pictures, npt.NDArray[np.float64]]:
    """Decode two frames per second of `path`, squeezed, and their seconds."""
    video = cv2.VideoCapture(str(path))
    rate = video.get(cv2.CAP_PROP_FPS) or 25.0
    pictures, seconds, number, due = [], [], 0, 0.0
    while video.grab():
        if number / rate >= due - 1e-9:
            read, frame = video.retrieve()
            if read:
                pictures.append(squeezed(frame))  # type: ignore[arg-type]
                seconds.append(number / rate)
            due += CLIP_STEP_S
        number += 1
    return np.stack(pictures), np.array(seconds)


def squeezed(picture: npt.NDArray[np.uint8], side: int = SIDE) -> npt.NDArray[np.uint8]:
    """Squeeze `picture` to a square, the only shape that the network gets."""
    return cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def load_stills(folder: Path, cache: Path, seed: int) -> list[Group]:
    """Load the stills of `folder` by source and label, with close-ups of pictures with a box.

    Pictures of smoke are left out, because many of them also show a flame.
    """
    cache_file = cache / f"stills-{seed}.npz"
    if not cache_file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        entries: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text())
        stacks: dict[str, Any] = {name: np.stack(pictures) for name, pictures in _read(folder, entries, seed).items()}
        np.savez(cache_file, **stacks)
    none = np.zeros(0)
    with np.load(cache_file) as arrays:
        return [Group(name, "", name.startswith("fire"), arrays[name], none) for name in arrays.files]


def _read(folder: Path, entries: list[dict[str, Any]], seed: int) -> dict[str, list[npt.NDArray[np.uint8]]]:
    random = np.random.default_rng(seed)
    groups: defaultdict[str, list[npt.NDArray[np.uint8]]] = defaultdict(list)
    for entry in entries:
        picture = cv2.imread(str(folder / entry["file"]))
        if picture is None or entry["label"] == "smoke":
            continue
        name = f"{entry['label']} {entry['source']}".replace("/", "-")
        groups[name].append(squeezed(picture))  # type: ignore[arg-type]
        boxes = entry.get("boxes") or []
        for box in boxes[:2] if entry["label"] == "fire" else []:
            groups[f"{name} close"].append(_close_up(picture, box, random))  # type: ignore[arg-type]
        if entry["label"] == "negative" and random.random() < 0.4:
            middle = [*random.uniform(0.3, 0.7, 2), *random.uniform(0.15, 0.3, 2)]
            groups[f"{name} close"].append(_close_up(picture, middle, random))  # type: ignore[arg-type]
    return groups


def _close_up(picture: npt.NDArray[np.uint8], box: list[float], random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Cut out the surroundings of `box` (middle, width and height as shares of the picture)."""
    height, width = picture.shape[:2]
    side = max(box[2] * width, box[3] * height, 24.0) * random.uniform(*CONTEXT)
    left = int(np.clip(box[0] * width - side / 2, 0, max(0, width - side)))
    top = int(np.clip(box[1] * height - side / 2, 0, max(0, height - side)))
    part = picture[top : top + max(8, int(side)), left : left + max(8, int(side))]
    return squeezed(part)

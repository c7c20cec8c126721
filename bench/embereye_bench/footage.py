"""Clips as the detectors see them: decoded once, as a shard decodes them, then kept at the working size."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embereye.camera.decode.image import decode
from embereye.camera.sources.video.player import frames
from embereye.detect.vision.working import to_working_size, working_scale
from embereye_bench.folds import LabelledClip

SHORTEST = 0.9 / 30  # seconds between two frames that are kept: cameras send no more than 30 a second


@dataclass(frozen=True)
class Footage:
    """One clip at the working size."""

    clip: LabelledClip
    pictures: npt.NDArray[np.uint8]  # (count, height, width, 3), BGR
    seconds: npt.NDArray[np.float64]  # of each picture, from the first

    def at(self, rate: float) -> Iterator[tuple[npt.NDArray[np.uint8], float]]:
        """Pictures and seconds, at most `rate` of them a second."""
        due = 0.0
        for picture, second in zip(self.pictures, self.seconds, strict=True):
            if second >= due - 1e-6:
                due = max(due + 1 / rate, second + 0.5 / rate)
                yield picture, float(second)


def footage(clip: LabelledClip, cache: Path) -> Footage:
    """`clip`, from `cache` where it is kept there as it is now."""
    stamp = clip.path.stat()
    kept = cache / f"{clip.name}-{stamp.st_size}-{stamp.st_mtime_ns}.npy"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        pictures, seconds = _decoded(clip.path)
        np.save(kept.with_suffix(".seconds.npy"), seconds)
        np.save(new := kept.with_suffix(".new.npy"), pictures)
        new.rename(kept)
    return Footage(clip, np.load(kept, mmap_mode="r"), np.load(kept.with_suffix(".seconds.npy")))


def _decoded(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    pictures: list[npt.NDArray[np.uint8]] = []
    times: list[float] = []
    scale = 0
    for data, seconds in frames(str(path)):
        if times and seconds - times[-1] < SHORTEST:
            continue
        if not scale:
            height, width = decode(data, 1).shape[:2]
            scale = working_scale(width, height)
        pictures.append(to_working_size(decode(data, scale)))
        times.append(seconds)
    return np.stack(pictures), np.array(times)

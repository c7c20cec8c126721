"""Clips as the detectors see them: decoded once, as a shard decodes them, then kept small for them, and as JPEG."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from embereye.camera.decode.image import decode
from embereye.camera.sources.video.player import frames
from embereye.detect.vision.working import shrunk, to_working_size, working_scale
from embereye_bench.detection.folds import LabelledClip

SHORTEST = 0.9 / 30  # seconds between two frames that are kept: cameras send no more than 30 a second
CLOSER_SIDE, CLOSER_QUALITY = 960, 88  # pixels of the long side, at most, of what is kept for close looks


@dataclass(frozen=True)
class Footage:
    """One clip at the working size."""

    clip: LabelledClip
    pictures: npt.NDArray[np.uint8]  # (count, height, width, 3), BGR
    seconds: npt.NDArray[np.float64]  # of each picture, from the first
    jpegs: Path | None = None  # every picture as it was before it was reduced; None: it was never larger

    def closer(self, number: int) -> npt.NDArray[np.uint8]:
        """Picture `number` with the pixels that a close look finds."""
        if self.jpegs is None:
            return np.asarray(self.pictures[number])
        begin, end = self._ends[number], self._ends[number + 1]
        data = np.fromfile(self.jpegs, np.uint8, int(end - begin), offset=int(begin))
        return cv2.imdecode(data, cv2.IMREAD_COLOR)  # type: ignore[return-value]

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        assert self.jpegs
        ends: npt.NDArray[np.int64] = np.load(self.jpegs.with_suffix(".ends.npy"))
        return ends

    def at(self, rate: float) -> list[int]:
        """The numbers of at most `rate` pictures a second."""
        due, chosen = 0.0, []
        for number, second in enumerate(self.seconds):
            if second >= due - 1e-6:
                due = max(due + 1 / rate, second + 0.5 / rate)
                chosen.append(number)
        return chosen


def footage(clip: LabelledClip, cache: Path) -> Footage:
    """`clip`, from `cache` where it is kept there: under what it holds, as a copy has another time."""
    kept = cache / f"{clip.name}-{content_digest(clip.path)}.npy"
    jpegs = kept.with_suffix(".jpegs")
    if not kept.exists() or not jpegs.exists():
        cache.mkdir(parents=True, exist_ok=True)
        pictures, seconds = _decoded(clip.path, new_jpegs := kept.with_suffix(".new.jpegs"))
        np.save(kept.with_suffix(".seconds.npy"), seconds)
        np.save(new := kept.with_suffix(".new.npy"), pictures)
        new.rename(kept)
        new_jpegs.with_suffix(".ends.npy").rename(jpegs.with_suffix(".ends.npy"))
        new_jpegs.rename(jpegs)
    return Footage(clip, np.load(kept, mmap_mode="r"), np.load(kept.with_suffix(".seconds.npy")), jpegs)


def content_digest(path: Path) -> str:
    """What the file's content is known by in a cache."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def _decoded(path: Path, jpegs: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """(pictures of the working size, their seconds); what they were made of is written to `jpegs`."""
    pictures: list[npt.NDArray[np.uint8]] = []
    times: list[float] = []
    ends, scale = [0], 0
    with jpegs.open("wb") as out:
        for data, seconds in frames(str(path)):
            if times and seconds - times[-1] < SHORTEST:
                continue
            if not scale:
                height, width = decode(data, 1).shape[:2]
                scale = working_scale(width, height)
            pictures.append(to_working_size(decode(data, scale)))
            times.append(seconds)
            ends.append(ends[-1] + out.write(_closer(data, max(width, height))))
    np.save(jpegs.with_suffix(".ends.npy"), np.array(ends))
    return np.stack(pictures), np.array(times)


def _closer(data: bytes, longest: int) -> bytes:
    if longest <= CLOSER_SIDE:
        return data
    small = shrunk(decode(data, 1), CLOSER_SIDE)
    return cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, CLOSER_QUALITY])[1].tobytes()

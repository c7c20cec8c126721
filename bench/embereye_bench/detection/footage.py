"""Cache clips as the detectors see them: decoded once as in a shard, at the working size, and as JPEG.

`footage` looks a clip up by the digest of its content. The pictures at the working size are one array, which is mapped
and not read; the larger ones for close-ups are JPEGs in one file with a list of their ends. New files are renamed to
their names only when they are complete, so that an interrupted run leaves no broken ones.
"""

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

SHORTEST = 0.9 / 30  # seconds between stored frames: cameras send at most 30 a second
CLOSER_SIDE, CLOSER_QUALITY = 960, 88  # longest side in pixels, and quality, of pictures stored for close-ups


@dataclass(frozen=True)
class Footage:
    """One clip at the working size."""

    clip: LabelledClip
    pictures: npt.NDArray[np.uint8]  # (count, height, width, 3), BGR
    seconds: npt.NDArray[np.float64]  # of each picture, from the first
    jpegs: Path | None = None  # every picture before its reduction; None: it was not reduced

    def closer(self, number: int) -> npt.NDArray[np.uint8]:
        """Picture `number` in the resolution of close-ups."""
        if self.jpegs is None:
            return np.asarray(self.pictures[number])
        begin, end = self._offsets[number], self._offsets[number + 1]
        data = np.fromfile(self.jpegs, np.uint8, int(end - begin), offset=int(begin))
        return cv2.imdecode(data, cv2.IMREAD_COLOR)  # type: ignore[return-value]

    @cached_property
    def _offsets(self) -> npt.NDArray[np.int64]:
        assert self.jpegs
        ends: npt.NDArray[np.int64] = np.load(self.jpegs.with_suffix(".ends.npy"))
        return ends

    def at(self, rate: float) -> list[int]:
        """The numbers of the pictures at no more than `rate` a second."""
        due, chosen = 0.0, []
        for number, second in enumerate(self.seconds):
            if second >= due - 1e-6:
                due = max(due + 1 / rate, second + 0.5 / rate)
                chosen.append(number)
        return chosen


def footage(clip: LabelledClip, cache: Path) -> Footage:
    """Load `clip` from `cache`, or decode it; the cache is keyed by content, because copies have other times."""
    cached = cache / f"{clip.name}-{content_digest(clip.path)}.npy"
    jpegs = cached.with_suffix(".jpegs")
    if not cached.exists() or not jpegs.exists():
        cache.mkdir(parents=True, exist_ok=True)
        pictures, seconds = _decoded(clip.path, new_jpegs := cached.with_suffix(".new.jpegs"))
        np.save(cached.with_suffix(".seconds.npy"), seconds)
        np.save(new := cached.with_suffix(".new.npy"), pictures)
        new.rename(cached)
        new_jpegs.with_suffix(".ends.npy").rename(jpegs.with_suffix(".ends.npy"))
        new_jpegs.rename(jpegs)
    return Footage(clip, np.load(cached, mmap_mode="r"), np.load(cached.with_suffix(".seconds.npy")), jpegs)


def content_digest(path: Path) -> str:
    """The key of a file's content in a cache."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def _decoded(path: Path, jpegs: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Decode pictures of the working size, and their seconds; write the originals to `jpegs`."""
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

"""Smoke: pictures with and without it, smoke drawn over scenes, and the fit of its heads.

Labels say only that a picture shows smoke. Where it is, known for smoke that is pasted into scenes without any, is
learned in ROUNDS: each round takes a picture's most smoke-like places for smoke.

`load_packs` and `paste` compute the trunk's features of all pictures, cached by their digest. `fit_smoke` then fits the
head for places in rounds, and the head for whole pictures once.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime
from sklearn.linear_model import LogisticRegression

from embereye_bench.detection.folds import LabelledClip, fold_of_source, source_of
from embereye_training.augment import changed
from embereye_training.data import frames_of, load_clip, squeezed
from embereye_training.features import Floats
from embereye_training.network import LAST, SMOKE_SIDE, SOURCE, Head, SmokeHeads

Pictures = npt.NDArray[np.uint8]  # (count, SMOKE_SIDE, SMOKE_SIDE, 3), BGR

PLACES = SMOKE_SIDE // 16  # rows and columns
CROP_MIN = 0.7  # smallest crop of each side of a changed picture
VISIBLE_S = 0.5  # after its onset smoke is certainly visible
CHANGED_SHARE = 0.4  # of the weight of pictures changed as cameras change them
PASTED_SHARE = 0.5  # weight of places with pasted smoke, relative to those with real smoke
CLIP_WEIGHT = 4.0  # of a clip; a source of stills has the root of its size
STRENGTH = 10.0  # of the prior, in variances of a channel: with less, sources that are left out rank worse
COVERED, UNCOVERED = 0.15, 0.02  # share of a place that pasted smoke hides, for a place with and without smoke
TOP_SMOKE, TOP_OTHER, ANY_OTHER = 5, 2, 5  # places used per picture
PASTED_PLACES = 12_000  # of each kind, at most
ROUNDS = 2
PASTED_LEAST = 150.0  # weight of places around pasted smoke; at least this for those with it
TOP_SHARE = 0.4  # weight of the most smoke-like places of pictures without smoke, relative to others
SCENES_PER_CLIP = 12  # pictures of a clip without smoke that get pasted smoke
SEED = 7
BATCH = 16


@dataclass(frozen=True)
class Pack:
    """Pictures with a common weight and label, and the trunk's features of them."""

    name: str
    origin: str  # who published the pictures
    smoke: bool
    weight: float
    plain: Floats  # (count, pooled channels)
    changed: Floats  # (count, pooled channels), after changes
    source: npt.NDArray[np.float16]  # (count, 112, PLACES, PLACES)
    last: npt.NDArray[np.float16]  # (count, 320, PLACES / 2, PLACES / 2)


@dataclass(frozen=True)
class Pasted:
    """Features of pictures with smoke pasted into scenes, and the share of each place that it hides."""

    origin: npt.NDArray[np.str_]  # (count,): of the scene pasted into
    plain: Floats
    source: npt.NDArray[np.float16]
    last: npt.NDArray[np.float16]
    cover: Floats  # (count, PLACES, PLACES)


def load_packs(
    clips: Sequence[LabelledClip], stills: Sequence[Path], cache: Path, maps: "Maps", step: int
) -> list[Pack]:
    """Load every `step`-th picture of `clips` and of the folders `stills`, with features cached in `cache`."""
    packs, random = [], np.random.default_rng(SEED)
    for name, origin, smoke, weight, group in (*_of_stills(stills, cache), *_of_clips(clips, cache)):
        pictures = group[::step]
        versions = np.stack([changed(picture, random, SMOKE_SIDE, CROP_MIN) for picture in pictures])
        plain, source, last = maps.cached(pictures, cache / "maps")
        packs.append(Pack(name, origin, smoke, weight, plain, maps.cached(versions, cache / "maps")[0], source, last))
    return packs


def _of_stills(folders: Sequence[Path], cache: Path) -> Iterator[tuple[str, str, bool, float, Pictures]]:
    for folder in folders:
        entries: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text())
        groups: dict[tuple[str, bool], list[str]] = {}
        for entry in entries:
            smoke = entry["label"] == "smoke" or entry.get("smoke")
            if smoke or entry["label"] == "negative" or entry.get("smoke") is False:
                groups.setdefault((entry["source"], bool(smoke)), []).append(entry["file"])
        for (source, smoke), files in groups.items():
            name = f"{folder.name} {source} {'smoke' if smoke else 'other'}".replace("/", "-")
            path = cache / f"{name}.npy"
            if not path.exists():
                read = [cv2.imread(str(folder / file)) for file in files]
                pictures = [squeezed(picture, SMOKE_SIDE) for picture in read if picture is not None]  # type: ignore[arg-type]
                cache.mkdir(parents=True, exist_ok=True)
                np.save(path, np.stack(pictures))
            yield name, source_of(source), smoke, len(files) ** 0.5, np.load(path)


def _of_clips(clips: Sequence[LabelledClip], cache: Path) -> Iterator[tuple[str, str, bool, float, Pictures]]:
    for clip in clips:
        if clip.label == "smoke":
            since: float | None = clip.onset_s + VISIBLE_S
        else:
            since = 0.0 if clip.label == "negative" else None
        if since is None:
            continue
        pictures, seconds = clip_pictures(clip, cache)
        if (chosen := seconds >= since).any():
            yield clip.name, clip.source, clip.label != "negative", CLIP_WEIGHT, pictures[chosen]


def clip_pictures(clip: LabelledClip, cache: Path) -> tuple[Pictures, npt.NDArray[np.float64]]:
    """Load two pictures a second of `clip`, at the network's size for smoke, and their seconds."""
    group = load_clip(clip, cache)
    return np.stack([squeezed(picture, SMOKE_SIDE) for picture in group.pictures]), group.seconds


def paste(
    clips: Sequence[LabelledClip], stills: Sequence[Path], films: Sequence[Path], cache: Path, maps: "Maps", every: int
) -> Pasted:
    """Paste smoke of the `films`, which show smoke on black, into every `every`-th picture without smoke."""
    random = np.random.default_rng(SEED)
    smoke = [[cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) for picture in frames_of(film)[0][::2]] for film in films]
    pictures, origins, covers = [], [], []
    of_clips = {clip.name for clip in clips}
    for name, origin, shows_smoke, _, group in (*_of_stills(stills, cache), *_of_clips(clips, cache)):
        step = max(1, len(group) // SCENES_PER_CLIP) if name in of_clips else 1
        for picture in () if shows_smoke else group[:: every * step]:
            film = smoke[random.integers(len(smoke))]
            cover = _cloud(film[random.integers(len(film))], random)
            grey = random.uniform(90, 235) if random.random() < 0.8 else random.uniform(25, 80)
            light = min(1.1, max(0.25, picture.mean() / 120)) if random.random() < 0.6 else 1.0
            colour = np.clip((grey + random.uniform(-8, 8, 3)) * light, 0, 255)
            mixed = picture * (1 - cover[..., None]) + colour * cover[..., None]
            pictures.append(mixed.clip(0, 255).astype(np.uint8))
            origins.append(origin)
            covers.append(cv2.resize(cover, (PLACES, PLACES), interpolation=cv2.INTER_AREA))
    plain, source, last = maps.cached(np.stack(pictures), cache / "pasted")
    return Pasted(np.array(origins), plain, source, last, np.stack(covers))


def _cloud(smoke: npt.NDArray[np.uint8], random: np.random.Generator) -> Floats:
    """Return the share, 0..1, of each pixel that a part of the picture `smoke` hides, at a random place and size."""
    bright = np.clip(smoke.astype(np.float32) - np.percentile(smoke, 10), 0, None)
    bright /= max(20.0, float(np.percentile(bright, 99)))
    side = bright.shape[0]
    wide, high = (int(side * random.uniform(0.4, 1.0)) for _ in range(2))
    left, top = int(random.uniform(0, side - wide)), int(random.uniform(0, side - high))
    part = bright[top : top + high, left : left + wide][:, :: random.choice((-1, 1))]
    size = SMOKE_SIDE * np.exp(random.uniform(np.log(0.15), 0.0))
    wide, high = max(4, int(size)), max(4, int(min(SMOKE_SIDE, size * random.uniform(0.6, 1.6))))
    rows, columns = np.mgrid[-1 : 1 : high * 1j, -1 : 1 : wide * 1j]
    soft = np.clip(2 * (1 - np.sqrt(columns**2 + rows**2)), 0, 1)
    left, top = int(random.integers(0, SMOKE_SIDE - wide + 1)), int(random.integers(0, SMOKE_SIDE - high + 1))
    cover = np.zeros((SMOKE_SIDE, SMOKE_SIDE), np.float32)
    scaled = cv2.resize(np.ascontiguousarray(part), (wide, high)) * soft
    cover[top : top + high, left : left + wide] = np.clip(scaled * random.uniform(0.35, 1.1), 0, 0.97)
    return cover


class Maps:
    """The trunk's pooled channels and both maps of pictures, by onnxruntime on one thread."""

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._digest = hashlib.sha256(model)

    def cached(
        self, pictures: Pictures, cache: Path
    ) -> tuple[Floats, npt.NDArray[np.float16], npt.NDArray[np.float16]]:
        """Return (pooled, source map, last map) of `pictures`, cached in `cache` until they or the trunk change."""
        digest = self._digest.copy()
        digest.update(pictures.tobytes())
        path = cache / f"{digest.hexdigest()[:24]}.npz"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            parts = [self._of(pictures[start : start + BATCH]) for start in range(0, len(pictures), BATCH)]
            pooled, source, last = (np.concatenate(part) for part in zip(*parts, strict=True))
            np.savez(path, pooled=pooled, source=source, last=last)
        with np.load(path) as arrays:
            return arrays["pooled"], arrays["source"], arrays["last"]

    def _of(self, pictures: Pictures) -> tuple[Floats, npt.NDArray[np.float16], npt.NDArray[np.float16]]:
        blob = np.ascontiguousarray(pictures.astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1.0)
        source, last = self._session.run([SOURCE, LAST], {"pixels": blob})
        pooled = [pool(layer, axis=(2, 3)) for layer in (source, last) for pool in (np.mean, np.max)]
        return np.concatenate(pooled, axis=1), source.astype(np.float16), last.astype(np.float16)


def fit_smoke(packs: Sequence[Pack], pasted: Pasted, left_out: int | None = None) -> SmokeHeads:
    """Fit both heads without the sources of the fold `left_out`; None: with all of them."""
    used = [pack for pack in packs if fold_of_source(pack.origin) != left_out]
    shown = np.flatnonzero([fold_of_source(origin) != left_out for origin in pasted.origin])
    place: Head | None = None
    for _ in range(ROUNDS):
        place = _fit_places(used, pasted, shown, place)
    assert place
    return SmokeHeads(_fit_whole(used), place)


class _Samples:
    """Features with labels and weights; both labels weigh the same in the end."""

    def __init__(self) -> None:
        self._features: list[Floats] = []
        self._smoke: list[npt.NDArray[np.bool_]] = []
        self._weights: list[npt.NDArray[np.float64]] = []

    def add(self, features: Floats, weight: float, *, smoke: bool) -> None:
        """Add `features` (count, channels) that weigh `weight` together."""
        if len(features):
            self._features.append(features)
            self._smoke.append(np.full(len(features), smoke))
            self._weights.append(np.full(len(features), weight / len(features)))

    def weight_of_smoke(self) -> float:
        """Return the weight of the samples with smoke."""
        pairs = zip(self._smoke, self._weights, strict=True)
        return float(sum(weights.sum() for smoke, weights in pairs if smoke[0]))

    def fit(self) -> Head:
        """Fit regularised least squares to the standardised features, then the scale of the odds by their labels."""
        features, smoke = np.concatenate(self._features).astype(np.float32), np.concatenate(self._smoke)
        weights = np.concatenate(self._weights)
        for label in (False, True):
            weights[smoke == label] *= 0.5 / weights[smoke == label].sum()
        mean = np.average(features, axis=0, weights=weights)
        deviation = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weights)) + 1e-3
        standard = ((features - mean) / deviation).astype(np.float32)
        weighted = standard * weights[:, None].astype(np.float32)
        moments = (weighted.T @ standard).astype(np.float64)
        truth = np.where(smoke, 1.0, -1.0)
        kernel = np.linalg.solve(moments + STRENGTH * np.eye(len(moments)), weighted.T @ truth)
        scale = LogisticRegression(C=1e6).fit((standard @ kernel)[:, None], smoke, sample_weight=len(weights) * weights)
        kernel *= scale.coef_[0, 0] / deviation
        return Head(kernel.astype(np.float32), float(scale.intercept_[0] - kernel @ mean))


def _fit_whole(packs: Sequence[Pack]) -> Head:
    samples = _Samples()
    for pack in packs:
        samples.add(pack.plain, (1.0 - CHANGED_SHARE) * pack.weight, smoke=pack.smoke)
        samples.add(pack.changed, CHANGED_SHARE * pack.weight, smoke=pack.smoke)
    return samples.fit()


def _fit_places(packs: Sequence[Pack], pasted: Pasted, shown: npt.NDArray[np.intp], before: Head | None) -> Head:
    """Fit the head for places; `before` chooses the places of the round, None: only pasted smoke has places."""
    samples, random = _Samples(), np.random.default_rng(SEED)
    for pack in packs:
        cells, rows = places_of(pack.source, pack.last), np.arange(len(pack.source))[:, None]
        if not pack.smoke:
            chosen = random.integers(0, PLACES**2, (len(cells), ANY_OTHER))
            samples.add(cells[rows, chosen].reshape(-1, cells.shape[2]), pack.weight, smoke=False)
        if before is not None:
            top = np.argsort(-(cells @ before.kernel), axis=1)[:, : TOP_SMOKE if pack.smoke else TOP_OTHER]
            weight = pack.weight * (1.0 if pack.smoke else TOP_SHARE)
            samples.add(cells[rows, top].reshape(-1, cells.shape[2]), weight, smoke=pack.smoke)
    cells, cover = places_of(pasted.source[shown], pasted.last[shown]), pasted.cover[shown].reshape(len(shown), -1)
    for smoke, part in ((True, cells[cover > COVERED]), (False, cells[cover < UNCOVERED])):
        weight = max(PASTED_LEAST, PASTED_SHARE * samples.weight_of_smoke()) if smoke else PASTED_LEAST
        samples.add(part[random.permutation(len(part))[:PASTED_PLACES]], weight, smoke=smoke)
    return samples.fit()


def places_of(source: npt.NDArray[np.float16], last: npt.NDArray[np.float16]) -> Floats:
    """Return the features (count, PLACES², channels) of each place: of both maps, the coarser one doubled."""
    doubled = last.repeat(2, axis=2).repeat(2, axis=3)
    both = np.concatenate([source, doubled], axis=1).astype(np.float32)
    return both.reshape(*both.shape[:2], -1).transpose(0, 2, 1)

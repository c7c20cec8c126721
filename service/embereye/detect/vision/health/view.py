"""A camera's usual view, small and averaged over minutes, and its agreement with the present picture.

Pictures are averaged to an `Impression` of the last seconds, and impressions to a `View` over minutes. `compare`
measures how an impression agrees with a view: whether edges are in the same place, how many blocks lost their
structure, and how sharp it is. Edges are normalised, so that the light hardly matters. `health` owns the views and
judges the agreement.
"""

import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.thresholds import HealthThresholds

Grey = npt.NDArray[np.uint8]
Field = npt.NDArray[np.float32]

BLOCK = 8  # pixels of the working picture per side, so that a few hundred blocks are compared
SMALL = 2  # how much smaller the averaged pictures are than the working picture, to save memory and noise
_FLOOR = np.float32(1e-3)  # of a gradient, against division by 0


@dataclass(frozen=True)
class Agreement:
    """The agreement of a present picture with a view."""

    place: float  # -1..1: correlation of the edges, independent of the light
    lost: float  # 0..1: share of the view's structured blocks that lack structure now
    sharpness: float  # fine detail where the view has structure; 1: as usual


class Impression:
    """The average of the last few seconds: noise and passing things disappear, still things remain."""

    def __init__(self, grey: Grey) -> None:
        self.average = _small(grey)
        self.detail = _detail(grey)
        self._derive()

    def _derive(self) -> None:
        gradient = _gradient(self.average)
        self.level = float(self.average.mean())  # counts
        self.structure = _blocks(gradient, BLOCK // SMALL)  # mean gradient of each block, counts per pixel

    @property
    def edges(self) -> Field:
        """The edges, computed on each call, which is at most once a second."""
        return _edges(_gradient(self.average))

    def add(self, grey: Grey, rate: float) -> None:
        """Move the averages towards `grey` (height x width, 0..255) by `rate` (0..1)."""
        cv2.accumulateWeighted(_small(grey), self.average, rate)
        cv2.accumulateWeighted(_detail(grey), self.detail, rate)
        self._derive()


class View:
    """One scene, learned while it is seen."""

    def __init__(self, seen: Impression, now_ns: int) -> None:
        self._average = seen.average.copy()
        self._detail = seen.detail.copy()
        self._since_ns = self.learnt_ns = now_ns
        self._refresh()

    def age_ns(self, now_ns: int) -> int:
        """Return the time since the view was created."""
        return now_ns - self._since_ns

    def learn(self, seen: Impression, now_ns: int, limits: HealthThresholds) -> None:
        """Learn from `seen` at intervals: as a plain mean at first, later with the memory of `limits`."""
        elapsed = max(0, now_ns - self.learnt_ns)
        if elapsed < limits.learn_ns:
            return
        memory = min(limits.view_memory_ns, max(elapsed, self.age_ns(now_ns)))
        rate = -math.expm1(-elapsed / memory) if memory else 1.0
        cv2.accumulateWeighted(seen.average, self._average, rate)
        cv2.accumulateWeighted(seen.detail, self._detail, rate)
        self.learnt_ns = now_ns
        self._refresh()

    def _refresh(self) -> None:
        gradient = _gradient(self._average)
        self.level = float(self._average.mean())
        self._edges = _edges(gradient)
        self._structure = _blocks(gradient, BLOCK // SMALL)
        self._structured = self._structure > max(HealthThresholds.structure_min, 0.5 * float(self._structure.mean()))
        usual = float(self._structure[self._structured].sum())
        self._sharpness = float(self._detail[self._structured].sum()) / usual if usual else 0.0

    def compare(self, seen: Impression, edges: Field, limits: HealthThresholds) -> Agreement:
        """Compare `seen`, whose edges are `edges`, with this view."""
        place = float(np.vdot(self._edges, edges))
        structure = seen.structure[self._structured]
        if not structure.size or not self._sharpness:
            return Agreement(place, 0.0, 1.0)
        # A picture of half the brightness has half the gradients without any loss.
        gain = min(1.0, seen.level / max(1.0, self.level))
        lost = np.count_nonzero(structure < limits.lost_ratio * gain * self._structure[self._structured])
        sharpness = float(seen.detail[self._structured].sum()) / max(float(structure.sum()), 1e-3)
        return Agreement(place, lost / structure.size, sharpness / self._sharpness)


def edges_of(grey: Grey) -> Field:
    """Return the edges of one picture (height x width, 0..255), small: a vector of length 1 and mean 0."""
    return _edges(_gradient(_small(grey)))


def _small(grey: Grey) -> Field:
    height, width = grey.shape
    size = (max(BLOCK, width // SMALL), max(BLOCK, height // SMALL))
    return cv2.resize(grey, size, interpolation=cv2.INTER_AREA).astype(np.float32)


def _detail(grey: Grey) -> Field:
    """Return the mean absolute second difference of each block."""
    return _blocks(cv2.convertScaleAbs(cv2.Laplacian(grey, cv2.CV_16S)), BLOCK).astype(np.float32)


def _gradient(average: Field) -> Field:
    smooth = cv2.blur(average, (3, 3))
    across = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, scale=1 / 8)
    down = cv2.Sobel(smooth, cv2.CV_32F, 0, 1, scale=1 / 8)
    return cv2.magnitude(across, down)  # type: ignore[return-value]


def _edges(gradient: Field) -> Field:
    """Scale `gradient` to a vector of length 1 and mean 0, in which strong edges count little more than weak ones."""
    edges = gradient / (gradient + gradient.mean() + _FLOOR)
    edges -= edges.mean()
    return edges / max(float(np.linalg.norm(edges)), float(_FLOOR))  # type: ignore[no-any-return]


def _blocks(field: npt.NDArray[Any], side: int) -> Field:
    return cv2.resize(field, block_shape(field.shape, side)[::-1], interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def block_shape(shape: tuple[int, ...], side: int = BLOCK) -> tuple[int, int]:
    """Return the rows and columns of blocks in a picture of `shape`."""
    return max(1, shape[0] // side), max(1, shape[1] // side)

"""Smoke detection in moving pictures: a veil in front of the background that reduces contrast and adds one grey.

A picture through smoke is I = t J + (1 - t) A (Koschmieder's law of the atmosphere): J is the background, t the share
of it that comes through, A the colour of the smoke in the room's light. In each block of the picture the regression of
I on J gives t (slope), A (from the intercept) and whether the background's structure is still there (correlation). A
thing in front has no such correlation, a shadow has A near black, and a new exposure changes all blocks at once.

A few times a second each block is compared with the background, and blocks with a lasting veil are grouped to clouds.
The terms of a cloud are weighed to log odds. Where these are for smoke, persistence grows; its length decides about an
alarm. The background is not learned where smoke is suspected.
"""

import math
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.pixels import Picture
from embereye.detect.vision.thresholds import SmokeThresholds, least_odds
from embereye.units import SECOND, PixelBox
from embereye.v1.types_pb2 import Term

Mask = npt.NDArray[np.bool_]
Blocks = npt.NDArray[np.float32]  # one value per block of the picture

BLOCK = 8  # pixels per side: enough for a regression, small enough for a source
_SQUARE = np.ones((3, 3), np.uint8)


@dataclass(frozen=True)
class Smoke:
    """The result of the smoke detector for one frame."""

    score: float = 0.0  # of the best cloud, 0..1
    lasted_ns: int = 0  # how long there has been smoke at the most persistent place
    box: PixelBox | None = None  # x, y, width, height in pixels of the working picture
    terms: tuple[Term, ...] = ()
    needed_ns: int | None = SmokeThresholds.alarm_ns  # how long that is needed for an alarm; None: at most a pre-alarm
    pre_alarm_ns: int = SmokeThresholds.pre_alarm_ns


@dataclass(frozen=True)
class _Cloud:
    box: PixelBox  # in blocks
    mask: Mask  # of all blocks
    values: dict[str, float]  # by name of the weight
    odds: float


@dataclass(frozen=True)
class _Veil:
    """The result of the regression for each block."""

    shifted: Mask  # brighter or darker than the background
    candidates: Mask
    textured: Mask
    loss: Blocks  # 1 - t
    airlight: Blocks  # A, counts
    structure: Blocks  # correlation with the background
    before: Blocks  # mean of the background, counts


class SmokeDetector:
    """Smoke detection for one camera. Feed it every frame; it skips most of them."""

    def __init__(self, thresholds: SmokeThresholds | None = None) -> None:
        self.limits = thresholds or SmokeThresholds()
        self._least = least_odds(self.limits.score_min)
        self._shape: tuple[int, ...] = ()
        self._time_ns = 0
        self._reset((0, 0))

    def _reset(self, shape: tuple[int, ...]) -> None:
        rows, columns = shape[0] // BLOCK, shape[1] // BLOCK
        self._shape = shape
        self._background: npt.NDArray[np.float32] | None = None
        self._colour = np.zeros((rows, columns, 3), np.float32)  # of the background
        self._learnt_ns = 0  # how long the background has been learned
        self._persistence = np.zeros((rows, columns), np.float32)  # seconds
        self._candidates = np.zeros((rows, columns), bool)  # at the last detection
        self._lasting = np.zeros((rows, columns), np.float32)  # share of the latest detections with a veil
        self._means: deque[Blocks] = deque(maxlen=4)  # of the blocks, at the last detections
        self._shares: deque[float] = deque(maxlen=4)  # of veiled blocks, at the last detections
        self._result = Smoke()

    def observe(
        self, frame: Picture, time_ns: int, ignored: Mask | None = None, disturbed: Mask | None = None
    ) -> Smoke:
        """Analyse `frame` (BGR) at `time_ns`, except where `ignored` is set.

        Nothing is learned where `disturbed` is set.
        """
        limits = self.limits
        if frame.shape[:2] != self._shape:
            self._reset(frame.shape[:2])
        elapsed = time_ns - self._time_ns
        if self._background is not None and (elapsed < limits.period_ns or not self._persistence.size):
            self._time_ns = min(self._time_ns, time_ns)  # a clock that is set back is no new scene
            return self._result
        self._time_ns = time_ns
        grey: Picture = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)  # type: ignore[assignment]
        if self._background is None:
            self._begin(grey, frame)
            return self._result
        if elapsed > limits.persistence_max_ns:
            self._persistence.fill(0)
        elapsed = min(elapsed, limits.gap_max_ns)
        veil, clouds = self._veil(grey), []
        if veil and ignored is not None:
            hidden = blocks_of(ignored)
            veil.candidates[hidden] = veil.textured[hidden] = False
        candidates = veil.candidates if veil else np.zeros(self._persistence.shape, bool)
        if self._has_stepped(veil):
            self._begin(grey, frame)
            return self._result
        if self._has_cleared(veil) and elapsed < limits.gap_max_ns:
            self._persistence.fill(0)
        self._candidates = candidates
        self._lasting += limits.lasting_rate * (candidates - self._lasting)
        if veil:
            clouds = self._clouds(veil, candidates & (self._lasting > limits.lasting_min), frame)
        self._add_persistence([cloud for cloud in clouds if cloud.odds >= self._least], elapsed / SECOND)
        self._learn(frame, grey, candidates, disturbed, elapsed)
        self._conclude(clouds)
        return self._result

    def _begin(self, grey: Picture, frame: Picture) -> None:
        self._background = grey.astype(np.float32)
        self._colour = block_means(frame)
        self._learnt_ns = 0
        self._shares.clear()
        self._means.clear()

    def _veil(self, grey: Picture) -> _Veil | None:
        """Return the veil in front of the background; None if every block is as bright as the background."""
        limits = self.limits
        assert self._background is not None
        seen = grey.astype(np.float32)
        mean, mean_before = block_means(seen), block_means(self._background)
        self._means.append(mean)
        shifted = np.abs(mean - mean_before) > limits.shift_min
        if not shifted.any():  # most pictures of most cameras end here; the rest takes as long again
            return None
        variance = block_means(seen * seen) - mean * mean
        variance_before = block_means(self._background * self._background) - mean_before * mean_before
        covariance = block_means(seen * self._background) - mean * mean_before
        through: Blocks = (covariance / np.maximum(variance_before, 1.0)).astype(np.float32)
        structure = covariance / np.sqrt(np.maximum(variance * variance_before, 1.0))
        airlight: Blocks = ((mean - through * mean_before) / np.maximum(1.0 - through, 0.05)).astype(np.float32)
        textured = variance_before > limits.texture_min**2
        candidates = textured & (structure > limits.structure_min)
        candidates &= (through < limits.through_max) & (through > limits.through_min)
        candidates &= (airlight > limits.airlight_min) & (airlight < limits.airlight_max)
        candidates &= shifted
        return _Veil(shifted, candidates, textured, 1.0 - through, airlight, structure.astype(np.float32), mean_before)

    def _has_stepped(self, veil: _Veil | None) -> bool:
        """True if most of the picture changed within a second, by exposure, mode or lamp: that is no smoke."""
        limits = self.limits
        share = 0.0
        if veil:
            share = int(np.count_nonzero(veil.candidates)) / max(1, int(np.count_nonzero(veil.textured)))
        before = self._shares[0] if self._shares else 0.0
        self._shares.append(share)
        return (
            share > limits.step_to
            and before < limits.step_from
            and not self._persistence.max() > limits.step_persistence_s
        )

    def _has_cleared(self, veil: _Veil | None) -> bool:
        """True if nearly all of a persistent veil gave way to the background since the last detection.

        Smoke thins out. A film that restarts or a picture that was stuck shows the clear background at once.
        """
        if not self._candidates.any():
            return False
        before = self._candidates & (self._persistence > 0)
        size = int(np.count_nonzero(before))
        left = int(np.count_nonzero(before & veil.shifted)) if veil else 0
        return size >= self.limits.blocks_min and left <= (1.0 - self.limits.cleared_share) * size

    def _clouds(self, veil: _Veil, candidates: Mask, frame: Picture) -> list[_Cloud]:
        limits = self.limits
        if np.count_nonzero(candidates) < limits.blocks_min:
            return []
        # Blocks with one block between them form one cloud: flat walls and thick smoke cannot be measured.
        count, labels = cv2.connectedComponents(cv2.dilate(candidates.view(np.uint8), _SQUARE), connectivity=4)
        colour, clouds = block_means(frame), []
        for label in range(1, count):
            mask = (labels == label) & candidates
            size = int(np.count_nonzero(mask))
            if size < limits.blocks_min:
                continue
            veiled = (labels == label) & veil.textured & (veil.loss > 1.0 - limits.through_max)
            loss = veil.loss[mask]
            # The smoke's colour, from the means of the cloud: A = (I - t J) / (1 - t).
            own_colour = (colour[mask] - (1 - loss)[:, None] * self._colour[mask]).mean(axis=0) / loss.mean()
            values = {
                "loss": float(np.median(loss)),
                "size": size / self._persistence.size,
                "structure": float(veil.structure[mask].mean()),
                "spread": float(veil.airlight[mask].std()),
                "echo": correlation(veil.airlight[veiled], veil.before[veiled]),
                "hue": float(own_colour.max() - own_colour.min()),
                "stir": float(np.median(np.ptp([before[mask] for before in self._means], axis=0))),
            }
            odds = limits.prior + sum(weight.of(values[name]) for name, weight in limits.weights.items())
            clouds.append(_Cloud(cv2.boundingRect(mask.view(np.uint8)), mask, values, odds))  # type: ignore[arg-type]
        return clouds

    def _add_persistence(self, clouds: list[_Cloud], seconds: float) -> None:
        smoky = np.zeros(self._persistence.shape, np.uint8)
        for cloud in clouds:
            smoky |= cloud.mask.view(np.uint8)
        if clouds or self._persistence.any():
            reached = cv2.dilate(smoky, _SQUARE) > 0
            self._persistence += np.where(reached, seconds, -self.limits.decay * seconds).astype(np.float32)
            np.clip(self._persistence, 0.0, self.limits.persistence_max_ns / SECOND, out=self._persistence)

    def _learn(self, frame: Picture, grey: Picture, candidates: Mask, disturbed: Mask | None, elapsed_ns: int) -> None:
        """Learn `grey` as background, except where smoke is suspected."""
        limits = self.limits
        assert self._background is not None
        self._learnt_ns += elapsed_ns
        memory = min(limits.memory_ns, self._learnt_ns + elapsed_ns)  # the first seconds are a plain mean
        rate = 1.0 - math.exp(-elapsed_ns / memory)
        still = np.ones(self._persistence.shape, np.uint8)
        suspected = (self._persistence > 0) | candidates if self._learnt_ns > limits.begin_ns else None
        if disturbed is None and (suspected is None or not suspected.any()):
            cv2.accumulateWeighted(grey, self._background, rate)
        else:
            if suspected is not None:
                still[cv2.dilate(suspected.view(np.uint8), _SQUARE) > 0] = 0
            height, width = grey.shape
            learn = cv2.resize(still, (width, height), interpolation=cv2.INTER_NEAREST)
            if disturbed is not None:
                learn[disturbed] = 0
            cv2.accumulateWeighted(grey, self._background, rate, mask=learn)
        self._colour += np.float32(rate) * still[..., None] * (block_means(frame) - self._colour)

    def _conclude(self, clouds: list[_Cloud]) -> None:
        best = max(clouds, key=lambda cloud: (float(self._persistence[cloud.mask].max()), cloud.odds), default=None)
        persistence = float(self._persistence.max(initial=0.0))
        if best is None:
            self._result = Smoke(lasted_ns=int(persistence * SECOND))
            return
        limits = self.limits
        terms = [weight.term("smoke", name, best.values[name]) for name, weight in limits.weights.items()]
        terms.append(Term(name="smoke.lasted", value=persistence, threshold=limits.alarm_ns / SECOND, unit="s"))
        x, y, width, height = (BLOCK * value for value in best.box)
        score = 1.0 / (1.0 + math.exp(-best.odds))
        self._result = Smoke(score, int(persistence * SECOND), (x, y, width, height), tuple(terms))


def correlation(first: Blocks, second: Blocks) -> float:
    """Return the correlation of two arrays, -1..1."""
    first, second = first - first.mean(), second - second.mean()
    return float((first * second).sum() / (math.sqrt(float((first * first).sum() * (second * second).sum())) + 1e-6))


def block_means(picture: npt.NDArray[np.float32] | Picture) -> Blocks:
    """Return the mean of each whole block of `picture` (height x width, with or without channels)."""
    rows, columns = picture.shape[0] // BLOCK, picture.shape[1] // BLOCK
    whole = picture[: rows * BLOCK, : columns * BLOCK]
    if not whole.size:
        return np.zeros((rows, columns, *picture.shape[2:]), np.float32)
    small = cv2.resize(whole, (columns, rows), interpolation=cv2.INTER_AREA)
    return small.astype(np.float32, copy=False)


def blocks_of(mask: Mask) -> Mask:
    """Return the blocks that contain any pixel of `mask`."""
    return block_means(255 * mask.astype(np.uint8)) > 0

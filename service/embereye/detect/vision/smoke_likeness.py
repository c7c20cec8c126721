"""Smoke that the appearance network sees: in which places, more than usual there, for how long, growing or drifting.

The veil (`smoke`) needs a textured background that it saw before the smoke. The network needs neither, but it takes
fog, haze and clouds for smoke, too. Those are usual for their view, or still, or cover all of it at once. Smoke is a
part of the picture that stirs, and mostly one that was not smoke-like before.

Each inspection is stored for some seconds, less the usual odds of the view. While the mean of recent ones is
smoke-like, in places that stir, persistence grows. A change of all places at once is the light, and a rise in almost
all of them is fog. `seen` decides how much persistence an alarm needs: less if the smoke is new or growing.
"""

import math
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.usual_levels import NO_SMOKE, UsualLevels
from embereye.detect.vision.networks.appearance import PLACES, Inspection, Odds
from embereye.detect.vision.pixels import Picture
from embereye.detect.vision.smoke import Smoke
from embereye.detect.vision.thresholds import SmokeThresholds, least_odds
from embereye.units import SECOND, PixelBox
from embereye.v1.types_pb2 import Term

_FINE = 8  # pixels per side of a place in the small picture that shows stir …
_PATCH = 4  # … and of the patches whose means are compared: smoke changes patches, noise single pixels
# Share of the noise of single pixels that remains in a patch's mean: a quarter, and more where neighbours share noise.
_NOISE_LEFT = 0.35
_DIRECTIONS = ("right", "down", "left", "up")


@dataclass(frozen=True)
class _Judged:
    """The network's result for one picture."""

    time_ns: int
    level: float  # log odds of the whole picture and of its most smoke-like places, above the usual
    places: Odds  # (PLACES, PLACES), log odds above the usual
    usual: Odds  # (PLACES, PLACES), log odds
    stir: Odds  # (PLACES, PLACES), counts of grey by which a place changes within half a second

    @property
    def smoky(self) -> npt.NDArray[np.bool_]:
        """The places that are more likely smoke than not."""
        return self.places > 0


class SmokeLikeness:
    """The latest inspections of one camera's pictures for smoke. Not thread-safe.

    `phase` (0..1) shifts the inspections within their period. Places in `hidden` (PLACES, PLACES) are masked: they
    never count. The network sees them, so the whole picture then counts no more than the other places.
    """

    def __init__(
        self,
        limits: SmokeThresholds,
        usual_levels: UsualLevels,
        phase: float = 0.0,
        hidden: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._limits, self._usual_levels, self._phase, self._hidden = limits, usual_levels, phase, hidden
        self._more = least_odds(limits.score_min)  # log odds by which people want smoke to be clearer
        self._asked_ns = 0
        self._judged: deque[_Judged] = deque()
        self._before: Odds | None = None  # odds of each place before the latest inspections; None: unknown
        self._grey: npt.NDArray[np.float32] | None = None
        self._grey_ns = 0
        self._stir = np.zeros((PLACES, PLACES), np.float32)
        self._stepped_ns = 0  # when all of the picture last changed at once, …
        self._blind_until_ns = 0  # … and until when inspections do not count for that
        self._everywhere = False  # almost all places became smoke-like together
        self._began_in_part = False  # the smoke was not everywhere when it was first suspected
        self._persistence_ns = 0
        self._growing_ns = 0  # for how long the smoke has grown
        self._noted_ns = 0  # time of the latest inspection
        self._result: Smoke | None = None  # of the latest inspection, for pictures of …
        self._shape = (0, 0)

    def hide(self, places: npt.NDArray[np.bool_] | None) -> None:
        """Replace the masked places (PLACES, PLACES); None: there are none."""
        self._hidden = places

    def start_if_due(self, time_ns: int) -> bool:
        """True if the picture of `time_ns` should be judged; that starts the next interval."""
        limits = self._limits
        if self._hidden is not None and self._hidden.all():
            return False
        if self._phase and not self._asked_ns:
            self._asked_ns = time_ns - int((1.0 - self._phase) * limits.inspect_ns)
        every_ns = limits.inspect_suspected_ns if self.is_suspected else limits.inspect_ns
        if 0 <= time_ns - self._asked_ns < every_ns:
            return False
        self._asked_ns = time_ns
        return True

    @property
    def is_suspected(self) -> bool:
        """True if the latest picture was smoke-like, or something lately was."""
        return self._persistence_ns > 0 or bool(self._judged and self._judged[-1].level >= self._limits.suspect_odds)

    def see(self, plane: Picture, time_ns: int) -> None:
        """Measure the stir of every place in `plane`, the green of a picture: smoke is grey."""
        limits, elapsed = self._limits, time_ns - self._grey_ns
        if self._grey is not None and 0 <= elapsed < limits.stir_ns:
            return
        grey = cv2.resize(plane, (PLACES * _FINE,) * 2, interpolation=cv2.INTER_AREA).astype(np.float32)
        if self._grey is not None and 0 <= elapsed <= limits.gap_ns:
            change = grey - self._grey
            means = _shrunk(change, PLACES)
            if np.count_nonzero(np.abs(means) > limits.step_counts) > limits.step_share * means.size:
                self._note_step(time_ns)
            self._stir += np.float32(limits.stir_rate) * (_stir_of(change) - self._stir)
        self._grey, self._grey_ns = grey, time_ns

    def _note_step(self, time_ns: int) -> None:
        """Wait for the next light after a change of it; a light that flashes is never waited for."""
        flashes = 0 <= time_ns - self._stepped_ns < self._limits.flash_ns
        self._stepped_ns = time_ns
        if not flashes:
            self._blind_until_ns = time_ns + self._limits.step_ns
            self._before = None  # what was before was seen in another light

    def note(self, inspection: Inspection) -> None:
        """Evaluate `inspection`, unless it did not judge smoke or the light has just changed."""
        limits, time_ns = self._limits, inspection.time_ns
        if inspection.smoke is None or 0 <= self._blind_until_ns - time_ns < limits.step_ns:
            return
        elapsed = time_ns - self._noted_ns
        if not 0 <= elapsed <= limits.gap_ns:
            self._forget()
            elapsed = 0
        self._noted_ns = time_ns
        odds, usual = inspection.smoke.places, self._usual_levels.usual_smoke(time_ns)
        if self._hidden is not None:
            odds = np.where(self._hidden, np.float32(NO_SMOKE), odds)
        places = odds - np.maximum(usual, 0.0)
        top = np.argsort(places, axis=None)[-limits.top_places :]
        of_places = float(places.ravel()[top].mean())
        whole = inspection.smoke.whole - float(np.maximum(usual, 0.0).ravel()[top].mean())
        level = of_places + (whole if self._hidden is None else min(whole, of_places))
        self._judged.append(_Judged(time_ns, level, places, usual, self._stir.copy()))
        self._usual_levels.learn_smoke(odds, min(elapsed, limits.inspect_ns) / SECOND, time_ns)
        while len(self._judged) > limits.inspections_min and self._judged[0].time_ns < time_ns - limits.before_ns:
            old = self._judged.popleft()
            if self._before is None:
                self._before = old.places if old.time_ns >= self._blind_until_ns else None
            elif not self._persistence_ns and not self._everywhere:  # what is suspected, or fog, is not what was before
                self._before = self._before + np.float32(limits.before_rate) * (old.places - self._before)
        self._judge(elapsed)

    def _forget(self) -> None:
        self._judged.clear()
        self._result = None
        self._before, self._everywhere, self._persistence_ns, self._growing_ns = None, False, 0, 0

    def _recent(self) -> list[_Judged]:
        """The inspections of `span_ns`, or in fewer pictures a second the last `inspections_min`."""
        newest = self._judged[-1].time_ns if self._judged else 0
        least = len(self._judged) - self._limits.inspections_min
        return [
            entry
            for number, entry in enumerate(self._judged)
            if number >= least or newest - entry.time_ns < self._limits.span_ns
        ]

    def _judge(self, elapsed: int) -> None:
        self._result = None
        limits, recent = self._limits, self._recent()
        smoky = len(recent) >= limits.inspections_min and self._level(recent) >= self._suspicion()
        self._everywhere = self._is_everywhere(recent)
        smoky = smoky and not self._everywhere and self._is_stirring(recent)
        gained = elapsed if smoky else -2 * elapsed
        self._persistence_ns = min(max(0, self._persistence_ns + gained), limits.likeness_most_ns)
        in_part = smoky and int(np.count_nonzero(recent[-1].smoky)) <= limits.fog_share * self._visible
        self._began_in_part = self._persistence_ns > 0 and (self._began_in_part or in_part)
        grows = smoky and self._is_growing()
        self._growing_ns = self._growing_ns + elapsed if grows else 0

    def _suspicion(self) -> float:
        """Return the level of a suspicion: less is enough in a part of the picture that was clear before."""
        limits = self._limits
        return (limits.likeness_pre_new if self._is_rising() else limits.likeness_pre) + self._more

    @staticmethod
    def _level(recent: list[_Judged]) -> float:
        return sum(entry.level for entry in recent) / len(recent)

    def _is_stirring(self, recent: list[_Judged]) -> bool:
        """True if the smoke-like places change, as smoke always does."""
        entry = recent[-1]
        stir = entry.stir[entry.smoky]
        return stir.size > 0 and float(stir.mean()) >= self._limits.stir_counts

    def _is_everywhere(self, recent: list[_Judged]) -> bool:
        """True if almost all places became smoke-like together, as in fog or on a lens that mists over."""
        if self._before is None:
            return False
        rise = np.mean([entry.places for entry in recent], axis=0) - self._before
        return bool(np.count_nonzero(rise > self._limits.rise_odds) > self._limits.cover_share * self._visible)

    @property
    def _visible(self) -> int:
        """The number of places that are not hidden."""
        return PLACES**2 - (0 if self._hidden is None else int(np.count_nonzero(self._hidden)))

    def _is_rising(self) -> bool:
        """True if a part of the picture has become more smoke-like than before."""
        if self._before is None:
            return False
        rise = np.mean([entry.places for entry in self._recent()], axis=0) - self._before
        top = np.sort(rise, axis=None)[-self._limits.top_places :]
        return float(top.mean()) >= self._limits.rise_odds

    def _is_growing(self) -> bool:
        """True if more places are smoke-like than some seconds ago."""
        now, then = (int(np.count_nonzero(entry.smoky)) for entry in (self._judged[-1], self._judged[0]))
        return now >= then + self._limits.growth_places

    def _drift(self) -> tuple[str, float] | None:
        """Return the direction in which the smoke drifts and its speed, in pictures per second; None: it stays."""
        first, last = self._judged[0], self._judged[-1]
        seconds = (last.time_ns - first.time_ns) / SECOND
        if seconds <= 0 or not (first.smoky.any() and last.smoky.any()):
            return None
        (y, x), (last_y, last_x) = (np.argwhere(entry.smoky).mean(axis=0) / PLACES for entry in (first, last))
        right, down = float(last_x - x), float(last_y - y)
        if max(abs(right), abs(down)) < self._limits.drift_min:
            return None
        number = (0 if right > 0 else 2) if abs(right) >= abs(down) else (1 if down > 0 else 3)
        return _DIRECTIONS[number], max(abs(right), abs(down)) / seconds

    def seen(self, shape: tuple[int, int]) -> Smoke:
        """Return the result for a picture of `shape` (rows, columns), which changes with each inspection."""
        if self._result is None or shape != self._shape:
            self._result, self._shape = self._conclude(shape), shape
        return self._result

    def _conclude(self, shape: tuple[int, int]) -> Smoke:
        if not self._persistence_ns or not self._judged:
            return Smoke()
        limits, recent = self._limits, self._recent()
        level = self._level(recent)
        new = self._is_rising() or self._growing_ns > 0
        needed_ns = int(limits.scene.patience * (limits.likeness_new_ns if new else limits.likeness_ns))
        certain = level >= (limits.likeness_alarm_new if new else limits.likeness_alarm) + self._more
        certain = certain and self._began_in_part  # else it may be fog that was there first
        mean = _Judged(0, level, np.mean([entry.places for entry in recent], axis=0), recent[-1].usual, recent[-1].stir)
        terms = self._terms(mean, needed_ns)
        score = 1.0 / (1.0 + math.exp(self._suspicion() - level))
        pre_alarm_ns = int(limits.scene.patience * limits.likeness_pre_ns)
        box = _box(mean.smoky, shape)
        return Smoke(score, self._persistence_ns, box, terms, needed_ns if certain else None, pre_alarm_ns)

    def _terms(self, entry: _Judged, needed_ns: int) -> tuple[Term, ...]:
        limits = self._limits
        top = np.argsort(entry.places, axis=None)[-limits.top_places :]
        usual = float(entry.usual.ravel()[top].mean())
        likeness = float((entry.places + np.maximum(entry.usual, 0.0)).ravel()[top].mean())
        terms = [
            Term(name="smoke.likeness", value=_percent(likeness), threshold=_percent(max(usual, 0.0)), unit="%"),
            Term(name="smoke.usual", value=_percent(usual), unit="%"),
            Term(name="smoke.level", value=entry.level, threshold=self._suspicion(), unit="1"),
        ]
        if self._growing_ns:
            terms.append(Term(name="smoke.growing", value=self._growing_ns / SECOND, unit="s"))
        if drift := self._drift():
            terms.append(Term(name=f"smoke.drift.{drift[0]}", value=100 * drift[1], unit="%/s"))
        lasted = Term(name="smoke.lasted", value=self._persistence_ns / SECOND, threshold=needed_ns / SECOND, unit="s")
        return (*terms, lasted)


def _shrunk(fine: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """Return the means of `side` x `side` equal parts of `fine`."""
    return cv2.resize(fine, (side, side), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def _stir_of(change: npt.NDArray[np.float32]) -> Odds:
    """Return how much each place changes, in counts of grey, less what noise of single pixels leaves."""
    side = PLACES * _FINE // _PATCH
    means = _shrunk(change, side)
    noise = _shrunk(cv2.absdiff(change, means.repeat(_PATCH, 0).repeat(_PATCH, 1)), side)  # type: ignore[arg-type]
    return _shrunk(np.maximum(0.0, np.abs(means) - np.float32(_NOISE_LEFT) * noise), PLACES)


def _percent(odds: float) -> float:
    return 100.0 / (1.0 + math.exp(-max(odds, NO_SMOKE)))


def _box(smoky: npt.NDArray[np.bool_], shape: tuple[int, int]) -> PixelBox | None:
    """Return the box around the `smoky` places in a picture of `shape` (rows, columns)."""
    if not smoky.any():
        return None
    rows, columns = (np.flatnonzero(smoky.any(axis=axis)) for axis in (1, 0))
    tall, wide = shape[0] / PLACES, shape[1] / PLACES
    left, top = int(columns[0] * wide), int(rows[0] * tall)
    return left, top, int((columns[-1] + 1) * wide) - left, int((rows[-1] + 1) * tall) - top

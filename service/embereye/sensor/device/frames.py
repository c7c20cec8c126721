"""Analysis of one sensor's thermal frames: temperatures, the hot spot, and the health of the sensor.

`SensorDevice` passes each frame to `analyse`: its raw words and, if the device is calibrated, the °C that the tick
computed. Damaged pixels and frames are filtered first. Then a `HeatWatch` assesses the heat, and a `SpotWatch` adds the
hot spot. Without a calibration only raw counts are assessed, and one is requested (`wants_calibration`). `inspect`,
called every few seconds, finds stuck and noisy pixels, which the calibration then replaces.
"""

import copy
import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.areas import AreaWatch
from embereye.detect.thermal.damage import JUMP_COUNTS, JUMP_K, AuxiliaryFilter, PixelFilter, mend
from embereye.detect.thermal.health import LIMIT, FrameRhythm, PixelWatch, doubt
from embereye.detect.thermal.heat import UNKNOWN, Extreme, HeatAssessment, HeatWatch, extremes
from embereye.detect.thermal.mlx90640 import COLUMNS, FRAME_WORDS, PIXELS, ROWS, Calibration, counts_scale, words_of
from embereye.detect.thermal.spot import SpotWatch, hot_spot
from embereye.sensor.device.levels import CLEAR
from embereye.shard.selftests import KELVIN, FrozenRegion, RunningTest
from embereye.v1.shard_pb2 import HeatThresholds
from embereye.v1.types_pb2 import Area

logger = logging.getLogger(__name__)
STARTLING_COUNTS = 40  # rise of a pixel in raw counts (about 4 K) from which a frame does not wait for the tick


class ThermalImage(NamedTuple):
    """The latest frame, for people."""

    pixels: NDArray[np.float32]  # (24, 32) °C, NaN where nothing was measured; or (768,) raw counts
    relative: bool  # raw counts instead of °C


class FrameAnalysis:
    """One device's calibration, heat watch and pixel watch."""

    def __init__(self, name: str, thresholds: HeatThresholds, areas: Sequence[Area] = ()) -> None:
        self.calibration: Calibration | None = None
        self.wants_calibration = False
        self.assessment: HeatAssessment | None = None  # of the latest frame
        self.picture: ThermalImage | None = None
        self._name = name  # the device's id, for the log
        self._thresholds = thresholds
        self._set_areas(areas)
        self._spot = SpotWatch()
        self._rhythm = FrameRhythm()
        self.self_test: RunningTest | None = None
        self._frozen = FrozenRegion()
        self.damaged = 0  # pixels and frames that were damaged on their way
        self._auxiliary = AuxiliaryFilter()
        self._kelvin = PixelFilter(JUMP_K, kelvin=True)
        self._counts = PixelFilter(JUMP_COUNTS, kelvin=False)
        self._pixels: PixelWatch | None = None  # None until the frames' rhythm is known
        self._words = b""  # words of the latest frame
        self._inspected_ns = 0  # arrival of the frame that was inspected last

    def configure(self, thresholds: HeatThresholds, areas: Sequence[Area] = ()) -> None:
        """Use other thresholds and areas from now on; learnt values remain, unless areas changed."""
        self._thresholds = thresholds
        if list(areas) != self.areas:
            self._set_areas(areas)
        self._heat.configure(thresholds)

    def _set_areas(self, areas: Sequence[Area]) -> None:
        self.areas = list(areas)
        self._area_watch = AreaWatch(self.areas, ROWS, COLUMNS)
        separate = self._area_watch.separate_pixels
        self._heat = HeatWatch(self._thresholds, pixels=PIXELS - (0 if separate is None else int(separate.sum())))

    def learn_from(self, other: "FrameAnalysis") -> None:
        """Continue from what `other` has learnt of the same frames, with these thresholds."""
        self._heat = copy.deepcopy(other._heat)
        self._heat.configure(self._thresholds)
        self._area_watch = copy.deepcopy(other._area_watch)
        self.follow(other)

    def follow(self, other: "FrameAnalysis") -> None:
        """Use the calibration, the broken pixels and the self-test that `other` knows of the same sensor."""
        self.calibration, self._pixels, self.self_test = other.calibration, other._pixels, other.self_test

    @property
    def replaced(self) -> frozenset[int]:
        """The stuck or noisy pixels, whose values are replaced by those of their neighbours."""
        return self._pixels.deviating if self._pixels else frozenset()

    @property
    def degraded(self) -> str:
        """The reason why its temperatures are not reliable, or ''."""
        words = self.calibration.implausible if self.calibration else ()
        if self.areas and self.picture is not None and self.picture.relative:
            names = ", ".join(area.name for area in self.areas)
            return f"without its calibration, its areas are not measured: {names}. Restart the device to send it again"
        if not words:
            return ""
        return (
            f"its calibration is damaged, so temperatures may be 20 K off or more: EEPROM {', '.join(words)}. "
            "Restart the device to send it again; if that does not help, replace the sensor"
        )

    def is_startling(self, words: bytes) -> bool:
        """True if a frame is so much hotter than the one before that it must not wait for the tick."""
        if not self._words:
            return True
        before, pixels = (np.frombuffer(frame, ">i2", PIXELS).astype(np.int32) for frame in (self._words, words))
        return int((pixels - before).max()) > STARTLING_COUNTS

    def calibrate(self, words: bytes) -> None:
        """Use the EEPROM (832 big-endian words) from now on; ValueError if it is invalid: the old one remains."""
        try:
            calibration = Calibration.from_eeprom(words)
        except ValueError:
            self.wants_calibration = self.calibration is None
            raise
        self.calibration = calibration.replacing(self.replaced) if self._pixels else calibration
        if self.degraded:
            logger.warning("device %s: %s", self._name, self.degraded)
        self.wants_calibration = False

    def analyse(
        self, words: bytes, celsius: NDArray[np.float32] | None, extreme: Extreme | None, now_ns: int
    ) -> HeatAssessment:
        """Assess the heat in a frame. If it is calibrated, `celsius` (24, 32) and their `extreme` are given."""
        changed = words != self._words
        self._rhythm.observe(now_ns, changed=changed)
        self._words = words
        if celsius is None or extreme is None:
            self.assessment = self._analyse_counts(words, now_ns, repeated=not changed)
        else:
            if (test := self._test_at(now_ns)) is not None:
                test.observe(celsius, KELVIN)
                (extreme,) = extremes((celsius := self._frozen.apply(celsius, test))[None])
            self.assessment = self._analyse_celsius(words, celsius, extreme, now_ns, repeated=not changed)
        return self.assessment

    def _test_at(self, now_ns: int) -> RunningTest | None:
        """The self-test that runs; None if there is none."""
        if self.self_test is not None and self.self_test.is_over(now_ns):
            self.self_test = None
        return self.self_test

    def _note_damage(self, count: int) -> None:
        if not count:
            return
        before, self.damaged = self.damaged, self.damaged + count
        if len(str(before)) < len(str(self.damaged)) or not before:  # at 1, 10, 100, …
            logger.warning(
                "device %s: %d damaged thermal pixels or frames so far are ignored. Check its wiring and its line",
                self._name,
                self.damaged,
            )

    def _analyse_counts(self, words: bytes, now_ns: int, *, repeated: bool) -> HeatAssessment:
        # Only the long form can be calibrated: the short one lacks the auxiliary values.
        self.wants_calibration = self.calibration is None and len(words) == 2 * FRAME_WORDS
        pixels = words_of(words)[:PIXELS]
        self.picture = ThermalImage(pixels.view(np.int16).astype(np.float32), relative=True)
        counts = pixels.view(np.int16).astype(np.float32) / np.float32(counts_scale(words_of(words)))
        damaged = self._counts.damaged(counts, repeated=repeated)
        self._note_damage(len(damaged))
        return self._heat.observe_words(words_of(words), now_ns, self.replaced.union(damaged))

    def _analyse_celsius(
        self, words: bytes, celsius: NDArray[np.float32], extreme: Extreme, now_ns: int, *, repeated: bool
    ) -> HeatAssessment:
        if extreme.visible and self.calibration is not None:
            if self._auxiliary.is_damaged(words, self.calibration):
                self._note_damage(1)
                return self.assessment or HeatAssessment(UNKNOWN, 0.0, (), None)
            if damaged := self._kelvin.damaged(celsius.ravel(), repeated=repeated):
                self._note_damage(len(damaged))
                celsius = mend(celsius.ravel(), damaged).reshape(ROWS, COLUMNS)
                (extreme,) = extremes(celsius[None])
        others = self._area_watch.without_separate_pixels(celsius)
        if others is not celsius:
            (extreme,) = extremes(others[None])
        whole = self._heat.observe_extreme(others, extreme, now_ns)
        assessment = self._with_spot(self._area_watch.combined(whole, celsius, now_ns), celsius, now_ns)
        if assessment.hottest is not None:
            self.picture = ThermalImage(celsius, relative=False)
        elif self.calibration is not None:
            why = doubt(self.calibration, words_of(words))
            assessment = assessment._replace(blind=why or assessment.blind)
        return assessment

    def _with_spot(self, assessment: HeatAssessment, celsius: NDArray[np.float32], now_ns: int) -> HeatAssessment:
        """Add the place and growth of the hot spot to `assessment`, if there is heat."""
        hottest = assessment.hottest
        spot = None
        if assessment.level > CLEAR and hottest:
            spot = hot_spot(self._area_watch.around(celsius, hottest), hottest)
        if spot is None:
            self._spot.forget()
            return assessment
        growth = self._spot.growth(spot, now_ns)
        terms = (("spot.row", spot.row), ("spot.column", spot.column), ("spot.pixels", float(spot.pixels)))
        measured = (*assessment.measured, *((name, value, 0.0, "1") for name, value in terms))
        return assessment._replace(measured=(*measured, ("spot.growth", growth, 0.0, "1/min")))

    def replace(self, pixels: frozenset[int]) -> None:
        """Replace `pixels` by their neighbours, as in the shard that made a recording."""
        if self.calibration is not None and pixels:
            self.calibration = self.calibration.replacing(pixels)

    def note_gap(self, gap_ns: int, heard_ns: int) -> None:
        """Note that the device sent nothing at all for `gap_ns` until about `heard_ns`: no frame could arrive then."""
        self._rhythm.note_gap(gap_ns, heard_ns)

    def inspect(self, now_ns: int, *, quiet: bool) -> str:
        """Inspect the sensor; return why its frames cannot be trusted, or ''. Call it every few seconds.

        Pixels are judged by their noise only if `quiet`: while nothing is hot.
        """
        if not self._rhythm.is_established:
            return ""
        if fault := self._rhythm.fault(now_ns):
            return fault
        watch = self._pixels = self._pixels or PixelWatch()
        words = words_of(self._words)
        if self._rhythm.latest_ns != self._inspected_ns and len(words) >= PIXELS:
            self._inspected_ns = self._rhythm.latest_ns
            before = watch.deviating
            watch.inspect_pixels(words[:PIXELS], quiet=quiet)
            if watch.deviating != before:
                self._replace_pixels(watch.deviating)
        bad = len(watch.deviating) + (len(self.calibration.bad_pixels) if self.calibration else 0)
        if bad > LIMIT:
            return f"{bad} of {PIXELS} thermal pixels are broken, stuck or noisy; {LIMIT} is the most"
        if self.calibration is not None and len(words) == FRAME_WORDS:
            return doubt(self.calibration, words)
        return ""

    def _replace_pixels(self, deviating: frozenset[int]) -> None:
        logger.warning(
            "device %s: %d thermal pixels are stuck or noisy and are replaced by their neighbours: %s",
            self._name,
            len(deviating),
            ", ".join(f"row {pixel // COLUMNS} column {pixel % COLUMNS}" for pixel in sorted(deviating)[:8]) or "none",
        )
        if self.calibration is not None:
            self.calibration = self.calibration.replacing(deviating)

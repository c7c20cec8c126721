"""What is analysed of one sensor's thermal frames: temperatures, the hot spot, and whether the sensor works."""

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.health import LIMIT, FrameRhythm, PixelWatch, doubt
from embereye.detect.thermal.heat import Extreme, HeatAssessment, HeatWatch
from embereye.detect.thermal.mlx90640 import COLUMNS, FRAME_WORDS, PIXELS, Calibration, words_of
from embereye.detect.thermal.spot import SpotWatch, hot_spot
from embereye.sensor.device.levels import CLEAR
from embereye.v1.shard_pb2 import HeatThresholds

logger = logging.getLogger(__name__)
# Raw counts, some 4 K, that a pixel must have risen since the frame before for a frame not to wait for the tick.
STARTLING_COUNTS = 40


class ThermalImage(NamedTuple):
    """The latest frame as people are shown it."""

    pixels: NDArray[np.float32]  # (24, 32) °C, NaN where nothing was measured; or (768,) raw counts
    relative: bool  # raw counts


class FrameAnalysis:
    """One device's calibration, heat watch and pixel watch."""

    def __init__(self, name: str, thresholds: HeatThresholds) -> None:
        self.calibration: Calibration | None = None
        self.wants_calibration = False
        self.found: HeatAssessment | None = None  # in the latest frame
        self.picture: ThermalImage | None = None
        self._name = name  # of the device, for the log
        self._heat = HeatWatch(thresholds)
        self._spot = SpotWatch()
        self._rhythm = FrameRhythm()
        self._pixels: PixelWatch | None = None  # once frames are expected
        self._words = b""  # of the latest frame
        self._inspected_ns = 0  # when the frame was heard whose pixels were inspected last

    def configure(self, thresholds: HeatThresholds) -> None:
        """Hold what comes next against other thresholds; what was learnt stays."""
        self._heat.configure(thresholds)

    @property
    def replaced(self) -> frozenset[int]:
        """Pixels that are stuck or noisy and are replaced by their neighbours."""
        return self._pixels.deviating if self._pixels else frozenset()

    def startles(self, words: bytes) -> bool:
        """Whether a frame differs so much from the one before that it must not wait."""
        if not self._words:
            return True
        before, pixels = (np.frombuffer(each, ">i2", PIXELS).astype(np.int32) for each in (self._words, words))
        return int((pixels - before).max()) > STARTLING_COUNTS

    def calibrate(self, words: bytes) -> None:
        """Use the EEPROM (832 big-endian words) from now on; ValueError where it cannot be one: the old one stays."""
        try:
            calibration = Calibration.from_eeprom(words)
        except ValueError:
            self.wants_calibration = self.calibration is None
            raise
        self.calibration = calibration.replacing(self.replaced) if self._pixels else calibration
        self.wants_calibration = False

    def analyse(
        self, words: bytes, celsius: NDArray[np.float32] | None, extreme: Extreme | None, now_ns: int
    ) -> HeatAssessment:
        """What a frame says of heat. Where it is calibrated, `celsius` (24, 32) and their `extreme` are given."""
        self._rhythm.observe(now_ns, changed=words != self._words)
        self._words = words
        if celsius is None or extreme is None:
            self.found = self._analyse_counts(words, now_ns)
        else:
            self.found = self._analyse_celsius(words, celsius, extreme, now_ns)
        return self.found

    def _analyse_counts(self, words: bytes, now_ns: int) -> HeatAssessment:
        # Only the long form can be calibrated; the short one never carries what a calibration needs.
        self.wants_calibration = self.calibration is None and len(words) == 2 * FRAME_WORDS
        pixels = words_of(words)[:PIXELS]
        self.picture = ThermalImage(pixels.view(np.int16).astype(np.float32), relative=True)
        return self._heat.observe_words(pixels, now_ns, self.replaced)

    def _analyse_celsius(
        self, words: bytes, celsius: NDArray[np.float32], extreme: Extreme, now_ns: int
    ) -> HeatAssessment:
        found = self._with_spot(self._heat.observe_extreme(celsius, extreme, now_ns), celsius, now_ns)
        if found.hottest is not None:
            self.picture = ThermalImage(celsius, relative=False)
        elif self.calibration is not None:
            why = doubt(self.calibration, words_of(words))
            found = found._replace(blind=why or found.blind)
        return found

    def _with_spot(self, found: HeatAssessment, celsius: NDArray[np.float32], now_ns: int) -> HeatAssessment:
        """`found` with where the heat is and how it grows, once there is any."""
        spot = hot_spot(celsius, found.hottest) if found.level > CLEAR and found.hottest else None
        if spot is None:
            self._spot.forget()
            return found
        growth = self._spot.growth(spot, now_ns)
        terms = (("spot.row", spot.row), ("spot.column", spot.column), ("spot.pixels", float(spot.pixels)))
        measured = (*found.measured, *((name, value, 0.0, "1") for name, value in terms))
        return found._replace(measured=(*measured, ("spot.growth", growth, 0.0, "1/min")))

    def replace(self, pixels: frozenset[int]) -> None:
        """Replace `pixels` by their neighbours, as a shard before did."""
        if self.calibration is not None and pixels:
            self.calibration = self.calibration.replacing(pixels)

    def inspect(self, now_ns: int, *, quiet: bool) -> str:
        """Why its frames cannot be trusted, or ''. Pixels are judged by their noise only while nothing is hot: `quiet`.

        It is called every few seconds, not for each frame.
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

"""Compare verdicts with and without decoding only key frames while a camera is calm.

Each clip is played twice by the weights and the network that ship, as by a camera with a key frame each second: once
all pictures are analysed, once only key frames while nothing happens. Before its first picture the camera sees a still
of it, with noise, until it is calm: the clip begins before a calm camera.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embereye.camera.decode.shipped import load_network
from embereye.camera.replay import START_NS
from embereye.detect.vision.calm import SceneChange
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.networks.appearance import AppearanceNetwork, Inspection, has_close_up
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.thresholds import CALM
from embereye.detect.vision.working import cut
from embereye.levels import Kind, Level
from embereye_bench.detection.folds import LabelledClip
from embereye_bench.detection.footage import Footage, footage
from embereye_bench.detection.score_folds import LATE, RATE, SOON, Outcome
from embereye_bench.report import Result

KEY_SECONDS = 1.0  # between two key frames
STILL_SECONDS, STILL_RATE = 8.0, 10.0  # of the first picture before the clip, and frames/s of it
NOISE = 2.0  # counts, standard deviation, at the working size


@dataclass
class Pair:
    """The results of one clip."""

    always: Outcome
    calm: Outcome
    decoded: float  # share of the clip's pictures that were decoded with key frames only while calm


def compare(clips: Sequence[LabelledClip], cache: Path, note: Callable[[str], None]) -> Iterator[Pair]:
    """Play every clip of a fixed camera both ways."""
    network = load_network()
    for clip in clips:
        if not clip.fixed:
            continue
        note(f"playing {clip.name}")
        film = footage(clip, cache)
        always, _ = _Player(film, network, calms=False).play()
        calm, decoded = _Player(film, network, calms=True).play()
        yield Pair(always, calm, decoded)


@dataclass
class _Shown:
    """One picture on its way."""

    number: int  # in the film; -1: a still of the first
    second: float
    picture: npt.NDArray[np.uint8]


@dataclass
class _Player:
    """One camera that watches a film."""

    film: Footage
    network: AppearanceNetwork
    calms: bool
    detector: Detector = field(default_factory=Detector)
    scene: SceneChange = field(default_factory=SceneChange)
    urgent: bool = False
    last: float = -100.0  # when a picture was last analysed
    quiet_since: float = -100.0
    raised: dict[Kind, float] = field(default_factory=dict)
    decoded: int = 0

    def play(self) -> tuple[Outcome, float]:
        """Return the outcome, and the share of the clip's pictures that were decoded."""
        aside: list[_Shown] = []
        is_calm, key_due, shown = False, -100.0, 0
        for now in self._pictures():
            shown += now.number >= 0
            is_key = now.second >= key_due - 1e-6
            if is_key:
                key_due = now.second + KEY_SECONDS
                is_calm = is_calm or (self.calms and now.second - self.quiet_since >= CALM.quiet_ns / 1e9)
            if is_calm and not is_key:
                aside.append(now)
                continue
            if is_calm and self.scene.has_changed(now.picture):
                is_calm = False
                for earlier in aside:
                    self._analyse(earlier, now.second)
            aside.clear()
            self._analyse(now, now.second)
            is_calm = is_calm and self.quiet_since < now.second
        clip, seconds = self.film.clip, float(self.film.seconds[-1])
        outcome = Outcome(clip, seconds, self.raised.get(Kind.FLAME), self.raised.get(Kind.SMOKE))
        return outcome, self.decoded / max(1, shown)

    def _pictures(self) -> Iterator[_Shown]:
        random = np.random.default_rng(1)
        first = self.film.pictures[0].astype(np.float32)
        for number in range(round(STILL_SECONDS * STILL_RATE)):
            noisy = np.clip(first + random.normal(0, NOISE, first.shape), 0, 255).astype(np.uint8)
            yield _Shown(-1, (number / STILL_RATE) - STILL_SECONDS, noisy)
        for number, (picture, second) in enumerate(zip(self.film.pictures, self.film.seconds, strict=True)):
            yield _Shown(number, float(second), picture)

    def _analyse(self, shown: _Shown, now: float) -> None:
        """Analyse a picture at `now`, seconds: later than its own time if it was set aside."""
        self.decoded += shown.number >= 0
        if not self.urgent and shown.second - self.last < 0.9 / RATE:
            return
        self.last, time_ns = shown.second, START_NS + round(shown.second * 1e9)
        close_ups = self.detector.due_inspection(time_ns)
        if close_ups is not None:
            closer = self.film.closer(max(0, shown.number)) if has_close_up(close_ups) else None
            logits = self.network.logits(shown.picture, close_ups, closer)
            self.detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        place = self.detector.wanted_detail(time_ns)
        detail = cut(self.film.closer(max(0, shown.number)), place) if place else None
        seen = self.detector.detect(shown.picture, time_ns, detail=detail)
        self._note(seen, shown, now)
        if not self.detector.is_quiet:
            self.quiet_since = now
        if self.scene.is_due(time_ns):
            if self.scene.has_changed(shown.picture):
                self.quiet_since = now
            self.scene.learn(shown.picture, time_ns)

    def _note(self, seen: Observation, shown: _Shown, now: float) -> None:
        self.urgent = seen.urgent
        for finding in seen.findings:
            clip = self.film.clip
            if finding.level >= Level.ALARM and (clip.label != "fire" or shown.second >= clip.onset_s):
                self.raised.setdefault(finding.kind, now)


def results_of(pairs: Sequence[Pair]) -> list[Result]:
    """Fires found and false alarms: value with key frames only while calm, baseline with all pictures."""
    fires = [pair for pair in pairs if pair.always.clip.label == "fire"]
    others = [pair for pair in pairs if pair.always.clip.label == "negative"]
    smoke = [pair for pair in pairs if pair.always.clip.label == "smoke"]
    decoded = [pair.decoded for pair in others]
    rows = [
        _row("calm-fires-5s", fires, SOON, lost=1),
        _row("calm-fires-15s", fires, LATE, lost=0),
        _row("calm-smoke-found", smoke, 1e9, lost=0),
        _row("calm-negatives-alarmed", others, 1e9, lost=0, fewer=True),
    ]
    share = 100 * sum(decoded) / max(1, len(decoded))
    unit = "% of the pictures of clips without fire"
    return [*rows, Result("calm-decoded", share, unit, 100.0, share / 100, "reported, not required", ok=True)]


def _row(name: str, pairs: Sequence[Pair], within: float, lost: int, *, fewer: bool = False) -> Result:
    calm, always = (
        sum(outcome.delay is not None and outcome.delay <= within for outcome in outcomes)
        for outcomes in ([pair.calm for pair in pairs], [pair.always for pair in pairs])
    )
    ok = calm <= always if fewer else calm >= always - lost
    reach = "no more" if fewer else f"at most {lost} fewer"
    return Result(name, calm, f"of {len(pairs)} clips", always, calm / max(1, always), reach, ok)

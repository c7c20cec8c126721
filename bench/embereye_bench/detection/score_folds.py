"""Scores detection by leave-one-scene-out: every clip is judged by weights that were fitted to the other scenes."""

import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from embereye.camera.replay import START_NS
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.networks.appearance import AppearanceNetwork, Inspection
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.thresholds import SUGGESTED_PRIOR, FlameThresholds, suggested_weights
from embereye.detect.vision.working import cut
from embereye.levels import Kind, Level
from embereye.process.lifecycle import UserError
from embereye.sim.scenes.lookalikes import LOOKALIKES, candle, filmed
from embereye_bench.detection.changed import CHANGES, changed
from embereye_bench.detection.fitting import Course, Fit, Judgement, fit
from embereye_bench.detection.folds import NETWORK_FOLDS, LabelledClip, fold_of_scene
from embereye_bench.detection.footage import Footage, footage
from embereye_bench.report import Result, results_table

RATE = 15.0  # frames/s of a camera on which nothing is suspected
SOON, LATE = 5.0, 15.0  # seconds within which a fire is to be found
SUGGESTED = FlameThresholds(weights=suggested_weights(), prior=SUGGESTED_PRIOR)  # what is fitted
OFFSETS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of the prior, in log odds: the points of the ROC
HOPE = 4.0  # added to the prior so that every site is measured, however unlike a flame it is
DRAWN_RATES, DRAWN_SECONDS = (15.0, 6.0), 12.0
DRAWN_WORTH = 0.4  # of a drawn film without a network, in clips of a real scene; and of it with all networks together
CHANGED_WORTH = 0.5  # of a clip as a camera of other settings would have shown it
DAY = 86400.0

Networks = Sequence[AppearanceNetwork | None]  # one for each fold that it was not trained on; None: there is none
Seen = Callable[[float, Detector, Observation], None]  # what there is after the frame of a second


@dataclass(frozen=True)
class Outcome:
    """How one clip went."""

    clip: LabelledClip
    seconds: float
    flame_s: float | None  # when the flame's alarm was raised after the onset, or in a clip without fire at all
    smoke_s: float | None
    moves_s: float | None = None  # when the camera said that it moves, and that it cannot judge

    @property
    def delay(self) -> float | None:
        """Seconds from onset to the alarm of either kind."""
        raised = [one for one in (self.flame_s, self.smoke_s) if one is not None]
        return max(0.0, min(raised) - self.clip.onset_s) if raised else None


def load_networks(folder: Path | None) -> Networks:
    """The networks of `folder`, fold0.onnx and so on, each trained without the scenes of its fold."""
    if folder is None:
        return [None] * NETWORK_FOLDS
    return [AppearanceNetwork((folder / f"fold{number}.onnx").read_bytes()) for number in range(NETWORK_FOLDS)]


def play(
    film: Footage,
    detector: Detector,
    network: AppearanceNetwork | None,
    seen: Seen | None = None,
    *,
    close: bool = True,
) -> Outcome:
    """Show `film` to `detector` as a camera would: RATE frames a second, every frame while a flame is suspected.

    Unless `close`, nothing is looked at with more pixels than detection has.
    """
    raised: dict[Kind, float] = {}
    urgent, last, moves = False, -1.0, None
    health = PictureHealth()
    for number, (picture, second) in enumerate(zip(film.pictures, film.seconds, strict=True)):
        if not urgent and second - last < 0.9 / RATE:
            continue
        last, time_ns = second, START_NS + round(second * 1e9)
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            logits = network.logits(picture, close_ups, film.closer(number) if close and close_ups else None)
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        place = detector.wanted_detail(time_ns) if close and film.jpegs else None
        observation = detector.detect(picture, time_ns, detail=cut(film.closer(number), place) if place else None)
        urgent = observation.urgent
        if moves is None and health.due(time_ns):
            fault = health.observe(picture, time_ns, suspected=observation.suspected)
            moves = float(second) if fault.startswith("camera move") else None
        for finding in observation.findings:
            if finding.level >= Level.ALARM and (film.clip.label != "fire" or second >= film.clip.onset_s):
                raised.setdefault(finding.kind, float(second))
        if seen:
            seen(float(second), detector, observation)
    return Outcome(film.clip, float(film.seconds[-1]), raised.get(Kind.FLAME), raised.get(Kind.SMOKE), moves)


def measured(film: Footage, network: AppearanceNetwork | None, limits: FlameThresholds) -> Course:
    """All sites of `film`, measured whatever they look like."""
    judgements: list[Judgement] = []
    weights, judged_ns = limits.weights, 0

    def note(second: float, detector: Detector, _: Observation) -> None:
        nonlocal judged_ns
        assert detector.flame
        if detector.flame.judged_ns == judged_ns:
            return
        judged_ns = detector.flame.judged_ns
        rows = [[weight.of(site.values[name]) for name, weight in weights.items()] for site in detector.flame.sites]
        judgements.append(Judgement(second, np.array(rows).reshape(-1, len(weights))))

    play(film, Detector(replace(limits, prior=limits.prior + HOPE), None), network, note)
    return Course(film.clip.scene, film.clip.label in {"fire", "ambiguous"}, film.clip.onset_s, tuple(judgements))


def drawn() -> Iterator[Footage]:
    """Scenes whose physics are known, lookalikes and flames: they are always among what is fitted."""
    flames = {f"flame of {size}": candle(size) for size in (12, 24, 40)}
    for label, scenes in (("negative", LOOKALIKES), ("fire", flames)):
        for name, draw in scenes.items():
            for rate in DRAWN_RATES:
                pictures, seconds = zip(*filmed(draw, rate, DRAWN_SECONDS), strict=True)
                clip = LabelledClip(Path(f"{name}, {rate:g}"), label, f"drawn {name}", 0.0, fixed=True)
                yield Footage(clip, np.stack(pictures), np.array(seconds))


def drawn_courses(networks: Networks, limits: FlameThresholds) -> list[Course]:
    """What is measured of drawn scenes, with and without what the `networks` make of them: lamps look like fire too."""
    eyes = [one for one in networks if one]
    courses = []
    for film in drawn():
        courses.append(replace(measured(film, None, limits), worth=DRAWN_WORTH))
        courses += [replace(measured(film, one, limits), worth=DRAWN_WORTH / len(eyes)) for one in eyes]
    return courses


@dataclass(frozen=True)
class Folds:
    """What came of leaving out scene by scene."""

    outcomes: Mapping[float, Sequence[Outcome]]  # of every clip, for each of OFFSETS of the prior
    changed: Mapping[str, Sequence[Outcome]]  # of every clip after each of CHANGES
    fit: Fit  # of all scenes together: what would ship


class Workers:
    """Plays clips in as many processes as there are processors, each with all networks."""

    def __init__(
        self, clips: Sequence[LabelledClip], cache: Path, networks: Path | None, limits: FlameThresholds
    ) -> None:
        self._clips = clips
        self._fold = fold_of_scene(clips)
        context = multiprocessing.get_context("spawn")  # OpenCV's threads do not survive a fork
        self._pool = ProcessPoolExecutor(mp_context=context, initializer=_begin, initargs=(cache, networks, limits))

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def measured(self) -> Iterator[tuple[LabelledClip, list[Course]]]:
        """Each clip with what is measured of it as it is, then after each of CHANGES, in their order."""
        folds = [self._fold[clip.scene] for clip in self._clips]
        yield from zip(self._clips, self._pool.map(_measure, self._clips, folds), strict=True)

    def drawn(self) -> list[Course]:
        """What is measured of drawn scenes."""
        return self._pool.submit(_measure_drawn).result()

    def judged(
        self, fits: Mapping[str, Fit]
    ) -> Iterator[tuple[LabelledClip, dict[float, Outcome], dict[str, Outcome]]]:
        """Each clip with its outcomes under the fit of its scene: for each of OFFSETS, then for each of CHANGES."""
        folds = [self._fold[clip.scene] for clip in self._clips]
        found = self._pool.map(_judge, self._clips, folds, [fits[clip.scene] for clip in self._clips])
        for clip, (outcomes, after) in zip(self._clips, found, strict=True):
            yield clip, outcomes, after


@dataclass(frozen=True)
class _Desk:
    """What a process of Workers works with."""

    cache: Path
    networks: Networks
    limits: FlameThresholds


_desk: _Desk


def _begin(cache: Path, networks: Path | None, limits: FlameThresholds) -> None:
    global _desk  # noqa: PLW0603 -- a process has one
    cv2.setNumThreads(1)
    _desk = _Desk(cache, load_networks(networks), limits)


def _measure(clip: LabelledClip, fold: int) -> list[Course]:
    film, network = footage(clip, _desk.cache), _desk.networks[fold]
    after = (replace(measured(changed(film, one), network, _desk.limits), worth=CHANGED_WORTH) for one in CHANGES)
    return [measured(film, network, _desk.limits), *after]


def _measure_drawn() -> list[Course]:
    return drawn_courses(_desk.networks, _desk.limits)


def _judge(clip: LabelledClip, fold: int, fit: Fit) -> tuple[dict[float, Outcome], dict[str, Outcome]]:
    film, network, fitted = footage(clip, _desk.cache), _desk.networks[fold], fit.applied(_desk.limits)
    shifted = {offset: replace(fitted, prior=fitted.prior + offset) for offset in OFFSETS}
    outcomes = {offset: play(film, Detector(limits), network) for offset, limits in shifted.items()}
    return outcomes, {change: play(changed(film, change), Detector(fitted), network) for change in CHANGES}


def run_folds(workers: Workers, note: Callable[[str], None]) -> Folds:
    """The outcome of every clip under weights fitted without its scene, and what all scenes together fit."""
    courses: dict[str, list[Course]] = {}
    learnt: list[LabelledClip] = []
    for clip, its in workers.measured():
        note(f"measured {clip.name}")
        courses[clip.name] = its
        if clip.label != "smoke":  # it may hide a flame
            learnt.append(clip)
    note("measuring drawn scenes")
    always = workers.drawn()
    fits: dict[str, Fit] = {}
    for scene in sorted({clip.scene for clip in learnt} | {one.scene for its in courses.values() for one in its}):
        note(f"fitting without {scene}")
        others = [one for clip in learnt if clip.scene != scene for one in courses[clip.name]]
        fits[scene] = fit(always + others, SUGGESTED)
    outcomes: dict[float, list[Outcome]] = {offset: [] for offset in OFFSETS}
    after: dict[str, list[Outcome]] = {change: [] for change in CHANGES}
    for clip, its_outcomes, its_after in workers.judged(fits):
        note(f"judged {clip.name}")
        for offset, outcome in its_outcomes.items():
            outcomes[offset].append(outcome)
        for change, outcome in its_after.items():
            after[change].append(outcome)
    return Folds(outcomes, after, fit(always + [one for clip in learnt for one in courses[clip.name]], SUGGESTED))


def score_folds(clips: Sequence[LabelledClip], cache: Path, networks: Path | None, *, as_json: bool) -> int:
    """Run the folds, print what they reach; 1 where that is too little."""
    try:
        load_networks(networks)
    except OSError as error:
        raise UserError(f"--networks {networks}: {error.filename} cannot be read: {error.strerror}") from error
    columns = (TextColumn("{task.description:48}"), TimeElapsedColumn())
    with (
        Progress(*columns, console=Console(stderr=True), disable=as_json, transient=True) as progress,
        Workers(clips, cache, networks, SUGGESTED) as workers,
    ):
        task = progress.add_task("", total=None)
        folds = run_folds(workers, lambda text: progress.update(task, description=text))
    outcomes, fitted = folds.outcomes, folds.fit
    results = summary(outcomes[0.0])
    if as_json:
        told = {
            "results": [asdict(result) for result in results],
            "roc": [asdict(point) for point in roc(outcomes)],
            "clips": [_told(outcome) for outcome in outcomes[0.0]],
            "changed": {name: [asdict(result) for result in summary(its)] for name, its in folds.changed.items()},
            "fit": {"prior": fitted.prior, "multipliers": dict(fitted.multipliers)},
        }
        print(json.dumps(told, ensure_ascii=False))
    else:
        console = Console()
        console.print(_clips_table(outcomes[0.0]))
        console.print(_roc_table(roc(outcomes)))
        console.print(_changed_table(folds.changed))
        console.print(_fit_table(fitted))
        console.print(results_table("detection by leave-one-scene-out", results))
    return 0 if all(result.ok for result in results) else 1


def summary(outcomes: Sequence[Outcome]) -> list[Result]:
    """What is found and what alarms falsely, fixed cameras and moving ones apart."""
    results = []
    for fixed, name in ((True, "fixed"), (False, "moving")):
        chosen = [one for one in outcomes if one.clip.fixed is fixed]
        fires = [one for one in chosen if one.clip.label == "fire"]
        others = [one for one in chosen if one.clip.label == "negative"]
        smoke = [one for one in chosen if one.clip.label == "smoke"]
        soon = sum(_within(one.delay, SOON) for one in fires)
        later = sum(_within(one.delay, LATE) for one in fires)
        told = sum(_within(one.delay, LATE) or _within(one.moves_s, one.clip.onset_s + LATE) for one in fires)
        false = sum(one.delay is not None for one in others)
        results += [
            _share(f"{name}-fires-5s", soon, len(fires), 85.0 if fixed else 0.0),
            _share(f"{name}-fires-15s", later, len(fires), 95.0 if fixed else 0.0),
            _share(f"{name}-negatives-alarmed", false, len(others), 3.0 if fixed else 100.0, at_most=True),
            *([] if fixed else [_share(f"{name}-fires-found-or-blind-15s", told, len(fires), 0.0)]),
            _share(f"{name}-cameras-told-to-move", sum(one.moves_s is not None for one in chosen), len(chosen), 0.0),
            _share(f"{name}-smoke-found", sum(one.delay is not None for one in smoke), len(smoke), 0.0),
        ]
    return [result for result in results if not result.unit.startswith("% of 0")]


def _within(seconds: float | None, most: float) -> bool:
    return seconds is not None and seconds <= most


def _share(name: str, count: int, of: int, mark: float, *, at_most: bool = False) -> Result:
    value = 100 * count / max(1, of)
    low, high = wilson(count, of)
    required = 0 < mark < 100
    reach = f"{'≤' if at_most else '≥'} {mark:g}" if required else "told, not required"
    ok = not required or (value <= mark if at_most else value >= mark)
    return Result(
        name, value, f"% of {of} clips, 95 % sure of {100 * low:.0f} to {100 * high:.0f}", 0.0, 0.0, reach, ok
    )


def wilson(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %."""
    if not of:
        return 0.0, 1.0
    share, square = count / of, z * z / of
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def poisson(count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a Poisson mean of which `count` were seen, at 95 %: Wilson and Hilferty's approximation."""
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    return max(0.0, low), more * (1 - 1 / (9 * more) + z / (3 * math.sqrt(more))) ** 3


@dataclass(frozen=True)
class Point:
    """One point of the ROC, of fixed cameras."""

    offset: float  # of the prior, log odds
    found: float  # share of the fires within SOON
    found_range: tuple[float, float]
    false_per_day: float  # clips of negatives alarmed, per day of them
    false_range: tuple[float, float]


def roc(outcomes: Mapping[float, Sequence[Outcome]]) -> list[Point]:
    """The points of the ROC, the least sensitive first."""
    points = []
    for offset, results in sorted(outcomes.items()):
        fires = [one for one in results if one.clip.fixed and one.clip.label == "fire"]
        others = [one for one in results if one.clip.fixed and one.clip.label == "negative"]
        found = sum(one.delay is not None and one.delay <= SOON for one in fires)
        false, days = sum(one.delay is not None for one in others), sum(one.seconds for one in others) / DAY
        low, high = poisson(false)
        points.append(Point(offset, found / max(1, len(fires)), wilson(found, len(fires)),
                            false / max(days, 1e-9), (low / max(days, 1e-9), high / max(days, 1e-9))))  # fmt: skip
    return points


def _told(outcome: Outcome) -> dict[str, object]:
    clip = outcome.clip
    return {"file": clip.name, "label": clip.label, "scene": clip.scene, "fixed": clip.fixed, "delay": outcome.delay,
            "flame_s": outcome.flame_s, "smoke_s": outcome.smoke_s, "moves_s": outcome.moves_s}  # fmt: skip


def _clips_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("clip", "label", "camera", "delay, s", title="what went wrong, and fires", box=None)
    for one in outcomes:
        clip, delay = one.clip, one.delay
        wrong = (clip.label == "fire" and (delay is None or delay > SOON)) or (
            clip.label == "negative" and delay is not None
        )
        if wrong or clip.label != "negative":
            told = "" if delay is None else f"{delay:.1f}"
            table.add_row(
                clip.name, clip.label, "fixed" if clip.fixed else "moving", told, style="bold red" if wrong else ""
            )
    return table


def _roc_table(points: Sequence[Point]) -> Table:
    table = Table("prior", "fires within 5 s", "false alarms per camera-day", title="ROC, fixed cameras", box=None)
    for point in points:
        (low, high), (least, most) = point.found_range, point.false_range
        table.add_row(f"{point.offset:+.1f}", f"{point.found:.0%} ({low:.0%} to {high:.0%})",
                      f"{point.false_per_day:.0f} ({least:.0f} to {most:.0f})")  # fmt: skip
    return table


def _changed_table(outcomes: Mapping[str, Sequence[Outcome]]) -> Table:
    table = Table("as if", "fires within 5 s", "within 15 s", "false alarms", title="other cameras, fixed", box=None)
    for change, results in outcomes.items():
        fires = [one.delay for one in results if one.clip.fixed and one.clip.label == "fire"]
        others = [one.delay for one in results if one.clip.fixed and one.clip.label == "negative"]
        soon, later = (f"{sum(_within(one, most) for one in fires)} of {len(fires)}" for most in (SOON, LATE))
        table.add_row(change, soon, later, f"{sum(one is not None for one in others)} of {len(others)}")
    return table


def _fit_table(fitted: Fit) -> Table:
    table = Table("term", "multiplier", title=f"fitted to all scenes: prior {fitted.prior:.2f}", box=None)
    for name, factor in fitted.multipliers.items():
        table.add_row(name, f"{factor:.2f}")
    return table

"""Score detection by leave-one-scene-out: every clip is judged by weights fitted to the other scenes.

`run_folds` works in this order: measure the flame's quantities at all sites of every clip; for each scene, fit weights
to the clips of all others and to drawn scenes; play each clip again under its scene's fit. The appearance network that
a clip meets has not seen its scene either. Clips are also played with shifted priors, for the ROC, and with other
cameras' settings. A last fit to all scenes gives the weights to ship. Processes, one per processor, play the clips.
"""

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
from embereye.detect.vision.networks.appearance import AppearanceNetwork, Inspection, has_close_up
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

RATE = 15.0  # frames/s of a camera with nothing suspected
SOON, LATE = 5.0, 15.0  # seconds within which a fire should be found
SUGGESTED = FlameThresholds(weights=suggested_weights(), prior=SUGGESTED_PRIOR)  # starting point of the fit
OFFSETS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of the prior, in log odds: the points of the ROC
HOPE = 4.0  # added to the prior, so that every site is measured, even if it does not resemble a flame
DRAWN_RATES, DRAWN_SECONDS = (15.0, 6.0), 12.0
DRAWN_WORTH = 0.4  # of a drawn film without a network, in real clips; and of all its films with networks
CHANGED_WORTH = 0.5  # of a clip shown with another camera's settings
DAY = 86400.0

Networks = Sequence[AppearanceNetwork | None]  # one for each fold that it was not trained on; None: no network
Note = Callable[[float, Detector, Observation], None]  # called after each frame with its time


@dataclass(frozen=True)
class Outcome:
    """The result of one clip."""

    clip: LabelledClip
    seconds: float
    flame_s: float | None  # time of the flame's alarm: after the onset, or any time in a clip without fire
    smoke_s: float | None
    moves_s: float | None = None  # time at which the camera was reported as moving, and blind

    @property
    def delay(self) -> float | None:
        """Seconds from onset to the first alarm."""
        raised = [second for second in (self.flame_s, self.smoke_s) if second is not None]
        return max(0.0, min(raised) - self.clip.onset_s) if raised else None


def load_networks(folder: Path | None) -> Networks:
    """Load the networks of `folder`, fold0.onnx and so on, each trained without the scenes of its fold."""
    if folder is None:
        return [None] * NETWORK_FOLDS
    return [AppearanceNetwork((folder / f"fold{number}.onnx").read_bytes()) for number in range(NETWORK_FOLDS)]


def play(
    film: Footage,
    detector: Detector,
    network: AppearanceNetwork | None,
    note: Note | None = None,
    *,
    close: bool = True,
) -> Outcome:
    """Play `film` to `detector` like a camera: RATE frames a second, every frame while a flame is suspected.

    Unless `close`, no close-ups are inspected.
    """
    raised: dict[Kind, float] = {}
    urgent, last, moves = False, -1.0, None
    health = PictureHealth()
    for number, (picture, second) in enumerate(zip(film.pictures, film.seconds, strict=True)):
        if not urgent and second - last < 0.9 / RATE:
            continue
        last, time_ns = second, START_NS + round(second * 1e9)
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            logits = network.logits(
                picture, close_ups, film.closer(number) if close and has_close_up(close_ups) else None
            )
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        place = detector.wanted_detail(time_ns) if close and film.jpegs else None
        observation = detector.detect(picture, time_ns, detail=cut(film.closer(number), place) if place else None)
        urgent = observation.urgent
        if moves is None and health.is_due(time_ns):
            fault = health.observe(picture, time_ns, suspected=observation.suspected)
            moves = float(second) if fault.startswith("camera move") else None
        for finding in observation.findings:
            if finding.level >= Level.ALARM and (film.clip.label != "fire" or second >= film.clip.onset_s):
                raised.setdefault(finding.kind, float(second))
        if note:
            note(float(second), detector, observation)
    return Outcome(film.clip, float(film.seconds[-1]), raised.get(Kind.FLAME), raised.get(Kind.SMOKE), moves)


def measure_course(film: Footage, network: AppearanceNetwork | None, limits: FlameThresholds) -> Course:
    """Measure all sites of `film`, regardless of their appearance."""
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
    """Yield scenes with known physics, lookalikes and flames; every fit includes them."""
    flames = {f"flame of {size}": candle(size) for size in (12, 24, 40)}
    for label, scenes in (("negative", LOOKALIKES), ("fire", flames)):
        for name, draw in scenes.items():
            for rate in DRAWN_RATES:
                pictures, seconds = zip(*filmed(draw, rate, DRAWN_SECONDS), strict=True)
                clip = LabelledClip(Path(f"{name}, {rate:g}"), label, f"drawn {name}", 0.0, fixed=True)
                yield Footage(clip, np.stack(pictures), np.array(seconds))


def drawn_courses(networks: Networks, limits: FlameThresholds) -> list[Course]:
    """Measure drawn scenes without a network and with each of `networks`, because lamps look like fire to them too."""
    available = [network for network in networks if network]
    courses = []
    for film in drawn():
        courses.append(replace(measure_course(film, None, limits), worth=DRAWN_WORTH))
        share = DRAWN_WORTH / len(available) if available else 0.0
        courses += [replace(measure_course(film, network, limits), worth=share) for network in available]
    return courses


@dataclass(frozen=True)
class Folds:
    """The results of leaving out each scene in turn."""

    outcomes: Mapping[float, Sequence[Outcome]]  # of every clip, for each offset of the prior in OFFSETS
    changed: Mapping[str, Sequence[Outcome]]  # of every clip, after each of CHANGES
    fit: Fit  # to all scenes together: the weights to ship


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
        """Yield each clip with its courses: unchanged, then after each of CHANGES in their order."""
        folds = [self._fold[clip.scene] for clip in self._clips]
        yield from zip(self._clips, self._pool.map(_measure, self._clips, folds), strict=True)

    def drawn(self) -> list[Course]:
        """Measure the drawn scenes."""
        return self._pool.submit(_measure_drawn).result()

    def judged(
        self, fits: Mapping[str, Fit]
    ) -> Iterator[tuple[LabelledClip, dict[float, Outcome], dict[str, Outcome]]]:
        """Yield each clip with its outcomes under its scene's fit: for each of OFFSETS, then for each of CHANGES."""
        folds = [self._fold[clip.scene] for clip in self._clips]
        judgements = self._pool.map(_judge, self._clips, folds, [fits[clip.scene] for clip in self._clips])
        for clip, (outcomes, after) in zip(self._clips, judgements, strict=True):
            yield clip, outcomes, after


@dataclass(frozen=True)
class _Desk:
    """The data of a worker process."""

    cache: Path
    networks: Networks
    limits: FlameThresholds


_desk: _Desk


def _begin(cache: Path, networks: Path | None, limits: FlameThresholds) -> None:
    global _desk  # noqa: PLW0603 -- one per process
    cv2.setNumThreads(1)
    _desk = _Desk(cache, load_networks(networks), limits)


def _measure(clip: LabelledClip, fold: int) -> list[Course]:
    film, network = footage(clip, _desk.cache), _desk.networks[fold]
    after = (
        replace(measure_course(changed(film, change), network, _desk.limits), worth=CHANGED_WORTH) for change in CHANGES
    )
    return [measure_course(film, network, _desk.limits), *after]


def _measure_drawn() -> list[Course]:
    return drawn_courses(_desk.networks, _desk.limits)


def _judge(clip: LabelledClip, fold: int, fit: Fit) -> tuple[dict[float, Outcome], dict[str, Outcome]]:
    film, network, fitted = footage(clip, _desk.cache), _desk.networks[fold], fit.apply_to(_desk.limits)
    shifted = {offset: replace(fitted, prior=fitted.prior + offset) for offset in OFFSETS}
    outcomes = {offset: play(film, Detector(limits), network) for offset, limits in shifted.items()}
    return outcomes, {change: play(changed(film, change), Detector(fitted), network) for change in CHANGES}


def run_folds(workers: Workers, note: Callable[[str], None]) -> Folds:
    """Judge every clip by weights fitted without its scene, and fit all scenes together."""
    courses: dict[str, list[Course]] = {}
    learnt: list[LabelledClip] = []
    for clip, clip_courses in workers.measured():
        note(f"measured {clip.name}")
        courses[clip.name] = clip_courses
        if clip.label != "smoke":  # it may contain a flame
            learnt.append(clip)
    note("measuring drawn scenes")
    always = workers.drawn()
    fits: dict[str, Fit] = {}
    scenes = {clip.scene for clip in learnt} | {course.scene for group in courses.values() for course in group}
    for scene in sorted(scenes):
        note(f"fitting without {scene}")
        others = [course for clip in learnt if clip.scene != scene for course in courses[clip.name]]
        fits[scene] = fit(always + others, SUGGESTED)
    outcomes: dict[float, list[Outcome]] = {offset: [] for offset in OFFSETS}
    after: dict[str, list[Outcome]] = {change: [] for change in CHANGES}
    for clip, its_outcomes, its_after in workers.judged(fits):
        note(f"judged {clip.name}")
        for offset, outcome in its_outcomes.items():
            outcomes[offset].append(outcome)
        for change, outcome in its_after.items():
            after[change].append(outcome)
    everything = always + [course for clip in learnt for course in courses[clip.name]]
    return Folds(outcomes, after, fit(everything, SUGGESTED))


def score_folds(clips: Sequence[LabelledClip], cache: Path, networks: Path | None, *, as_json: bool) -> int:
    """Run the folds and print the results; return 1 if a goal is missed."""
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
        report = {
            "results": [asdict(result) for result in results],
            "roc": [_point_json(point) for point in roc(outcomes)],
            "clips": [_clip_json(outcome) for outcome in outcomes[0.0]],
            "changed": {name: [asdict(row) for row in summary(rows)] for name, rows in folds.changed.items()},
            "fit": {"prior": fitted.prior, "multipliers": dict(fitted.multipliers)},
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        console = Console()
        console.print(_clips_table(outcomes[0.0]))
        console.print(_roc_table(roc(outcomes)))
        console.print(_changed_table(folds.changed))
        console.print(_fit_table(fitted))
        console.print(results_table("detection by leave-one-scene-out", results))
    return 0 if all(result.ok for result in results) else 1


def summary(outcomes: Sequence[Outcome]) -> list[Result]:
    """Fires found and false alarms, separately for fixed and moving cameras."""
    results = []
    for fixed, name in ((True, "fixed"), (False, "moving")):
        chosen = [outcome for outcome in outcomes if outcome.clip.fixed is fixed]
        fires = [outcome for outcome in chosen if outcome.clip.label == "fire"]
        others = [outcome for outcome in chosen if outcome.clip.label == "negative"]
        smoke = [outcome for outcome in chosen if outcome.clip.label == "smoke"]
        soon = sum(_within(fire.delay, SOON) for fire in fires)
        later = sum(_within(fire.delay, LATE) for fire in fires)
        noticed = sum(_within(fire.delay, LATE) or _within(fire.moves_s, fire.clip.onset_s + LATE) for fire in fires)
        reported_moving = sum(outcome.moves_s is not None for outcome in chosen)
        false = sum(outcome.delay is not None for outcome in others)
        results += [
            _share(f"{name}-fires-5s", soon, len(fires), 85.0 if fixed else 0.0),
            _share(f"{name}-fires-15s", later, len(fires), 95.0 if fixed else 0.0),
            _share(f"{name}-negatives-alarmed", false, len(others), 3.0 if fixed else 100.0, at_most=True),
            *([] if fixed else [_share(f"{name}-fires-found-or-blind-15s", noticed, len(fires), 0.0)]),
            _share(f"{name}-cameras-told-to-move", reported_moving, len(chosen), 0.0),
            _share(f"{name}-smoke-found", sum(outcome.delay is not None for outcome in smoke), len(smoke), 0.0),
        ]
    return [result for result in results if not result.unit.startswith("% of 0")]


def _within(seconds: float | None, most: float) -> bool:
    return seconds is not None and seconds <= most


def _share(name: str, count: int, total: int, mark: float, *, at_most: bool = False) -> Result:
    value = 100 * count / max(1, total)
    low, high = exact_range(count, total)
    required = 0 < mark < 100
    reach = f"{'≤' if at_most else '≥'} {mark:g}" if required else "reported, not required"
    ok = not required or (value <= mark if at_most else value >= mark)
    return Result(
        name, value, f"% of {total} clips, 95 % sure of {100 * low:.0f} to {100 * high:.0f}", 0.0, 0.0, reach, ok
    )


def exact_range(count: int, total: int) -> tuple[float, float]:
    """The exact 95 % interval of a share, after Clopper and Pearson: each bound errs in 2.5 % of cases."""
    low = _root(lambda share: _at_most(total - count, total, 1.0 - share)) if count else 0.0
    high = 1.0 - _root(lambda share: _at_most(count, total, 1.0 - share)) if count < total else 1.0
    return low, high


def _at_most(count: int, total: int, share: float) -> float:
    """Return the probability of `count` or fewer of `total` events that each have the probability `share`."""
    return sum(
        math.comb(total, number) * share**number * (1.0 - share) ** (total - number) for number in range(count + 1)
    )


def _root(probability: Callable[[float], float]) -> float:
    """Return the share at which the increasing `probability` is 2.5 %."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < 0.025 else (low, middle)
    return low


def poisson(count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a Poisson mean, given `count` events: Wilson and Hilferty's approximation."""
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    return max(0.0, low), more * (1 - 1 / (9 * more) + z / (3 * math.sqrt(more))) ** 3


@dataclass(frozen=True)
class Point:
    """One point of the ROC of fixed cameras."""

    offset: float  # of the prior, log odds
    share_found: float  # share of the fires found within SOON
    found_range: tuple[float, float]
    false_per_day: float  # alarmed clips without fire, per day of such clips
    false_range: tuple[float, float]


def roc(outcomes: Mapping[float, Sequence[Outcome]]) -> list[Point]:
    """The points of the ROC, least sensitive first."""
    points = []
    for offset, results in sorted(outcomes.items()):
        fires = [outcome for outcome in results if outcome.clip.fixed and outcome.clip.label == "fire"]
        others = [outcome for outcome in results if outcome.clip.fixed and outcome.clip.label == "negative"]
        soon = sum(_within(fire.delay, SOON) for fire in fires)
        false = sum(outcome.delay is not None for outcome in others)
        days = sum(outcome.seconds for outcome in others) / DAY
        low, high = poisson(false)
        points.append(Point(offset, soon / max(1, len(fires)), exact_range(soon, len(fires)),
                            false / max(days, 1e-9), (low / max(days, 1e-9), high / max(days, 1e-9))))  # fmt: skip
    return points


def _point_json(point: Point) -> dict[str, object]:
    return {"offset": point.offset, "found": point.share_found, "found_range": point.found_range,
            "false_per_day": point.false_per_day, "false_range": point.false_range}  # fmt: skip


def _clip_json(outcome: Outcome) -> dict[str, object]:
    clip = outcome.clip
    return {"file": clip.name, "label": clip.label, "scene": clip.scene, "fixed": clip.fixed, "delay": outcome.delay,
            "flame_s": outcome.flame_s, "smoke_s": outcome.smoke_s, "moves_s": outcome.moves_s}  # fmt: skip


def _clips_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("clip", "label", "camera", "delay, s", title="failures, and fires", box=None)
    for outcome in outcomes:
        clip, delay = outcome.clip, outcome.delay
        wrong = (clip.label == "fire" and (delay is None or delay > SOON)) or (
            clip.label == "negative" and delay is not None
        )
        if wrong or clip.label != "negative":
            shown = "" if delay is None else f"{delay:.1f}"
            table.add_row(
                clip.name, clip.label, "fixed" if clip.fixed else "moving", shown, style="bold red" if wrong else ""
            )
    return table


def _roc_table(points: Sequence[Point]) -> Table:
    table = Table("prior", "fires within 5 s", "false alarms per camera-day", title="ROC, fixed cameras", box=None)
    for point in points:
        (low, high), (least, most) = point.found_range, point.false_range
        table.add_row(f"{point.offset:+.1f}", f"{point.share_found:.0%} ({low:.0%} to {high:.0%})",
                      f"{point.false_per_day:.0f} ({least:.0f} to {most:.0f})")  # fmt: skip
    return table


def _changed_table(outcomes: Mapping[str, Sequence[Outcome]]) -> Table:
    table = Table("change", "fires within 5 s", "within 15 s", "false alarms", title="other cameras, fixed", box=None)
    for change, results in outcomes.items():
        fires = [outcome.delay for outcome in results if outcome.clip.fixed and outcome.clip.label == "fire"]
        others = [outcome.delay for outcome in results if outcome.clip.fixed and outcome.clip.label == "negative"]
        soon, later = (f"{sum(_within(delay, most) for delay in fires)} of {len(fires)}" for most in (SOON, LATE))
        table.add_row(change, soon, later, f"{sum(delay is not None for delay in others)} of {len(others)}")
    return table


def _fit_table(fitted: Fit) -> Table:
    table = Table("term", "multiplier", title=f"fitted to all scenes: prior {fitted.prior:.2f}", box=None)
    for name, factor in fitted.multipliers.items():
        table.add_row(name, f"{factor:.2f}")
    return table

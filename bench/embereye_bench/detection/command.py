"""Score detection on a folder of labelled clips: fires found, delays, false alarms, cost.

FOLDER has clips and labels.json: a list of {"file", "label": "fire", "smoke", "negative" or "ambiguous", "onset_s",
"scene", "fixed_camera"}. Every clip is played to a camera as in a shard. CPU is that of one thread; the baseline is the
cheapest analysis of the same pictures. With --folds, each clip is judged by weights fitted to the other scenes.
"""

import argparse
import base64
import json
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from embereye.camera.annotate import draw
from embereye.camera.decode.image import DecodedImage, decode
from embereye.camera.decode.shipped import load_network
from embereye.camera.recording import Settings, watch
from embereye.camera.replay import START_NS
from embereye.camera.scheduling.close_ups import DETAILS
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.video.player import frames
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.networks.appearance import Inspection, has_close_up
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import CLOSER_SIDE, cut, reduction, to_working_size, working_scale
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_bench.detection import calm, distant
from embereye_bench.detection.changed import CHANGES
from embereye_bench.detection.day import detection_digest, results_of, watch_day
from embereye_bench.detection.folds import LabelledClip, labelled_clips
from embereye_bench.detection.public import score_public
from embereye_bench.detection.score_folds import RATE, load_networks, score_folds
from embereye_bench.detection.score_smoke import GREY, all_folders, report, watch_all
from embereye_bench.report import Result, results_table
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
FOLDER = DATA / "video"
CACHE = Path(__file__).parents[3] / ".cache" / "detection"
WITHIN = 5.0  # seconds from onset within which a fire must be found
# Cost limits of detection and the network's inspections per frame, without decoding: nothing suspected and at most
# QUIET_MOTION of the picture moving; more motion (traffic, crowds, cloth before the lens); fire suspected; flames also
# searched in a detail, which costs as much as a second suspicion. In multiples of the floor, because milliseconds
# depend on the machine's load: 0.25, 0.35, 1.0, 2.0 ms if the floor takes 12.5 µs.
COSTS = {"quiet": 20.0, "busy": 28.0, "suspect": 80.0, "detail": 160.0}
QUIET_MOTION = 0.02
QUICK_SECONDS = 8.0
COST_FRAMES = 150  # of each clip
STILL_SIZE = (320, 240)
COLUMNS = 3  # in the sheet of stills


@dataclass
class Cost:
    """CPU seconds and frames."""

    frames: int = 0
    decode: float = 0.0
    detect: float = 0.0  # including the network's inspections
    closer: float = 0.0  # decoding with more pixels, for close-ups and details
    floor: float = 0.0

    def add(self, other: "Cost") -> None:
        """Add the cost of other frames."""
        self.frames += other.frames
        self.decode += other.decode
        self.detect += other.detect
        self.closer += other.closer
        self.floor += other.floor

    def per_frame(self, seconds: float) -> float:
        """Convert `seconds`, one of these sums, to ms per frame."""
        return 1e3 * seconds / max(1, self.frames)


@dataclass
class Clip:
    """The result of one clip."""

    file: str
    label: str
    seconds: float
    alarms: list[tuple[float, str]]
    delay: float | None  # seconds from onset to the first alarm
    verdict: str  # "ok", "missed", "late", "false alarm" or "-"
    why: str
    still: bytes = field(repr=False, default=b"")
    detect_ms: float = 0.0
    decode_ms: float = 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("folder", nargs="*", type=Path, metavar="FOLDER",
                        help="clips with labels.json (default: ../shared/data/video, --folds: video2 too)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help=f"only the first {QUICK_SECONDS:g} s of each clip")
    parser.add_argument("--fps", type=float, default=0.0, metavar="N", help="simulate cameras of N frames/s")
    parser.add_argument("--folds", action="store_true",
                        help="leave one scene out: judge each clip by weights fitted to the other scenes")  # fmt: skip
    parser.add_argument("--networks", type=Path, metavar="DIR",
                        help="with --folds: the appearance networks of the folds (`make model`)")  # fmt: skip
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="with --folds: only score smoke, each clip with fresh state (default: video, video2, video3)",
    )
    parser.add_argument("--changed", choices=[GREY, *CHANGES], metavar="HOW",
                        help=f"with --smoke: every picture is {', '.join((GREY, *CHANGES))}")  # fmt: skip
    parser.add_argument("--public", action="store_true",
                        help="FOLDER is a public set: score it as ONFIRE does videos, D-Fire pictures")  # fmt: skip
    parser.add_argument("--smaller", action="store_true",
                        help="with --folds: only count the fires found when made 2 to 8 times smaller")  # fmt: skip
    parser.add_argument("--calm", action="store_true",
                        help="with --folds: only compare with decoding key frames only while calm")  # fmt: skip
    parser.add_argument("--hours", type=float, default=0.0, metavar="N",
                        help="with --folds: only count false alarms over N hours without fire")  # fmt: skip
    parser.add_argument("--part", default="1/1", metavar="I/N",
                        help="with --hours: only the I-th of N parts; results go to the cache")  # fmt: skip
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR",
                        help="with --folds: folder for decoded clips (default: .cache/detection)")  # fmt: skip
    parser.add_argument("--cost", action="store_true", help="only measure the cost of detection")
    parser.add_argument("--stills", type=Path, metavar="OUT.html|OUT.png",
                        help="write a sheet of missed fires and false alarms")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Score the folder; return 1 if a result misses its goal."""
    cv2.setNumThreads(1)
    if arguments.public:
        return _score_public(arguments)
    if arguments.folds and arguments.smoke:
        clips_of_all = [clip for folder in arguments.folder or all_folders(DATA) for clip in read_labels(folder)]
        outcomes = list(watch_all(clips_of_all, load_networks(arguments.networks), arguments.changed or ""))
        return report(outcomes, as_json=arguments.json)
    if arguments.folds:
        return _score_folds(arguments)
    labels = [clip for folder in arguments.folder or [FOLDER] for clip in read_labels(folder)]
    if arguments.cost:
        return _score_cost(labels, as_json=arguments.json)
    if arguments.stills and arguments.stills.suffix not in {".html", ".png"}:
        raise UserError(f"--stills {arguments.stills}: unknown suffix. Use .html or .png.")
    settings = Settings(
        build_camera_settings(CameraFleetSpec()), fps=arguments.fps, most=QUICK_SECONDS if arguments.quick else 0.0
    )
    clips, costs = [], {name: Cost() for name in COSTS}
    columns = (TextColumn("{task.description:32}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=arguments.json, transient=True) as progress:
        task = progress.add_task("", total=len(labels))
        for label in labels:
            progress.update(task, description=label.name)
            clips.append(score(label, settings, costs))
            progress.advance(task)
    results = summary(clips, costs)
    if arguments.stills:
        write_stills(arguments.stills, clips)
    if arguments.json:
        scores = [{key: value for key, value in asdict(clip).items() if key != "still"} for clip in clips]
        print(json.dumps({"clips": scores, "results": [asdict(result) for result in results]}, ensure_ascii=False))
    else:
        console = Console()
        console.print(_table(clips))
        console.print(results_table("detection", results))
    return 0 if all(result.ok for result in results) else 1


def _score_folds(arguments: argparse.Namespace) -> int:
    folders = arguments.folder or [FOLDER, DATA / "video2"]
    clips_of_all = [clip for folder in folders for clip in read_labels(folder)]
    if arguments.hours:
        return _score_day(clips_of_all, arguments)
    if arguments.smaller:
        return _score_smaller(clips_of_all, arguments)
    if arguments.calm:
        return _score_calm(clips_of_all, arguments)
    return score_folds(clips_of_all, arguments.cache, arguments.networks, as_json=arguments.json)


def _score_public(arguments: argparse.Namespace) -> int:
    if len(arguments.folder) != 1:
        raise UserError("--public: name one folder")
    settings = Settings(build_camera_settings(CameraFleetSpec()), fps=arguments.fps)
    columns = (TextColumn("{task.description:48}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=arguments.json, transient=True) as progress:
        task = progress.add_task("", total=None)
        return score_public(
            arguments.folder[0],
            settings,
            lambda text: progress.update(task, description=text),
            as_json=arguments.json,
        )


def _score_cost(labels: list[LabelledClip], *, as_json: bool) -> int:
    costs = {name: Cost() for name in COSTS}
    for label in labels:
        measure(sampled(frames(str(label.path))), costs)
    results = cost_results(costs)
    if as_json:
        print(json.dumps({"results": [asdict(result) for result in results]}, ensure_ascii=False))
    else:
        Console().print(results_table("cost of detection", results))
    return 0 if all(result.ok for result in results) else 1


def sampled(film: Iterable[tuple[bytes, float]]) -> list[tuple[bytes, float]]:
    """The first COST_FRAMES of `film`, as a camera of RATE frames/s sends them."""
    sample: list[tuple[bytes, float]] = []
    for data, seconds in film:
        if len(sample) == COST_FRAMES:
            break
        if not sample or seconds - sample[-1][1] >= 0.9 / RATE:
            sample.append((data, seconds))
    return sample


def _score_smaller(clips: list[LabelledClip], arguments: argparse.Namespace) -> int:
    networks, console = load_networks(arguments.networks), Console()
    with Progress(TextColumn("{task.description:64}"), TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        distant_fires = list(distant.watch_distant(clips, arguments.cache, networks,
                                           lambda text: progress.update(task, description=text)))  # fmt: skip
    console.print(results_table("fires made smaller, with and without close-ups", distant.results_of(distant_fires)))
    return 0


def _score_calm(clips: list[LabelledClip], arguments: argparse.Namespace) -> int:
    with Progress(TextColumn("{task.description:64}"), TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        pairs = list(calm.compare(clips, arguments.cache, lambda text: progress.update(task, description=text)))
    results = calm.results_of(pairs)
    Console().print(results_table("key frames only while calm, against all pictures", results))
    return 0 if all(result.ok for result in results) else 1


def _score_day(clips: list[LabelledClip], arguments: argparse.Namespace) -> int:
    number, _, count = arguments.part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f'--part "{arguments.part}" is not a part such as 1/4')
    networks = load_networks(arguments.networks)
    folder = arguments.cache / f"day-{arguments.hours:g}-{detection_digest(arguments.networks)}"
    day = watch_day(clips, arguments.cache, networks, arguments.hours, (int(number) - 1, int(count)), folder)
    results, console = results_of(day), Console()
    for (name, kind), times in sorted(day.alarms.items()):
        console.print(f"{name}: {times} x {kind}")
    console.print(results_table("false alarms over a day", results))
    return 0 if all(result.ok for result in results) else 1


def read_labels(folder: Path) -> list[LabelledClip]:
    """Read the labels of `folder`; UserError if they are unusable."""
    path = folder / "labels.json"
    try:
        labels = labelled_clips([folder])
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read: {error.strerror}. Name a folder of clips with labels.json."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f'{path} is not a list of {{"file", "label", "onset_s"}}: {error!r}') from error
    for label in labels:
        if not label.path.is_file():
            raise UserError(f"{path}: {label.name}: no such file in {folder}")
    return labels


def score(label: LabelledClip, settings: Settings, costs: Mapping[str, Cost]) -> Clip:
    """Play one clip to a camera; add its cost to `costs`."""
    best: tuple[float, bytes, float, Observation | None] = (-1.0, b"", 0.0, None)

    def note(data: bytes, seconds: float, observation: Observation | None) -> None:
        nonlocal best
        worth = (
            max((finding.lasted_ns + finding.score for finding in observation.findings), default=0.0)
            if observation
            else 0.0
        )
        if worth > best[0]:
            best = (worth, data, seconds, observation)

    try:
        replay = watch(str(label.path), settings, note)
    except SourceError as error:
        raise UserError(f"{label.path}: {error}") from error
    cost = measure(sampled(frames(str(label.path))), costs)
    alarms = [(alarm.time, alarm.kind.word) for alarm in replay.alarms]
    delay = max(0.0, alarms[0][0] - label.onset_s) if alarms else None
    verdict = _verdict(label, delay)
    why = replay.alarms[0].why if alarms else ""
    clip = Clip(label.name, label.label, replay.seconds, alarms, delay, verdict, why)
    clip.detect_ms, clip.decode_ms = cost.per_frame(cost.detect), cost.per_frame(cost.decode)
    if verdict not in {"ok", "-"}:
        clip.still = _still(*best[1:])
    return clip


def _verdict(label: LabelledClip, delay: float | None) -> str:
    if label.label == "negative":
        return "ok" if delay is None else "false alarm"
    if label.label == "ambiguous":
        return "-"
    if delay is None:
        return "missed" if label.label == "fire" else "-"
    return "ok" if delay <= WITHIN or label.label == "smoke" else "late"


def _still(data: bytes, seconds: float, observation: Observation | None) -> bytes:
    picture: DecodedImage = cv2.resize(decode(data, 1), STILL_SIZE)  # type: ignore[assignment]
    draw(picture, seconds, observation)
    return cv2.imencode(".jpg", picture)[1].tobytes()


def measure(sample: list[tuple[bytes, float]], costs: Mapping[str, Cost]) -> Cost:
    """Measure the CPU of detection and decoding of `sample`; add it, frame by frame, to the matching one of `costs`.

    Clips are short: the network's first inspection is delayed by the mean delay of a shard's cameras.
    """
    detector, network, total = Detector(phase=0.5), load_network(), Cost()
    scale, closer_scale, grey = 1, 1, None
    for number, (data, seconds) in enumerate(sample):
        if not number:
            height, width = decode(data, 1).shape[:2]
            scale, closer_scale = working_scale(width, height), reduction(width, height, CLOSER_SIDE)
        time_ns, began = START_NS + round(seconds * SECOND), time.thread_time()
        picture = decode(data, scale)
        decoded = time.thread_time()
        grey = floor(to_working_size(picture), grey)
        floored = time.thread_time()
        close_ups = detector.due_inspection(time_ns)
        place = detector.wanted_detail(time_ns) if closer_scale < scale else None
        requested = time.thread_time()
        closer = decode(data, closer_scale) if (has_close_up(close_ups) or place) and closer_scale < scale else None
        reduced = time.thread_time()
        if close_ups is not None:
            logits = network.logits(picture, close_ups, closer)
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        detail = cut(closer, place) if closer is not None and place else None
        observation = detector.detect(picture, time_ns, detail=detail)
        detecting = requested - floored + time.thread_time() - reduced
        cost = Cost(1, decoded - began, detecting, reduced - requested, floored - decoded)
        for sums in (total, costs[_occasion(observation, detailed=detail is not None)]):
            sums.add(cost)
    return total


def _occasion(observation: Observation, *, detailed: bool) -> str:
    """The one of COSTS that a picture belongs to."""
    if detailed:
        return "detail"
    if observation.suspected:
        return "suspect"
    return "quiet" if observation.motion <= QUIET_MOTION else "busy"


def floor(picture: DecodedImage, before: DecodedImage | None) -> DecodedImage:
    """The cheapest analysis of a picture: its grey, and the difference to the grey `before`, counted."""
    grey: DecodedImage = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)  # type: ignore[assignment]
    difference = cv2.absdiff(grey, grey if before is None else before)
    cv2.countNonZero(cv2.threshold(difference, 18, 255, cv2.THRESH_BINARY)[1])
    return grey


def summary(clips: list[Clip], costs: Mapping[str, Cost]) -> list[Result]:
    """The numbers with goals."""
    fires = [clip for clip in clips if clip.label == "fire"]
    smoke = [clip for clip in clips if clip.label == "smoke"]
    negatives = [clip for clip in clips if clip.label == "negative"]
    results = []
    if fires:
        share = 100 * sum(clip.verdict == "ok" for clip in fires) / len(fires)
        delays = [clip.delay for clip in fires if clip.delay is not None]
        results.append(Result("fire-within-5s", share, f"% of {len(fires)} clips", 0.0, 0.0, "≥ 95", share >= 95))
        middle = statistics.median(delays) if delays else float("inf")
        results.append(Result("fire-delay", middle, "s, median", 0.0, 0.0, f"≤ {WITHIN:g}", middle <= WITHIN))
    if smoke:
        share = 100 * sum(clip.delay is not None for clip in smoke) / len(smoke)
        results.append(
            Result("smoke-found", share, f"% of {len(smoke)} clips", 0.0, 0.0, "reported, not required", True)
        )
    if negatives:
        false = sum(clip.verdict == "false alarm" for clip in negatives)
        results.append(Result("false-alarm-clips", false, f"of {len(negatives)} clips", 0.0, 0.0, "0", not false))
        hours = sum(clip.seconds for clip in negatives) / 3600
        rate = sum(len(clip.alarms) for clip in negatives) / max(hours, 1e-9)
        results.append(Result("false-alarms", rate, f"per camera-hour, of {hours:.2f} h", 0.0, 0.0, "0", not rate))
    return [*results, *cost_results(costs)]


def cost_results(costs: Mapping[str, Cost]) -> list[Result]:
    """The cost of detection, relative to the floor."""
    results = []
    for name, most in COSTS.items():
        cost = costs[name]
        value, baseline = cost.per_frame(cost.detect), cost.per_frame(cost.floor)
        ratio = value / baseline if baseline else 0.0
        unit = (
            f"ms/frame of {cost.frames}, {cost.per_frame(cost.decode):.2f} to decode it, "
            f"{cost.per_frame(cost.closer):.2f} with more pixels; floor"
        )
        results.append(Result(f"cost-{name}", value, unit, baseline, ratio, f"≤ {most:g} x the floor", ratio <= most))
    if (detail := costs["detail"]).frames:
        share = DETAILS * RATE * (detail.detect + detail.closer) / detail.frames
        unit = f"% of a core, of {DETAILS} cameras with details, the most in a shard at a time"
        results.append(Result("details-of-a-shard", 100 * share, unit, 0.0, 0.0, "reported, not required", True))
    return results


def _table(clips: list[Clip]) -> Table:
    table = Table(title="clips", box=None)
    for heading, justify in (("", "left"), ("clip", "left"), ("label", "left"), ("s", "right"), ("alarms", "left"),
                             ("delay", "right"), ("ms/frame", "right"), ("decode", "right")):  # fmt: skip
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for clip in clips:
        alarms = ", ".join(f"{kind} {seconds:.1f}" for seconds, kind in clip.alarms)
        style = "" if clip.verdict in {"ok", "-"} else "bold red"
        delay = "" if clip.delay is None or clip.label == "negative" else f"{clip.delay:.1f}"
        table.add_row(clip.verdict, clip.file, clip.label, f"{clip.seconds:.1f}", alarms, delay,
                      f"{clip.detect_ms:.2f}", f"{clip.decode_ms:.2f}", style=style)  # fmt: skip
    return table


def write_stills(path: Path, clips: list[Clip]) -> None:
    """Write one sheet of all failed clips, each at its most suspicious moment."""
    wrong = [clip for clip in clips if clip.still]
    if path.suffix == ".html":
        figures = "".join(
            f'<figure><img src="data:image/jpeg;base64,{base64.b64encode(clip.still).decode()}" alt="">'
            f"<figcaption><b>{escape(clip.verdict)}</b> {escape(clip.file)} ({escape(clip.label)})<br>"
            f"{escape(clip.why)}</figcaption></figure>"
            for clip in wrong
        )
        style = "body{font:14px sans-serif}figure{display:inline-block;width:320px;vertical-align:top;margin:8px}"
        body = figures or "<p>No clip went wrong.</p>"
        path.write_text(f"<!doctype html><meta charset=utf-8><title>Confusion</title><style>{style}</style>{body}\n")
        return
    width, height = STILL_SIZE
    tiles: list[DecodedImage] = []
    for clip in wrong:
        tile = decode(clip.still, 1)
        text = f"{clip.verdict}: {clip.file}"
        cv2.putText(tile, text, (6, height - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1)
        tiles.append(tile)
    tiles += [np.zeros((height, width, 3), np.uint8)] * (-len(tiles) % COLUMNS or (0 if tiles else COLUMNS))
    rows = [np.hstack(tiles[start : start + COLUMNS]) for start in range(0, len(tiles), COLUMNS)]
    if not cv2.imwrite(str(path), np.vstack(rows)):
        raise UserError(f"--stills {path}: cannot be written")

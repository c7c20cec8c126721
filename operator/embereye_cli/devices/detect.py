"""Find fire in recordings and streams exactly as a camera shard does, and explain each detection."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from embereye.camera.annotate import Annotator
from embereye.camera.coco import CocoExport, CocoFolder
from embereye.camera.device.setup import AVAILABLE
from embereye.camera.recording import STREAM_SECONDS, Seen, Settings, watch
from embereye.camera.replay import Replay
from embereye.camera.sources.declared import SourceError, conceal, redact
from embereye.detect.vision.observation import Observation
from embereye.process.files import system_errors
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.units import counted
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Term
from embereye.zone.quiet import explain
from embereye.zone.sentences import quantity
from embereye_cli.parser import did_you_mean
from embereye_cli.terminal import Terminal
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings

SUFFIXES = (".avi", ".gif", ".m4v", ".mjpeg", ".mjpg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv")
MISSING = "does not exist. Name a video file, a folder or a stream."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye detect`."""
    parser.add_argument("sources", nargs="+", metavar="FILE|URL|FOLDER",
                        help="a video file, a folder of them, or a stream as a fleet names it")  # fmt: skip
    parser.add_argument("--detectors", default="", metavar="NAME,…",
                        help=f"detectors to run, of {', '.join(AVAILABLE)} (default: all)")  # fmt: skip
    parser.add_argument("--fps", type=float, default=0.0, metavar="N",
                        help="analyse N frames per second at most, as of a slower camera (default: 15 as in a fleet, "
                        "and all of them while fire is suspected)")  # fmt: skip
    parser.add_argument("--for", type=float, default=STREAM_SECONDS, dest="seconds", metavar="SECONDS",
                        help=f"seconds of a stream to analyse ({STREAM_SECONDS:g})")  # fmt: skip
    parser.add_argument(
        "--annotate", metavar="OUT.mp4", type=Path, help="write a video with the detections drawn into it"
    )
    parser.add_argument("--coco", metavar="FOLDER", type=Path,
                        help="add stills with boxes of the detections, in COCO format, to train a model")  # fmt: skip
    parser.add_argument("--no-fire", action="store_true",
                        help="with --coco: these recordings show no fire; their stills get no boxes")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Analyse every source. After all of them, return 5 if a file does not exist, or 2 if one could not be read."""
    import cv2

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # this command reports unreadable files itself
    settings = Settings(settings_of(arguments.detectors), _positive("--fps", arguments.fps, least=0), arguments.seconds)
    _positive("--for", arguments.seconds, least=0.001)
    sources = list(expand(arguments.sources))
    if arguments.annotate and len(sources) != 1:
        raise UserError(
            f"--annotate {arguments.annotate} needs exactly one recording, not {len(sources)}. Name one file."
        )
    if arguments.annotate and arguments.annotate.exists() and _is_same_file(sources[0], arguments.annotate):
        raise UserError(f"--annotate {arguments.annotate} is the recording itself. Name another file.")
    if arguments.no_fire and not arguments.coco:
        raise UserError("--no-fire works only with --coco: name a folder with it")
    coco = CocoFolder(arguments.coco) if arguments.coco else None
    code, results, console = 0, [], Terminal()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(sources), at="")
        for source in sources:
            progress.update(task, description=Path(redact(source)).name, at="")
            export = CocoExport(coco, fire=not arguments.no_fire) if coco else None
            result, why = _detect(source, settings, arguments.annotate, export, _shown_every_second(progress, task))
            results.append(result)
            progress.advance(task)
            for line in () if arguments.json or why else _lines(result):
                console.print(line, soft_wrap=True)
            if why:
                print(f"embereye: {redact(source)}: {why}", file=sys.stderr)
                code = code or (5 if why == MISSING else 2)
    if arguments.json:
        print(json.dumps(results, ensure_ascii=False))
    if coco:
        with system_errors(f"--coco {arguments.coco} cannot be written"):
            coco.save()
        print(f"{arguments.coco} now has {counted(coco.stills, 'still')}: check their boxes", file=sys.stderr)
    return code


def settings_of(detectors: str) -> CameraSettings:
    """A fleet's settings with `detectors`, separated by commas; UserError if one of them is unknown."""
    names = [name.strip() for name in detectors.split(",") if name.strip()]
    for name in names:
        if name not in AVAILABLE:
            hint = did_you_mean(name, AVAILABLE)
            raise UserError(f'--detectors: "{name}" is not one of {", ".join(AVAILABLE)}.{hint}')
    settings = build_camera_settings(CameraFleetSpec())
    settings.detectors[:] = names or AVAILABLE
    return settings


def _positive(option: str, value: float, least: float) -> float:
    if not least <= value < float("inf"):
        raise UserError(f"{option} {value:g} is not {'a positive number' if least else 'a number of 0 or more'}")
    return value


def _is_same_file(source: str, path: Path) -> bool:
    return Path(source).exists() and path.samefile(source)


def expand(sources: Iterable[str]) -> Iterator[str]:
    """Yield `sources`; instead of a folder, its videos by name. UserError for a folder without videos."""
    for source in sources:
        folder = Path(source)
        if not folder.is_dir():
            yield source
            continue
        with system_errors(f"{folder} cannot be read"):
            videos = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if not videos:
            raise UserError(f"{folder} has no video: no file ends in {', '.join(SUFFIXES)}")
        yield from map(str, videos)


def _detect(
    source: str, settings: Settings, annotate: Path | None, export: CocoExport | None, show_progress: Seen
) -> tuple[dict[str, Any], str]:
    """The result for one source as JSON, and the reason why it could not be read; empty if it was."""
    if "://" not in source and not source.startswith("push") and not Path(source).exists():  # a path to nothing
        return _unread(source, MISSING), MISSING
    annotator = Annotator(annotate) if annotate else None

    def pass_on(data: bytes, seconds: float, observation: Observation | None) -> None:
        show_progress(data, seconds, observation)
        if annotator:
            annotator.add(data, seconds, observation)
        if export:
            export.add(data, seconds, observation)

    try:
        replay = watch(source, settings, pass_on)
    except (SourceError, OSError, ValueError) as error:
        reason = visible(conceal(str(error), source))  # it may quote what a camera sent
        return _unread(source, reason), reason
    finally:
        if annotator:
            annotator.close()
    return as_json(redact(source), replay), ""


def _unread(source: str, reason: str) -> dict[str, Any]:
    """The result for a source that could not be read."""
    faults = [{"start": 0.0, "reason": reason}]
    return {
        "file": redact(source),
        "seconds": 0.0,
        "frames": 0,
        "detections": [],
        "alarms": [],
        "faults": faults,
        "nearest": [],
    }


def as_json(name: str, replay: Replay) -> dict[str, Any]:
    """The result for one recording, as it is printed."""
    return {
        "file": name,
        "seconds": round(replay.seconds, 3),
        "frames": replay.frames,
        "detections": [
            {
                "start": round(detection.start, 3),
                "kind": detection.kind.word,
                "level": detection.level.word,
                "score": round(detection.score, 3),
                "box": [round(value, 4) for value in detection.box] if detection.box else None,
                "why": [
                    {"name": term.name, "value": round(term.value, 4), "threshold": round(term.threshold, 4),
                     "unit": term.unit}
                    for term in detection.why
                ],
            }
            for detection in replay.detections
        ],
        "alarms": [
            {"time": round(alarm.time, 3), "kind": alarm.kind.word, "why": alarm.why} for alarm in replay.alarms
        ],
        "faults": [{"start": round(fault.start, 3), "reason": fault.reason} for fault in replay.faults],
        "nearest": [nearest.words for nearest in explain(replay.margins).nearest],
    }  # fmt: skip


def _shown_every_second(progress: Progress, task: Any) -> Seen:
    shown = -1

    def seen(data: bytes, seconds: float, observation: Observation | None) -> None:
        nonlocal shown
        if int(seconds) != shown:
            shown = int(seconds)
            progress.update(task, at=f"{shown} s")

    return seen


def _lines(result: dict[str, Any]) -> Iterator[Text]:
    alarms = ", ".join(f"{alarm['kind']} alarm at {alarm['time']:.1f} s" for alarm in result["alarms"])
    yield Text.assemble(
        (result["file"], "bold"), f"  {result['seconds']:.1f} s, {counted(result['frames'], 'frame')}: ",
        (alarms or "no alarm", "red" if alarms else "green"),
    )  # fmt: skip
    for detection in result["detections"]:
        x, y, width, height = (100 * value for value in detection["box"] or (0, 0, 0, 0))
        place = f"at {x:.0f},{y:.0f} % size {width:.0f}x{height:.0f} %" if detection["box"] else "everywhere"
        terms = ", ".join(_term(Term(**term)) for term in detection["why"])
        sign = f"{detection['kind']:5} {detection['level']:9} score {detection['score']:.2f}"
        yield Text(f"  {detection['start']:7.1f} s  {sign} {place}: {terms}")
    for words in () if alarms else result["nearest"]:
        yield Text(f"    nearest to an alarm: {words}", style="dim")
    for fault in result["faults"]:
        yield Text(f"  {fault['start']:7.1f} s  fault: {fault['reason']}", style="yellow")


def _term(term: Term) -> str:
    name = term.name.partition(".")[2]
    return f"{name} {quantity(term.value, term.unit)} ({quantity(term.threshold, term.unit)})"

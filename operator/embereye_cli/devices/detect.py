"""Look for fire in recordings and streams exactly as a camera shard does, and say what was seen and why."""

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
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.units import counted
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Term
from embereye.zone.sentences import quantity
from embereye_cli.terminal import Terminal
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings

SUFFIXES = (".avi", ".gif", ".m4v", ".mjpeg", ".mjpg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `embereye detect`."""
    parser.add_argument("sources", nargs="+", metavar="FILE|URL|FOLDER",
                        help="a video file, a folder of them, or a stream as a fleet names it")  # fmt: skip
    parser.add_argument("--detectors", default="", metavar="NAME,…",
                        help=f"which of {', '.join(AVAILABLE)} run (default: all)")  # fmt: skip
    parser.add_argument("--fps", type=float, default=0.0, metavar="N",
                        help="look as a camera of N frames/s would (default: all there are)")  # fmt: skip
    parser.add_argument("--for", type=float, default=STREAM_SECONDS, dest="seconds", metavar="SECONDS",
                        help=f"how long to look at a stream (default {STREAM_SECONDS:g})")  # fmt: skip
    parser.add_argument(
        "--annotate", metavar="OUT.mp4", type=Path, help="write a video with what is seen drawn into it"
    )
    parser.add_argument("--coco", metavar="FOLDER", type=Path,
                        help="add stills with boxes of what is seen, in COCO's form, to train a model")  # fmt: skip
    parser.add_argument("--no-fire", action="store_true",
                        help="with --coco: these recordings show no fire; their stills get no boxes")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Look at every source; 2 where one of them could not be read, after all the others."""
    import cv2

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(
        cv2.utils.logging.LOG_LEVEL_SILENT
    )  # files that cannot be read are reported in our own words
    settings = Settings(settings_of(arguments.detectors), _positive("--fps", arguments.fps, least=0), arguments.seconds)
    _positive("--for", arguments.seconds, least=0.001)
    sources = list(expand(arguments.sources))
    if arguments.annotate and len(sources) != 1:
        raise UserError(f"--annotate {arguments.annotate} takes one recording, not {len(sources)}: name one file")
    if arguments.annotate and arguments.annotate.exists() and _is_same_file(sources[0], arguments.annotate):
        raise UserError(f"--annotate {arguments.annotate} is the recording itself: name another file")
    if arguments.no_fire and not arguments.coco:
        raise UserError("--no-fire says what --coco exports: name a folder with --coco")
    coco = CocoFolder(arguments.coco) if arguments.coco else None
    failed, results, console = False, [], Terminal()
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
                failed = True
    if arguments.json:
        print(json.dumps(results, ensure_ascii=False))
    if coco:
        try:
            coco.save()
        except OSError as error:
            raise UserError(f"--coco {arguments.coco} cannot be written: {error.strerror}") from error
        print(f"{arguments.coco} holds {counted(coco.stills, 'still')}: look through their boxes", file=sys.stderr)
    return 2 if failed else 0


def settings_of(detectors: str) -> CameraSettings:
    """A fleet's settings with `detectors`, named with commas between; UserError where one of them is unknown."""
    names = [name.strip() for name in detectors.split(",") if name.strip()]
    for name in names:
        if name not in AVAILABLE:
            raise UserError(f'--detectors: "{name}" is not one of {", ".join(AVAILABLE)}')
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
    """`sources` with the videos of a folder, by name, in its place. UserError for a folder without any."""
    for source in sources:
        folder = Path(source)
        if not folder.is_dir():
            yield source
            continue
        try:
            videos = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror}") from error
        if not videos:
            raise UserError(f"{folder} holds no video: none of its files ends in {', '.join(SUFFIXES)}")
        yield from map(str, videos)


def _detect(
    source: str, settings: Settings, annotate: Path | None, export: CocoExport | None, seen: Seen
) -> tuple[dict[str, Any], str]:
    annotator = Annotator(annotate) if annotate else None

    def noted(data: bytes, seconds: float, observation: Observation | None) -> None:
        seen(data, seconds, observation)
        if annotator:
            annotator.add(data, seconds, observation)
        if export:
            export.add(data, seconds, observation)

    try:
        replay = watch(source, settings, noted)
    except (SourceError, OSError, ValueError) as error:
        empty = {"file": redact(source), "seconds": 0.0, "frames": 0, "detections": [], "alarms": []}
        reason = visible(conceal(str(error), source))  # a camera may have had a say in it
        return {**empty, "faults": [{"start": 0.0, "reason": reason}]}, reason
    finally:
        if annotator:
            annotator.close()
    return as_json(redact(source), replay), ""


def as_json(name: str, replay: Replay) -> dict[str, Any]:
    """What came of one recording, as it is printed."""
    return {
        "file": name,
        "seconds": round(replay.seconds, 3),
        "frames": replay.frames,
        "detections": [
            {
                "start": round(one.start, 3),
                "kind": one.kind.word,
                "level": one.level.word,
                "score": round(one.score, 3),
                "box": [round(value, 4) for value in one.box] if one.box else None,
                "why": [
                    {"name": term.name, "value": round(term.value, 4), "threshold": round(term.threshold, 4),
                     "unit": term.unit}
                    for term in one.why
                ],
            }
            for one in replay.detections
        ],
        "alarms": [
            {"time": round(alarm.time, 3), "kind": alarm.kind.word, "why": alarm.why} for alarm in replay.alarms
        ],
        "faults": [{"start": round(fault.start, 3), "reason": fault.reason} for fault in replay.faults],
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
    alarms = ", ".join(f"{one['kind']} alarm at {one['time']:.1f} s" for one in result["alarms"])
    yield Text.assemble(
        (result["file"], "bold"), f"  {result['seconds']:.1f} s, {counted(result['frames'], 'frame')}: ",
        (alarms or "no alarm", "red" if alarms else "green"),
    )  # fmt: skip
    for one in result["detections"]:
        x, y, width, height = (100 * value for value in one["box"] or (0, 0, 0, 0))
        where = f"at {x:.0f},{y:.0f} % size {width:.0f}x{height:.0f} %" if one["box"] else "everywhere"
        terms = ", ".join(_term(Term(**term)) for term in one["why"])
        yield Text(
            f"  {one['start']:7.1f} s  {one['kind']:5} {one['level']:9} score {one['score']:.2f} {where}: {terms}"
        )
    for one in result["faults"]:
        yield Text(f"  {one['start']:7.1f} s  fault: {one['reason']}", style="yellow")


def _term(term: Term) -> str:
    name = term.name.partition(".")[2]
    return f"{name} {quantity(term.value, term.unit)} ({quantity(term.threshold, term.unit)})"

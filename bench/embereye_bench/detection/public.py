"""Score detection on public sets in their own form: videos as the ONFIRE contest does, pictures of D-Fire.

The contest: every video has a text file of the same name, as .rtf or .txt, with the second at which fire or smoke
starts; it is empty, or missing, for a video without. A notification later than 5 s before the start is a true
positive, an earlier one, or one in a video without fire, is a false positive. The fire detection score multiplies
precision, recall and promptness, and is less for slow or large programs.

D-Fire: folders `images` and `labels`, the latter with a line for every box: class 0 is smoke, class 1 is fire. EmberEye
draws no boxes in single pictures, so precision, recall and average precision are those of pictures, not of boxes.
"""

import json
import re
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from embereye.camera.decode.shipped import load_network
from embereye.camera.recording import Settings, watch
from embereye.camera.sources.declared import SourceError
from embereye.detect.vision.networks.appearance import FOR_SMOKE
from embereye.process.lifecycle import UserError
from embereye_bench.report import Result, results_table

VIDEOS = {".mp4", ".avi", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".wmv", ".m4v"}
PICTURES = {".jpg", ".jpeg", ".png", ".bmp"}
TRUTHS = (".rtf", ".txt")

# The contest's constants: s, s, frames/s, GB.
EARLIEST, PROMPT, RATE_TARGET, MEMORY_TARGET = 5.0, 60.0, 10.0, 4.0
SMOKE, FIRE = 0, 1  # D-Fire's classes
CLASSES = {"fire": FIRE, "smoke": SMOKE}


@dataclass(frozen=True)
class Notified:
    """One video of the contest's form."""

    file: str
    start_s: float | None  # None: no fire
    notified_s: float | None  # None: no alarm

    @property
    def verdict(self) -> str:
        """One of "TP", "FP", "FN" and "TN"."""
        if self.notified_s is None:
            return "TN" if self.start_s is None else "FN"
        if self.start_s is None or self.notified_s < max(0.0, self.start_s - EARLIEST):
            return "FP"
        return "TP"


def is_pictures(folder: Path) -> bool:
    """True if `folder` has the form of D-Fire."""
    return (folder / "images").is_dir() and (folder / "labels").is_dir()


def score_public(folder: Path, settings: Settings, progress: Callable[[str], None], *, as_json: bool) -> int:
    """Score `folder`, print the figures, and return 0; UserError if it has neither form."""
    if is_pictures(folder):
        return _report([], picture_results(folder, progress), as_json=as_json)
    truths = {path.stem: path for suffix in TRUTHS for path in sorted(folder.rglob(f"*{suffix}"))}
    videos = sorted(path for path in folder.rglob("*") if path.suffix.lower() in VIDEOS)
    if not videos or not any(video.stem in truths for video in videos):
        raise UserError(
            f"{folder}: neither videos with text files of the same names, as of ONFIRE, nor folders images/ and "
            "labels/, as of D-Fire. Name the folder that has them."
        )
    rows, frames, busy = [], 0, 0.0
    for video in videos:
        progress(video.name)
        start = start_of(truths[video.stem].read_text(errors="replace")) if video.stem in truths else None
        began = time.process_time()
        try:
            replay = watch(str(video), settings)
        except SourceError as error:
            raise UserError(f"{video}: {error}") from error
        busy += time.process_time() - began
        frames += replay.frames
        rows.append(Notified(video.name, start, replay.alarms[0].time if replay.alarms else None))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return _report(rows, contest_results(rows, frames / max(busy, 1e-9), memory), as_json=as_json)


def start_of(text: str) -> float | None:
    """Return the second at which fire starts according to `text`, plain or RTF; None: there is no fire."""
    if text.lstrip().startswith("{\\rtf"):
        text = text.strip()[1:-1]
        while (fewer := re.sub(r"\{[^{}]*\}", "", text)) != text:
            text = fewer  # tables of fonts and colours
        text = re.sub(r"\\[a-z]+-?\d* ?|\\.", "", text)
    number = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return float(number[1]) if number else None


def contest_results(rows: Sequence[Notified], rate: float, memory: float) -> list[Result]:
    """Return the contest's figures; `rate` in frames/s of CPU time, `memory` in GB."""
    verdicts = [row.verdict for row in rows]
    true, false, missed = (verdicts.count(name) for name in ("TP", "FP", "FN"))
    precision, recall = true / max(1, true + false), true / max(1, true + missed)
    delays = [abs(row.notified_s - row.start_s) for row in rows
              if row.verdict == "TP" and row.notified_s is not None and row.start_s is not None]  # fmt: skip
    delay = sum(delays) / len(delays) if delays else PROMPT
    promptness = max(0.0, PROMPT - delay) / PROMPT
    slow, large = max(0.0, RATE_TARGET / rate - 1), max(0.0, memory / MEMORY_TARGET - 1)
    score = precision * recall * promptness / ((1 + slow) * (1 + large))
    return [
        _result("precision", precision, f"TP {true}, FP {false}"),
        _result("recall", recall, f"FN {missed}, TN {verdicts.count('TN')}"),
        _result("delay", delay, f"s, mean of {len(delays)}; normalised {promptness:.3f}"),
        _result("processing-rate", rate, f"frames/s of CPU time; at least {RATE_TARGET:g}"),
        _result("memory", memory, f"GB; at most {MEMORY_TARGET:g}"),
        _result("fire-detection-score", score, "1"),
    ]


def picture_results(folder: Path, progress: Callable[[str], None]) -> list[Result]:
    """Return precision, recall and average precision of pictures with fire, and of those with smoke."""
    network = load_network()
    odds, truth = [], []
    for path in sorted(path for path in (folder / "images").rglob("*") if path.suffix.lower() in PICTURES):
        progress(path.name)
        picture = cv2.imread(str(path))
        if picture is None:
            continue
        label = folder / "labels" / path.relative_to(folder / "images").with_suffix(".txt")
        lines = label.read_text().split("\n") if label.exists() else []
        classes = {line.split()[0] for line in lines if line.strip()}
        flame, whole, *_ = network.logits(np.asarray(picture, np.uint8), (FOR_SMOKE,))
        odds.append((whole, flame))  # in the order of D-Fire's classes
        truth.append((str(SMOKE) in classes, str(FIRE) in classes))
    if not odds:
        raise UserError(f"{folder / 'images'}: no pictures. Name the folder above images/ and labels/.")
    results, means = [], []
    for name, number in CLASSES.items():
        scores, shown = np.array(odds)[:, number], np.array(truth)[:, number]
        alarmed = scores > 0
        true = int((alarmed & shown).sum())
        means.append(average_precision(scores, shown))
        unit = f"of {int(shown.sum())} pictures with and {int((~shown).sum())} without"
        results += [
            _result(f"{name}-precision", true / max(1, int(alarmed.sum())), f"at even odds, {unit}"),
            _result(f"{name}-recall", true / max(1, int(shown.sum())), f"at even odds, {unit}"),
            _result(f"{name}-f1", 2 * true / max(1, int(alarmed.sum() + shown.sum())), f"at even odds, {unit}"),
            _result(f"{name}-average-precision", means[-1], unit),
        ]
    return [*results, _result("mean-average-precision", sum(means) / len(means), "of fire and smoke")]


def average_precision(scores: Sequence[float] | np.ndarray, shown: Sequence[bool] | np.ndarray) -> float:
    """Return the mean precision at each picture that shows the class, in falling order of `scores`."""
    sorted_truth = np.asarray(shown, bool)[np.argsort(-np.asarray(scores), kind="stable")]
    precision = np.cumsum(sorted_truth) / np.arange(1, len(sorted_truth) + 1)
    return float(precision[sorted_truth].mean()) if sorted_truth.any() else 0.0


def _result(name: str, value: float, unit: str) -> Result:
    return Result(name, value, unit, 0.0, 0.0, "reported, not required", True)


def _report(rows: Sequence[Notified], results: Sequence[Result], *, as_json: bool) -> int:
    if as_json:
        clips = [{**asdict(row), "verdict": row.verdict} for row in rows]
        print(json.dumps({"clips": clips, "results": [asdict(result) for result in results]}, ensure_ascii=False))
        return 0
    console = Console()
    if rows:
        table = Table("", "video", "start", "notified", title="videos", box=None)
        for row in rows:
            times = ("" if second is None else f"{second:.1f}" for second in (row.start_s, row.notified_s))
            table.add_row(row.verdict, row.file, *times)
        console.print(table)
    console.print(results_table("public set", results))
    return 0

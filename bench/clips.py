"""Runs the flame detector over labelled clips: per clip when it alarmed, in all how many it got right.

Usage: python bench/clips.py [--data FOLDER] [--cache FOLDER] [--terms] [NAME…]
FOLDER holds labels.json and the clips; each frame is coded as JPEG and decoded reduced, as a camera's would be.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from embereye.v1.types_pb2 import Level
from embereye.vision.detector import Detector, working_scale

REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
QUALITY = 85


def frames(path: Path) -> Iterator[np.ndarray]:
    video = cv2.VideoCapture(str(path))
    while True:
        ok, frame = video.read()
        if not ok:
            return
        scale = working_scale(frame.shape[1], frame.shape[0])
        coded = cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
        yield cv2.imdecode(coded, REDUCED[scale])


def load(path: Path, cache: Path | None) -> np.ndarray:
    if cache is None:
        return np.array(list(frames(path)))
    cache.mkdir(parents=True, exist_ok=True)
    stored = cache / f"{path.name}.npy"
    if not stored.exists():
        np.save(stored, np.array(list(frames(path))))
    return np.load(stored)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "video")
    parser.add_argument("--cache", type=Path, default=None, help="folder for decoded frames, to run again quickly")
    parser.add_argument("--every", type=int, default=1, help="look at every n-th frame only")
    parser.add_argument("--terms", action="store_true", help="print the terms at the highest held time")
    parser.add_argument("names", nargs="*", help="only clips whose name contains one of these")
    arguments = parser.parse_args()
    if not (arguments.data / "labels.json").exists():
        print(f"{arguments.data} has no labels.json: name the folder of the clips with --data", file=sys.stderr)
        return 2
    cv2.setNumThreads(1)
    counts: dict[tuple[str, bool], int] = {}
    delays, spent, total = [], 0.0, 0
    for clip in json.loads((arguments.data / "labels.json").read_text()):
        if arguments.names and not any(name in clip["file"] for name in arguments.names):
            continue
        pictures = load(arguments.data / clip["file"], arguments.cache)[:: arguments.every]
        detector, first, held, peak = Detector(), {}, -1.0, None
        began = time.process_time()
        for number, picture in enumerate(pictures):
            seconds = number * arguments.every / clip["fps"]
            seen = detector.detect(picture, 10**18 + int(seconds * 1e9))
            if seen.level not in first:
                first[seen.level] = seconds
            value = next((term.value for term in seen.terms if term.name == "flame.held"), 0.0)
            if value > held:
                held, peak = value, seen
        spent, total = spent + time.process_time() - began, total + len(pictures)
        alarmed = Level.LEVEL_ALARM in first
        counts[clip["label"], alarmed] = counts.get((clip["label"], alarmed), 0) + 1
        if clip["label"] == "fire" and alarmed:
            delays.append(first[Level.LEVEL_ALARM])
        verdict = " " if alarmed == (clip["label"] == "fire") else "!"
        when = " ".join(f"{first[level]:6.1f}" if level in first else "     -" for level in (2, 3))
        length = len(pictures) * arguments.every / clip["fps"]
        line = f"{verdict} {clip['label']:8s} {clip['file']:42s} {length:6.1f} s  pre/alarm {when}  held {held:4.1f}  "
        if arguments.terms and peak:
            line += " ".join(f"{term.name[6:]}={term.value:.2f}" for term in peak.terms)
        print(line)
    for label in ("fire", "negative", "smoke"):
        print(f"{label}: {counts.get((label, True), 0)} alarmed, {counts.get((label, False), 0)} not")
    if delays:
        print(f"alarm after {np.median(delays):.1f} s (median), {max(delays):.1f} s (worst)")
    print(f"{1e3 * spent / max(1, total):.2f} ms CPU a frame for detection, at one core")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

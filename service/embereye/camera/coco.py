"""Writes stills of recordings with boxes of what was seen, in COCO's form, for training a model of one's own.

Of a recording that shows a fire the boxes are the detectors' own, to be corrected by people; of one that shows none
the stills have no boxes: what was suspected there is what a model has to learn to leave alone.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from embereye.detect.vision.observation import Observation
from embereye.levels import Kind, Level
from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError
from embereye.wire.jpeg.header import JpegError, read_header

EVERY_S = 1.0  # between two stills of a time in which something is suspected
CALM_EVERY_S = 10.0  # … in which nothing is, of a recording without fire
CATEGORIES = {Kind.FLAME: 1, Kind.SMOKE: 2}
FILE = "annotations.json"


class CocoFolder:
    """A data set in `folder`: images/ and annotations.json, to which what is there already is not lost."""

    def __init__(self, folder: Path) -> None:
        """UserError where `folder` cannot be written, or holds annotations that cannot be read."""
        self._folder = folder
        self._images: dict[str, dict[str, Any]] = {}  # by file name
        self._boxes: dict[str, list[dict[str, Any]]] = {}  # likewise
        path = folder / FILE
        try:
            known = json.loads(path.read_bytes()) if path.exists() else {"images": [], "annotations": []}
            names = {image["id"]: image["file_name"] for image in known["images"]}
            self._images = {image["file_name"]: image for image in known["images"]}
            for box in known["annotations"]:
                self._boxes.setdefault(names[box["image_id"]], []).append(box)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is no data set in COCO's form: {error!r}; name another folder") from error
        try:
            (folder / "images").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--coco {folder} cannot be written: {error.strerror}") from error

    @property
    def stills(self) -> int:
        """How many there are."""
        return len(self._images)

    def add(self, data: bytes, seen: Observation | None, *, fire: bool) -> None:
        """Keep the JPEG `data` with what was `seen` in it, if it shows a `fire`. OSError where it cannot be written."""
        try:
            header = read_header(data)
        except JpegError:
            return
        name = f"{hashlib.sha256(data).hexdigest()[:20]}.jpg"
        if fire and name in self._images:
            return  # its boxes may have been corrected
        write_whole(self._folder / "images" / name, data, durable=False)
        self._images[name] = {"file_name": name, "width": header.width, "height": header.height}
        self._boxes[name] = []
        for finding in seen.findings if seen and fire else ():
            if finding.box and finding.level > Level.CLEAR and finding.kind in CATEGORIES:
                x, y, width, height = finding.box
                box = [x * header.width, y * header.height, width * header.width, height * header.height]
                self._boxes[name].append({
                    "category_id": CATEGORIES[finding.kind], "bbox": [round(side, 1) for side in box],
                    "area": round(box[2] * box[3], 1), "iscrowd": 0, "score": round(finding.score, 3),
                })  # fmt: skip

    def save(self) -> None:
        """Write the annotations, numbered anew. OSError where they cannot be written."""
        numbers = {name: number for number, name in enumerate(sorted(self._images), 1)}
        boxes = [(name, box) for name in numbers for box in self._boxes.get(name, ())]
        content = {
            "info": {"description": "stills of recordings, exported by embereye detect --coco"},
            "categories": [{"id": number, "name": kind.word} for kind, number in CATEGORIES.items()],
            "images": [{**self._images[name], "id": number} for name, number in numbers.items()],
            "annotations": [
                {**box, "id": number, "image_id": numbers[name]} for number, (name, box) in enumerate(boxes, 1)
            ],
        }
        write_whole(self._folder / FILE, json.dumps(content, indent=1).encode())


class CocoExport:
    """Chooses the stills of one recording."""

    def __init__(self, folder: CocoFolder, *, fire: bool) -> None:
        self._folder = folder
        self._fire = fire
        self._last: float | None = None

    def add(self, data: bytes, seconds: float, seen: Observation | None) -> None:
        """Keep the frame of the time `seconds` if it is due."""
        suspected = seen is not None and (seen.level > Level.CLEAR if self._fire else seen.suspected)
        if not suspected and self._fire:
            return
        if self._last is not None and seconds - self._last < (EVERY_S if suspected else CALM_EVERY_S):
            return
        self._last = seconds
        self._folder.add(data, seen, fire=self._fire)
